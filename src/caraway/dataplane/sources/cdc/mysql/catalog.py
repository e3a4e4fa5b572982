"""The facts of a MySQL or MariaDB server about its binary log, and about a table whose changes are read from it."""

import re
from dataclasses import dataclass

from caraway.dataplane.sources.cdc.mysql.connection import Queries
from caraway.dataplane.sources.cdc.mysql.statements import TableName
from caraway.dataplane.sources.cdc.mysql.values import BINARY, UNICODE, Kinds, codec
from caraway.dataplane.sources.tables.mysql_connection import quote
from caraway.errors import UnavailableError

# The first versions whose logs can have the names of columns. Without these names, rows of the log can't be read.
LEAST_MARIADB, LEAST_MYSQL = (10, 5), (8, 0)
# The first MariaDB in which one collation may belong to several character sets.
SHARED_COLLATIONS = (10, 10)

_TABLE = """
SELECT table_schema, table_name, table_type, engine, table_rows FROM information_schema.tables
WHERE table_schema = %s AND table_name = %s
"""
_COLUMNS = """
SELECT column_name, data_type, column_type, character_set_name, extra, coalesce(generation_expression, '')
FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""
_KEY = """
SELECT column_name, sub_part FROM information_schema.statistics
WHERE table_schema = %s AND table_name = %s AND index_name = 'PRIMARY' ORDER BY seq_in_index
"""
# MariaDB stores JSON as text with a constraint, and this query finds JSON columns by their constraint.
_JSON = """
SELECT check_clause FROM information_schema.check_constraints
WHERE constraint_schema = %s AND table_name = %s AND check_clause LIKE 'json_valid(%%'
"""
_CASCADES = """
SELECT constraint_name FROM information_schema.referential_constraints
WHERE constraint_schema = %s AND table_name = %s
  AND (delete_rule IN ('CASCADE', 'SET NULL') OR update_rule IN ('CASCADE', 'SET NULL'))
"""
# Since `SHARED_COLLATIONS`, a collation of MariaDB has a number for each of its character sets, and only this table of
# information_schema has these numbers.
_CHARSETS_MARIADB = "SELECT id, character_set_name FROM information_schema.collation_character_set_applicability"
_CHARSETS = "SELECT id, character_set_name FROM information_schema.collations"

_NUMBERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "year"})
_TIMES = frozenset({"date", "datetime", "timestamp"})
_BINARY = frozenset({"binary", "varbinary"})
_TEXTS = frozenset({"char", "varchar"})
_IDS = frozenset({"uuid", "inet4", "inet6"})
# The types that columns of a primary key may have. A statement can state their values exactly, and their comparison has
# the order of the index.
_KEYS = _NUMBERS | _TIMES | _BINARY | _TEXTS | _IDS
_TYPES = _KEYS | {
    *("float", "double", "bit", "time", "enum", "set", "json"),
    *("tinyblob", "blob", "mediumblob", "longblob", "tinytext", "text", "mediumtext", "longtext"),
    *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
    *("geometrycollection", "geomcollection"),
}
_MEMBER = re.compile(r"'((?:[^']|'')*)'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table.

    Attributes:
        name: Its schema and its name.
        key: The columns of its primary key, and their types.
        columns: The columns that are read, and their types: "json" also for MariaDB's.
        kinds: The facts about its columns that the log lacks.
        rows: About how many rows it has.
    """

    name: TableName
    key: tuple[tuple[str, str], ...]
    columns: tuple[tuple[str, str], ...]
    kinds: Kinds
    rows: int

    @property
    def spelled(self) -> str:
        """The name in a statement."""
        return f"{quote(self.name.schema)}.{quote(self.name.table)}"

    @property
    def key_names(self) -> tuple[str, ...]:
        """The names of the columns of its key."""
        return tuple(name for name, _ in self.key)


def check_server(queries: Queries, schema: str) -> None:
    """Raise `UnavailableError` with the statement to run if the server doesn't log all that is needed."""
    where = queries.where
    info = str(queries.connection.get_server_info())  # type: ignore[no-untyped-call]
    version = _version(queries)
    least, product = (LEAST_MARIADB, "MariaDB") if queries.is_mariadb else (LEAST_MYSQL, "MySQL")
    if version < least:
        raise UnavailableError(f"{where}: this is {product} {info}; changes are captured since {least[0]}.{least[1]}")
    if queries.setting("log_bin") != "ON":
        raise UnavailableError(
            f"{where}: the server writes no binary log; add `log_bin` and a `server_id` to its configuration, "
            "and restart it"
        )
    needed = {"binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL"}
    if queries.is_mariadb:
        needed |= {"log_bin_compress": "OFF"}
    else:
        needed |= {"gtid_mode": "ON", "binlog_transaction_compression": "OFF", "binlog_row_value_options": ""}
    for name, value in needed.items():
        found = queries.setting(name)
        if found is not None and found != value:
            shown = value or "''"
            also = " (by the steps of the manual, with enforce_gtid_consistency)" if name == "gtid_mode" else ""
            raise UnavailableError(
                f"{where}: {name} is {found or 'empty'}; run `SET GLOBAL {name} = {shown}`{also}, and write it into "
                "the server's configuration; sessions that are open keep the old value until they connect again"
            )
    status = log_status(queries)
    only, ignored = (set(filter(None, str(part).split(","))) for part in status[2:4])
    if schema in ignored or (only and schema not in only):
        raise UnavailableError(
            f"{where}: the server doesn't log changes of {schema} (binlog_do_db, binlog_ignore_db); change its "
            "configuration"
        )
    # The list of prepared transactions isn't used here. It is queried because only that shows whether the user has the
    # right to read it.
    prepared(queries)


