"""Aggregate functions: their names, their traits, and the value that describes one aggregate of a pipeline.

`TRAITS` has a row for each function, with all facts in which functions differ from each other. The formulas are in
`caraway.compute.reference.aggregates` and `caraway.dataplane.index.aggregates`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Literal

from caraway.dtypes.types import DataType
from caraway.graph.windows import ContinuousWindow, HoppingWindow


class AggregateFunction(StrEnum):
    """The functions of aggregates; their traits are in `TRAITS`."""

    COUNT = "count"
    SUM = "sum"
    AVERAGE = "average"
    MIN = "min"
    MAX = "max"
    STDDEV = "stddev"
    VARIANCE = "variance"
    QUANTILE = "quantile"
    DISTINCT = "distinct"
    LAST_K = "last_k"
    FIRST_K = "first_k"
    EXP_DECAY_SUM = "exp_decay_sum"


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateSpec:
    """One output column of an `Aggregate`.

    `of` is None for a count that reads no column. `window` is None if the groupby has the window. `default` (stored
    form) stands for an empty window (None: null, or the empty value of the function). `dtype` is the type of the output
    column. The rest are parameters of some functions: `unique` of a count, `dropnull` of a count and of lists, `dedup`
    and `limit` of LastK and FirstK, `p` of Quantile, `half_life_us` of ExpDecaySum; `approx` licenses a sketch.
    """

    function: AggregateFunction
    into: str
    of: str | None
    window: ContinuousWindow | HoppingWindow | None
    default: object
    dtype: DataType
    unique: bool = False
    approx: bool = False
    dropnull: bool = False
    dedup: bool = False
    limit: int | None = None
    p: float | None = None
    half_life_us: int | None = None

    @property
    def window_us(self) -> int | None:
        """Length of a continuous window, None for "forever"; only aggregates with a continuous window may be asked."""
        if not isinstance(self.window, ContinuousWindow):
            raise TypeError(f"{self.into} is not over a continuous window: {self.window}")
        return self.window.length_us


class Takes(Enum):
    """The types of columns for which a function is defined; optionals of a type are taken as well as the type."""

    ANY = auto()
    HASHABLE = auto()
    # With the parameter `unique` the type must be hashable, without it any type will do.
    HASHABLE_IF_UNIQUE = auto()
    NUMBERS = auto()
    NUMBERS_AND_TIMES = auto()


class ResultType(Enum):
    """The rule for the type of a function's results. COLUMN is the type of the column that the function reads."""

    INT = auto()
    FLOAT = auto()
    COLUMN = auto()
    LIST_OF_COLUMN = auto()


class Keeps(Enum):
    """The data from which an index computes a function's results.

    ROWS is the number of rows, which every tile has. SUMS, SQUARES (which need the sums too) and BOUNDS are kept for
    each column of numbers. VALUES are the distinct values of a column and DECAYED_SUM is one sum for each half-life;
    tiles keep these two as extras. ENTRIES are the rows themselves.
    """

    ROWS = auto()
    SUMS = auto()
    SQUARES = auto()
    BOUNDS = auto()
    VALUES = auto()
    DECAYED_SUM = auto()
    ENTRIES = auto()


class ValueUse(Enum):
    """The use that a function makes of single values.

    FIRSTS and LASTS list the values, from the oldest or from the newest row on. COUNTED needs only the number of
    distinct values, NUMBERS the values in the order of numbers.
    """

    FIRSTS = auto()
    LASTS = auto()
    COUNTED = auto()
    NUMBERS = auto()


