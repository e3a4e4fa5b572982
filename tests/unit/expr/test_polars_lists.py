import math
from datetime import UTC, datetime
from typing import Any, Optional

import pytest

from caraway.dtypes import struct
from caraway.dtypes.types import EmbeddingType
from caraway.errors import InvalidInputError
from caraway.expr import Expr, col, lit, now, repeat, var
from caraway.expr.expr import zip as zipped
from tests.unit.expr.polars_results import constant, results, same

INTS = {"l": Optional[list[int]]}
SPARSE = {"l": Optional[list[Optional[int]]]}
FLOATS = {"l": list[Optional[float]]}
TRUTHS = {"l": Optional[list[Optional[bool]]]}


@struct
class Point:
    x: int
    y: Optional[float]


def rule(row: str, expr: Expr, schema: dict[str, Any], *cases: tuple[Any, Any]) -> Any:
    return pytest.param(expr, schema, cases, id=f"{row}: {expr}", marks=pytest.mark.spec(f"types:12.4:{row}"))


@pytest.mark.parametrize(
    ("expr", "schema", "cases"),
    [
        rule("1", col("l").list.len(), SPARSE, ([1, None], 2), ([], 0), (None, None)),
        rule("1", col("l").list.len(), {"l": EmbeddingType(3)}, ([1.0, 2.0, 3.0], 3)),
        rule("2", col("l").list.at(0), SPARSE, ([1, 2], 1), ([None], None), ([], None), (None, None)),
        rule("2", col("l").list.at(-1), INTS, ([1, 2], 2), ([], None)),
        rule("2", col("l").list.at(2), INTS, ([1, 2], None)),
        rule("2", col("l").list.at(-3), INTS, ([1, 2], None)),
        rule("2", col("l").list.at(-(2**63)), INTS, ([1, 2], None)),
        rule("2", col("l").list.at(2**63 - 1), INTS, ([1, 2], None)),
        rule("2", col("l").list.at(col("l").list.len() - 1), INTS, ([1, 2], 2), (None, None)),
        rule("2", col("l").list.at(1), {"l": EmbeddingType(2)}, ([1.0, 2.0], 2.0)),
        # These are the rows of the truth table.
        rule("3", col("l").list.contains(1), SPARSE, (None, None), ([], False), ([1, None], True), ([2, None], None)),
        rule("3", col("l").list.contains(1), INTS, ([2, 1], True), ([2], False)),
        rule("3", col("l").list.contains(lit(None)), SPARSE, ([1], None), ([], False), ([None], None), (None, None)),
        rule("3", col("l").list.contains(col("l").list.at(0)), SPARSE, ([1], True), ([None, 1], None), ([], False)),
        rule("3", col("l").list.contains(1), FLOATS, ([1.0], True), ([1.5], False)),
        rule("3", col("l").list.contains(math.nan), FLOATS, ([math.nan], True), ([1.0], False)),
        rule("4", col("l").list.hasnull(), SPARSE, ([1, None], True), ([1], False), ([], False), (None, None)),
        rule("5", col("l").list.sum(), SPARSE, ([1, 2], 3), ([], 0), ([1, None], None), (None, None)),
        rule("5", col("l").list.sum(), INTS, ([2**63 - 1, 1], -(2**63))),
        rule("5", col("l").list.sum(), FLOATS, ([0.1, 0.2, 0.3], 0.1 + 0.2 + 0.3), ([], 0.0), ([-0.0], 0.0)),
        rule("6", col("l").list.min(), SPARSE, ([2, 1], 1), ([], None), ([1, None], None), (None, None)),
        rule("6", col("l").list.max(), SPARSE, ([1, 2], 2), ([], None), ([1, None], None), (None, None)),
        rule("6", col("l").list.max(), FLOATS, ([1.0, math.nan], math.nan), ([-0.0], 0.0)),
        rule("6", col("l").list.min(), FLOATS, ([1.0, math.nan], 1.0), ([math.nan], math.nan), ([0.0, -0.0], 0.0)),
        rule("7", col("l").list.mean(), SPARSE, ([1, 2], 1.5), ([], None), ([1, None], None), (None, None)),
        rule("7", col("l").list.mean(), FLOATS, ([0.1, 0.2, 0.3], (0.1 + 0.2 + 0.3) / 3)),
        rule("8", col("l").list.all(), TRUTHS, ([True], True), ([True, False], False), ([], True), (None, None)),
        rule("8", col("l").list.all(), TRUTHS, ([False, None], None), ([True, None], None)),
        rule("9", col("l").list.any(), TRUTHS, ([False], False), ([False, True], True), ([], False), (None, None)),
        rule("9", col("l").list.any(), TRUTHS, ([True, None], True), ([False, None], None)),
        rule("10", col("l").list.filter("x", var("x") > 1), INTS, ([1, 2, 3], [2, 3]), ([], []), (None, None)),
        rule("10", col("l").list.filter("x", (var("x") > 1).fillnull(var("x").isnull())), SPARSE, ([None, 1], [None])),
        rule("10", col("l").list.filter("x", var("x") > 1.0), {"l": EmbeddingType(2)}, ([1.0, 2.0], [2.0])),
        rule("10", col("l").list.filter("x", lit(1) == 1), INTS, ([1, 2], [1, 2]), ([], []), (None, None)),
        rule("11", col("l").list.map("x", var("x") + 1), SPARSE, ([1, None], [2, None]), ([], []), (None, None)),
        rule("11", col("l").list.map("x", lit("a")), INTS, ([1, 2], ["a", "a"]), ([], []), (None, None)),
        rule("11", col("l").list.map("x", var("x").num.to_string()), INTS, ([1], ["1"])),
        rule("11", col("l").list.map("x", var("x") / 0.0), FLOATS, ([0.0, None], [math.nan, None])),
        rule("11", col("l").list.map("e", var("e").list.sum()), {"l": list[list[int]]}, ([[1, 2], []], [3, 0])),
        rule("11", col("l").list.map("l", var("l").struct.get("y")), {"l": list[Point]}, ([[1, 2.0]], [2.0])),
    ],
)  # fmt: skip
def test_lists_as_the_spec_names_them(expr: Expr, schema: dict[str, Any], cases: tuple[tuple[Any, Any], ...]) -> None:
    found = results(expr, schema, *[(given,) for given, _ in cases])
    assert same(found, [expected for _, expected in cases])


