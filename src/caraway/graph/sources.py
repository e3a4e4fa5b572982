"""Sources and sinks of a dataset: how rows come in and go out, as plain data.

A source reads from a connector (`caraway.graph.connectors`): an external system and one table, topic, path or endpoint
in it.
"""

from dataclasses import dataclass
from enum import StrEnum

from caraway.dtypes.types import DataType
from caraway.expr.nodes import Node
from caraway.graph.connectors import Connector
from caraway.graph.functions import PythonFunction


class Cdc(StrEnum):
    """The ways in which the rows of a source are read."""

    APPEND = "append"
    UPSERT = "upsert"
    DEBEZIUM = "debezium"
    NATIVE = "native"

    @property
    def has_envelopes(self) -> bool:
        """True if rows are change envelopes: Debezium's own, or those that a reader makes of a system's log."""
        return self in {Cdc.DEBEZIUM, Cdc.NATIVE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """The value of a column of the payload; `path` has more than one part if the column is inside structs."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A value that all rows have, in stored form (docs/inside/records.md)."""

    value: object
    dtype: DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """An expression or a user's function over the payload; `schema` has the columns that it reads from there."""

    by: Node | PythonFunction
    schema: tuple[tuple[str, DataType], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSpec:
    """The share `rate` of the rows, by hash of the columns `using` (empty: the keys, else all but the time stamp)."""

    rate: float
    using: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpec:
    """A source of a dataset's rows.

    `preproc` has the fields that are made, in order; `where` is the condition that rows must meet. `since_us` and
    `until_us` bound the rows' event time, begin included, end excluded. Rows further ahead of the clock than
    `max_future_us` are refused.
    """

    connector: Connector
    cdc: Cdc
    disorder_us: int
    every_us: int | None = None
    since_us: int | None = None
    until_us: int | None = None
    env: tuple[str, ...] = ()
    preproc: tuple[tuple[str, Ref | Constant | Computed], ...] = ()
    where: Computed | None = None
    bounded: bool = False
    idleness_us: int | None = None
    sample: SampleSpec | None = None
    max_future_us: int | None = None


def distinct_sources(sources: tuple[SourceSpec, ...]) -> tuple[SourceSpec, ...]:
    """Return the sources that count: if a dataset names a connector twice, only the first one reads its records."""
    first: dict[Connector, SourceSpec] = {}
    for source in sources:
        first.setdefault(source.connector, source)
    return tuple(first.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSpec:
    """A sink of a dataset's rows."""

    connector: Connector
    cdc: Cdc | None = None
    every_us: int | None = None
    how: str | None = None
    create: bool = False
    renames: tuple[tuple[str, str], ...] = ()
    since_us: int | None = None
    until_us: int | None = None
    env: tuple[str, ...] = ()
