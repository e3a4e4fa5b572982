# Type checkers see classes where decorators make datasets and featuresets, and the tests pass wrong arguments.
# mypy: disable-error-code="misc, type-arg, valid-type"
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal as Number
from typing import Any, Optional, get_args

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.dtypes import Decimal, Embedding, Window, between, oneof, regex
from caraway.dtypes.annotations import dtype_of
from caraway.dtypes.types import (
    DATETIME,
    FLOAT,
    INT,
    BoolType,
    BytesType,
    DataType,
    FloatType,
    IntType,
    ListType,
    MapType,
    StringType,
    StructType,
    stored_type,
)
from caraway.dtypes.values import (
    CONVERSIONS,
    cast,
    check_stored,
    conforms,
    decode,
    from_json,
    has_form,
    to_json,
    verify,
)
from caraway.errors import InvalidInputError
from tests.unit.expr.typed_values import SCHEMA as VALUE_SCHEMA
from tests.unit.expr.typed_values import values as stored_values

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
NOON_US = 1_704_110_400_000_000

ACCEPTED: list[tuple[str, Any, Any, Any]] = [
    # Types 6.2, row by row: type, value, stored form.
    ("6.2:1", int, 3, 3),
    ("6.2:1", int, np.int32(3), 3),
    ("6.2:1", int, 4.0, 4),
    ("6.2:1", int, "12", 12),
    ("6.2:1", int, "12.0", 12),
    ("6.2:1", int, True, 1),
    ("6.2:1", int, -(2**63), -(2**63)),
    ("6.2:2", float, 1, 1.0),
    ("6.2:2", float, np.float32(0.5), 0.5),
    ("6.2:2", float, math.inf, math.inf),
    ("6.2:2", float, "1.5", 1.5),
    ("6.2:2 17:5", float, "Infinity", math.inf),
    ("6.2:2", float, False, 0.0),
    ("6.2:3", bool, True, True),
    ("6.2:3", bool, np.bool_(False), False),
    ("6.2:3", bool, 2, True),
    ("6.2:3 17:5", bool, "TRUE", True),
    ("6.2:4", str, "", ""),
    ("6.2:4", str, True, "true"),
    ("6.2:4", str, 1.5, "1.5"),
    ("6.2:4", str, 7, "7"),
    ("6.2:4", str, "é".encode(), "é"),
    ("6.2:5", bytes, b"a", b"a"),
    ("6.2:5", bytes, "é", "é".encode()),
    ("6.2:5", bytes, {"base64": "/w=="}, b"\xff"),
    ("6.2:6", date, date(1970, 1, 2), 1),
    ("6.2:6", date, NOON, 19_723),
    ("6.2:6", date, "1969-12-31", -1),
    ("6.2:8", Decimal[2], Number("1.20"), "1.20"),
    ("6.2:8", Decimal[2], 3, "3.00"),
    ("6.2:8 17:6", Decimal[2], 1.255, "1.25"),
    ("6.2:8", Decimal[2], "-0.00", "0.00"),
    ("6.2:8", Decimal[10], Number("1E-10"), "0.0000000001"),
    ("6.2:9", Optional[int], None, None),
    ("6.2:9", Optional[int], pd.NA, None),
    ("6.2:9", Optional[float], math.nan, None),
    ("6.2:9", Optional[datetime], pd.NaT, None),
    ("6.2:9", Optional[int], "5", 5),
    # Types 6.3.
    ("6.3:1 6.2:7", datetime, NOON, NOON_US),
    ("6.3:2 6.2:7", datetime, NOON.replace(tzinfo=None), NOON_US),
    ("6.3:1 6.2:7", datetime, NOON.astimezone(timezone(timedelta(hours=5, minutes=30))), NOON_US),
    ("6.3:1 6.2:7", datetime, pd.Timestamp("2024-01-01T12:00:00.123456789Z"), NOON_US + 123_456),
    ("6.3:1 6.2:7", datetime, np.datetime64("2024-01-01T12:00:00"), NOON_US),
    ("6.3:3 6.2:7", datetime, date(2024, 1, 1), NOON_US - 43_200_000_000),
    ("6.3:4 6.2:7", datetime, 1_704_110_400, NOON_US),
    ("6.3:4 6.2:7", datetime, 1_704_110_400.9, NOON_US),
    ("6.3:4 6.2:7", datetime, 1_704_110_400_000, NOON_US),
    ("6.3:4 6.2:7", datetime, 1_704_110_400_000_000, NOON_US),
    ("6.3:4 6.2:7", datetime, 1_704_110_400_000_000_999, NOON_US),
    ("6.3:5 6.2:7", datetime, "1704110400", NOON_US),
    ("6.3:4 6.2:7", datetime, -1, -1_000_000),
    ("6.3:6 6.2:7", datetime, "2024-01-01T12:00:00Z", NOON_US),
    ("6.3:6 6.2:7", datetime, "2024-01-01 17:30:00.000001+05:30", NOON_US + 1),
    ("6.3:7 6.2:7", datetime, "2024-01-01", NOON_US - 43_200_000_000),
    ("6.3:8 6.2:7", datetime, "Mon, 01 Jan 2024 12:00:00 GMT", NOON_US),
    ("6.3:8", datetime, "Mon, 01 Jan 2024 17:30:00 +0530", NOON_US),
    ("6.3:8", datetime, "01 Jan 2024 07:00:00 EST", NOON_US),
    ("6.3:8", datetime, "Mon, 01 Jan 2024 12:00:00 XYZ", NOON_US),
    ("6.3:9", datetime, "Jan 1, 2024 12:00", NOON_US),
    ("6.3:9", datetime, "1/2/2024 01:00", NOON_US + 46_800_000_000),
    ("6.3:10", datetime, pa.scalar(NOON.date(), pa.date32()).as_py(), NOON_US - 43_200_000_000),
    ("6.3:10", datetime, pa.scalar(NOON.date(), pa.date64()).as_py(), NOON_US - 43_200_000_000),
    ("6.3:5", datetime, "-1000", -1_000_000_000),
    ("6.3:4", datetime, 9_223_372_036, 9_223_372_036_000_000),
    ("6.3:4", datetime, 9_223_372_037, 9_223_372_037_000),
    ("6.3:6", datetime, "2024-01-01T12:00:00.123456789Z", NOON_US + 123_456),
    # Types 6.4.
    ("6.4:1", list[int], (1, "2"), [1, 2]),
    ("6.4:1", list[Optional[int]], [None, 1], [None, 1]),
    ("6.4:1", list[float], np.array([1.0]), [1.0]),
    ("6.4:2", dict[str, int], {"b": 1, "a": 2}, {"a": 2, "b": 1}),
    ("6.4:2", dict[str, int], [("a", 1)], {"a": 1}),
    ("6.4:3", Embedding[2], [1, 2], [1.0, 2.0]),
    ("6.4:4", Window, Window(NOON, NOON), [NOON_US, NOON_US]),
    ("6.4:4", Window, {"begin": NOON, "end": "2024-01-01T12:00:00Z", "more": 1}, [NOON_US, NOON_US]),
    # Types 4.
    ("4:2 6.4:5", between(int, 0, 5), 5, 5),
    ("4:2 6.4:5", between(float, 0, 1, strict_min=True), 0.5, 0.5),
    ("4:3 6.4:5", oneof(str, ["a"]), "a", "a"),
    ("4:1 6.4:5", regex("a+"), "aa", "aa"),
]

