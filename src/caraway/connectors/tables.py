"""Tables of databases and warehouses, and collections of MongoDB: read in the order of a cursor column."""

import json
from collections.abc import Mapping
from typing import ClassVar

from caraway.connectors.data_connector import DataConnector
from caraway.connectors.data_source import DataSource, named
from caraway.connectors.settings import Secretish, stored, stored_if_given
from caraway.errors import DefinitionAttributeError, DefinitionTypeError
from caraway.graph.connectors import (
    BigQuerySystem,
    MongoSystem,
    MySQLSystem,
    PostgresSystem,
    RedshiftSystem,
    RegisteredSystem,
    SnowflakeSystem,
    SystemKind,
)
from caraway.graph.connectors import Secretish as StoredSecretish
from caraway.graph.connectors import TableConnector as TableSpec
from caraway.integrations.aws import Secret

TableSystem = PostgresSystem | MySQLSystem | SnowflakeSystem | BigQuerySystem | RedshiftSystem | MongoSystem
_TABLE = 'its table and cursor: use .table("...", cursor="...")'


class TableSource(DataSource):
    """A system that has tables."""

    def _system(self) -> TableSystem:
        raise NotImplementedError

    def stored_system(self) -> TableSystem | RegisteredSystem:
        """Return the system as a value."""
        return self._registered_system() or self._system()


class TableConnector(DataConnector):
    """A table. New and changed rows are those whose `cursor` is not below the greatest one that was read before."""

    data_source: TableSource
    polled: ClassVar = True
    _what: ClassVar = "table_name"

    def __init__(self, data_source: TableSource, table_name: str, cursor: str | None) -> None:
        super().__init__(data_source)
        where = f"{data_source.kind} {data_source.name}"
        self.table_name = named(where, self._what, table_name)
        if cursor is not None and not isinstance(cursor, str):
            raise DefinitionTypeError(f"{where}, {table_name}: cursor is the name of a column, not {cursor!r}")
        self.cursor = cursor

    def _inside(self) -> str:
        return f"table={self.table_name}"

    def spec(self) -> TableSpec:
        """Return the table as a value."""
        return TableSpec(system=self.data_source.stored_system(), table=self.table_name, cursor=self.cursor or None)


class CollectionConnector(TableConnector):
    """A collection of MongoDB."""

    _what: ClassVar = "collection_name"


class Postgres(TableSource):
    """A database of a Postgres server. `jdbc_params` is `k=v` pairs joined with `&`."""

    host: str
    db_name: str
    username: Secretish
    password: Secretish
    port: int = 5432
    jdbc_params: str | None = None

    kind: ClassVar = SystemKind.POSTGRES
    required_fields: ClassVar = _TABLE

    @staticmethod
    def get(name: str) -> "Postgres":
        """Return a reference to a database that was registered on the server."""
        return Postgres._reference(name)

    def table(self, table_name: str, cursor: str) -> TableConnector:
        """Return the table of this name, which may have its schema before it, read by `cursor`."""
        return TableConnector(self, table_name, cursor)

    def _system(self) -> PostgresSystem:
        return PostgresSystem(
            name=self.name,
            host=self.host,
            port=self.port,
            database=self.db_name,
            username=stored(self.username),
            password=stored(self.password),
            jdbc_params=self.jdbc_params,
        )


class MySQL(TableSource):
    """A database of a MySQL server. `jdbc_params` is `k=v` pairs joined with `&`."""

    host: str
    db_name: str
    username: Secretish
    password: Secretish
    port: int = 3306
    jdbc_params: str | None = None

    kind: ClassVar = SystemKind.MYSQL
    required_fields: ClassVar = _TABLE

    @staticmethod
    def get(name: str) -> "MySQL":
        """Return a reference to a database that was registered on the server."""
        return MySQL._reference(name)

    def table(self, table_name: str, cursor: str) -> TableConnector:
        """Return the table of this name, which may have its schema before it, read by `cursor`."""
        return TableConnector(self, table_name, cursor)

    def _system(self) -> MySQLSystem:
        return MySQLSystem(
            name=self.name,
            host=self.host,
            port=self.port,
            database=self.db_name,
            username=stored(self.username),
            password=stored(self.password),
            jdbc_params=self.jdbc_params,
        )


