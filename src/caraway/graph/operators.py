"""The operators of a pipeline: a frozen tree from its inputs to its output.

Schemas of the nodes are computed in `caraway.graph.schemas`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import get_args

from caraway.dtypes.types import DataType
from caraway.expr.nodes import Node
from caraway.graph.aggregates import AggregateSpec
from caraway.graph.functions import PythonFunction
from caraway.graph.windows import HoppingWindow, SessionWindow


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
class FilterFunction:
    """Rows for which a user's function of the frame returns true; null counts as false.

    `traced` is an equivalent expression, if one was found when the function was defined.
    """

    of: "Operator"
    function: PythonFunction
    traced: Node | None = None


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
class AssignFunction:
    """The input with one value column added or replaced, which a user's function computes from the frame.

    `traced` is an equivalent expression, if one was found when the function was defined; where it is null and `dtype`
    isn't optional, the function fails.
    """

    of: "Operator"
    column: str
    dtype: DataType
    function: PythonFunction
    traced: Node | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """Rows that a user's function computes from the frame, row by row.

    `columns` is the complete output schema, None: that of the input. Keys and time stamp don't change.
    """

    of: "Operator"
    function: PythonFunction
    columns: tuple[tuple[str, DataType], ...] | None = None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DropNull:
    """Rows without a null in the given columns, whose types are no longer optional."""

    of: "Operator"
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explode:
    """A row for each element of the given list columns, which are walked in lock-step; one with nulls if empty."""

    of: "Operator"
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Union:
    """The rows of both sides, duplicates kept; of equal time stamps the left ones come first."""

    left: "Operator"
    right: "Operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dedup:
    """The last row of each group of duplicates.

    Duplicates have equal `by` columns and, with no window, equal time stamps; with a hopping window (stride equal to
    length) they lie in one bucket; with a session window in one session.
    """

    of: "Operator"
    by: tuple[str, ...]
    window: HoppingWindow | SessionWindow | None = None


class JoinKind(StrEnum):
    """The treatment of a left row without a match."""

    INNER = "inner"
    LEFT = "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """As-of join with a keyed dataset: at the time of a keyless left row, at every time if the left side is keyed.

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
class First:
    """Keyed dataset of the oldest row of each group."""

    of: "Operator"
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """Keyed dataset of the newest row of each group."""

    of: "Operator"
    keys: tuple[str, ...]


class Emit(StrEnum):
    """The time at which an aggregate emits results: as they change, or once, when a window is complete."""

    EAGER = "eager"
    FINAL = "final"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """Aggregates over the rows of each group.

    `window` is that of the groupby: then the output has a key `window` and a row for each of its windows. `along` names
    the column that takes the place of the time stamp. If `by_clock` is set, discrete windows close by the clock as
    well, as if a row of no group came at every moment.
    """

    of: "Operator"
    keys: tuple[str, ...]
    aggregates: tuple[AggregateSpec, ...]
    window: HoppingWindow | SessionWindow | None = None
    along: str | None = None
    emit: Emit = Emit.EAGER
    by_clock: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Changelog:
    """The changes of a keyed input as keyless rows: keys become values, and `column` marks the operation.

    `column` is true on inserts if `marks_inserts`, else true on deletes.
    """

    of: "Operator"
    column: str
    marks_inserts: bool


# Operators whose every output row is an input row or is made from one input row, and has that row's identity
# (docs/inside/records.md).
RowByRow = (
    Filter | FilterFunction | Assign | AssignFunction | Transform | Select | Drop | DropNull | Rename | Dedup | First
)
Operator = Input | RowByRow | Explode | Union | Join | Latest | Aggregate | Changelog

OPERATOR_TYPES: tuple[type, ...] = get_args(Operator)
