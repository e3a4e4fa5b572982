"""Tables of Redshift, read in the order of a cursor over Postgres's protocol.

A user with a password signs in, or a role of AWS, which gets a user and a password for each connection.
"""

from pkgutil import resolve_name
from typing import cast

from typing_extensions import override

from caraway.dataplane.addresses.names import name_parts
from caraway.dataplane.addresses.postgres_parameters import quote
from caraway.dataplane.sources.reader import SourceContext
from caraway.dataplane.sources.tables.cursor import CursorReader
from caraway.dataplane.sources.tables.database import TableShape
from caraway.dataplane.sources.tables.postgres import STATEMENT_S, PostgresTable
from caraway.errors import UnavailableError
from caraway.graph.connectors import TableConnector
from caraway.graph.systems import RedshiftSystem

ACCESS_OF_ROLE = "caraway.dataplane.warehouses.redshift:access_of_role"

_COLUMNS = """
SELECT column_name, data_type, is_nullable, udt_name FROM information_schema.columns
WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""
_TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s ORDER BY 1 LIMIT 20"


class RedshiftReader(CursorReader):
    """Reads a table of Redshift (`SourceReader`)."""

    def __init__(self, connector: TableConnector, context: SourceContext) -> None:
        """Prepare to read."""
        super().__init__(lambda: RedshiftTable(connector, context), connector, context)


class RedshiftTable(PostgresTable):
    """A table of Redshift (`Database`).

    Redshift doesn't enforce primary keys, so pages don't follow them: rows of equal keys would be missed.
    """

    now = "getdate()"

    def __init__(self, connector: TableConnector, context: SourceContext) -> None:
        """Prepare."""
        super().__init__(connector, context)
        system = connector.system
        assert isinstance(system, RedshiftSystem)  # noqa: S101 (the planner refuses others)
        parts = name_parts(connector.table, self._at)
        self._schema = parts[-2] if len(parts) > 1 else system.schema
        self._parts = (self._schema, parts[-1])

    @override
    def shape(self) -> TableShape:
        """Return the table's columns; see `Database.shape`."""
        with self._errors(), self._connected().cursor() as cursor:
            for parts in (self._parts, (self._parts[0].lower(), self._parts[1].lower())):
                if found := cursor.execute(_COLUMNS, list(parts)).fetchall():
                    self._table = ".".join(map(quote, parts))
                    break
            else:
                tables = ", ".join(name for (name,) in cursor.execute(_TABLES, [self._schema]))
                raise UnavailableError(
                    f"{self._at}: there is no table {self._parts[1]} in the schema {self._schema} that this user may "
                    f"see; tables: {tables or 'none'}"
                )
        columns = {
            name: self.column(name, shown, base, element=None, nullable=nullable == "YES")
            for name, shown, nullable, base in found
        }
        return TableShape(columns=columns, folds_case=True)

    @override
    def _of_jdbc(self) -> dict[str, object]:
        # Rows and a password mustn't cross a network in clear text, and a cluster always has TLS. An endpoint is the
        # operator's own route to the cluster, such as a tunnel on this machine, so TLS is only used there if it is
        # offered.
        return {} if self._system.name in self._context.endpoints else {"sslmode": "require"}

    @override
    def _login(self) -> tuple[str, str]:
        system = self._system
        if not isinstance(system, RedshiftSystem) or system.s3_access_role_arn is None:
            return super()._login()
        # The function's module imports the library of AWS, which only a role needs. So the module is loaded here.
        access = resolve_name(ACCESS_OF_ROLE)(system, system.s3_access_role_arn, self.where)
        return cast("tuple[str, str]", access)

    @override
    def _session(self) -> list[str]:
        return [f"SET statement_timeout TO {STATEMENT_S * 1000}", "SET TimeZone TO 'UTC'", "SET DateStyle TO 'ISO'"]
