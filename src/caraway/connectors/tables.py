"""Tables of databases and warehouses, and collections of MongoDB: read in the order of a cursor column."""

from typing import ClassVar

from caraway.connectors.data_connector import SINK_EVERY, DataConnector
from caraway.connectors.data_source import ExternalSource, named
from caraway.connectors.settings import Secretish
from caraway.errors import DefinitionAttributeError, DefinitionError, DefinitionTypeError
from caraway.graph.connectors import CaptureConnector
from caraway.graph.connectors import TableConnector as TableSpec
from caraway.graph.systems import (
    BigQuerySystem,
    MongoSystem,
    MySQLSystem,
    PostgresSystem,
    RedshiftSystem,
    SnowflakeSystem,
)
from caraway.integrations.aws import Secret

_TABLE = 'its table and cursor: use .table("...", cursor="...")'
_DATABASE = {"database": "db_name"}
# The kinds of databases that have a log from which changes can be read.
_LOGGED = {PostgresSystem.kind, MySQLSystem.kind}


class TableConnector(DataConnector):
    """A table. New and changed rows are those whose `cursor` is not below the greatest one that was read before.

    With cdc="native" and without a cursor, they are read from the log of the database instead.
    """

    data_source: ExternalSource
    polled: ClassVar = True
    _what: ClassVar = "table_name"

    def __init__(self, data_source: ExternalSource, table_name: str, cursor: str | None) -> None:
        super().__init__(data_source)
        where = f"{data_source.kind} {data_source.name}"
        self.table_name = named(where, self._what, table_name)
        if cursor is not None and not isinstance(cursor, str):
            raise DefinitionTypeError(f"{where}, {table_name}: cursor is the name of a column, not {cursor!r}")
        self.cursor = cursor
        self.writable = isinstance(data_source, Snowflake | Postgres)
        # Small transactions cost Postgres little, so changes are written as they come.
        self.sink_every = None if isinstance(data_source, Postgres) else SINK_EVERY

    def _inside(self) -> str:
        return f"table={self.table_name}"

    def check_sink(self, label: str) -> None:
        """Check that there is no cursor, which only a source has."""
        if self.cursor is not None:
            raise DefinitionError(f"{label}: a sink has no cursor; leave {self.cursor!r} out")

    def spec(self) -> TableSpec | CaptureConnector:
        """Return the table as a value."""
        if self.cdc == "native" and self.cursor is None and self.data_source.kind in _LOGGED:
            return CaptureConnector(system=self.data_source.stored_system(), table=self.table_name)
        return TableSpec(system=self.data_source.stored_system(), table=self.table_name, cursor=self.cursor or None)


class CollectionConnector(TableConnector):
    """A collection of MongoDB."""

    _what: ClassVar = "collection_name"


class Postgres(ExternalSource):
    """A database of a Postgres server. `jdbc_params` is `k=v` pairs joined with `&`."""

    host: str
    db_name: str
    username: Secretish
    password: Secretish
    port: int = 5432
    jdbc_params: str | None = None

    spec_class: ClassVar = PostgresSystem
    renamed: ClassVar = _DATABASE
    required_fields: ClassVar = _TABLE

    def table(self, table_name: str, cursor: str | None) -> TableConnector:
        """Return the table of this name, which may have its schema before it, read by `cursor`.

        With `cursor=None`, `@source` needs cdc="native": the changes are read from the log of the database. A sink has
        `cursor=None`, too.
        """
        return TableConnector(self, table_name, cursor)


class MySQL(ExternalSource):
    """A database of a MySQL server. `jdbc_params` is `k=v` pairs joined with `&`."""

    host: str
    db_name: str
    username: Secretish
    password: Secretish
    port: int = 3306
    jdbc_params: str | None = None

    spec_class: ClassVar = MySQLSystem
    renamed: ClassVar = _DATABASE
    required_fields: ClassVar = _TABLE

    def table(self, table_name: str, cursor: str | None) -> TableConnector:
        """Return the table of this name, which may have its schema before it, read by `cursor`.

        With `cursor=None`, `@source` needs cdc="native": the changes are read from the log of the database.
        """
        return TableConnector(self, table_name, cursor)


class Snowflake(ExternalSource):
    """A schema of a Snowflake database; `account` is the part before `.snowflakecomputing.com` in its host name."""

    account: str
    db_name: str
    username: Secretish
    password: Secretish
    warehouse: str
    schema: str
    role: str

    spec_class: ClassVar = SnowflakeSystem
    renamed: ClassVar = _DATABASE
    required_fields: ClassVar = _TABLE

    @property
    def src_schema(self) -> str:
        """The schema, under the API's second name for it."""
        return self.schema

    def table(self, table_name: str, cursor: str | None = None) -> TableConnector:
        """Return the table of this name: a source needs `cursor`, a sink has none."""
        return TableConnector(self, table_name, cursor)


class BigQuery(ExternalSource):
    """A BigQuery dataset; `service_account_key` is the JSON credential, read, or a secret."""

    project_id: str
    dataset_id: str
    service_account_key: dict[str, str] | Secret

    spec_class: ClassVar = BigQuerySystem
    required_fields: ClassVar = _TABLE

    def table(self, table_name: str, cursor: str) -> TableConnector:
        """Return the table of this name, read by `cursor`."""
        return TableConnector(self, table_name, cursor)


class Redshift(ExternalSource):
    """A schema of a Redshift database: opened by a role through S3, or by username and password."""

    db_name: str
    host: str
    schema: str
    port: int = 5439
    s3_access_role_arn: str | None = None
    username: Secretish | None = None
    password: Secretish | None = None

    spec_class: ClassVar = RedshiftSystem
    renamed: ClassVar = _DATABASE
    required_fields: ClassVar = _TABLE

    @property
    def src_schema(self) -> str:
        """The schema, under the API's second name for it."""
        return self.schema

    def table(self, table_name: str, cursor: str) -> TableConnector:
        """Return the table of this name, read by `cursor`.

        Raises:
            DefinitionAttributeError: The role and username or password are given both, or neither is in full.
        """
        if not self._registered:
            self._require_one_way_in()
        return TableConnector(self, table_name, cursor)

    def _require_one_way_in(self) -> None:
        if self.s3_access_role_arn and (self.username is not None or self.password is not None):
            raise DefinitionAttributeError(
                f"Redshift {self.name}: give s3_access_role_arn, or username and password, not both"
            )
        if not self.s3_access_role_arn and (self.username is None or self.password is None):
            raise DefinitionAttributeError(
                f"Redshift {self.name}: s3_access_role_arn, or both username and password, are missing"
            )


class Mongo(ExternalSource):
    """A database of a MongoDB cluster, found by its SRV record; with a port in `host`, one server."""

    host: str
    db_name: str
    username: Secretish
    password: Secretish

    spec_class: ClassVar = MongoSystem
    renamed: ClassVar = _DATABASE
    required_fields: ClassVar = 'its collection and cursor: use .collection("...", cursor="...")'

    def collection(self, collection_name: str, cursor: str) -> CollectionConnector:
        """Return the collection of this name, read by the field `cursor`."""
        return CollectionConnector(self, collection_name, cursor)
