"""The bytes of values in stored form, as a bound on what a caller may have the server collect and answer.

Values that are equal may be one object in memory, but each has a copy in the text of an answer. So each is counted.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from caraway.dtypes.types import (
    BytesType,
    DataType,
    DecimalType,
    ListType,
    MapType,
    StringType,
    StructType,
    base_type,
    stored_type,
)
from caraway.errors import TooLargeError

# Returns how many bytes are left of a bound behind some values, or a number below 0 as soon as the values have more.
Count = Callable[[Iterable[Any], int], int]

# The bytes that an element of a list, a member of a map or a field of a struct counts, besides the bytes of its text. A
# number has up to 24 characters in JSON, and takes up to 32 bytes of memory.
ELEMENT_BYTES = 32
# The most bytes of the texts, lists, maps and structs of an answer. An answer of a million numbers (the most that there
# may be) takes a third of that, and an answer is a few times as large in memory while its text is made.
MAX_ANSWER_BYTES = 64 * 1024 * 1024
# The counts of at most this many types are cached; a deployment has some hundreds of types.
MAX_KEPT = 1_000


@lru_cache(maxsize=MAX_KEPT)
def count_of(dtype: DataType) -> Count | None:
    """Compile the count of values of a type, nulls among them; None if no value of the type is large."""
    if isinstance(base_type(dtype), DecimalType):
        return None
    match stored_type(dtype):
        case StringType() | BytesType():
            return _texts
        case ListType(of):
            return _lists(count_of(of))
        case MapType(of):
            return _maps(count_of(of))
        case StructType(_, fields):
            return _structs(fields)
        case _:
            return None


def _texts(values: Iterable[Any], left: int) -> int:
    # For the few rows of most queries this loop is faster than sum(map(len, …)).
    for value in values:
        if value is not None:
            left -= len(value)
    return left


def _lists(count: Count | None) -> Count:
    def lists(values: Iterable[Any], left: int) -> int:
        for value in filter(None, values):
            left -= ELEMENT_BYTES * len(value)
            if left >= 0 and count is not None:
                left = count(value, left)
            if left < 0:
                break
        return left

    return lists


def _maps(count: Count | None) -> Count:
    def maps(values: Iterable[Any], left: int) -> int:
        for value in filter(None, values):
            left = _texts(value, left - ELEMENT_BYTES * len(value))
            if left >= 0 and count is not None:
                left = count(value.values(), left)
            if left < 0:
                break
        return left

    return maps


def _structs(fields: tuple[tuple[str, DataType], ...]) -> Count:
    # In JSON each struct has the names of its fields.
    names = sum(ELEMENT_BYTES + len(name) for name, _ in fields)
    counts = [(position, count) for position, (_, of) in enumerate(fields) if (count := count_of(of)) is not None]

    def structs(values: Iterable[Any], left: int) -> int:
        for value in filter(None, values):
            left -= names
            for position, count in counts:
                if left >= 0:
                    left = count((value[position],), left)
            if left < 0:
                break
        return left

    return structs


def check_answer(counts: Iterable[tuple[str, Count]], columns: Mapping[str, Iterable[Any]]) -> None:
    """Raise `TooLargeError` if the columns of an answer that have a count have more than MAX_ANSWER_BYTES together."""
    left = MAX_ANSWER_BYTES
    for name, count in counts:
        left = count(columns[name], left)
        if left < 0:
            raise TooLargeError(
                f"the texts and lists of an answer may have {MAX_ANSWER_BYTES >> 20} MiB, those of this one have more; "
                "ask for fewer rows or columns at a time"
            )