class Snowflake(TableSource):
    """A schema of a Snowflake database; `account` is the part before `.snowflakecomputing.com` in its host name."""

    account: str
    db_name: str
    username: Secretish
    password: Secretish
    warehouse: str
    schema: str
    role: str

    kind: ClassVar = SystemKind.SNOWFLAKE
    required_fields: ClassVar = _TABLE

    @property
    def src_schema(self) -> str:
        """The schema, under the API's second name for it."""
        return self.schema

    @staticmethod
    def get(name: str) -> "Snowflake":
        """Return a reference to a Snowflake that was registered on the server."""
        return Snowflake._reference(name)

    def table(self, table_name: str, cursor: str | None = None) -> TableConnector:
        """Return the table of this name: a source needs `cursor`, a sink has none."""
        return TableConnector(self, table_name, cursor)

    def _system(self) -> SnowflakeSystem:
        return SnowflakeSystem(
            name=self.name,
            account=self.account,
            database=self.db_name,
            username=stored(self.username),
            password=stored(self.password),
            warehouse=self.warehouse,
            schema=self.schema,
            role=self.role,
        )


class BigQuery(TableSource):
    """A BigQuery dataset; `service_account_key` is the JSON credential, read, or a secret."""

    project_id: str
    dataset_id: str
    service_account_key: dict[str, str] | Secret

    kind: ClassVar = SystemKind.BIGQUERY
    required_fields: ClassVar = _TABLE

    @staticmethod
    def get(name: str) -> "BigQuery":
        """Return a reference to a BigQuery that was registered on the server."""
        return BigQuery._reference(name)

    def table(self, table_name: str, cursor: str) -> TableConnector:
        """Return the table of this name, read by `cursor`."""
        return TableConnector(self, table_name, cursor)

    def _system(self) -> BigQuerySystem:
        return BigQuerySystem(
            name=self.name,
            project_id=self.project_id,
            dataset_id=self.dataset_id,
            service_account_key=stored_key(self.service_account_key),
        )


class Redshift(TableSource):
    """A schema of a Redshift database: opened by a role through S3, or by username and password."""

    db_name: str
    host: str
    schema: str
    port: int = 5439
    s3_access_role_arn: str | None = None
    username: Secretish | None = None
    password: Secretish | None = None

    kind: ClassVar = SystemKind.REDSHIFT
    required_fields: ClassVar = _TABLE

    @property
    def src_schema(self) -> str:
        """The schema, under the API's second name for it."""
        return self.schema

    @staticmethod
    def get(name: str) -> "Redshift":
        """Return a reference to a Redshift that was registered on the server."""
        return Redshift._reference(name)

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

    def _system(self) -> RedshiftSystem:
        return RedshiftSystem(
            name=self.name,
            host=self.host,
            port=self.port,
            database=self.db_name,
            schema=self.schema,
            s3_access_role_arn=self.s3_access_role_arn,
            username=stored_if_given(self.username),
            password=stored_if_given(self.password),
        )


class Mongo(TableSource):
    """A database of a MongoDB cluster, found by its SRV record; with a port in `host`, one server."""

    host: str
    db_name: str
    username: Secretish
    password: Secretish

    kind: ClassVar = SystemKind.MONGO
    required_fields: ClassVar = 'its collection and cursor: use .collection("...", cursor="...")'

    @staticmethod
    def get(name: str) -> "Mongo":
        """Return a reference to a database that was registered on the server."""
        return Mongo._reference(name)

    def collection(self, collection_name: str, cursor: str) -> CollectionConnector:
        """Return the collection of this name, read by the field `cursor`."""
        return CollectionConnector(self, collection_name, cursor)

    def _system(self) -> MongoSystem:
        return MongoSystem(
            name=self.name,
            host=self.host,
            database=self.db_name,
            username=stored(self.username),
            password=stored(self.password),
        )


def stored_key(key: Mapping[str, str] | Secret) -> StoredSecretish:
    """Return the key of a service account as a spec holds it: a secret, or JSON text."""
    return stored(key) if isinstance(key, Secret) else json.dumps(dict(key), sort_keys=True)
