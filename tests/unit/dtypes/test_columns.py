# Restrictions are values that are used in annotations.
# mypy: disable-error-code="misc, type-arg, valid-type"
"""Tests of columns to and from users' code, row by row of the specification's tables (types, section 5)."""

from datetime import UTC, date, datetime
from decimal import Decimal as Number
from typing import Any, Dict, List, Optional

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.dtypes import Decimal, Embedding, Window, between, oneof, regex, struct
from caraway.dtypes.annotations import dtype_of
from caraway.dtypes.frames import arrow_series
from caraway.dtypes.series import from_series, to_series
from caraway.dtypes.types import DataType, optional
from caraway.dtypes.values import arrow_type
from caraway.errors import InvalidInputError
from tests.unit.expr.typed_values import SCHEMA, values

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
NOON_US = 1_704_110_400_000_000
DECIMALS = pd.ArrowDtype(pa.decimal128(28, 2))
DAYS = pd.ArrowDtype(pa.date32())


def row(ids: str, *case: Any) -> Any:
    """Return a case with the rows that it covers: of types, or after an F of the featuresets' table 2.8."""
    names = [f"featuresets:2.8:{row[1:]}" if row.startswith("F") else f"types:{row}" for row in ids.split()]
    return pytest.param(*case, marks=pytest.mark.spec(*names))


@pytest.mark.parametrize(
    ("annotation", "stored", "dtype", "shown", "arrow"),
    [
        row("5:1", int, 2**62 + 1, "Int64", 2**62 + 1, pa.int64()),
        row("5:2", float, 0.5, "Float64", 0.5, pa.float64()),
        row("5:3", bool, True, "boolean", True, pa.bool_()),
        row("5:4", str, "a", "string", "a", pa.string()),
        row("5:4", regex("a"), "a", "string", "a", pa.string()),
        row("5:5", bytes, b"a", "object", b"a", pa.binary()),
        row("5:6", datetime, NOON_US, "datetime64[ns, UTC]", pd.Timestamp(NOON), pa.timestamp("us", tz="UTC")),
        row("5:7", date, 1, "date32[day][pyarrow]", date(1970, 1, 2), pa.date32()),
        row("5:8", Decimal[2], "1.50", "decimal128(28, 2)[pyarrow]", Number("1.50"), pa.decimal128(28, 2)),
        row("5:9", Embedding[2], [1.0, 2.0], "object", [1.0, 2.0], pa.list_(pa.float64(), 2)),
        row("5:10", List[int], [1, 2], "object", [1, 2], pa.list_(pa.int64())),
        row("5:11", Dict[str, int], {"a": 1}, "object", {"a": 1}, pa.map_(pa.string(), pa.int64())),
        row(
            "5:12",
            Window,
            [NOON_US, NOON_US],
            "object",
            {"begin": NOON, "end": NOON},
            pa.struct([("begin", pa.timestamp("us", tz="UTC")), ("end", pa.timestamp("us", tz="UTC"))]),
        ),
        row("5:13 4b:8", between(int, 0, 5), 3, "Int64", 3, pa.int64()),
        row("5:13 4b:8", oneof(str, ["a"]), "a", "string", "a", pa.string()),
    ],
)
def test_columns_for_user_code(annotation: Any, stored: Any, dtype: str, shown: Any, arrow: pa.DataType) -> None:
    kind = optional(dtype_of(annotation))
    series = to_series([stored, None], kind, name="x", index=pd.RangeIndex(2))
    assert (str(series.dtype), series[0]) == (dtype, shown)
    assert series[1] is (pd.NaT if dtype.startswith("datetime") else pd.NA)
    assert arrow_type(kind) == arrow
    assert arrow_series([stored, None], kind).isna().tolist() == [False, True]


@given(data=st.data(), dtype=st.sampled_from(list(SCHEMA.values())))
@pytest.mark.spec("types:5:12")
def test_columns_come_back_from_user_code_as_they_were(data: Any, dtype: DataType) -> None:
    # Users' code sees instants in nanoseconds, whose years are 1677 to 2262; the drawn ones are between.
    stored = data.draw(st.lists(values(dtype), max_size=3))
    series = to_series(stored, dtype, name="x", index=pd.RangeIndex(len(stored)), seal=dict)
    assert from_series(series, dtype) == stored


def arrow(values: list[Any], kind: pa.DataType) -> "pd.Series[Any]":
    return pd.Series(values, dtype=pd.ArrowDtype(kind))