REFUSED: list[tuple[str, Any, Any]] = [
    ("6.2:1", int, "x"),
    ("6.2:1", int, "1.5"),
    ("6.2:1", int, "1e30"),
    ("6.2:1", int, "1_0"),
    ("6.2:1", int, None),
    ("6.2:1", int, math.nan),
    ("6.2:1", int, [1]),
    ("6.2:2", float, None),
    ("6.2:2", float, math.nan),
    ("6.2:2", float, "nan"),
    ("6.2:2", float, "x"),
    ("6.2:2", float, 10**400),
    ("6.2:3", bool, None),
    ("6.2:4", str, None),
    ("6.2:4", str, b"\xff"),
    ("6.2:5", bytes, None),
    ("6.2:6", date, 3),
    ("6.2:6", date, "01/02/2024"),
    ("6.2:6", date, None),
    ("6.3:11 6.2:7", datetime, None),
    ("6.3:11 6.2:7", datetime, True),
    ("6.3:11 6.2:7", datetime, 2**70),
    ("6.2:8", Decimal[2], "x"),
    ("6.2:8", Decimal[2], Number(10) ** 27),
    ("6.2:8", Decimal[2], True),
    ("6.2:8", Decimal[2], None),
    ("6.4:1", list[int], 3),
    ("6.4:1", list[int], [None]),
    ("6.4:1", list[int], [1.5]),
    ("6.4:2", dict[str, int], 3),
    ("6.4:3", Embedding[2], [1.0]),
    ("6.4:4", Window, {"begin": NOON}),
    ("6.4:4", Window, 3),
    ("4:2 6.4:5 4b:8", between(int, 0, 5), 6),
    ("4:2 6.4:5 4b:8", between(int, 0, 5, strict_max=True), 5),
    ("4:2 6.4:5 4b:8", between(float, 0, 1, strict_min=True), 0),
    ("4:3 6.4:5 4b:8", oneof(int, [1]), 2),
    ("4:1 6.4:5 4b:8", regex("a+"), "aab"),
    ("4:1 6.4:5 4b:8", regex("a+"), "baa"),
]


