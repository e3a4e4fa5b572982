"""The bytes that values count, against their text in JSON."""

from typing import Any

import orjson
import pytest

from caraway.dtypes.sizes import MAX_ANSWER_BYTES, check_answer, count_of
from caraway.dtypes.types import (
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    STRING,
    BetweenType,
    DataType,
    DecimalType,
    EmbeddingType,
    ListType,
    MapType,
    OneOfType,
    RegexType,
    StructType,
    optional,
)
from caraway.dtypes.values import to_json
from caraway.errors import TooLargeError

LONG = "x" * 1_000
PLACE = StructType("Place", (("a_long_name_of_a_field", INT), ("text", optional(STRING)), ("lists", ListType(STRING))))


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (STRING, LONG),
        (RegexType(".*"), LONG),
        (OneOfType(STRING, (LONG,)), LONG),
        (ListType(optional(STRING)), [LONG, None, ""]),
        (ListType(INT), [2**62] * 100),
        (EmbeddingType(50), [0.1234567890123456e-300] * 50),
        (ListType(ListType(FLOAT)), [[0.1234567890123456e-300] * 9] * 9),
        (ListType(DATETIME), [0] * 100),
        (ListType(BOOL), [False] * 100),
        (MapType(INT), {f"{LONG}{number}": number for number in range(9)}),
        (MapType(ListType(STRING)), {"a": [LONG] * 9, "": []}),
        (PLACE, [1, LONG, [LONG] * 9]),
        (PLACE, [1, None, []]),
        (ListType(PLACE), [[1, LONG, [LONG] * 9]] * 9),
    ],
)
def test_a_value_counts_at_least_its_text_and_not_many_times_as_much(dtype: DataType, value: Any) -> None:
    text = len(orjson.dumps(to_json(dtype)(value)))
    count = count_of(optional(dtype))
    assert count is not None
    counted = 10**9 - count([value, None, value], 10**9)
    assert 2 * text * 0.95 <= counted <= 2 * text * 8


@pytest.mark.parametrize("dtype", [INT, FLOAT, BOOL, DATE, DATETIME, DecimalType(2), BetweenType(INT, 0, 9)])
def test_values_of_few_bytes_have_no_count(dtype: DataType) -> None:
    assert count_of(dtype) is count_of(optional(dtype)) is None


def test_bytes_count_their_length() -> None:
    count = count_of(BYTES)
    assert count is not None
    assert count([b"abc", None, b"de"], 10) == 5


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (STRING, "x" * 1_000_000),
        (ListType(INT), [1] * 10_000),
        (ListType(ListType(INT)), [[1] * 10_000] * 10_000),
        (ListType(STRING), ["x" * 1_000_000] * 10_000),
        (MapType(STRING), {"x" * 1_000_000: "x" * 1_000_000}),
        (StructType("S", (("x" * 1_000_000, INT),)), [1]),
        (ListType(StructType("S", (("a", ListType(STRING)),))), [[["x" * 1_000_000] * 10_000]] * 10_000),
    ],
)
def test_one_value_in_many_rows_is_too_large_and_soon_found_so(dtype: DataType, value: Any) -> None:
    count = count_of(dtype)
    assert count is not None
    rows = 2 * MAX_ANSWER_BYTES // 300_000
    with pytest.raises(TooLargeError, match="may have 64 MiB, those of this one have more; ask for fewer rows"):
        check_answer([("a", count), ("b", count)], {"a": [None] * rows, "b": [value] * rows})