OF_ARROW = pa.struct([("city", pa.string()), ("zip", pa.int64())])


@struct
class Place:
    city: str
    zip: Optional[int]


@pytest.mark.parametrize(
    ("annotation", "series", "stored"),
    [
        row("5b:1 F1", int, pd.Series([1], dtype="int64"), [1]),
        row("5b:1 F1 F16", Optional[int], pd.Series([1, None], dtype="Int64"), [1, None]),
        row("5b:1 F1 F13", between(int, 0, 5), pd.Series([1], dtype="int64[pyarrow]"), [1]),
        row("F13", between(int, 0, 5, strict_max=True), pd.Series([0, 4]), [0, 4]),
        row("5b:1", oneof(int, [1]), pd.Series([1]), [1]),
        row("5b:2 F2", float, pd.Series([1.5]), [1.5]),
        row("5b:2 2b:3", Optional[float], pd.Series([1.5, np.nan]), [1.5, None]),
        row("5b:2", float, pd.Series([1.5], dtype="Float64"), [1.5]),
        row("5b:2 F2", float, pd.Series([1.5], dtype="double[pyarrow]"), [1.5]),
        row("5b:2 F2", float, pd.Series([1]), [1.0]),
        row("5b:2 F2", between(float, 0, 1), pd.Series([1], dtype="Int64"), [1.0]),
        row("5b:3 F3", str, pd.Series(["a"]), ["a"]),
        row("F3", str, pd.Series(["a", 1], dtype=object), ["a", "1"]),
        row("F3", str, pd.Series([np.str_("a"), NOON.date(), True], dtype=object), ["a", str(NOON.date()), "True"]),
        row("F16", Optional[str], pd.Series(["a", None, pd.NA], dtype=object), ["a", None, None]),
        row("5b:3 F3 F15", regex("a+"), pd.Series(["aa"], dtype="string"), ["aa"]),
        row("5b:3 F3 F14", oneof(str, ["a"]), pd.Series(["a"], dtype="string[pyarrow]"), ["a"]),
        row("5b:4 F5", bytes, pd.Series([b"a"]), [b"a"]),
        row("5b:4 F5", bytes, pd.Series([b"a"], dtype="binary[pyarrow]"), [b"a"]),
        row("5b:5 F4", bool, pd.Series([True]), [True]),
        row("5b:5 F4", Optional[bool], pd.Series([True, None], dtype="boolean"), [True, None]),
        row("5b:5 F4", bool, pd.Series([True], dtype="bool[pyarrow]"), [True]),
        row("5b:6 F6", datetime, pd.Series([NOON]), [NOON_US]),
        row("5b:6 F6", datetime, pd.Series([NOON]).dt.as_unit("us"), [NOON_US]),
        row("5b:6 F6", datetime, pd.Series([NOON], dtype="timestamp[us, tz=UTC][pyarrow]"), [NOON_US]),
        row("5b:7 F7", date, pd.Series([date(1970, 1, 2)]), [1]),
        row("5b:7 F7", date, pd.Series([date(1970, 1, 2)], dtype=DAYS), [1]),
        row("5b:7 F8", Decimal[2], pd.Series([Number("1.5"), 2, 0.25], dtype=object), ["1.50", "2.00", "0.25"]),
        row("5b:7 F8", Decimal[2], pd.Series([Number("1.50")], dtype=DECIMALS), ["1.50"]),
        row("5b:7 F11", Embedding[2], pd.Series([[1.0, 2.0], np.array([0.5, 1.5])]), [[1.0, 2.0], [0.5, 1.5]]),
        row("5b:7 F9", List[int], pd.Series([[1, 2], [], np.array([3])]), [[1, 2], [], [3]]),
        row("F9", List[Optional[int]], pd.Series([[1, None]]), [[1, None]]),
        row("F9", List[int], arrow([[1]], pa.list_(pa.int64())), [[1]]),
        row("5b:7", Dict[str, int], pd.Series([{"a": 1}]), [{"a": 1}]),
        row("F10", Dict[str, float], pd.Series([{"a": 1.5}, [("b", 2.5)]]), [{"a": 1.5}, {"b": 2.5}]),
        row("F10", Dict[str, float], arrow([[("a", 1.5)]], pa.map_(pa.string(), pa.float64())), [{"a": 1.5}]),
        row("5b:7", Optional[Window], pd.Series([{"begin": NOON, "end": NOON}, None]), [[NOON_US, NOON_US], None]),
        row("F12", Place, pd.Series([{"city": "Rome", "zip": None}]), [["Rome", None]]),
        row("F12", Place, arrow([{"city": "Rome", "zip": 1}], OF_ARROW), [["Rome", 1]]),
        # A column without rows is of any type.
        row("5b:1", int, pd.Series([], dtype=object), []),
        row("F9", List[int], pd.Series([], dtype=float), []),
    ],
)
def test_columns_that_user_code_may_return(annotation: Any, series: "pd.Series[Any]", stored: list[Any]) -> None:
    found = from_series(series, dtype_of(annotation))
    assert found == stored
    assert [type(value) for value in found] == [type(value) for value in stored]


