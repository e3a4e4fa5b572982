"""Aggregates, which `groupby(...).aggregate(...)` computes for each group."""

import dataclasses
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any, ClassVar, Self

from caraway.datasets.fields import Field
from caraway.datasets.windows import window_spec
from caraway.dtypes.durations import parse_duration
from caraway.dtypes.types import DATE, DATETIME, FLOAT, INT, DecimalType, base_type
from caraway.dtypes.values import cast
from caraway.dtypes.windows import Continuous, Hopping, Tumbling
from caraway.errors import DefinitionError, DefinitionTypeError, InvalidInputError, quoted
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.schemas import Schema, column_of, output_type

# The names that users import from `caraway.datasets` or from `caraway.lib.aggregate`, which import them from here.
__all__ = [
    "AggregateType",
    "Average",
    "Count",
    "Distinct",
    "ExpDecaySum",
    "FirstK",
    "LastK",
    "Max",
    "Min",
    "Quantile",
    "Stddev",
    "Sum",
    "Variance",
]

Default = int | float | Decimal | date | datetime | None
Column = str | Field


@dataclass(frozen=True, kw_only=True)
class AggregateType:
    """Base of the aggregates. `into_field` is the output column, given by keyword in `aggregate(column=...)`."""

    window: Continuous | Hopping | Tumbling | None = None
    into_field: str = ""

    function: ClassVar[AggregateFunction]

    def __new__(cls, *args: object, **named: object) -> Self:
        """Raise `DefinitionError` for wrong parameters, before the dataclass raises a TypeError."""
        name, fields = cls.__name__, {f.name: f for f in dataclasses.fields(cls)}
        if args:
            raise DefinitionError(f"{name}: parameters go by name: {', '.join(fields)}; not {args[0]!r}")
        if unknown := [given for given in named if given not in fields]:
            raise DefinitionError(f"{name}: unknown parameter {', '.join(unknown)}; parameters: {', '.join(fields)}")
        needed = [f.name for f in fields.values() if f.default is dataclasses.MISSING]
        if missing := [field for field in needed if field not in named]:
            raise DefinitionError(f"{name}: parameter {', '.join(missing)} is missing; needed: {', '.join(needed)}")
        return super().__new__(cls)

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]:
        return (), vars(self)

    def __post_init__(self) -> None:
        window = self.window
        if window is not None and not isinstance(window, (Continuous, Hopping, Tumbling)):
            raise self.refusal(f"the window is Continuous, Hopping or Tumbling, not {window!r}")
        if not isinstance(self.into_field, (str, Field)):
            raise self.refusal(f"into_field is the name of a column, not {self.into_field!r}")
        object.__setattr__(self, "into_field", str(self.into_field))
        of = getattr(self, "of", None)
        if of is not None:
            if not isinstance(of, (str, Field)) or not str(of):
                raise self.refusal(f"of is the name of a column, not {of!r}")
            object.__setattr__(self, "of", str(of))

    def refusal(self, problem: str) -> DefinitionError:
        """Return the error for a wrong parameter."""
        return DefinitionError(f"{self.label()}: {problem}")

    def label(self) -> str:
        """Return the aggregate for messages, with its output and its column as far as they are known."""
        into = f"{self.into_field} = " if self.into_field else ""
        of = getattr(self, "of", None)
        return f"{into}{type(self).__name__}({'' if of is None else f'of={of}'})"

    def to_spec(self, before: Schema) -> AggregateSpec:
        """Return the aggregate over an input of this schema as a value."""
        name = type(self).__name__
        if not self.into_field:
            raise self.refusal(
                f'the output column is missing; write aggregate(total={name}(...)) or into_field="total"'
            )
        window = None if self.window is None else window_spec(self.window)
        # The type and the default depend on the column and are filled in below.
        spec = AggregateSpec(
            function=self.function,
            into=self.into_field,
            of=getattr(self, "of", None),
            window=window,
            default=None,
            dtype=INT,
            **self.parameters(),
        )
        spec = replace(spec, default=self.stored_default(spec, before))
        return replace(spec, dtype=output_type(spec, before))

    def parameters(self) -> dict[str, Any]:
        """Return the attributes of an `AggregateSpec` that only this function has."""
        return {}

    def stored_default(self, spec: AggregateSpec, before: Schema) -> object:  # noqa: ARG002 (some need them)
        """Return the aggregate of an empty window in stored form; None for null and for an empty list."""
        return None