@pytest.mark.spec("types:12.4:11", "types:11:6")
def test_a_body_may_refer_to_the_columns_of_its_row() -> None:
    schema = {"l": Optional[list[int]], "x": int, "s": str}
    rows = [([1, 2], 10, "a"), (None, 20, "b"), ([], 30, "c"), ([3], 40, "d")]
    assert results(col("l").list.map("x", var("x") * col("x")), schema, *rows) == [[10, 20], None, [], [120]]
    assert results(col("l").list.map("x", col("s")), schema, *rows) == [["a", "a"], None, [], ["d"]]
    assert results(col("l").list.filter("e", var("e") * 20 == col("x")), schema, *rows) == [[], None, [], []]
    assert results(lit([1, 2], list[int]).list.map("e", var("e") + col("x")), schema, *rows[:2]) == [[11, 12], [21, 22]]


def test_bodies_may_read_formats_and_the_time() -> None:
    schema = {"l": list[str]}
    assert results(col("l").list.map("e", var("e").str.strptime("%s")), schema, (["1", "2"],)) == [
        [1_000_000, 2_000_000]
    ]
    since = col("l").list.map("e", now().dt.since(var("e").str.strptime("%s")))
    assert results(since, schema, (["1", "2"],), ([],), now=5_000_000) == [[4, 3], []]


@pytest.mark.spec("types:12.4:3")
def test_lists_contain_values_of_all_types() -> None:
    schema = {"l": list[Optional[list[Optional[int]]]], "x": list[Optional[int]]}
    rows = [([[1, None]], [1, None]), ([[1], None], [2]), ([[1]], [1, 2])]
    assert results(col("l").list.contains(col("x")), schema, *rows) == [True, None, False]
    points = {"l": list[Point], "x": Optional[Point]}
    assert results(col("l").list.contains(col("x")), points, ([[1, None]], [1, None]), ([[1, None]], None)) == [
        True,
        None,
    ]
    assert results(
        lit([datetime(1970, 1, 1, tzinfo=UTC)], list[datetime]).list.contains(col("t")), {"t": datetime}, (0,), (1,)
    ) == [True, False]


@pytest.mark.spec("types:11:7")
@pytest.mark.parametrize(
    ("annotation", "value"),
    [(int, 1), (Optional[str], None), (list[int], [1, 2]), (Point, [1, None]), (Optional[Point], None)],
)
def test_a_value_is_repeated(annotation: Any, value: Any) -> None:
    schema = {"v": annotation, "n": int}
    assert results(repeat(col("v"), col("n")), schema, (value, 2), (value, 0)) == [[value, value], []]
    assert results(repeat(col("v"), 1), schema, (value, 0)) == [[value]]


@pytest.mark.spec("types:11:7")
def test_a_negative_count_fails() -> None:
    assert constant(repeat("a", 2)) == ["a", "a"]
    with pytest.raises(InvalidInputError, match=r"repeat\(\): the count -1 is negative"):
        results(repeat(1, col("n")), {"n": int}, (1,), (-1,))


@pytest.mark.spec("types:11:8")
def test_lists_are_zipped_to_the_shortest() -> None:
    schema = {"a": list[int], "b": list[Optional[int]]}
    expr = zipped(Point, {"y": col("b"), "x": col("a")})
    rows = [([1, 2, 3], [4, None]), ([], [1]), ([1], [2, 3])]
    assert results(expr, schema, *rows) == [[[1, 4.0], [2, None]], [], [[1, 2.0]]]
    assert results(zipped(Point, {"x": lit([7], list[int]), "y": col("b")}), schema, rows[0]) == [[[7, 4.0]]]
