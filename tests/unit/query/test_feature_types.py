"""Tests of the columns that an extractor may return for a feature of each type."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from caraway.dtypes.series import from_series
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
    OptionalType,
    RegexType,
    StructType,
)
from caraway.errors import InvalidInputError

T = datetime(2024, 5, 1, tzinfo=UTC)
PLACE = StructType("Place", (("city", STRING), ("zip", OptionalType(INT))))


def arrow(values: list[Any], kind: Any) -> "pd.Series[Any]":
    return pd.Series(values, dtype=pd.ArrowDtype(kind))


def objects(*values: Any) -> "pd.Series[Any]":
    return pd.Series(list(values), dtype=object)


GOOD: list[tuple[str, DataType, "pd.Series[Any]"]] = [
    ("1", INT, pd.Series([1, 2])),
    ("1", INT, pd.Series([1, 2], dtype="Int64")),
    ("1", INT, arrow([1, 2], pa.int64())),
    ("2", FLOAT, pd.Series([1.5, 2.0])),
    ("2", FLOAT, pd.Series([1, 2])),
    ("2", FLOAT, pd.Series([1, 2], dtype="Int64")),
    ("2", FLOAT, arrow([1.5], pa.float64())),
    ("3", STRING, objects("a")),
    ("3", STRING, pd.Series(["a"], dtype="string")),
    ("3", STRING, arrow(["a"], pa.string())),
    ("3", STRING, objects("a", 1)),
    ("4", BOOL, pd.Series([True])),
    ("4", BOOL, pd.Series([True], dtype="boolean")),
    ("4", BOOL, arrow([True], pa.bool_())),
    ("5", BYTES, objects(b"a")),
    ("5", BYTES, arrow([b"a"], pa.binary())),
    ("6", DATETIME, pd.Series(pd.DatetimeIndex([T]))),
    ("6", DATETIME, pd.Series(pd.DatetimeIndex([T]).as_unit("us"))),
    ("6", DATETIME, arrow([T], pa.timestamp("us", tz="UTC"))),
    ("7", DATE, objects(date(2024, 5, 1))),
    ("7", DATE, arrow([date(2024, 5, 1)], pa.date32())),
    ("8", DecimalType(2), objects(Decimal("1.5"), 2, 0.25)),
    ("8", DecimalType(2), arrow([Decimal("1.50")], pa.decimal128(28, 2))),
    ("9", ListType(INT), objects([1, 2], [], np.array([3]))),
    ("9", ListType(OptionalType(INT)), objects([1, None])),
    ("9", ListType(INT), arrow([[1]], pa.list_(pa.int64()))),
    ("10", MapType(FLOAT), objects({"a": 1.5}, [("b", 2.5)])),
    ("10", MapType(FLOAT), arrow([[("a", 1.5)]], pa.map_(pa.string(), pa.float64()))),
    ("11", EmbeddingType(2), objects([0.5, 1.5], np.array([1.0, 2.0]))),
    ("12", PLACE, objects({"city": "Rome", "zip": None}, {"city": "Oslo", "zip": 3})),
    ("12", PLACE, arrow([{"city": "Rome", "zip": 1}], pa.struct([("city", pa.string()), ("zip", pa.int64())]))),
    ("13", BetweenType(INT, 0, 5, strict_min=False, strict_max=True), pd.Series([0, 4])),
    ("14", OneOfType(STRING, ("a", "b")), objects("a", "b")),
    ("15", RegexType("[a-z]+"), objects("abc")),
    ("16", OptionalType(INT), pd.Series([1, None], dtype="Int64")),
    ("16", OptionalType(STRING), objects("a", None, pd.NA)),
]

BAD: list[tuple[str, DataType, "pd.Series[Any]", str]] = [
    ("1", INT, pd.Series([1], dtype="int32"), "int32"),
    ("1", INT, pd.Series([1.0]), "float64"),
    ("2", FLOAT, pd.Series([1.5], dtype="float32"), "float32"),
    ("3", STRING, pd.Series([1]), "int64"),
    ("4", BOOL, objects(True), "object"),
    ("4", BOOL, pd.Series([1]), "int64"),
    ("5", BYTES, pd.Series(["a"], dtype="string"), "string"),
    ("6", DATETIME, pd.Series(pd.DatetimeIndex([T]).tz_localize(None)), "time zone"),
    ("6", DATETIME, objects(T), "object"),
    ("7", DATE, pd.Series([1]), "int64"),
    ("7", DATE, objects("2024-05-01"), "2024-05-01"),
    ("8", DecimalType(2), objects("1.50"), "1.50"),
    ("9", ListType(INT), objects(["1"]), "list"),
    ("9", ListType(INT), objects([1, None]), "list"),
    ("9", ListType(INT), objects((1, 2)), "tuple"),
    ("10", MapType(FLOAT), objects({1: 1.5}), "dict"),
    ("10", MapType(FLOAT), objects({"a": "x"}), "dict"),
    ("10", MapType(FLOAT), objects(3), "int"),
    ("11", EmbeddingType(2), objects([0.5]), "list"),
    ("12", PLACE, objects({"zip": 1}), "dict"),
    ("12", PLACE, objects({"city": 5, "zip": 1}), "dict"),
    ("13", BetweenType(INT, 0, 5, strict_min=False, strict_max=True), pd.Series([5]), "5"),
    ("14", OneOfType(STRING, ("a", "b")), objects("c"), "c"),
    ("15", RegexType("[a-z]+"), objects("1a"), "1a"),
    ("15", RegexType("[a-z]+"), objects("abc1"), "abc1"),
    ("16", INT, pd.Series([1, None], dtype="Int64"), "null"),
    ("16", OptionalType(INT), pd.Series([1, None]), "Int64"),
]


@pytest.mark.parametrize(
    ("dtype", "column"), [pytest.param(t, c, marks=pytest.mark.spec(f"featuresets:2.8:{row}")) for row, t, c in GOOD]
)
def test_a_column_of_the_type_is_taken(dtype: DataType, column: "pd.Series[Any]") -> None:
    stored = from_series(column, dtype)
    assert len(stored) == len(column)
    assert [value is None for value in stored] == column.isna().tolist()


@pytest.mark.parametrize(
    ("dtype", "column", "said"),
    [pytest.param(t, c, said, marks=pytest.mark.spec(f"featuresets:2.8:{row}")) for row, t, c, said in BAD],
)
def test_another_column_is_refused(dtype: DataType, column: "pd.Series[Any]", said: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        from_series(column, dtype)
    assert said in str(raised.value)


@pytest.mark.parametrize("dtype", [INT, BOOL, ListType(INT), PLACE])
def test_a_column_without_rows_is_not_checked(dtype: DataType) -> None:
    assert from_series(pd.Series([], dtype=float), dtype) == []