# The types that a topic, an index and Spark know.
FORMS = (IntType, FloatType, BoolType, StringType, BytesType, ListType, MapType, StructType)


def cases(rows: list[Any]) -> list[Any]:
    """Return the cases, each marked with the rows of the specification that it covers, which come first."""
    return [
        pytest.param(*case, marks=pytest.mark.spec(*[f"types:{row}" for row in ids.split()])) for ids, *case in rows
    ]


@pytest.mark.parametrize(("annotation", "value", "stored"), cases(ACCEPTED))
def test_casting(annotation: Any, value: Any, stored: Any) -> None:
    found = cast(dtype_of(annotation))(value)
    assert found == stored
    assert type(found) is type(stored)


@pytest.mark.parametrize(("annotation", "value"), cases(REFUSED))
def test_refusals_name_what_was_expected_and_found(annotation: Any, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"expected .*found"):
        cast(dtype_of(annotation))(value)


@pytest.mark.parametrize(("annotation", "stored"), [(a, s) for _, a, _, s in ACCEPTED])
def test_what_is_stored_survives_json_and_python(annotation: Any, stored: Any) -> None:
    dtype = dtype_of(annotation)
    assert from_json(dtype)(to_json(dtype)(stored)) == stored
    if stored is not None:
        assert cast(dtype)(decode(dtype)(stored)) == stored


@given(value=st.datetimes(datetime(1800, 1, 1), datetime(2200, 1, 1)))  # noqa: DTZ001 (naive on purpose)
def test_instants_keep_their_microseconds(value: datetime) -> None:
    stored = cast(DATETIME)(value)
    assert decode(DATETIME)(stored) == value.replace(tzinfo=UTC)
    assert cast(DATETIME)(to_json(DATETIME)(stored)) == stored


@given(value=st.one_of(st.none(), st.text(), st.floats(), st.integers(), st.binary(), st.lists(st.integers())))
def test_any_value_is_cast_or_refused(value: Any) -> None:
    for _, annotation, _ in REFUSED:
        try:
            cast(dtype_of(annotation))(value)
        except InvalidInputError:
            continue


def test_json_has_words_for_what_it_lacks() -> None:
    assert [to_json(FLOAT)(value) for value in (math.inf, -math.inf, math.nan)] == ["Infinity", "-Infinity", "NaN"]
    assert math.isnan(from_json(FLOAT)("NaN"))
    assert to_json(DATETIME)(NOON_US) == "2024-01-01T12:00:00Z"


STRICT = [
    # Types 5, the table of elements; featuresets 2.3: defaults are of exactly the type.
    ("5c:1", int, 0, True),
    ("5c:1", int, np.int64(3), True),
    ("5c:1", int, 3.0, False),
    ("5c:1", int, "3", False),
    ("5c:1", int, None, False),
    # A bool is no int here, unlike in Python: T1.
    ("5c:1 2b:1", int, True, False),
    ("5c:2", float, 1.0, True),
    ("5c:2", float, np.float32(1), True),
    ("5c:2 2b:1", float, 1, False),
    ("5c:2", float, True, False),
    ("5c:2 2b:3", float, math.nan, False),
    ("5c:3", bool, np.bool_(True), True),
    ("5c:3", bool, 1, False),
    ("5c:3", bool, "true", False),
    ("5c:4", str, "", True),
    ("5c:4", str, 0.0, False),
    ("5c:4", str, b"a", False),
    ("5c:5", datetime, NOON, True),
    ("5c:5", datetime, pd.Timestamp(NOON), True),
    ("5c:5", datetime, np.datetime64("2024-01-01"), True),
    ("5c:5", datetime, 1_704_110_400, True),
    ("5c:5", datetime, "2024-01-01", False),
    ("5c:6", date, date(2024, 1, 1), True),
    ("5c:6", date, NOON, True),
    ("5c:6", date, 3, False),
    ("5c:6", date, "2024-01-01", False),
    ("5c:7", Decimal[2], Number("1.25"), True),
    ("5c:7", Decimal[2], 1, True),
    ("5c:7", Decimal[2], 1.5, True),
    ("5c:7", Decimal[2], "1.5", False),
    ("5c:7", Decimal[2], Number("1.234"), False),
    ("5c:8", Embedding[2], [1.0, 2.0], True),
    ("5c:8", Embedding[2], np.array([1.0, 2.0]), True),
    ("5c:8", Embedding[2], (1.0, 2.0), False),
    ("5c:8", Embedding[2], [1.0], False),
    ("5c:9", list[int], [1, 2], True),
    ("5c:9", list[int], np.array([1, 2]), True),
    ("5c:9", list[int], (1, 2), False),
    ("5c:9", list[int], 1, False),
    ("5c:9 2b:2", list[int], [None], False),
    ("5c:10", dict[str, int], {"a": 1}, True),
    ("5c:10", dict[str, int], [("a", 1)], True),
    ("5c:10", dict[str, int], {1: 1}, False),
    ("5c:10", dict[str, int], [1], False),
    ("5c:11", Window, {"begin": NOON, "end": NOON}, True),
    ("5c:11", Window, Window(NOON, NOON), True),
    ("5c:11", Window, {"begin": NOON}, False),
    ("5c:11", Window, [NOON, NOON], False),
    ("2:5", bytes, b"a", True),
    ("2:5", bytes, "a", False),
    ("2:12", Optional[int], None, True),
    ("4:2 4b:4", between(int, 0, 1), 2, False),
    ("4:2 4b:4", between(float, 0, 1, strict_max=True), 1.0, False),
    ("4:3", oneof(str, ["a"]), "b", False),
    ("4:1", regex("a"), "ab", False),
]