Parameter = Literal["unique", "approx", "dropnull", "dedup", "limit", "p", "half_life_us"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateTraits:
    """The facts that distinguish one aggregate function from the others.

    Attributes:
        takes: The types of columns for which the function is defined.
        result: The rule for the type of its results.
        keeps: The data from which an index computes it.
        values: Its use of single values; None if it computes from numbers of rows, sums or bounds only.
        values_if: The parameter that makes the function keep `Keeps.VALUES` in place of `keeps`; None if none does.
        default_if_unseen: The default stands for a key that was never seen too, and may be null, so that results are
            optional without a default. The default of other functions is a value for empty windows alone, and a key
            that was never seen reads as null.
        changes_while_read: The result depends on the time of the read even if no row comes or leaves the window.
        parameters: The attributes of an `AggregateSpec` that have a meaning for this function, beyond those that every
            function has.
    """

    takes: Takes
    result: ResultType
    keeps: Keeps
    values: ValueUse | None = None
    values_if: Literal["unique", "dedup"] | None = None
    default_if_unseen: bool = False
    changes_while_read: bool = False
    parameters: frozenset[Parameter] = frozenset()


TRAITS: Mapping[AggregateFunction, AggregateTraits] = {
    AggregateFunction.COUNT: AggregateTraits(
        takes=Takes.HASHABLE_IF_UNIQUE,
        result=ResultType.INT,
        keeps=Keeps.ROWS,
        values=ValueUse.COUNTED,
        values_if="unique",
        parameters=frozenset({"unique", "approx", "dropnull"}),
    ),
    AggregateFunction.SUM: AggregateTraits(takes=Takes.NUMBERS, result=ResultType.COLUMN, keeps=Keeps.SUMS),
    AggregateFunction.AVERAGE: AggregateTraits(
        takes=Takes.NUMBERS, result=ResultType.FLOAT, keeps=Keeps.SUMS, default_if_unseen=True
    ),
    AggregateFunction.MIN: AggregateTraits(
        takes=Takes.NUMBERS_AND_TIMES, result=ResultType.COLUMN, keeps=Keeps.BOUNDS, default_if_unseen=True
    ),
    AggregateFunction.MAX: AggregateTraits(
        takes=Takes.NUMBERS_AND_TIMES, result=ResultType.COLUMN, keeps=Keeps.BOUNDS, default_if_unseen=True
    ),
    AggregateFunction.STDDEV: AggregateTraits(
        takes=Takes.NUMBERS, result=ResultType.FLOAT, keeps=Keeps.SQUARES, default_if_unseen=True
    ),
    AggregateFunction.VARIANCE: AggregateTraits(
        takes=Takes.NUMBERS, result=ResultType.FLOAT, keeps=Keeps.SQUARES, default_if_unseen=True
    ),
    AggregateFunction.QUANTILE: AggregateTraits(
        takes=Takes.NUMBERS,
        result=ResultType.FLOAT,
        keeps=Keeps.VALUES,
        values=ValueUse.NUMBERS,
        default_if_unseen=True,
        parameters=frozenset({"p", "approx"}),
    ),
    AggregateFunction.DISTINCT: AggregateTraits(
        takes=Takes.HASHABLE,
        result=ResultType.LIST_OF_COLUMN,
        keeps=Keeps.VALUES,
        values=ValueUse.FIRSTS,
        parameters=frozenset({"dropnull"}),
    ),
    AggregateFunction.LAST_K: AggregateTraits(
        takes=Takes.ANY,
        result=ResultType.LIST_OF_COLUMN,
        keeps=Keeps.ENTRIES,
        values=ValueUse.LASTS,
        values_if="dedup",
        parameters=frozenset({"limit", "dedup", "dropnull"}),
    ),
    AggregateFunction.FIRST_K: AggregateTraits(
        takes=Takes.ANY,
        result=ResultType.LIST_OF_COLUMN,
        keeps=Keeps.ENTRIES,
        values=ValueUse.FIRSTS,
        values_if="dedup",
        parameters=frozenset({"limit", "dedup", "dropnull"}),
    ),
    AggregateFunction.EXP_DECAY_SUM: AggregateTraits(
        takes=Takes.NUMBERS,
        result=ResultType.FLOAT,
        keeps=Keeps.DECAYED_SUM,
        changes_while_read=True,
        parameters=frozenset({"half_life_us"}),
    ),
}


def kept_for(spec: AggregateSpec) -> Keeps:
    """Return the data from which an index computes an aggregate, with the parameters that it has."""
    traits = TRAITS[spec.function]
    if traits.values_if is not None and getattr(spec, traits.values_if):
        return Keeps.VALUES
    return traits.keeps


def defaults_if_unseen(aggregates: Iterable[AggregateSpec]) -> dict[str, object]:
    """Return the values, by output column, that a key which was never seen has; columns that are null aren't in it."""
    return {a.into: a.default for a in aggregates if TRAITS[a.function].default_if_unseen and a.default is not None}
