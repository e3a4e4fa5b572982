"""Casting a column of raw values, with an error for each row that doesn't fit.

The values of most columns have one Python type, and are in stored form already if it is the right one. The set of their
types shows that quickly, so only the other columns are cast value by value.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from caraway.dtypes.instants import EPOCH, MAX_SECONDS, US, iso_instants
from caraway.dtypes.types import (
    BOOL,
    DATETIME,
    FLOAT,
    INT,
    STRING,
    BetweenType,
    DataType,
    IntType,
    base_type,
    is_optional,
    strip_optional,
    type_name,
)
from caraway.dtypes.values import INT_MAX, INT_MIN, LENIENT, NAN_WORD, Manner, cast, mismatch
from caraway.errors import InvalidInputError

NULL = type(None)


class Missing:
    """The mark of a field that a row doesn't have; null, in contrast, is a value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "missing"


MISSING: Final = Missing()

# A fast cast of a whole column: a function of the values and the set of their types. The result is None if it isn't
# sure that all values fit; the values are then cast one by one.
Fast = Callable[[list[object], set[type]], list[object] | None]


@dataclass(frozen=True, slots=True)
class CastColumn:
    """A cast column: `values` in stored form (None where there is an error), `errors` by position."""

    values: list[object]
    errors: dict[int, str]


class ColumnCast:
    """Casts the values of one field."""

    __slots__ = ("_cast", "_expected", "_fast", "_is_float", "_optional")

    def __init__(self, dtype: DataType, manner: Manner = LENIENT) -> None:
        self._optional = is_optional(dtype)
        self._expected = type_name(dtype)
        inner = strip_optional(dtype)
        self._cast = cast(inner, manner)
        self._is_float = base_type(inner) == FLOAT
        self._fast = _between(inner) if isinstance(inner, BetweenType) else _FAST.get(inner)

    def __call__(self, values: list[object]) -> CastColumn:
        """Cast a column of JSON values; `MISSING` stands for absent fields."""
        kinds = set(map(type, values))
        if self._fast is not None and (self._optional or NULL not in kinds):
            done = self._fast(values, kinds)
            if done is not None:
                return CastColumn(done, {})
        return self._one_by_one(values)

    def _one_by_one(self, values: list[object]) -> CastColumn:
        done: list[object] = []
        errors: dict[int, str] = {}
        for position, value in enumerate(values):
            stored: object = None
            if value is MISSING:
                # Rows that name their fields may leave out fields of optional types; such a field is null.
                if not self._optional:
                    errors[position] = f"is missing; expected {self._expected}"
            else:
                try:
                    # In a column of floats NaN counts as null, as in pandas. JSON has no NaN, so senders write it as
                    # the text "NaN"; Avro and Protobuf have it.
                    if value is None or (self._is_float and (value == NAN_WORD or value != value)):  # noqa: PLR0124
                        if not self._optional:
                            errors[position] = f"expected {self._expected}, found null"
                    else:
                        stored = self._cast(value)
                except InvalidInputError as error:
                    errors[position] = str(error)
                except (ArithmeticError, ValueError):
                    # A decimal may be a NaN that can't be compared or converted.
                    errors[position] = str(mismatch(self._expected, value))
            done.append(stored)
        return CastColumn(done, errors)


def _ints(values: list[object], kinds: set[type]) -> list[object] | None:
    if not kinds <= {int, NULL}:
        return None
    numbers: list[Any] = [value for value in values if value is not None] if NULL in kinds else values
    return values if not numbers or (min(numbers) >= INT_MIN and max(numbers) <= INT_MAX) else None


def _floats(values: list[object], kinds: set[type]) -> list[object] | None:
    if not kinds <= {float, int, NULL}:
        return None
    if int in kinds:
        try:
            values = [None if number is None else float(number) for number in values]  # type: ignore[arg-type]
        except OverflowError:
            # A function of a source may give an int that is too large for a float, which is an error of its row only.
            return None
    # Avro and Protobuf have NaN, which has to become null. The sum is NaN if one of the numbers is, and computing it is
    # faster than looking at each number. Infinities of both signs also make the sum NaN; the slow cast tells the cases
    # apart.
    numbers: list[Any] = [value for value in values if value is not None] if NULL in kinds else values
    total = sum(numbers)
    return values if total == total else None  # noqa: PLR0124 (NaN)


def _instants(values: list[object], kinds: set[type]) -> list[object] | None:
    """Convert ISO texts, or epoch numbers that are all in one unit, as a single sender's are."""
    if kinds == {str}:
        texts: list[Any] = values
        return iso_instants(texts)  # type: ignore[return-value]
    if kinds == {datetime}:
        moments: list[Any] = values
        try:
            return [(moment - EPOCH) // US for moment in moments]
        except TypeError:
            # Some datetimes have no time zone; the slow cast reads them as UTC.
            return None
    if kinds != {int}:
        return None
    numbers: list[Any] = values
    low, high = min(numbers), max(numbers)
    if low > MAX_SECONDS and high <= MAX_SECONDS * 1_000:
        return [number * 1_000 for number in numbers]
    if low >= 0 and high <= MAX_SECONDS:
        return [number * 1_000_000 for number in numbers]
    if low > MAX_SECONDS * 1_000 and high <= MAX_SECONDS * 1_000_000:
        return values
    return None


def _between(dtype: BetweenType) -> Fast:
    base = _ints if isinstance(dtype.of, IntType) else _floats

    def fast(values: list[object], kinds: set[type]) -> list[object] | None:
        done = base(values, kinds)
        if done is None:
            return None
        numbers: list[Any] = [value for value in done if value is not None]
        if not numbers:
            return done
        low, high = min(numbers), max(numbers)
        above = low > dtype.minimum if dtype.strict_min else low >= dtype.minimum
        below = high < dtype.maximum if dtype.strict_max else high <= dtype.maximum
        return done if above and below else None

    return fast


_FAST: Mapping[DataType, Fast] = {
    INT: _ints,
    FLOAT: _floats,
    BOOL: lambda values, kinds: values if kinds <= {bool, NULL} else None,
    STRING: lambda values, kinds: values if kinds <= {str, NULL} else None,
    DATETIME: _instants,
}
