"""The facts in the catalog of a Postgres database about a table, its publication and its replication slot."""

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg

from caraway.dataplane.sources.cdc.postgres.connection import Connection, query, spelled
from caraway.errors import UnavailableError

# The first version whose pgoutput sends the messages of `pg_logical_emit_message`, which are the watermarks.
LEAST_VERSION = 140_000

_TABLE = """
SELECT c.oid, n.nspname, c.relname, c.relkind, c.relpersistence, c.relreplident,
       greatest(c.reltuples, (SELECT sum(greatest(p.reltuples, 0)) FROM pg_partition_tree(c.oid) t
                              JOIN pg_class p ON p.oid = t.relid WHERE t.isleaf))::bigint
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%s)
"""
_COLUMNS = """
SELECT attname, atttypid::bigint, format_type(atttypid, atttypmod)
FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
ORDER BY attnum
"""
_INDEXES = """
SELECT i.indisprimary, i.indisreplident,
       array(SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY k(number, place)
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
             WHERE k.place <= i.indnkeyatts ORDER BY k.place)
FROM pg_index i WHERE i.indrelid = %s AND (i.indisprimary OR i.indisreplident) AND i.indisvalid
"""
_SLOT = """
SELECT active, wal_status, confirmed_flush_lsn - '0/0'::pg_lsn, plugin, database = current_database()
FROM pg_replication_slots WHERE slot_name = %s
"""
_PUBLISHED = """
SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate, pubviaroot
FROM pg_publication WHERE pubname = %s AND (puballtables OR EXISTS (
    SELECT 1 FROM pg_publication_tables t WHERE t.pubname = %s AND t.schemaname = %s AND t.tablename = %s))
"""
_RIGHTS = """
SELECT rolsuper OR rolreplication OR EXISTS (
    SELECT FROM pg_roles r WHERE r.rolname LIKE '%%replication%%' AND pg_has_role(current_user, r.oid, 'member')
), rolname
FROM pg_roles WHERE rolname = current_user
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table.

    Attributes:
        oid: Its number.
        schema: Its schema.
        name: Its name.
        kind: "r", or "p" for one with partitions.
        identity: The replica identity: "d" (the primary key), "i" (an index), "f" (the full row), "n" (nothing).
        key: The columns that identify a row: those of the identity's index, or else the primary key.
        columns: The names, the types' OIDs and the types' names, without generated columns, which the log doesn't have.
        rows: About how many rows it has.
    """

    oid: int
    schema: str
    name: str
    kind: str
    identity: str
    key: tuple[str, ...]
    columns: tuple[tuple[str, int, str], ...]
    rows: int

    @property
    def spelled(self) -> str:
        """The name in a statement: with `ONLY`, unless its rows are those of its partitions."""
        return f"{'' if self.kind == 'p' else 'ONLY '}{quoted(self.schema)}.{quoted(self.name)}"


@dataclass(frozen=True, slots=True)
class Slot:
    """A replication slot: whether somebody reads it, whether its WAL is there, and from which LSN on."""

    active: bool
    status: str | None
    confirmed: int


def check_server(connection: Connection, where: str) -> None:
    """Raise `UnavailableError` if the server can't decode its log."""
    if connection.info.server_version < LEAST_VERSION:
        found = connection.info.server_version // 10_000
        raise UnavailableError(f"{where}: this is Postgres {found}; changes can be captured since Postgres 14")
    ((level, standby),) = query(connection, where, "SELECT current_setting('wal_level'), pg_is_in_recovery()")
    if standby:
        raise UnavailableError(f"{where}: this server is a standby; give the address of the primary")
    if level != "logical":
        raise UnavailableError(
            f"{where}: wal_level is {level}; run `ALTER SYSTEM SET wal_level = logical`, then restart Postgres"
        )


