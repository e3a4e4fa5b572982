"""The types that users write as values: `between`, `oneof`, `regex`, `Decimal[n]`, `Embedding[n]`.

Each of these expressions returns a frozen data type. Two of them with equal arguments are therefore equal, and they can
stand in `Optional[...]` and `List[...]`. The module also has the conversions of values of `between`, `oneof` and
`regex`, which are those of the base type with a check.
"""

from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from caraway.dtypes import types as t
from caraway.dtypes import values as v
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.process.patterns import whole

MAX_DECIMAL_SCALE = 28


if TYPE_CHECKING:

    class _Bracketed(type):
        """A class whose brackets mypy knows outside of annotations too, as in `astype(Decimal[2])`."""

        def __getitem__(cls, number: int) -> Any: ...

else:
    _Bracketed = type


class Decimal(metaclass=_Bracketed):
    """Type of fixed-point numbers: `Decimal[2]` has two fractional digits."""

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        """Raise `DefinitionTypeError`, because the scale goes into brackets."""
        del args, kwargs
        raise DefinitionTypeError("Decimal is a type: write Decimal[2], not Decimal(2)")

    def __class_getitem__(cls, scale: int) -> Any:
        if not _is_int(scale) or not 1 <= scale <= MAX_DECIMAL_SCALE:
            raise DefinitionTypeError(f"Decimal[{scale!r}]: the scale is an int from 1 to {MAX_DECIMAL_SCALE}")
        return t.DecimalType(scale)


class Embedding(metaclass=_Bracketed):
    """Type of vectors: `Embedding[8]` has eight floats."""

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        """Raise `DefinitionTypeError`, because the dimension goes into brackets."""
        del args, kwargs
        raise DefinitionTypeError("Embedding is a type: write Embedding[8], not Embedding(8)")

    def __class_getitem__(cls, dim: int) -> Any:
        if not _is_int(dim) or dim < 1:
            raise DefinitionTypeError(f"Embedding[{dim!r}]: the dimension is a positive int")
        return t.EmbeddingType(dim)


def between(
    dtype: type,
    min: float,
    max: float,
    strict_min: bool = False,
    strict_max: bool = False,
) -> Any:
    """Return int or float restricted to an interval, closed unless `strict_min` or `strict_max` opens an end.

    Raises:
        DefinitionTypeError: `dtype` is neither int nor float, or a bound doesn't fit it.
        DefinitionError: The interval has no value, as if `min` is greater than `max` or a bound is NaN.
    """
    base: t.IntType | t.FloatType
    if dtype is int:
        base, allowed = t.INT, (int,)
    elif dtype is float:
        base, allowed = t.FLOAT, (int, float)  # type: ignore[assignment]
    else:
        raise DefinitionTypeError(f"between: the type is int or float, not {_spelled(dtype)}")
    for bound in (min, max):
        if isinstance(bound, bool) or not isinstance(bound, allowed):
            raise DefinitionTypeError(f"between({dtype.__name__}, …): bound {bound!r} is not {dtype.__name__}")
    try:
        low, high = (float(min), float(max)) if dtype is float else (min, max)
    except OverflowError:
        raise DefinitionError('between(float, …): a bound is too large for a float; write float("inf")') from None
    found = t.BetweenType(base, low, high, bool(strict_min), bool(strict_max))
    if dtype is int:
        has_values = low + found.strict_min <= high - found.strict_max
    else:
        # No comparison with NaN is true.
        has_values = low < high or (low == high and not (strict_min or strict_max))
    if not has_values:
        raise DefinitionError(
            f"{t.type_name(found)}: no {dtype.__name__} is in this interval; let min be at most max, and less if an "
            "end is left out"
        )
    return found


def oneof(dtype: type, options: list[Any]) -> Any:
    """Return int or str restricted to some values.

    Raises:
        DefinitionTypeError: `dtype` is neither int nor str, or an option isn't exactly of it.
        DefinitionError: There are no options.
    """
    if dtype is not int and dtype is not str:
        raise DefinitionTypeError(f"oneof: the type is int or str, not {_spelled(dtype)}")
    for option in options:
        if type(option) is not dtype:
            raise DefinitionTypeError(f"oneof({dtype.__name__}, …): option {option!r} is not {dtype.__name__}")
    if not options:
        raise DefinitionError(f"oneof({dtype.__name__}, []): there are no options")
    return t.OneOfType(t.INT if dtype is int else t.STRING, tuple(options))


def regex(pattern: str) -> Any:
    """Return str restricted to values that match `pattern` as a whole.

    Raises `DefinitionTypeError` if `pattern` is no string, and `DefinitionError` if RE2 can't match it.
    """
    if not isinstance(pattern, str):
        raise DefinitionTypeError(f"regex: the pattern is a str, not {_spelled(type(pattern))}")
    return t.RegexType(pattern)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _spelled(dtype: object) -> str:
    return dtype.__name__ if isinstance(dtype, type) else repr(dtype)


def _between(dtype: t.BetweenType, manner: v.Manner) -> v.Convert:
    inner, expected = v.cast(dtype.of, manner), t.type_name(dtype)

    def to_between(value: Any) -> Any:
        number = inner(value)
        above = number > dtype.minimum if dtype.strict_min else number >= dtype.minimum
        below = number < dtype.maximum if dtype.strict_max else number <= dtype.maximum
        if above and below:
            return number
        raise v.mismatch(expected, value)

    return to_between


def _oneof(dtype: t.OneOfType, manner: v.Manner) -> v.Convert:
    inner, expected, options = v.cast(dtype.of, manner), t.type_name(dtype), frozenset(dtype.options)

    def to_option(value: Any) -> Any:
        option = inner(value)
        if option in options:
            return option
        raise v.mismatch(expected, value)

    return to_option


def _regex(dtype: t.RegexType, as_text: v.Convert) -> v.Convert:
    expected, matches = t.type_name(dtype), whole(dtype.pattern)

    def to_matching(value: Any) -> str:
        text: str = as_text(value)
        if matches(text):
            return text
        raise v.mismatch(expected, value)

    return to_matching


def _conforms(value: Any, dtype: t.BetweenType | t.OneOfType | t.RegexType, widen: bool) -> bool:
    return v.conforms(value, t.base_type(dtype), widen=widen) and v.casts(value, dtype)


v.CONVERSIONS[t.BetweenType] = v.Conversions(
    written="between",
    cast=_between,
    conforms=_conforms,
    arrow=lambda dtype: v.arrow_type(dtype.of),
    to_json=lambda dtype: v.to_json(dtype.of),
    inside=v.cast,
    strict=False,
)
v.CONVERSIONS[t.OneOfType] = v.Conversions(
    written="oneof",
    cast=_oneof,
    conforms=_conforms,
    arrow=lambda dtype: v.arrow_type(dtype.of),
    inside=v.cast,
    strict=False,
)
v.CONVERSIONS[t.RegexType] = v.Conversions(
    written="regex",
    cast=lambda dtype, manner: _regex(dtype, v.cast(t.STRING, manner)),
    conforms=_conforms,
    arrow=lambda _: pa.string(),
    inside=v.cast,
    strict=False,
)
