"""Promotion between types: the types of expressions that a declared type allows, and the common type of two types."""

from caraway.dtypes import types as t

NUMBERS = (t.INT, t.FLOAT)


def promotes(source: t.DataType | None, target: t.DataType) -> bool:
    """Return whether an expression of type `source` (None: the null literal) may be declared as `target`.

    An int may be declared as `between(int, …)`: the evaluation checks that the values keep to a restriction.
    """
    if source is None:
        return t.is_optional(target)
    if source == target:
        return True
    if t.is_optional(source) and not t.is_optional(target):
        return False
    return _promotes_inner(t.strip_optional(source), t.strip_optional(target))


def _promotes_inner(source: t.DataType, target: t.DataType) -> bool:
    if source == target:
        return True
    match source, target:
        case t.IntType(), t.FloatType():
            return True
        case ((t.IntType() | t.FloatType()), t.BetweenType(of) | t.OneOfType(of)):
            return source == of
        case _, (t.OneOfType() | t.RegexType()) if source == t.STRING:
            return t.base_type(target) == t.STRING
        case ((t.BetweenType(of) | t.OneOfType(of)), _) if target == of:
            return True
        case ((t.BetweenType(of) | t.OneOfType(of)), (t.BetweenType(other) | t.OneOfType(other))):
            return of == other == t.INT
        case t.RegexType(), _:
            return target == t.STRING
        case t.StructType(_, fields), t.StructType(_, others):
            return len(fields) == len(others) and all(
                name in dict(others) and promotes(dtype, dict(others)[name]) for name, dtype in fields
            )
        case _:
            return False


def common_type(left: t.DataType | None, right: t.DataType | None) -> t.DataType | None:
    """Return the least type to which both types promote; None if both are that of the null literal.

    Raises `LookupError` if there is no such type.
    """
    if left is None or right is None:
        other = right if left is None else left
        return None if other is None else t.optional(other)
    inner_left, inner_right = t.strip_optional(left), t.strip_optional(right)
    if inner_left == inner_right:
        inner = inner_left
    else:
        inner_left, inner_right = t.base_type(left), t.base_type(right)
        if inner_left in NUMBERS and inner_right in NUMBERS:
            inner = t.INT if inner_left == inner_right == t.INT else t.FLOAT
        elif promotes(inner_right, inner_left):
            inner = inner_left
        elif promotes(inner_left, inner_right):
            inner = inner_right
        else:
            raise LookupError
    return t.optional(inner) if t.is_optional(left) or t.is_optional(right) else inner


def shape(dtype: t.DataType) -> t.DataType:
    """Return a type without restrictions and names of structs at any depth; values of equal shapes can be compared."""
    match dtype:
        case t.OptionalType(of):
            return t.optional(shape(of))
        case t.ListType(of):
            return t.ListType(shape(of))
        case t.MapType(of):
            return t.MapType(shape(of))
        case t.StructType(_, fields):
            return t.StructType("", tuple((name, shape(field)) for name, field in fields))
        case _:
            return t.base_type(dtype)


def representation(dtype: t.DataType) -> object:
    """Return a key of the form in which a type's values are stored; types with the same form have equal keys.

    Restrictions and optionality make no difference, and an embedding is a list of floats.
    """
    match dtype:
        case t.OptionalType(of) | t.BetweenType(of) | t.OneOfType(of):
            return representation(of)
        case t.RegexType():
            return t.STRING
        case t.EmbeddingType():
            return (t.ListType, t.FLOAT)
        case t.ListType(of):
            return (t.ListType, representation(of))
        case t.MapType(of):
            return (t.MapType, representation(of))
        case t.StructType(_, fields):
            return (t.StructType, tuple((name, representation(inner)) for name, inner in fields))
        case _:
            return dtype
