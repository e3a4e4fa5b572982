"""Files of the server's machine, and objects of Google Cloud Storage and Azure. The API that Caraway follows has none
of these; in all other respects they are like `S3`.
"""  # noqa: D205 (one sentence more than a line holds)

from pathlib import PurePosixPath
from typing import ClassVar

from caraway.connectors.data_source import ExternalSource
from caraway.connectors.s3 import CSV, StoredFiles
from caraway.connectors.settings import Secretish
from caraway.errors import DefinitionError
from caraway.graph.connectors import FilesConnector as FilesSpec
from caraway.graph.systems import AzureSystem, FilesSystem, GCSSystem

FORMATS = ("csv", "json", "parquet", "avro", "delta", "iceberg", "hudi")


class Files(ExternalSource):
    """Folders of the server's machine, of which it reads those in its setting `sources.local_folders`."""

    spec_class: ClassVar = FilesSystem
    required_fields: ClassVar = 'its folder: use .folder("/...", prefix="...")'

    def folder(
        self,
        folder_name: str,
        prefix: str | None = None,
        path: str | None = None,
        format: str | CSV | None = None,
        presorted: bool = False,
        spread: str | None = None,
    ) -> "FilesConnector":
        """Return the files of a folder, given by its absolute path; the other arguments are those of `S3.bucket`.

        Raises:
            DefinitionError: A folder, path, format or duration that isn't possible.
            DefinitionAttributeError: Not one of prefix and path, or a spread without path.
        """
        made = FilesConnector(self, "folder", folder_name, prefix, path, format, presorted, spread)
        if not PurePosixPath(folder_name).is_absolute():
            raise DefinitionError(f"Files {self.name}: the folder is an absolute path, not {folder_name!r}")
        return made


class GCS(ExternalSource):
    """Google Cloud Storage, opened as the server that reads: by the application default credentials of its machine."""

    spec_class: ClassVar = GCSSystem
    required_fields: ClassVar = 'its bucket: use .bucket("...", prefix="...")'

    def bucket(
        self,
        bucket_name: str,
        prefix: str | None = None,
        path: str | None = None,
        format: str | CSV | None = None,
        presorted: bool = False,
        spread: str | None = None,
    ) -> "FilesConnector":
        """Return the objects of a bucket; the arguments are those of `S3.bucket`.

        Raises:
            DefinitionError: A path, format or duration that isn't possible.
            DefinitionAttributeError: Not one of prefix and path, or a spread without path.
        """
        return FilesConnector(self, "bucket", bucket_name, prefix, path, format, presorted, spread)


class Azure(ExternalSource):
    """A storage account of Azure; opened by its key, or as the server that reads."""

    account_name: str
    account_key: Secretish | None = None

    spec_class: ClassVar = AzureSystem
    required_fields: ClassVar = 'its container: use .container("...", prefix="...")'

    def container(
        self,
        container_name: str,
        prefix: str | None = None,
        path: str | None = None,
        format: str | CSV | None = None,
        presorted: bool = False,
        spread: str | None = None,
    ) -> "FilesConnector":
        """Return the objects of a container; the other arguments are those of `S3.bucket`.

        Raises:
            DefinitionError: A path, format or duration that isn't possible.
            DefinitionAttributeError: Not one of prefix and path, or a spread without path.
        """
        return FilesConnector(self, "container", container_name, prefix, path, format, presorted, spread)


class FilesConnector(StoredFiles):
    """Files of a folder, or objects of a bucket or container."""

    data_source: Files | GCS | Azure
    formats: ClassVar = FORMATS
    structured: ClassVar = frozenset({"json", "avro"})

    def spec(self) -> FilesSpec:
        """Return the files as a value."""
        return FilesSpec(container=self.container_name, **self._stored())