@dataclass(frozen=True, kw_only=True)
class Count(AggregateType):
    """Number of rows; with `unique`, of distinct values of a column; with `dropnull`, without the null ones.

    An empty window counts 0.
    """

    of: Column | None = None
    unique: bool = False
    approx: bool = False
    dropnull: bool = False

    function: ClassVar = AggregateFunction.COUNT

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unique and not self.approx:
            raise self.refusal("unique=True needs approx=True, because a sketch may count the values")
        if self.unique and self.of is None:
            raise self.refusal("unique=True needs a column: of=...")
        if self.dropnull and self.of is None:
            raise self.refusal("dropnull=True needs an optional column: of=...")

    def parameters(self) -> dict[str, Any]:
        """Return the parameters; approx has an effect only with unique."""
        return {"unique": self.unique, "approx": self.unique, "dropnull": self.dropnull}

    def to_spec(self, before: Schema) -> AggregateSpec:
        """Return the aggregate as a value. A count of all rows is the same for every column, so it has none."""
        if self.of is not None and not (self.unique or self.dropnull):
            return replace(self, of=None).to_spec(before)
        return super().to_spec(before)

    def stored_default(self, spec: AggregateSpec, before: Schema) -> int:  # noqa: ARG002
        """Return the count of no rows."""
        return 0


@dataclass(frozen=True, kw_only=True)
class Sum(AggregateType):
    """Sum of the values that aren't null; 0 if there are none."""

    of: Column

    function: ClassVar = AggregateFunction.SUM

    def stored_default(self, spec: AggregateSpec, before: Schema) -> object:
        """Return 0 of the column's type."""
        dtype = base_type(column_of(spec, before))
        return cast(dtype)(0) if dtype in (INT, FLOAT) or isinstance(dtype, DecimalType) else 0


@dataclass(frozen=True, kw_only=True)
class _Moment(AggregateType):
    """An aggregate whose value is a float, with a default for no values."""

    of: Column
    default: Default = None

    def stored_default(self, spec: AggregateSpec, before: Schema) -> object:  # noqa: ARG002
        """Return the default as a float."""
        if self.default is None:
            return None
        if isinstance(self.default, (int, float, Decimal)) and not isinstance(self.default, bool):
            # NaN is null, for which the column may have no room, and an int may be too large for a float.
            with suppress(ValueError):
                return cast(FLOAT)(self.default)
        raise DefinitionTypeError(
            f"{self.label()}: the default is a number that fits a float, or None for null, not {quoted(self.default)}"
        )


@dataclass(frozen=True, kw_only=True)
class Average(_Moment):
    """Arithmetic mean of the values that aren't null, a float.

    Without any it is `default`: 0.0 unless you give another one; with `default=None` it is null, and the column is
    `Optional[float]`.
    """

    default: Default = 0.0

    function: ClassVar = AggregateFunction.AVERAGE


@dataclass(frozen=True, kw_only=True)
class Stddev(_Moment):
    """Population standard deviation of the values that aren't null, a float; of one value it is 0.

    Without any it is `default`: -1.0 unless you give another one, so that it differs from that of equal values; with
    `default=None` it is null, and the column is `Optional[float]`.
    """

    default: Default = -1.0

    function: ClassVar = AggregateFunction.STDDEV


@dataclass(frozen=True, kw_only=True)
class Variance(_Moment):
    """Population variance of the values that aren't null, a float; of one value it is 0.

    Without any it is `default`: -1.0 unless you give another one, so that it differs from that of equal values; with
    `default=None` it is null, and the column is `Optional[float]`.
    """

    default: Default = -1.0

    function: ClassVar = AggregateFunction.VARIANCE


@dataclass(frozen=True, kw_only=True)
class Quantile(_Moment):
    """Quantile of the n values that aren't null: in order, the one at `min(n - 1, floor(p * n))`, not interpolated.

    Without any it is null, and the column is `Optional[float]`, unless you give a `default`.
    """

    p: float
    approx: bool = False

    function: ClassVar = AggregateFunction.QUANTILE

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.approx:
            raise self.refusal("approx=True is needed, because the value may come from a sketch")
        p: object = self.p
        if isinstance(p, bool) or not isinstance(p, (int, float)) or not 0 <= p <= 1:
            raise self.refusal(f"p is a number from 0 to 1, not {p!r}")

    def parameters(self) -> dict[str, Any]:
        """Return the position of the quantile."""
        return {"p": float(self.p), "approx": True}