@pytest.mark.parametrize(
    ("annotation", "series", "facts"),
    [
        row("F1", int, pd.Series([1], dtype="int32"), "int|int32"),
        row("5b:1 F1", int, pd.Series([1.0]), "int|float64"),
        row("5b:1", int, pd.Series(["1"]), "int|object"),
        row("5b:1", int, pd.Series([True]), "int|bool"),
        row("5b:1 2b:2 F16", int, pd.Series([1, None], dtype="Int64"), "int|row 1|null"),
        row("F16", Optional[int], pd.Series([1, None]), "Int64"),
        row("5b:1 4b:4 F13", between(int, 0, 5, strict_max=True), pd.Series([5]), "row 0|between"),
        row("5b:2 2b:3", float, pd.Series([np.nan]), "float|row 0|null"),
        row("5b:2", float, pd.Series([True]), "float|bool"),
        row("F2", float, pd.Series([1.5], dtype="float32"), "float|float32"),
        row("5b:3 F3", str, pd.Series([1]), "str|int64"),
        *(
            row("5b:3", str, pd.Series(["a", value], dtype=object), f"row 1|expected str, found {type(value).__name__}")
            for value in (b"a", bytearray(b"a"), [1], (1,), {"a": 1}, {1}, np.array([1]))
        ),
        row("5b:3 4:1 F15", regex("a"), pd.Series(["ab"]), "row 0|regex"),
        row("F15", regex("a"), pd.Series(["ba"]), "row 0|regex"),
        row("F14", oneof(str, ["a"]), pd.Series(["c"]), "row 0|'c'"),
        row("5b:4 F5", bytes, pd.Series(["a"], dtype="string"), "bytes|string"),
        row("5b:4", bytes, pd.Series(["a"]), "bytes|str 'a'"),
        row("5b:5 F4", bool, pd.Series([1]), "bool|int64"),
        row("F4", bool, pd.Series([True], dtype=object), "bool|object"),
        row("5b:6 F6", datetime, pd.Series([NOON.replace(tzinfo=None)]), "datetime|datetime64[ns]|tz_localize"),
        row("5b:6", datetime, pd.Series(["2024-01-01"]), "datetime|object"),
        row("F6", datetime, pd.Series([NOON], dtype=object), "datetime|object"),
        row("5b:7 F7", date, pd.Series(["2024-01-01"]), "date|str|2024-01-01"),
        row("F7", date, pd.Series([1]), "date|int64"),
        row("5b:7 F8", Decimal[2], pd.Series(["1.5"]), "Decimal[2]|str"),
        row("5b:7 F11", Embedding[2], pd.Series([[1.0]]), "Embedding[2]|list"),
        row("5b:7", List[int], pd.Series([[1.5]]), "List[int]|1.5"),
        row("F9", List[int], pd.Series([["1"]]), "List[int]|list"),
        row("F9", List[int], pd.Series([(1, 2)]), "List[int]|tuple"),
        row("5b:7 2b:2 F9", List[int], pd.Series([[None]]), "List[int]|list"),
        row("5b:7 F10", Dict[str, int], pd.Series([{"a": "b"}]), "Dict[str, int]|b|dict"),
        row("F10", Dict[str, int], pd.Series([{1: 2}]), "Dict[str, int]|dict"),
        row("F10", Dict[str, int], pd.Series([3], dtype=object), "Dict[str, int]|int"),
        row("5b:7", Window, pd.Series([{"begin": NOON}]), "Window"),
        row("F12", Place, pd.Series([{"zip": 1}]), "Place|dict"),
        row("F12", Place, pd.Series([{"city": 5, "zip": 1}]), "Place|dict"),
    ],
)
def test_columns_that_user_code_may_not_return(annotation: Any, series: "pd.Series[Any]", facts: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        from_series(series, dtype_of(annotation))
    assert [fact for fact in facts.split("|") if fact not in str(caught.value)] == [], str(caught.value)
