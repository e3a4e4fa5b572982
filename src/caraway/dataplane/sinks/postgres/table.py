"""The table of a sink in Postgres: its columns, the statements that write it, and the values of its rows.

Statements are made of names that are quoted here, and of nothing else that comes from outside.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import orjson

from caraway.dataplane.addresses.postgres_parameters import quote
from caraway.dataplane.sinks.envelopes import Product
from caraway.dataplane.sinks.rows import TableRow, hash_column
from caraway.dtypes.instants import EPOCH, EPOCH_DAY
from caraway.dtypes.types import (
    DATETIME,
    BoolType,
    BytesType,
    DataType,
    DatetimeType,
    DateType,
    DecimalType,
    FloatType,
    IntType,
    OptionalType,
    StringType,
    base_type,
)
from caraway.dtypes.values import to_json
from caraway.graph.plan.model import SinkPlan

# The length of the longest possible name in Postgres, in bytes. Postgres truncates longer names without an error.
NAME_BYTES = 63
# The column of the staged rows that says whether a row is to be deleted. The table doesn't have it.
DELETED = "__caraway_deleted__"
POSITIONS = "caraway_positions"
DESCRIPTION = "Written by Caraway from the dataset {dataset}; changes by others are lost."


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of the table.

    Attributes:
        name: The name.
        type: The type.
        staged: The type of the column of staged rows, from which Postgres casts the value.
        nullable: True if there may be nulls.
        value: The function from the stored form of a value (docs/inside/records.md) to the one that is sent.
    """

    name: str
    type: str
    staged: str
    nullable: bool
    value: Callable[[Any], object]


def _column(name: str, dtype: DataType) -> Column:
    match base_type(dtype):
        case BoolType():
            found: tuple[str, str, Callable[[Any], object]] = ("boolean", "bool", _same)
        case IntType():
            found = ("bigint", "int8", _same)
        case FloatType():
            found = ("double precision", "float8", _same)
        case StringType():
            found = ("text", "text", _same)
        case BytesType():
            found = ("bytea", "bytea", _same)
        case DatetimeType():
            found = ("timestamp with time zone", "timestamptz", _instant)
        case DateType():
            found = ("date", "date", _day)
        case DecimalType():
            found = ("numeric", "numeric", Decimal)
        case _:
            shown = to_json(dtype)
            found = ("jsonb", "text", lambda value: orjson.dumps(shown(value)).decode())
    kind, staged, value = found
    return Column(name=name, type=kind, staged=staged, nullable=isinstance(dtype, OptionalType), value=value)


def _same(value: object) -> object:
    return value


def _instant(value: int) -> object:
    return EPOCH + timedelta(microseconds=value)


def _day(value: int) -> date:
    return EPOCH_DAY + timedelta(days=value)


