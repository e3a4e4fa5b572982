"""Containers of Azure's storage accounts, read by Microsoft's own libraries.

pyarrow's file system isn't used: it ends the process if a key can't be decoded, or if the machine has no identity with
which Azure could be asked.
"""

import base64
import binascii
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, cast
from urllib.parse import urlsplit

from caraway.dataplane.sources.files.stored import FileStore, StoredFile, StoreFile, VanishedError, opened_object
from caraway.dtypes.instants import instant_us
from caraway.errors import UnavailableError, shortened

try:
    from azure.core import MatchConditions
    from azure.core.exceptions import (
        AzureError,
        ClientAuthenticationError,
        HttpResponseError,
        ResourceModifiedError,
        ResourceNotFoundError,
        ServiceRequestError,
        ServiceResponseError,
    )
    from azure.identity import DefaultAzureCredential
    from azure.storage.blob import BlobPrefix, BlobProperties, ContainerClient
except ImportError as error:
    raise UnavailableError(
        "Azure is read by azure-storage-blob and azure-identity, which aren't installed: pip install caraway[azure]"
    ) from error

# The seconds for which a connection and bytes of an answer are awaited.
CONNECT_S, READ_S = 10, 60
# The number of retries of a request, and the base of the pauses before them, in seconds. The library adds 3, 9 and 27
# seconds to the base, and varies each pause by up to three seconds.
RETRIES, PAUSE_S = 3, 1
REFUSED = (401, 403)
# By default the libraries log each request and each answer, with all headers.
logging.getLogger("azure").setLevel(logging.WARNING)
# The errors that the library raises if the headers of an answer were cut.
UNREADABLE = (AttributeError, LookupError, TypeError)


class AzureStore(FileStore):
    """A container of a storage account."""

    def __init__(self, container: str, where: str, address: str, key: str | None) -> None:
        """Prepare to read.

        Args:
            container: The name of the container.
            where: The store, for people.
            address: The URL of the storage account.
            key: The key of the account; None to be the identity of the server's machine.

        Raises:
            UnavailableError: The key isn't one, or an identity would be sent without TLS.
        """
        super().__init__(container, where)
        self._address = address
        self._has_key = key is not None
        if key is not None and not _is_base64(key):
            raise UnavailableError(f"{where}: account_key isn't the key of a storage account, which is text in base64")
        if key is None and urlsplit(address).scheme != "https":
            raise UnavailableError(
                f"{where}: {address} isn't HTTPS, so the server doesn't show its identity there; give account_key"
            )
        self._client = ContainerClient(
            address,
            container,
            credential=DefaultAzureCredential() if key is None else key,
            connection_timeout=CONNECT_S,
            read_timeout=READ_S,
            retry_total=RETRIES,
            initial_backoff=PAUSE_S,
        )

    def check(self) -> None:
        """Check that the container is there and may be listed."""
        with self._translated(""):
            next(islice(self._client.list_blob_names(results_per_page=1), 1), None)

    def listed(self, folder: str) -> tuple[list[StoredFile], list[str]]:
        """Return the blobs right in a folder, and the names of its subfolders; none if there is no such folder."""
        prefix = f"{folder}/" if folder else ""
        files: list[StoredFile] = []
        folders: list[str] = []
        with self._translated(""):
            for found in self._client.walk_blobs(prefix or None, include=["metadata"], delimiter="/"):
                if isinstance(found, BlobPrefix):
                    folders.append(found.name[len(prefix) : -1])
                elif not _is_folder(found):
                    files.append(_stored(found))
        return files, [name for name in folders if name or folder]

    def find(self, path: str) -> StoredFile | None:
        """Return a blob as it is now; None if there is none."""
        try:
            found = self._properties(path)
        except VanishedError:
            return None
        return None if _is_folder(found) else _stored(found)

    def open(self, path: str) -> StoreFile:
        """Open a blob for reading, and read no other version of it. Raises `VanishedError` if it isn't there."""
        properties = self._properties(path)
        blob = self._client.get_blob_client(path)

        def fetch(at: int, length: int) -> bytes:
            answer = blob.download_blob(
                at, length, etag=properties.etag, match_condition=MatchConditions.IfNotModified, max_concurrency=1
            )
            return answer.readall()

        return opened_object(int(properties.size), fetch, partial(self._translated, path))

    def _properties(self, path: str) -> BlobProperties:
        with self._translated(path):
            found: Any = self._client.get_blob_client(path).get_blob_properties()
            # If the headers of an answer were cut, the library doesn't raise an error, but returns properties that are
            # None.
            if found.size is None or found.last_modified is None or found.etag is None:
                raise OSError("the answer has no properties; the connection was probably cut")
            return cast("BlobProperties", found)

    @contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        where = f"{self.where}, {path}" if path else self.where
        try:
            yield
        except (ResourceNotFoundError, ResourceModifiedError) as error:
            if path:
                raise VanishedError(path) from error
            raise UnavailableError(
                f"{where} isn't there, or may not be seen; check the names of the account and of the container"
            ) from error
        except (ServiceRequestError, ServiceResponseError) as error:
            raise UnavailableError(f"{where} can't be read at {self._address}: {_line(error)}") from error
        except (AzureError, OSError, ValueError) as error:
            if isinstance(error, ClientAuthenticationError) or getattr(error, "status_code", None) in REFUSED:
                remedy = (
                    "check account_name and account_key"
                    if self._has_key
                    else "give account_key, or give the machine an identity with the role Storage Blob Data Reader"
                )
                raise UnavailableError(f"{where} refuses the server: {_line(error)}; {remedy}") from error
            raise UnavailableError(f"{where} can't be read at {self._address}: {_line(error)}") from error
        except UNREADABLE as error:
            raise UnavailableError(f"{where} can't be read at {self._address}: an answer was cut or damaged") from error


def _is_base64(key: str) -> bool:
    try:
        return bool(base64.b64decode(key, validate=True))
    except (binascii.Error, ValueError):
        return False


def _is_folder(found: BlobProperties) -> bool:
    """Return whether a blob stands for a folder, as accounts with a hierarchy of folders have them."""
    # By the library's types, this is always a dict. But a blob of a listing may have None.
    metadata: Any = found.metadata
    return str((metadata or {}).get("hdi_isfolder", "")).lower() == "true"


def _stored(found: BlobProperties) -> StoredFile:
    return StoredFile(str(found.name), int(found.size), instant_us(found.last_modified) * 1000)


def _line(error: Exception) -> str:
    """Return what Azure says, without the identities of requests, which make every message another one."""
    message = error.message if isinstance(error, HttpResponseError) else str(error)
    return shortened(str(message).strip().partition("\n")[0])
