"""The data types as plain values: frozen, hashable and equal by value.

Users write Python annotations, which `caraway.dtypes.annotations` converts to these types. The conversions of values of
the types are registered in `caraway.dtypes.values`.
"""

from dataclasses import dataclass
from typing import Any, Optional

from caraway.process.patterns import whole


class Annotation:
    """A type that users write as a value, such as `Decimal[2]`; the class makes `Decimal[2] | None` an optional."""

    __slots__ = ()

    def __or__(self, other: object) -> Any:
        return Optional[self] if other is None or other is type(None) else NotImplemented  # noqa: UP045 (at run time)

    __ror__ = __or__


@dataclass(frozen=True, slots=True)
class IntType:
    """Signed 64-bit integer."""


@dataclass(frozen=True, slots=True)
class FloatType:
    """IEEE double."""


@dataclass(frozen=True, slots=True)
class BoolType:
    """Truth value."""


@dataclass(frozen=True, slots=True)
class StringType:
    """UTF-8 text."""


@dataclass(frozen=True, slots=True)
class BytesType:
    """Binary string."""


@dataclass(frozen=True, slots=True)
class DatetimeType:
    """Instant, int64 microseconds since the epoch, UTC."""


@dataclass(frozen=True, slots=True)
class DateType:
    """Calendar day, days since the epoch."""


@dataclass(frozen=True, slots=True)
class DecimalType(Annotation):
    """Fixed-point number with `scale` fractional digits, 28 digits in all."""

    scale: int


@dataclass(frozen=True, slots=True)
class EmbeddingType(Annotation):
    """Vector of exactly `dim` doubles."""

    dim: int


@dataclass(frozen=True, slots=True)
class ListType:
    """Homogeneous sequence."""

    of: "DataType"


@dataclass(frozen=True, slots=True)
class MapType:
    """Map from text to `of`."""

    of: "DataType"


@dataclass(frozen=True, slots=True)
class StructType:
    """Record with named fields, in order."""

    name: str
    fields: tuple[tuple[str, "DataType"], ...]


@dataclass(frozen=True, slots=True)
class OptionalType:
    """`of` or null. Never nested: `optional()` collapses."""

    of: "DataType"


@dataclass(frozen=True, slots=True)
class BetweenType(Annotation):
    """Number within bounds; `of` is int or float."""

    of: IntType | FloatType
    minimum: int | float
    maximum: int | float
    strict_min: bool = False
    strict_max: bool = False


@dataclass(frozen=True, slots=True)
class OneOfType(Annotation):
    """Value out of a list; `of` is int or str."""

    of: IntType | StringType
    options: tuple[int, ...] | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RegexType(Annotation):
    """Text that matches `pattern` as a whole; `DefinitionError` for a pattern that `process.patterns` refuses."""

    pattern: str

    def __post_init__(self) -> None:
        whole(self.pattern)


DataType = (
    IntType
    | FloatType
    | BoolType
    | StringType
    | BytesType
    | DatetimeType
    | DateType
    | DecimalType
    | EmbeddingType
    | ListType
    | MapType
    | OptionalType
    | StructType
    | BetweenType
    | OneOfType
    | RegexType
)

INT = IntType()
FLOAT = FloatType()
BOOL = BoolType()
STRING = StringType()
BYTES = BytesType()
DATETIME = DatetimeType()
DATE = DateType()


def optional(dtype: DataType) -> OptionalType:
    """Return `dtype` as an optional; an optional is returned as it is."""
    return dtype if isinstance(dtype, OptionalType) else OptionalType(dtype)


def strip_optional(dtype: DataType) -> DataType:
    """Return the type inside an optional, any other as it is."""
    return dtype.of if isinstance(dtype, OptionalType) else dtype


def is_optional(dtype: DataType) -> bool:
    """Return whether null is a value of `dtype`."""
    return isinstance(dtype, OptionalType)


def base_type(dtype: DataType) -> DataType:
    """Return a type without optionality and restriction."""
    inner = strip_optional(dtype)
    match inner:
        case BetweenType() | OneOfType():
            return inner.of
        case RegexType():
            return STRING
        case _:
            return inner


def unrestricted(dtype: DataType) -> DataType:
    """Return a type without its restriction; null stays possible if it was."""
    return optional(base_type(dtype)) if is_optional(dtype) else base_type(dtype)


def stored_type(dtype: DataType) -> DataType:
    """Return the plain type whose values are stored in the same form: for an instant that is int, for a decimal str.

    Code that handles only stored values, such as the codec of topics, has to know no other types.
    """
    match base_type(dtype):
        case DatetimeType() | DateType():
            return INT
        case DecimalType():
            return STRING
        case EmbeddingType():
            return ListType(FLOAT)
        case base:
            return base


def type_name(dtype: DataType) -> str:  # noqa: C901, PLR0911 (a branch a member)
    """Return the spelling of a type, for messages."""
    match dtype:
        case IntType():
            return "int"
        case FloatType():
            return "float"
        case BoolType():
            return "bool"
        case StringType():
            return "str"
        case BytesType():
            return "bytes"
        case DatetimeType():
            return "datetime"
        case DateType():
            return "date"
        case DecimalType(scale):
            return f"Decimal[{scale}]"
        case EmbeddingType(dim):
            return f"Embedding[{dim}]"
        case ListType(of):
            return f"List[{type_name(of)}]"
        case MapType(of):
            return f"Dict[str, {type_name(of)}]"
        case StructType(name, _):
            return name
        case OptionalType(of):
            return f"Optional[{type_name(of)}]"
        case BetweenType(of, low, high, strict_low, strict_high):
            return f"between({type_name(of)}, {low}, {high}, {strict_low}, {strict_high})"
        case OneOfType(of, options):
            return f"oneof({type_name(of)}, {list(options)})"
        case RegexType(pattern):
            return f"regex({pattern!r})"
