"""Promotion between types: the types that may stand in place of a declared one, and the common type of two."""

from caraway.dtypes.types import (
    FLOAT,
    INT,
    STRING,
    BetweenType,
    DataType,
    EmbeddingType,
    FloatType,
    IntType,
    ListType,
    MapType,
    OneOfType,
    OptionalType,
    RegexType,
    StructType,
    base_type,
    is_optional,
    optional,
    strip_optional,
)

NUMBERS = (INT, FLOAT)


def promotes(source: DataType | None, target: DataType) -> bool:
    """Return whether an expression of type `source` (None: the null literal) may be declared as `target`.

    A base type fits its restrictions; their values are checked at the evaluation.
    """
    if source is None:
        return is_optional(target)
    if source == target:
        return True
    if is_optional(source) and not is_optional(target):
        return False
    return _promotes_inner(strip_optional(source), strip_optional(target))


def _promotes_inner(source: DataType, target: DataType) -> bool:
    if source == target:
        return True
    match source, target:
        case IntType(), FloatType():
            return True
        case ((IntType() | FloatType()), BetweenType(of) | OneOfType(of)):
            return source == of
        case _, (OneOfType() | RegexType()) if source == STRING:
            return base_type(target) == STRING
        case ((BetweenType(of) | OneOfType(of)), _) if target == of:
            return True
        case ((BetweenType(of) | OneOfType(of)), (BetweenType(other) | OneOfType(other))):
            return of == other == INT
        case RegexType(), _:
            return target == STRING
        case StructType(_, fields), StructType(_, others):
            return len(fields) == len(others) and all(
                name in dict(others) and promotes(dtype, dict(others)[name]) for name, dtype in fields
            )
        case _:
            return False


def common_type(left: DataType | None, right: DataType | None) -> DataType | None:
    """Return the least type to which both promote (None for null literals alone).

    Raises `LookupError` if there is no such type.
    """
    if left is None or right is None:
        other = right if left is None else left
        return None if other is None else optional(other)
    inner_left, inner_right = strip_optional(left), strip_optional(right)
    if inner_left == inner_right:
        inner = inner_left
    else:
        inner_left, inner_right = base_type(left), base_type(right)
        if inner_left in NUMBERS and inner_right in NUMBERS:
            inner = INT if inner_left == inner_right == INT else FLOAT
        elif promotes(inner_right, inner_left):
            inner = inner_left
        elif promotes(inner_left, inner_right):
            inner = inner_right
        else:
            raise LookupError
    return optional(inner) if is_optional(left) or is_optional(right) else inner


def shape(dtype: DataType) -> DataType:
    """Return a type without restrictions and names of structs at any depth; values of equal shapes can be compared."""
    match dtype:
        case OptionalType(of):
            return optional(shape(of))
        case ListType(of):
            return ListType(shape(of))
        case MapType(of):
            return MapType(shape(of))
        case StructType(_, fields):
            return StructType("", tuple((name, shape(field)) for name, field in fields))
        case _:
            return base_type(dtype)


def representation(dtype: DataType) -> object:
    """Return a key of the form in which a type's values are stored; types with the same form have equal keys.

    Restrictions and optionality make no difference, and an embedding is a list of floats.
    """
    match dtype:
        case OptionalType(of) | BetweenType(of) | OneOfType(of):
            return representation(of)
        case RegexType():
            return STRING
        case EmbeddingType():
            return (ListType, FLOAT)
        case ListType(of):
            return (ListType, representation(of))
        case MapType(of):
            return (MapType, representation(of))
        case StructType(_, fields):
            return (StructType, tuple((name, representation(inner)) for name, inner in fields))
        case _:
            return dtype