class SinkTable:
    """The table of one sink."""

    def __init__(self, plan: SinkPlan, product: Product, schema: str, name: str) -> None:
        """Take the table `name` in `schema`, names as they are in the catalog."""
        self.schema, self.name = schema, name
        self.title = f"{quote(schema)}.{quote(name)}"
        self.positions = f"{quote(schema)}.{quote(POSITIONS)}"
        # In a statement with parameters, psycopg requires that a `%` in a name is doubled.
        self._positions = self.positions.replace("%", "%%")
        self.description = DESCRIPTION.format(dataset=plan.dataset.name)
        renames = dict(plan.sink.renames)
        record = plan.topic.schema
        fields = [(column.name, column.dtype) for column in record.columns] + [(record.timestamp, DATETIME)]
        self.columns = [_column(renames.get(field, field), dtype) for field, dtype in fields]
        self._hashed = not record.keys
        if self._hashed:
            hashed = Column(name=hash_column(product), type="text", staged="text", nullable=False, value=_same)
            self.columns.append(hashed)
            self.keys = [hashed]
        else:
            keys = {renames.get(key.name, key.name) for key in record.keys}
            self.keys = [column for column in self.columns if column.name in keys]
        self.staged_types = [*(column.staged for column in self.columns), "bool"]

    def values(self, row: TableRow) -> list[object]:
        """Return the values of a row in the order of the columns, and whether it is to be deleted.

        Raises:
            OverflowError: An instant or a day is one that Python doesn't have.
        """
        stored = [*row.row.values, row.row.time_us, *([row.hash] if self._hashed else [])]
        values = [
            None if value is None else column.value(value) for column, value in zip(self.columns, stored, strict=True)
        ]
        return [*values, row.deleted]

    def too_long(self) -> str:
        """Return the first name that Postgres would cut; empty if there is none."""
        names = [self.schema, self.name, *(column.name for column in self.columns)]
        return next((name for name in names if len(name.encode()) > NAME_BYTES), "")

    def create_statements(self) -> list[str]:
        """Return the statements that create the table."""
        columns = [
            f"{quote(column.name)} {column.type}{'' if column.nullable else ' NOT NULL'}" for column in self.columns
        ]
        keys = ", ".join(quote(key.name) for key in self.keys)
        # A primary key can't have nulls, so keys that may be null get a unique constraint that treats nulls as equal.
        # Postgres supports that since version 15.
        unique = "UNIQUE NULLS NOT DISTINCT" if any(key.nullable for key in self.keys) else "PRIMARY KEY"
        text = self.description.replace("'", "''")
        return [
            f"CREATE TABLE {self.title} ({', '.join(columns)}, {unique} ({keys}))",
            f"COMMENT ON TABLE {self.title} IS '{text}'",
        ]

    def create_positions_statement(self) -> str:
        """Return the statement that creates the table of positions."""
        return (
            f"CREATE TABLE IF NOT EXISTS {self.positions} "
            '("table" text PRIMARY KEY, sink text NOT NULL, positions jsonb NOT NULL, '
            "written_at timestamp with time zone NOT NULL)"
        )

    def insert_position(self) -> str:
        """Return the statement that adds the row of the table, unless it is there: parameters are table and sink."""
        return f"INSERT INTO {self._positions} VALUES (%s, %s, '{{}}', clock_timestamp()) ON CONFLICT DO NOTHING"  # noqa: S608 (names are quoted)

    def lock_position(self) -> str:
        """Return the query of sink and positions of the table, which locks them: the parameter is the table."""
        return f'SELECT sink, positions FROM {self._positions} WHERE "table" = %s FOR UPDATE'  # noqa: S608 (as above)

    def save_position(self) -> str:
        """Return the statement that replaces the position: parameters are positions as JSON, sink and table."""
        return (
            f"UPDATE {self._positions} SET positions = %s::jsonb, sink = %s, written_at = clock_timestamp() "  # noqa: S608 (as above)
            'WHERE "table" = %s'
        )

    def stage(self) -> str:
        """Return the statement that creates the temporary table of the rows of a batch."""
        columns = [f"{quote(column.name)} {column.staged}" for column in self.columns]
        return (
            f"CREATE TEMPORARY TABLE IF NOT EXISTS caraway_stage ({', '.join(columns)}, {quote(DELETED)} boolean) "
            "ON COMMIT DELETE ROWS"
        )

    def copy(self) -> str:
        """Return the statement that takes staged rows."""
        return "COPY caraway_stage FROM STDIN (FORMAT BINARY)"

    def merge(self) -> list[str]:
        """Return the statements that write the staged rows, and empty the temporary table."""
        same = " AND ".join(
            f"t.{quote(key.name)} {'IS NOT DISTINCT FROM' if key.nullable else '='} {_cast(key)}" for key in self.keys
        )
        names = ", ".join(quote(column.name) for column in self.columns)
        values = ", ".join(map(_cast, self.columns))
        keys = ", ".join(quote(key.name) for key in self.keys)
        changed = [f"{quote(column.name)} = EXCLUDED.{quote(column.name)}" for column in self.columns]
        gone = f"s.{quote(DELETED)}"
        put = (
            f"INSERT INTO {self.title} ({names}) SELECT {values} FROM caraway_stage s WHERE NOT {gone} "  # noqa: S608 (names are quoted)
            f"ON CONFLICT ({keys}) DO UPDATE SET {', '.join(changed)}"
        )
        return [
            f"DELETE FROM {self.title} t USING caraway_stage s WHERE {gone} AND {same}",  # noqa: S608 (as above)
            put,
            "DELETE FROM caraway_stage",
        ]

    def shape(self) -> Sequence[tuple[str, str, bool]]:
        """Return names and types of the columns and whether there may be nulls, as the catalog of Postgres has them."""
        return [(column.name, column.type, column.nullable) for column in self.columns]


def _cast(column: Column) -> str:
    name = f"s.{quote(column.name)}"
    return f"{name}::jsonb" if column.type == "jsonb" else name