@dataclass(frozen=True, kw_only=True)
class _Extreme(AggregateType):
    """Minimum or maximum, whose default is of the column's type."""

    of: Column
    default: Default = None

    def stored_default(self, spec: AggregateSpec, before: Schema) -> object:
        """Return the default in the stored form of the column's type."""
        dtype = base_type(column_of(spec, before))
        if self.default is None or not (dtype in (INT, FLOAT, DATE, DATETIME) or isinstance(dtype, DecimalType)):
            return None
        wanted: tuple[type, ...] = {DATE: (date,), DATETIME: (datetime,)}.get(dtype, (int, float, Decimal))
        given: object = self.default
        try:
            if isinstance(given, bool) or not isinstance(given, wanted):
                raise InvalidInputError(f"expected {' or '.join(t.__name__ for t in wanted)}")  # noqa: TRY301
            if isinstance(given, Decimal) and dtype == FLOAT:
                given = float(given)
            return cast(dtype)(given)
        except InvalidInputError as error:
            raise DefinitionTypeError(
                f"{self.label()}: the default {self.default!r} doesn't fit column {self.of}: {error}"
            ) from None


@dataclass(frozen=True, kw_only=True)
class Min(_Extreme):
    """Least of the values that aren't null, of the column's type.

    Without any it is null, and the column is `Optional`, unless you give a `default` of the column's type.
    """

    function: ClassVar = AggregateFunction.MIN


@dataclass(frozen=True, kw_only=True)
class Max(_Extreme):
    """Greatest of the values that aren't null, of the column's type.

    Without any it is null, and the column is `Optional`, unless you give a `default` of the column's type.
    """

    function: ClassVar = AggregateFunction.MAX


@dataclass(frozen=True, kw_only=True)
class Distinct(AggregateType):
    """The values, each once; null is one of them, unless `dropnull`. An empty window has an empty list."""

    of: Column
    unordered: bool
    dropnull: bool = False

    function: ClassVar = AggregateFunction.DISTINCT

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unordered is not True:
            raise self.refusal(f"unordered is True: the order can't be promised; not {self.unordered!r}")

    def parameters(self) -> dict[str, Any]:
        """Return the treatment of nulls."""
        return {"dropnull": bool(self.dropnull)}


@dataclass(frozen=True, kw_only=True)
class _Ends(AggregateType):
    """The values of the first or the last rows."""

    of: Column
    limit: int
    dedup: bool
    dropnull: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        limit: object = self.limit
        if isinstance(limit, bool) or not isinstance(limit, int) or limit <= 0:
            raise self.refusal(f"limit is a whole number above 0, not {limit!r}")

    def parameters(self) -> dict[str, Any]:
        """Return the number of values, and the treatment of nulls and duplicates."""
        return {"limit": self.limit, "dedup": bool(self.dedup), "dropnull": bool(self.dropnull)}


@dataclass(frozen=True, kw_only=True)
class LastK(_Ends):
    """The last `limit` values, newest first; with `dedup` each once, at its newest position.

    An empty window has an empty list.
    """

    dropnull: bool = False

    function: ClassVar = AggregateFunction.LAST_K


@dataclass(frozen=True, kw_only=True)
class FirstK(_Ends):
    """The first `limit` values, oldest first; with `dedup` each once, at its oldest position.

    An empty window has an empty list.
    """

    function: ClassVar = AggregateFunction.FIRST_K


@dataclass(frozen=True, kw_only=True)
class ExpDecaySum(AggregateType):
    """Sum of the values that aren't null, each halved once for every `half_life` of its age at the time of the read.

    Without any it is 0.0.
    """

    of: Column
    half_life: str

    function: ClassVar = AggregateFunction.EXP_DECAY_SUM

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            length_us = parse_duration(self.half_life)
        except (DefinitionError, DefinitionTypeError) as error:
            raise self.refusal(f"half_life: {error}") from None
        if length_us == 0:
            raise self.refusal(f'half_life "{self.half_life}" is zero; give a longer duration')

    def parameters(self) -> dict[str, Any]:
        """Return the half-life."""
        return {"half_life_us": parse_duration(self.half_life)}

    def stored_default(self, spec: AggregateSpec, before: Schema) -> float:  # noqa: ARG002
        """Return the sum of no values."""
        return 0.0