@pytest.mark.parametrize(("annotation", "value", "expected"), cases(STRICT))
def test_conformance_converts_nothing(annotation: Any, value: Any, expected: bool) -> None:
    assert conforms(value, dtype_of(annotation)) is expected


@pytest.mark.parametrize(
    ("annotation", "value", "fact"),
    [
        (between(int, 0, 5), 6, "between(int, 0, 5"),
        (oneof(str, ["a"]), "b", "oneof"),
        (regex("a"), "b", "regex"),
        (list[int], [1, None], "element 1"),
        (dict[str, between(int, 0, 5)], {"a": 9}, 'key "a"'),
        (Embedding[2], [1.0], "1 elements"),
        (Window, [1, None], "field end"),
        (int, None, "expected int, found null"),
        (Optional[list[regex("a")]], ["a", "b"], "element 1"),
    ],
)
@pytest.mark.spec("types:2b:2", "types:4b:7")
def test_stored_values_are_verified_at_every_depth(annotation: Any, value: Any, fact: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        verify(dtype_of(annotation))(value)
    assert fact in str(caught.value)


@given(data=st.data(), dtype=st.sampled_from(list(VALUE_SCHEMA.values())))
def test_what_is_of_a_type_is_verified_as_such(data: Any, dtype: DataType) -> None:
    verify(dtype)(data.draw(stored_values(dtype)))


def test_casts_are_compiled_once() -> None:
    assert cast(INT) is cast(INT)


@pytest.mark.parametrize(
    "text",
    [
        "9" * 5_000,
        "2024-01-01T12:00:00Z" + "x" * 1_000_000,
        "1 Jan 99999999999999999999 00:00 +0000",
        "1 Jan 2020 00:00 +9999999999999999",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
    ],
)
def test_a_text_that_is_no_instant_is_refused_whatever_its_size(text: str) -> None:
    with pytest.raises(InvalidInputError, match="expected datetime") as refused:
        cast(DATETIME)(text)
    assert len(str(refused.value)) < 500


@given(st.data())
def test_what_a_cast_gives_is_in_stored_form(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(VALUE_SCHEMA)))
    dtype = VALUE_SCHEMA[name]
    check_stored(data.draw(stored_values(dtype)), dtype)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (int, True),
        (int, 1.0),
        (int, 2**63),
        (float, 1),
        (float, math.nan),
        (str, 1),
        (bytes, "a"),
        (datetime, "2024-01-01"),
        (datetime, 2**62),
        (date, "2024-01-01"),
        (date, 10**9),
        (Decimal[2], "1.5"),
        (Decimal[2], 1.5),
        (Embedding[2], [1.0]),
        (Embedding[2], [1, 2]),
        (list[int], [None]),
        (list[date], ["2024-01-01"]),
        (dict[str, int], [["a", 1]]),
        (dict[str, date], {"a": "x"}),
        (Window, {"begin": 0, "end": 1}),
        (Window, [0]),
        (Window, [0, None]),
        (between(int, 0, 5), 6),
        (oneof(str, ["a"]), "b"),
        (regex("a+"), "b"),
        (regex("a+"), 1),
        (int, None),
    ],
)
def test_a_value_in_another_form_is_refused(dtype: Any, value: object) -> None:
    with pytest.raises(InvalidInputError, match="expected"):
        check_stored(value, dtype_of(dtype))


@pytest.mark.parametrize("cls", get_args(DataType))
def test_every_type_has_conversions(cls: type) -> None:
    assert cls in CONVERSIONS


@given(st.data())
def test_a_stored_value_is_one_of_the_stored_type(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(VALUE_SCHEMA)))
    dtype = VALUE_SCHEMA[name]
    value = data.draw(stored_values(dtype))
    assert isinstance(stored_type(dtype), FORMS)
    assert value is None or has_form(value, stored_type(dtype))
