"""The operators of a pipeline: a frozen tree from its inputs to its output.

Schemas of the nodes are computed in `caraway.graph.schemas`.
"""

from dataclasses import dataclass
from enum import StrEnum

from caraway.dtypes.types import DataType
from caraway.expr.nodes import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """The rows of a dataset, by name."""

    dataset: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Rows for which `predicate` is true."""

    of: "Operator"
    predicate: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedColumn:
    """One column of an `Assign`: its name, declared type and expression over the input."""

    name: str
    dtype: DataType
    expr: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """The input with value columns added or replaced; all expressions see the input."""

    of: "Operator"
    columns: tuple[AssignedColumn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Select:
    """Keys, time stamp and the given columns."""

    of: "Operator"
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """All but the given value columns."""

    of: "Operator"
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rename:
    """Columns renamed, one pair (old, new) after the other."""

    of: "Operator"
    pairs: tuple[tuple[str, str], ...]


class JoinKind(StrEnum):
    """What becomes of a left row without a match."""

    INNER = "inner"
    LEFT = "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """As-of join of a keyless left side with a keyed dataset, at the left row's time.

    `left_on[i]` is matched with the key `right_on[i]`. A match lies at most `within_low_us` before (None: no bound) and
    `within_high_us` after the left row's time, both inclusive. `fields` are the right columns that are added.
    """

    left: "Operator"
    right: str
    how: JoinKind
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    within_low_us: int | None
    within_high_us: int
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """Keyed dataset of the newest row of each group."""

    of: "Operator"
    keys: tuple[str, ...]


class AggregateFunction(StrEnum):
    """What an aggregate computes."""

    COUNT = "count"
    SUM = "sum"
    AVERAGE = "average"
    MIN = "min"
    MAX = "max"
    STDDEV = "stddev"


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateSpec:
    """One output column of an `Aggregate`.

    `window_us` is the length of a continuous window in microseconds, None for "forever". `of` is None for a plain
    count. `default` stands for an empty window (None: null); `dtype` is the type of the output column.
    """

    function: AggregateFunction
    into: str
    of: str | None
    window_us: int | None
    default: int | float | None
    dtype: DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """Aggregates over the rows of each group."""

    of: "Operator"
    keys: tuple[str, ...]
    aggregates: tuple[AggregateSpec, ...]


Operator = Input | Filter | Assign | Select | Drop | Rename | Join | Latest | Aggregate

OPERATOR_TYPES: tuple[type, ...] = (Input, Filter, Assign, Select, Drop, Rename, Join, Latest, Aggregate)
