"""Tests of users' functions of frames: their input, the results that they may return, and the errors when they fail."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from caraway.compute.reference.changes import SourceChange
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
    StructType,
    optional,
)
from caraway.errors import InvalidInputError
from caraway.graph.operators import AssignFunction, FilterFunction, Input, Operator, Transform
from tests.unit.compute.reference.building import (
    S,
    dataset,
    engine_of,
    events,
    function,
    output,
    row,
    seconds,
    value_at,
    versions,
)

Frame = pd.DataFrame

STRUCT = StructType(name="Place", fields=(("lat", FLOAT), ("name", optional(STRING))))
MANY: dict[str, tuple[DataType, object]] = {
    "i": (INT, 2**60 + 1),
    "f": (FLOAT, 1.5),
    "b": (BOOL, True),
    "s": (STRING, "text"),
    "raw": (BYTES, b"\0"),
    "at": (DATETIME, 1_500_000),
    "day": (DATE, 20_000),
    "d": (DecimalType(2), "1.50"),
    "e": (EmbeddingType(2), [1.0, 2.0]),
    "l": (ListType(INT), [1, 2]),
    "m": (MapType(INT), {"a": 1}),
    "p": (STRUCT, [1.5, None]),
    "in": (BetweenType(of=INT, minimum=0, maximum=9), 5),
}
WIDE = dataset(
    "Wide",
    {**{name: dtype for name, (dtype, _) in MANY.items()}, "none": optional(INT), "t": DATETIME},
)
WIDE_ROW = {**{name: value for name, (_, value) in MANY.items()}, "none": None, "t": 3 * S}


def filtered(python: Callable[[Frame], Any], of: Operator = events) -> FilterFunction:
    return FilterFunction(of=of, function=function(python))


def assigned(python: Callable[[Frame], Any], dtype: DataType = INT, of: Operator = events) -> AssignFunction:
    return AssignFunction(of=of, column="n", dtype=dtype, function=function(python))


def transformed(
    python: Callable[[Frame], Any], columns: dict[str, DataType] | None = None, of: Operator = events
) -> Transform:
    schema = None if columns is None else tuple(columns.items())
    return Transform(of=of, function=function(python), columns=schema)


def fails(operator: Operator, message: str, rows: list[dict[str, Any]] | None = None) -> None:
    """Assert that logging fails with `message`, names the step, and stores nothing."""
    engine = engine_of(operator)
    with pytest.raises(InvalidInputError, match=f"dataset Out, pipeline made: {message}"):
        engine.append("Events", rows or [row("a", 1, 2)])
    assert engine.rows("Events") == []
    assert engine.rows("Out") == []


COLUMN_TYPES = [
    ("int", "i", "Int64"),
    ("float", "f", "Float64"),
    ("bool", "b", "boolean"),
    ("str, regex", "s", "string"),
    ("bytes", "raw", "object"),
    ("date", "day", "date32[day][pyarrow]"),
    ("Decimal[n]", "d", "decimal128(28, 2)[pyarrow]"),
    ("datetime", "at", "datetime64[ns, UTC]"),
    ("Embedding[n]", "e", "object"),
    ("List[T]", "l", "object"),
    ("Dict[str,T]", "m", "object"),
    ("struct", "p", "object"),
    ("between / oneof", "in", "Int64"),
]


@pytest.mark.parametrize(
    ("column", "dtype"), [pytest.param(c, d, marks=pytest.mark.spec(f"types:5:{line}")) for line, c, d in COLUMN_TYPES]
)
def test_columns_that_a_function_gets(column: str, dtype: str) -> None:
    def check(frame: Frame) -> Any:
        if str(frame[column].dtype) != dtype:
            raise AssertionError(f"{column} is {frame[column].dtype}")
        return frame["i"]

    operator = AssignFunction(of=Input(dataset="Wide"), column="n", dtype=INT, function=function(check))
    assert output(operator, [WIDE], Wide=[WIDE_ROW])[0]["n"] == 2**60 + 1


def test_values_that_a_function_gets() -> None:
    def check(frame: Frame) -> Any:
        first = frame.iloc[0]
        expected = {
            "i": 2**60 + 1,
            "raw": b"\0",
            "at": pd.Timestamp(1.5, unit="s", tz="UTC"),
            "day": date(2024, 10, 4),
            "d": Decimal("1.50"),
            "e": [1.0, 2.0],
            "l": [1, 2],
            "t": datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC),
        }
        found = {name: first[name] for name in expected}
        if (
            found != expected
            or first["none"] is not pd.NA
            or first["p"] != {"lat": 1.5, "name": None}
            or first["m"] != {"a": 1}
        ):
            raise AssertionError(str(dict(first)))
        return frame["i"]

    operator = AssignFunction(of=Input(dataset="Wide"), column="n", dtype=INT, function=function(check))
    assert output(operator, [WIDE], Wide=[WIDE_ROW])[0]["n"] == 2**60 + 1


def test_filter_takes_null_for_false() -> None:
    rows = [row("a", 1, 1, 2.5), row("a", 2, 2), row("a", 3, 3, 0.5)]
    assert seconds(output(filtered(lambda df: df["y"] > 1), Events=rows), "x") == [(1, 1)]
    objects = filtered(lambda df: pd.Series([True, None, False], dtype=object))
    assert seconds(output(objects, Events=rows), "x") == [(1, 1)]


def test_filter_wants_booleans() -> None:
    fails(filtered(lambda df: df["x"]), "filter: its function returned a column of Int64; bool is expected")
    fails(filtered(lambda df: df), "filter: its function returned DataFrame")
    fails(filtered(lambda df: pd.Series([True] * 7)), "filter: its function returned 7 values for 1 rows")


def test_filter_of_a_table_deletes() -> None:
    engine = engine_of(filtered(lambda df: df["x"] > 0, versions), Versions=[row("a", 1, 2), row("a", 0, 5)])
    assert value_at(engine, ("a",), 4, "x") == (1,)
    assert value_at(engine, ("a",), 5, "x") is None


@pytest.mark.parametrize(
    "python",
    [
        lambda df: df["x"] * 2,
        lambda df: (df["x"] * 2).to_numpy(dtype="int64"),
        lambda df: (df["x"] * 2).array,
        lambda df: [x * 2 for x in df["x"]],
        lambda df: (df["x"] * 2).sort_values(ascending=False),
        lambda df: pd.Series([2, 4], index=["a", "b"]),
    ],
)
def test_assign_takes_a_value_for_each_row(python: Callable[[Frame], Any]) -> None:
    rows = output(assigned(python), Events=[row("a", 1, 1), row("a", 2, 2)])
    assert seconds(rows, "x", "n") == [(1, 2, 1), (2, 4, 2)]


def test_assign_repeats_a_scalar_and_may_replace_a_column() -> None:
    assert seconds(output(assigned(lambda df: 7), Events=[row("a", 1, 1), row("b", 1, 2)]), "n") == [(7, 1), (7, 2)]
    replaced = AssignFunction(of=events, column="x", dtype=STRING, function=function(lambda df: df["k"] + "!"))
    assert output(replaced, Events=[row("a", 1, 1)])[0]["x"] == "a!"


def test_assign_widens_ints_to_floats_and_casts_nothing_else() -> None:
    widened = output(assigned(lambda df: df["x"], FLOAT), Events=[row("a", 1, 1)])[0]["n"]
    assert (widened, type(widened)) == (1.0, float)
    fails(assigned(lambda df: df["x"] * 1.0), "assign: column n is declared int, but the column is Float64")
    fails(assigned(lambda df: df["x"].astype("string")), "assign: column n is declared int, but the column is string")
    fails(assigned(lambda df: df["y"], FLOAT), "assign: column n is declared float, but row 0 is null")
    fails(
        assigned(lambda df: df["x"], BetweenType(of=INT, minimum=5, maximum=9)),
        "assign: column n row 0: expected between",
    )


def test_an_exception_names_its_function_and_says_what_it_was() -> None:
    fails(assigned(lambda df: df["absent"]), "assign: column n: its function made_by_user raised KeyError: 'absent'")
    fails(filtered(lambda df: 1 / 0), "filter: its function made_by_user raised ZeroDivisionError: division by zero")
    fails(transformed(lambda df: df.nonsense), "transform: its function made_by_user raised AttributeError: ")


def test_a_function_is_not_called_without_rows() -> None:
    for operator in (filtered(lambda df: 1 / 0), assigned(lambda df: 1 / 0), transformed(lambda df: 1 / 0)):
        engine = engine_of(operator)
        engine.append("Events", [])
        assert engine.rows("Out") == []


def test_transform_gives_all_columns() -> None:
    doubled = transformed(lambda df: df.assign(x=df["x"] * 2, y=1.5))
    assert output(doubled, Events=[row("a", 1, 2)]) == [row("a", 2, 2, 1.5)]
    schema: dict[str, DataType] = {"k": STRING, "t": DATETIME, "z": FLOAT}
    narrowed = transformed(lambda df: df[["k", "t"]].assign(z=df["x"] / 2), schema)
    assert output(narrowed, Events=[row("a", 1, 2)]) == [{"k": "a", "z": 0.5, "t": 2 * S}]


@pytest.mark.spec("datasets:7.6:3")
def test_transform_without_a_schema_must_give_the_inputs_columns() -> None:
    fails(
        transformed(lambda df: df[["k", "t"]].assign(z=1)),
        "transform: its function returned the columns k, t, z; expected are k, x, y, t, those of its input",
    )


@pytest.mark.spec("datasets:7.6:4")
def test_transform_must_give_the_schemas_columns() -> None:
    schema: dict[str, DataType] = {"k": STRING, "t": DATETIME, "z": FLOAT}
    fails(
        transformed(lambda df: df, schema),
        "transform: its function returned the columns k, x, y, t; expected are k, t, z, those of schema=",
    )


@pytest.mark.spec("datasets:7.6:5")
def test_transform_must_give_all_rows() -> None:
    fails(transformed(lambda df: df.iloc[:0]), "transform: its function returned 0 rows for 1")
    fails(transformed(lambda df: pd.concat([df, df])), "transform: its function returned 2 rows for 1")


@pytest.mark.spec("datasets:7.6:6")
def test_transform_must_give_a_frame() -> None:
    fails(transformed(lambda df: None), "transform: its function returned NoneType; a DataFrame is expected")


@pytest.mark.spec("datasets:7.6:7")
def test_transform_casts_what_it_can() -> None:
    assert output(transformed(lambda df: df.assign(x="12")), Events=[row("a", 1, 2)])[0]["x"] == 12
    fails(transformed(lambda df: df.assign(x="twelve")), r"transform: column x \(int\), row 0: expected int, found str")
    fails(transformed(lambda df: df.assign(x=None)), r"transform: column x \(int\), row 0: expected int, found null")
    optional_column = transformed(lambda df: df.assign(y=np.nan))
    assert output(optional_column, Events=[row("a", 1, 2, 0.5)])[0]["y"] is None


def test_transform_keeps_keys_times_and_validity() -> None:
    engine = engine_of(transformed(lambda df: df.assign(x=df["x"] + 1), of=versions), Versions=[row("a", 1, 2)])
    engine.apply_changes("Versions", [SourceChange(time_us=5 * S, row={"k": "a"}, delete=True)])
    assert value_at(engine, ("a",), 4, "x") == (2,)
    assert value_at(engine, ("a",), 5, "x") is None

    def shifted(df: Frame) -> Frame:
        return df.assign(t=df["t"] + pd.Timedelta("1s"))

    engine = engine_of(transformed(shifted, of=versions))
    with pytest.raises(InvalidInputError, match="transform: its function changed t of row 0"):
        engine.append("Versions", [row("a", 1, 2)])


def test_transform_may_sort_rows() -> None:
    ordered = transformed(lambda df: df.sort_values("x"))
    assert seconds(output(ordered, Events=[row("a", 2, 1), row("b", 1, 2)]), "k", "x") == [("a", 2, 1), ("b", 1, 2)]


def test_a_function_is_unpickled_once() -> None:
    # The function counts its calls in a variable that it closes over.
    calls: list[int] = []

    def counting(df: Frame) -> Any:
        calls.append(len(df))
        return pd.Series([len(calls)] * len(df))

    engine = engine_of(assigned(counting))
    for time in range(3):
        engine.append("Events", [row("a", time, time)])
    assert [r["n"] for r in engine.rows("Out")] == [3, 3, 3]
