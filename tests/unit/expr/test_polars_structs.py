from typing import Any, Optional

import pytest

from caraway.dtypes import struct
from caraway.expr import Expr, col, lit, make_struct, when
from tests.unit.expr.polars_results import constant, results

COUNTS = {"d": Optional[dict[str, int]], "k": Optional[str]}
SPARSE = {"d": dict[str, Optional[float]]}


@struct
class Inner:
    x: int
    y: Optional[float]


@struct
class Outer:
    name: Optional[str]
    inner: Optional[Inner]


def rule(row: str, expr: Expr, schema: dict[str, Any], *cases: tuple[Any, Any]) -> Any:
    return pytest.param(expr, schema, cases, id=f"{row}: {expr}", marks=pytest.mark.spec(f"types:12.5:{row}"))


@pytest.mark.parametrize(
    ("expr", "schema", "cases"),
    [
        rule("1", col("d").dict.get("a"), COUNTS, (({"a": 1}, ""), 1), (({"b": 1}, ""), None), ((None, ""), None)),
        rule("1", col("d").dict.get("a", 0), COUNTS, (({"a": 1}, ""), 1), (({}, ""), 0), ((None, ""), None)),
        # The default is for a missing key, not for a null value.
        rule("1", col("d").dict.get("a", 1), SPARSE, (({"a": None},), None), (({},), 1.0), (({"a": 2.5},), 2.5)),
        rule("1", col("d").dict.get(col("k")), COUNTS, (({"a": 1, "b": 2}, "b"), 2), (({"a": 1}, None), None)),
        rule("1", col("d").dict.get(col("k"), col("k").str.len()), COUNTS, (({"a": 1}, "bc"), 2), (({}, None), None)),
        rule("2", col("d").dict.len(), COUNTS, (({"a": 1, "b": 2}, ""), 2), (({}, ""), 0), ((None, ""), None)),
        rule("3", col("d").dict.contains("a"), COUNTS, (({"a": 1}, ""), True), (({}, ""), False), ((None, ""), None)),
        rule("3", col("d").dict.contains("a"), SPARSE, (({"a": None},), True)),
        rule("3", col("d").dict.contains(col("k")), COUNTS, (({"a": 1}, "b"), False), (({"a": 1}, None), None)),
    ],
)
def test_dicts_as_the_spec_names_them(
    expr: Expr, schema: dict[str, Any], cases: tuple[tuple[tuple[Any, ...], Any], ...]
) -> None:
    assert results(expr, schema, *[given for given, _ in cases]) == [expected for _, expected in cases]


@pytest.mark.spec("types:12.5:1", "types:5:11")
def test_a_dict_may_be_the_result() -> None:
    rows = [({"a": 1},), (None,)]
    assert results(col("d"), {"d": Optional[dict[str, int]]}, *rows) == [{"a": 1}, None]
    assert results(col("d").fillnull(lit({"z": 0}, dict[str, int])), {"d": Optional[dict[str, int]]}, *rows) == [
        {"a": 1},
        {"z": 0},
    ]


def test_dicts_of_all_values() -> None:
    schema = {"d": dict[str, list[Inner]]}
    assert results(col("d").dict.get("a"), schema, ({"a": [[1, None]]},), ({},)) == [[[1, None]], None]
    assert constant(lit({"a": [1]}, dict[str, list[int]]).dict.get("a", lit([], list[int]))) == [1]


@pytest.mark.spec("types:12.6:1", "types:5:12")
def test_fields_of_structs() -> None:
    schema = {"o": Optional[Outer]}
    rows = [(["a", [1, 2.0]],), (["b", None],), (None,)]
    assert results(col("o").struct.get("name"), schema, *rows) == ["a", "b", None]
    assert results(col("o").struct.get("inner"), schema, *rows) == [[1, 2.0], None, None]
    assert results(col("o").struct.get("inner").struct.get("y"), schema, *rows) == [2.0, None, None]
    # A null struct is not a struct of nulls.
    assert results(col("o").isnull(), schema, *rows, ([None, None],)) == [False, False, True, False]
    assert results(col("o"), schema, *rows, ([None, None],)) == [*[row for (row,) in rows], [None, None]]
    assert results(when(col("o").struct.get("name") == "a").then(col("o")), schema, *rows) == [rows[0][0], None, None]


@pytest.mark.spec("types:11:9")
def test_structs_are_made_in_the_order_of_the_class() -> None:
    schema = {"i": int, "s": Optional[str]}
    inner = make_struct({"y": col("i"), "x": 1}, Inner)
    rows = [(5, "a"), (6, None)]
    assert results(inner, schema, *rows) == [[1, 5.0], [1, 6.0]]
    assert results(make_struct({"inner": inner, "name": col("s")}, Outer), schema, *rows) == [
        ["a", [1, 5.0]],
        [None, [1, 6.0]],
    ]
    assert results(make_struct({"name": lit(None), "inner": lit(None)}, Outer), schema, rows[0]) == [[None, None]]
    assert constant(make_struct({"x": 1, "y": 2}, Inner)) == [1, 2.0]


@struct
class Narrow:
    y: int
    x: int


@pytest.mark.spec("types:9.4:1", "types:11:9")
def test_a_struct_widens_to_another_with_its_fields() -> None:
    schema = {"n": Optional[Narrow], "i": Inner, "b": bool}
    rows = [([1, 2], [3, 0.5], True), (None, [3, 0.5], True), ([1, 2], [3, 0.5], False)]
    expr = when(col("b")).then(col("n")).otherwise(col("i"))
    assert results(expr, schema, *rows) == [[2, 1.0], None, [3, 0.5]]
    assert results(make_struct({"name": "a", "inner": col("n")}, Outer), schema, *rows[:2]) == [
        ["a", [2, 1.0]],
        ["a", None],
    ]