def prepared(queries: Queries) -> frozenset[str]:
    """Return the names of the transactions of XA that the server has as prepared."""
    rows = queries.all("XA RECOVER FORMAT = 'SQL'" if queries.is_mariadb else "XA RECOVER CONVERT XID")
    return frozenset(str(row[-1]) for row in rows)


def log_status(queries: Queries) -> tuple[str, int, str, str]:
    """Return the name of the log that is written, its end, and the databases that are, and aren't, logged."""
    # MySQL 8.2 gave this statement a new name, and MySQL 8.4 removed the old one.
    new = not queries.is_mariadb and _version(queries) >= (8, 2)
    rows = queries.all("SHOW BINARY LOG STATUS" if new else "SHOW MASTER STATUS")
    if not rows:
        raise UnavailableError(f"{queries.where}: the server writes no binary log; add `log_bin` to its configuration")
    file, end, only, ignored = rows[0][:4]
    return str(file), int(end), only or "", ignored or ""


def logs(queries: Queries) -> list[tuple[str, int]]:
    """Return the names and the sizes of the logs that the server still has."""
    return [(str(row[0]), int(row[1])) for row in queries.all("SHOW BINARY LOGS")]


def retention(queries: Queries) -> str:
    """Return, for people, how long the server keeps its logs."""
    seconds, days = queries.setting("binlog_expire_logs_seconds"), queries.setting("expire_logs_days")
    if seconds and seconds.isdecimal() and int(seconds):
        return f"binlog_expire_logs_seconds is {seconds}"
    return f"expire_logs_days is {days}" if days and days.strip("0.") else "somebody ran PURGE or RESET"


def table_of(queries: Queries, schema: str, table: str, texts: frozenset[str]) -> Table:
    """Return a table that can be captured; `texts` are the columns whose JSON stays text.

    Raises:
        UnavailableError: There is no such table, or its changes can't be captured; the text has the remedy.
    """
    where = queries.where
    rows = queries.all(_TABLE, schema, table)
    if not rows:
        raise UnavailableError(f"{where}: there is no table {schema}.{table} that this user may see")
    ((schema, table, kind, engine, estimate),) = rows
    label = f"{where}: table {schema}.{table}"
    if kind != "BASE TABLE":
        raise UnavailableError(f"{label} is a {str(kind).lower()}; only plain tables can be captured")
    if str(engine).casefold() != "innodb":
        raise UnavailableError(
            f"{label} is stored by {engine}, which has no snapshots; run `ALTER TABLE {table} ENGINE = InnoDB`"
        )
    native = queries.setting("innodb_native_foreign_keys")
    if (native is None or native == "ON") and (cascades := queries.all(_CASCADES, schema, table)):
        raise UnavailableError(
            f"{label}: rows that its foreign key {cascades[0][0]} changes by CASCADE or SET NULL aren't in the binary "
            "log; give the key NO ACTION, or give the source a cursor"
        )
    checks = {text for (text,) in queries.all(_JSON, schema, table)} if queries.is_mariadb else set()
    columns, bases, names, omitted = [], {}, {}, set()
    for name, base, shown, charset, extra, generated in queries.all(_COLUMNS, schema, table):
        if base not in _TYPES or "COMPRESSED" in str(shown).upper():
            raise UnavailableError(f"{label}: column {name} is of type {shown}, which can't be read from the log")
        if charset not in {None, BINARY} and codec(charset) is None:
            raise UnavailableError(
                f"{label}: column {name} has the character set {charset}, which can't be read from the log; run "
                f"`ALTER TABLE {table} CONVERT TO CHARACTER SET utf8mb4`"
            )
        bases[name] = "json" if f"json_valid({quote(name)})" in checks else base
        if generated or "GENERATED" in str(extra).upper().split(" ")[1:]:
            omitted.add(name)
            continue
        columns.append((name, bases[name]))
        if base in {"enum", "set"} and charset not in UNICODE:
            names[name] = [found.replace("''", "'") for found in _MEMBER.findall(shown)]
    key = queries.all(_KEY, schema, table)
    if not key:
        raise UnavailableError(
            f"{label} has no primary key, by which rows are told apart; run `ALTER TABLE {table} ADD PRIMARY KEY (...)`"
        )
    for name, part in key:
        if part is not None or bases[name] not in _KEYS or name in omitted:
            raise UnavailableError(f"{label}: column {name} is of type {bases[name]}, by which rows can't be ordered")
    ((folding,),) = queries.all("SELECT @@lower_case_table_names")
    is_new = queries.is_mariadb and _version(queries) >= SHARED_COLLATIONS
    collations = queries.all(_CHARSETS_MARIADB if is_new else _CHARSETS)
    return Table(
        name=TableName(schema, table, folds_case=bool(folding)),
        key=tuple((name, bases[name]) for name, _ in key),
        columns=tuple(columns),
        kinds=Kinds(
            bases=bases,
            names=names,
            texts=texts,
            omitted=frozenset(omitted),
            charsets={number: charset for number, charset in collations if number is not None},
        ),
        rows=int(estimate or 0),
    )


def _version(queries: Queries) -> tuple[int, ...]:
    info = str(queries.connection.get_server_info())  # type: ignore[no-untyped-call]
    # MariaDB puts "5.5.5-" before its own version, for replicas of old versions of MySQL.
    return tuple(int(part) for part in re.findall(r"\d+", info.removeprefix("5.5.5-"))[:2])