def table_of(connection: Connection, where: str, name: str) -> Table:
    """Return a table that can be captured, by its name as in SQL or as it is.

    Raises:
        UnavailableError: There is no such table, or its changes can't be captured; the text has the remedy.
    """
    rows = query(connection, where, _TABLE, ".".join(map(quoted, name.split("."))))
    if not rows and (rows := query(connection, where, _TABLE, name)) == []:
        raise UnavailableError(f"{where}: there is no table {name}, or the user may not use its schema")
    ((oid, schema, found, kind, persistence, identity, estimate),) = rows
    label = f'{where}: table "{schema}"."{found}"'
    if kind not in {"r", "p"}:
        raise UnavailableError(f"{label} is no table; views and foreign tables have no changes in the log")
    if persistence != "p":
        raise UnavailableError(f"{label} is unlogged or temporary, so its changes aren't in the log")
    indexes = query(connection, where, _INDEXES, oid)
    primary = next((columns for is_primary, _, columns in indexes if is_primary), None)
    chosen = next((columns for _, is_chosen, columns in indexes if is_chosen), None)
    key = chosen if identity == "i" and chosen else primary
    alter = f'`ALTER TABLE "{schema}"."{found}"'
    if identity == "n":
        raise UnavailableError(f"{label} has REPLICA IDENTITY NOTHING; run {alter} REPLICA IDENTITY DEFAULT` (or FULL)")
    if not key:
        raise UnavailableError(
            f"{label} has no primary key, by which rows are told apart; run {alter} ADD PRIMARY KEY (...)`"
        )
    return Table(
        oid=oid,
        schema=schema,
        name=found,
        kind=kind,
        identity=identity,
        key=tuple(key),
        columns=tuple(query(connection, where, _COLUMNS, oid)),
        rows=max(int(estimate or 0), 0),
    )


def slot_of(connection: Connection, where: str, name: str) -> Slot | None:
    """Return the slot of this name; None if there is none."""
    rows = query(connection, where, _SLOT, name)
    if not rows:
        return None
    ((active, status, confirmed, plugin, is_here),) = rows
    if plugin != "pgoutput" or not is_here:
        raise UnavailableError(f"{where}: the replication slot {name} belongs to another database or plugin")
    return Slot(active, status, int(confirmed or 0))


def is_published(connection: Connection, where: str, name: str, table: Table) -> bool:
    """Return whether a publication has all changes of a table.

    Raises `UnavailableError` if it has only some.
    """
    rows = query(connection, where, _PUBLISHED, name, name, table.schema, table.name)
    if rows and not rows[0][0]:
        raise UnavailableError(
            f"{where}: the publication {name} leaves changes out; run "
            f"`ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')`"
        )
    return bool(rows)


def publish(connection: Connection, where: str, name: str, table: Table) -> None:
    """Make the publication of a table. Raises `UnavailableError` with the statement, if the user may not do it."""
    made = f"CREATE PUBLICATION {name} FOR TABLE {table.spelled} WITH (publish_via_partition_root = true)"
    try:
        connection.execute(made.encode())
    except psycopg.errors.DuplicateObject:
        raise UnavailableError(
            f"{where}: the publication {name} lacks table {table.spelled}, which may have been dropped and made again; "
            f"run `ALTER PUBLICATION {name} SET TABLE {table.spelled}`"
        ) from None
    except psycopg.Error as error:
        raise UnavailableError(f"{where}: {spelled(error)}; let the owner of the table run `{made}`") from None


def check_rights(connection: Connection, where: str) -> None:
    """Raise `UnavailableError` if the user may not read the log.

    Managed Postgres grants the right by a role of its own, such as rds_replication.
    """
    rows = query(connection, where, _RIGHTS)
    if not rows[0][0]:
        raise UnavailableError(
            f"{where}: the user may not read the log; run `ALTER ROLE {quoted(rows[0][1])} REPLICATION` as an "
            "administrator (on managed Postgres, grant its role for replication)"
        )


def drop_slots(connection: Connection, where: str, slots: Sequence[str]) -> None:
    """Drop slots if they exist. Raises `UnavailableError` with the statements to run by hand."""
    by_name = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s"
    for slot in slots:
        try:
            connection.execute(by_name, (slot,))
        except psycopg.Error as error:
            raise UnavailableError(
                f"{where}: {spelled(error)}; if that goes on, run `SELECT pg_drop_replication_slot('{slot}')`, since "
                "Postgres keeps WAL for the slot"
            ) from None


def drop_publication(connection: Connection, where: str, name: str) -> None:
    """Drop a publication if it exists. Raises `UnavailableError` with the statement to run by hand."""
    statement = f"DROP PUBLICATION IF EXISTS {name}"
    try:
        connection.execute(statement.encode())
    except psycopg.Error as error:
        raise UnavailableError(f"{where}: {spelled(error)}; let its owner run `{statement}`") from None


def quoted(name: str) -> str:
    """Return a name as an identifier in a statement."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
