"""Checks that the columns from a process of users' functions are in the stored form of their types.

The process checks the columns itself too, but a hostile function may have taken the process over, and all code that
reads the columns relies on their types.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache

from caraway.dtypes.types import (
    BoolType,
    BytesType,
    DataType,
    EmbeddingType,
    FloatType,
    IntType,
    ListType,
    MapType,
    StringType,
    StructType,
    base_type,
    is_optional,
    stored_type,
)
from caraway.dtypes.values import INT_MAX, INT_MIN

Check = Callable[[Iterable[object]], bool]

# The checks of at most this many types are cached; a deployment has some hundreds of types.
MAX_KEPT = 1_000


@lru_cache(maxsize=MAX_KEPT)
def holds(dtype: DataType) -> Check:
    """Compile the check of a column of values in stored form (docs/inside/records.md)."""
    of_base = _base(dtype)
    if is_optional(dtype):
        return lambda values: of_base([value for value in values if value is not None])
    return of_base


def _base(dtype: DataType) -> Check:
    if isinstance(base := base_type(dtype), EmbeddingType):
        floats, dim = _are(float), base.dim
        return lambda values: all(type(v) is list and len(v) == dim and floats(v) for v in values)
    match stored_type(dtype):
        case IntType():
            return _ints
        case FloatType():
            return _are(float)
        case BoolType():
            return _are(bool)
        case StringType():
            return _are(str)
        case BytesType():
            return _are(bytes)
        case ListType(of):
            items = holds(of)
            return lambda values: all(type(v) is list and items(v) for v in values)
        case MapType(of):
            members = holds(of)
            return lambda values: all(type(v) is dict and members(v.values()) for v in values)
        case StructType(_, fields):
            checks = [holds(of) for _, of in fields]
            return lambda values: all(
                type(v) is list and len(v) == len(checks) and all(c([m]) for c, m in zip(checks, v, strict=True))
                for v in values
            )
        case _:
            return lambda _: False


def _are(kind: type) -> Check:
    kinds = {kind}
    return lambda values: kinds.issuperset(map(type, values))


def _ints(values: Iterable[object]) -> bool:
    return all(type(value) is int and INT_MIN <= value <= INT_MAX for value in values)
