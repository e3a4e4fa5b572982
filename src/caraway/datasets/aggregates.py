"""Aggregates: what `groupby(...).aggregate(...)` computes for each group."""

from dataclasses import dataclass
from datetime import date, datetime
from typing import ClassVar

from caraway.dtypes.types import DATE, DATETIME, INT, base_type
from caraway.dtypes.values import cast
from caraway.dtypes.windows import Continuous, Hopping, Tumbling
from caraway.errors import DefinitionError, DefinitionTypeError, InvalidInputError
from caraway.graph.operators import AggregateFunction, AggregateSpec
from caraway.graph.schemas import Schema, aggregate_type
from caraway.graph.windows import ContinuousWindow

Default = int | float | date | datetime | None


@dataclass(frozen=True, kw_only=True)
class AggregateType:
    """Base of the aggregates. `into_field` is the output column, given by keyword in `aggregate(column=...)`."""

    window: Continuous | None = None
    into_field: str = ""

    function: ClassVar[AggregateFunction]

    def __post_init__(self) -> None:
        name, window = type(self).__name__, self.window
        if isinstance(window, (Tumbling, Hopping)):
            raise DefinitionError(
                f"{name}: {type(window).__name__} windows aren't available yet; use Continuous({window.duration!r})"
            )
        if window is not None and not isinstance(window, Continuous):
            raise DefinitionError(f'{name}: the window is Continuous("1d") or Continuous("forever"), not {window!r}')

    def to_spec(self, before: Schema) -> AggregateSpec:
        """Give the aggregate over an input of this schema.

        Raises:
            DefinitionError: Window or output column are missing, or a column is unknown.
            DefinitionTypeError: The aggregate isn't defined for the column's type.
        """
        name = type(self).__name__
        if not self.into_field:
            raise DefinitionError(
                f'{name}: the output column is missing; write aggregate(total={name}(...)) or into_field="total"'
            )
        if self.window is None:
            raise DefinitionError(
                f'{name}: {self.into_field} has no window; give window=Continuous("1d") or Continuous("forever")'
            )
        of = self._column()
        default = self._default(of, before)
        dtype = aggregate_type(self.function, of, before, nullable=default is None, into=self.into_field)
        return AggregateSpec(
            function=self.function,
            into=self.into_field,
            of=of,
            window=ContinuousWindow(length_us=self.window.duration_us),
            default=default,
            dtype=dtype,
        )

    def _column(self) -> str | None:
        return str(getattr(self, "of"))  # noqa: B009 (a field of all subclasses but one)

    def _default(self, of: str | None, before: Schema) -> int | float | None:  # noqa: ARG002 (subclasses need them)
        return 0


@dataclass(frozen=True, kw_only=True)
class Count(AggregateType):
    """Number of rows."""

    of: str | None = None
    unique: bool = False
    approx: bool = False
    dropnull: bool = False

    function: ClassVar = AggregateFunction.COUNT

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unique:
            raise DefinitionError("Count: unique=True isn't available yet; plain Count counts rows")
        if self.dropnull:
            raise DefinitionError(
                "Count: dropnull=True isn't available yet; filter the nulls out first: filter(~col(...).isnull())"
            )

    def _column(self) -> None:
        # Without unique or dropnull the column makes no difference.
        return None


@dataclass(frozen=True, kw_only=True)
class Sum(AggregateType):
    """Sum of the values that aren't null; 0 if there are none."""

    of: str

    function: ClassVar = AggregateFunction.SUM

    def _default(self, of: str | None, before: Schema) -> int | float:
        is_int = of in before.columns and base_type(before.columns[of]) == INT
        return 0 if is_int else 0.0


@dataclass(frozen=True, kw_only=True)
class _WithDefault(AggregateType):
    """An aggregate that needs a value for the case that there are none."""

    of: str
    default: Default = None

    def _default(self, of: str | None, before: Schema) -> int | float | None:  # noqa: ARG002 (a subclass needs them)
        if self.default is None:
            return None
        if isinstance(self.default, bool) or not isinstance(self.default, (int, float)):
            raise DefinitionTypeError(
                f"{type(self).__name__}: the default of {self.into_field} is a number or None, not {self.default!r}"
            )
        return float(self.default)


@dataclass(frozen=True, kw_only=True)
class Average(_WithDefault):
    """Arithmetic mean of the values that aren't null."""

    default: Default = 0.0

    function: ClassVar = AggregateFunction.AVERAGE


@dataclass(frozen=True, kw_only=True)
class Stddev(_WithDefault):
    """Population standard deviation of the values that aren't null."""

    default: Default = -1.0

    function: ClassVar = AggregateFunction.STDDEV


@dataclass(frozen=True, kw_only=True)
class _Extreme(_WithDefault):
    """Minimum or maximum: the default is of the column's type."""

    def _default(self, of: str | None, before: Schema) -> int | float | None:
        if self.default is None or of not in before.columns:
            return None
        dtype = base_type(before.columns[of])
        wanted: tuple[type, ...] = {DATE: (date,), DATETIME: (datetime,)}.get(dtype, (int, float))
        try:
            if isinstance(self.default, bool) or not isinstance(self.default, wanted):
                raise InvalidInputError(f"expected {' or '.join(t.__name__ for t in wanted)}")  # noqa: TRY301
            stored: int | float = cast(dtype)(self.default)
        except InvalidInputError as error:
            raise DefinitionTypeError(
                f"{type(self).__name__}: the default {self.default!r} of {self.into_field} doesn't fit "
                f"column {of}: {error}"
            ) from None
        return stored


@dataclass(frozen=True, kw_only=True)
class Min(_Extreme):
    """Least of the values that aren't null."""

    function: ClassVar = AggregateFunction.MIN


@dataclass(frozen=True, kw_only=True)
class Max(_Extreme):
    """Greatest of the values that aren't null."""

    function: ClassVar = AggregateFunction.MAX
