"""Iceberg: tables of a catalog. The API that Caraway follows has no such class."""

from typing import ClassVar

from caraway.connectors.data_connector import DataConnector
from caraway.connectors.data_source import ExternalSource, named
from caraway.connectors.settings import Secretish
from caraway.errors import DefinitionError
from caraway.graph.connectors import IcebergConnector as IcebergSpec
from caraway.graph.systems import IcebergSystem


class Iceberg(ExternalSource):
    """A catalog of Iceberg tables: a REST catalog (`uri` begins with http), or a database by SQLAlchemy's URL.

    Attributes:
        uri: The address of the catalog.
        warehouse: The place of the tables' files, or its name in a REST catalog.
        catalog: The name under which a database has the tables, if it isn't `name`.
        credential: `client_id:secret` of a REST catalog.
        token: A token of a REST catalog, instead of a credential.
        aws_access_key_id: The key of the S3 that the files are in, if the catalog hands none out and the server has
            none of its own.
        aws_secret_access_key: Its secret.
    """

    uri: Secretish
    warehouse: str | None = None
    catalog: str | None = None
    credential: Secretish | None = None
    token: Secretish | None = None
    aws_access_key_id: Secretish | None = None
    aws_secret_access_key: Secretish | None = None

    spec_class: ClassVar = IcebergSystem
    renamed: ClassVar = {"access_key_id": "aws_access_key_id", "secret_access_key": "aws_secret_access_key"}
    required_fields: ClassVar = 'its table: use .table("db.hives")'

    def table(self, table_name: str) -> "IcebergConnector":
        """Return the table of this name: its namespace and its own name, with dots between them.

        Raises:
            DefinitionError: The name is empty, or has no namespace.
            DefinitionTypeError: The name is no text.
        """
        return IcebergConnector(self, table_name)


class IcebergConnector(DataConnector):
    """A table of a catalog."""

    data_source: Iceberg
    polled: ClassVar = True
    writable = True

    def __init__(self, data_source: Iceberg, table_name: str) -> None:
        super().__init__(data_source)
        where = f"Iceberg {data_source.name}"
        self.table_name = named(where, "table_name", table_name)
        parts = table_name.split(".")
        if len(parts) < 2 or not all(parts):
            raise DefinitionError(f'{where}: a table has its namespace before its name, as "db.hives": {table_name!r}')

    def _inside(self) -> str:
        return f"table={self.table_name}"

    def spec(self) -> IcebergSpec:
        """Return the table as a value."""
        return IcebergSpec(system=self.data_source.stored_system(), table=self.table_name)
