"""Buckets of Google Cloud Storage, read by Google's own library.

pyarrow's file system isn't used: it lists no folder for which nobody has made an object of its own, and objects are
usually written without one, so it would pass over files.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from caraway.dataplane.sources.files.stored import FileStore, StoredFile, StoreFile, VanishedError, opened_object
from caraway.dtypes.instants import instant_us
from caraway.errors import UnavailableError, shortened

try:
    import google.auth
    from google.api_core.exceptions import Forbidden, GoogleAPIError, NotFound, Unauthorized
    from google.auth.credentials import AnonymousCredentials
    from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError
    from google.cloud.storage import Blob, Client
    from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
    from google.cloud.storage.retry import DEFAULT_RETRY
    from requests import RequestException
except ImportError as error:
    raise UnavailableError(
        "Google Cloud Storage is read by google-cloud-storage, which isn't installed: pip install caraway[gcs]"
    ) from error

# The seconds for which a connection and an answer are awaited, and those after which a failed request isn't repeated
# any more.
TIMEOUT_S = (10.0, 60.0)
RETRY = DEFAULT_RETRY.with_timeout(15.0)
SCOPE = "https://www.googleapis.com/auth/devstorage.read_only"
# The errors that the library raises if the headers of an answer were cut.
UNREADABLE = (AttributeError, LookupError, TypeError, ValueError)
# The properties of objects that a listing returns. Without the others, answers are small.
FIELDS = "items(name,size,updated),prefixes,nextPageToken"


class GoogleStore(FileStore):
    """A bucket."""

    def __init__(self, bucket: str, where: str, address: str | None) -> None:
        """Prepare to read.

        Args:
            bucket: The name of the bucket.
            where: The store, for people.
            address: The URL of an emulator, which is opened without credentials; None for Google.

        Raises:
            UnavailableError: The machine has no credentials for Google, or none that can be read.
        """
        super().__init__(bucket, where)
        self._address = address
        with self._translated(""):
            if address is None:
                credentials, project = google.auth.default(scopes=[SCOPE])
                options = None
            else:
                credentials, project, options = AnonymousCredentials(), None, {"api_endpoint": address}
            # Objects are read without a project, but the library wants one.
            self._client = Client(project or "none", credentials=credentials, client_options=options)
        self._bucket = self._client.bucket(bucket)

    def check(self) -> None:
        """Check that the bucket is there and may be listed; the right to look at the bucket itself isn't needed."""
        with self._translated(""):
            found = self._client.list_blobs(
                self._bucket, max_results=1, fields="items(name)", timeout=TIMEOUT_S, retry=RETRY
            )
            next(iter(found), None)

    def listed(self, folder: str) -> tuple[list[StoredFile], list[str]]:
        """Return the objects right in a folder, and the names of its subfolders; none if there is no such folder."""
        prefix = f"{folder}/" if folder else ""
        with self._translated(""):
            found = self._client.list_blobs(
                self._bucket, prefix=prefix, delimiter="/", fields=FIELDS, timeout=TIMEOUT_S, retry=RETRY
            )
            # An object whose name ends with a slash is a folder, as Google's console makes it.
            files = [_stored(blob) for blob in found if not blob.name.endswith("/")]
            folders = sorted(each[len(prefix) : -1] for each in found.prefixes)
        return files, [name for name in folders if name or folder]

    def find(self, path: str) -> StoredFile | None:
        """Return an object as it is now; None if there is none."""
        with self._translated(path):
            blob = self._bucket.get_blob(path, timeout=TIMEOUT_S, retry=RETRY)
        return None if blob is None else _stored(blob)

    def open(self, path: str) -> StoreFile:
        """Open an object for reading, and read no other generation of it. Raises `VanishedError` if it isn't there."""
        translated = partial(self._translated, path)
        with translated():
            blob = self._bucket.get_blob(path, timeout=TIMEOUT_S, retry=RETRY)
            if blob is None:
                raise VanishedError(path)

        def fetch(at: int, length: int) -> bytes:
            # `raw_download` returns bytes as they are stored. Otherwise, objects that are marked as compressed would be
            # decompressed.
            return bytes(
                blob.download_as_bytes(start=at, end=at + length - 1, raw_download=True, timeout=TIMEOUT_S, retry=RETRY)
            )

        return opened_object(int(blob.size), fetch, translated)

    @contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        where = f"{self.where}, {path}" if path else self.where
        try:
            yield
        except NotFound as error:
            if path:
                raise VanishedError(path) from error
            raise UnavailableError(f"{where} isn't there, or may not be seen; check the name of the bucket") from error
        except DefaultCredentialsError as error:
            raise UnavailableError(
                f"{where}: the server has no credentials for Google: {_line(error)} Set GOOGLE_APPLICATION_CREDENTIALS "
                "in the server's environment, or give its machine a service account"
            ) from error
        except (RefreshError, Unauthorized) as error:
            raise UnavailableError(
                f"{where}: Google refuses the credentials of the server: {_line(error)}; check the key of the service "
                "account that GOOGLE_APPLICATION_CREDENTIALS names, or that of the machine"
            ) from error
        except Forbidden as error:
            raise UnavailableError(
                f"{where} may not be read: {_line(error)}; give the server's identity the role Storage Object Viewer"
            ) from error
        except (RequestException, GoogleAuthError, GoogleAPIError, DataCorruption, InvalidResponse, OSError) as error:
            at = "" if self._address is None else f" at {self._address}"
            raise UnavailableError(f"{where} can't be read{at}: {_line(error)}") from error
        except UNREADABLE as error:
            at = "" if self._address is None else f" at {self._address}"
            raise UnavailableError(f"{where} can't be read{at}: an answer was cut or damaged") from error


def _stored(blob: Blob) -> StoredFile:
    return StoredFile(blob.name, int(blob.size), 0 if blob.updated is None else instant_us(blob.updated) * 1000)


def _line(error: Exception) -> str:
    return shortened(" ".join(str(error).split()))
