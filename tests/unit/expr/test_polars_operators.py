from decimal import Decimal as Number
from typing import Any, Optional

import pytest

from caraway.dtypes import between, oneof, regex, struct
from caraway.dtypes.types import DecimalType, EmbeddingType
from caraway.expr import Expr, col, lit, now, when
from caraway.expr.polars.compiler import compile_expr
from tests.unit.expr.polars_results import constant, results, same

TRUTH = {"T": True, "F": False, "null": None}


@pytest.mark.parametrize(
    ("left", "and_", "or_"),
    [
        pytest.param("T", ["T", "F", "null"], ["T", "T", "T"], marks=pytest.mark.spec("types:10.2:1")),
        pytest.param("F", ["F", "F", "F"], ["T", "F", "null"], marks=pytest.mark.spec("types:10.2:2")),
        pytest.param("null", ["null", "F", "null"], ["T", "null", "null"], marks=pytest.mark.spec("types:10.2:3")),
    ],
)
def test_logic_is_of_three_values(left: str, and_: list[str], or_: list[str]) -> None:
    schema = {"a": Optional[bool], "b": Optional[bool]}
    rows = [(TRUTH[left], right) for right in TRUTH.values()]
    assert results(col("a") & col("b"), schema, *rows) == [TRUTH[word] for word in and_]
    assert results(col("a") | col("b"), schema, *rows) == [TRUTH[word] for word in or_]


def test_not_null_is_null() -> None:
    assert results(~col("a"), {"a": Optional[bool]}, (True,), (None,)) == [False, None]


@struct
class Inner:
    x: Optional[int]
    tags: list[str]


@pytest.mark.spec("types:17:1", "types:17:2", "types:17:3", "types:10.1:2")
@pytest.mark.parametrize(
    ("annotation", "values"),
    [
        (DecimalType(2), ["1.50", "-0.01"]),
        (bytes, [b"a", b""]),
        (list[Optional[float]], [[1.0, None], [1.0]]),
        (dict[str, Optional[int]], [{"a": None}, {"a": 1}]),
        (Inner, [[None, ["a"]], [1, ["a"]]]),
        (list[Inner], [[[None, []]], []]),
        (EmbeddingType(2), [[1.0, 2.0], [1.0, 3.0]]),
    ],
    ids=str,
)
def test_values_of_all_types_are_equal_or_not_and_filled(annotation: Any, values: list[Any]) -> None:
    first, second = values
    schema = {"a": Optional[annotation], "b": annotation}
    rows = [(first, first), (second, first), (None, first)]
    assert results(col("a") == col("b"), schema, *rows) == [True, False, None]
    assert results(col("a") != col("b"), schema, *rows) == [False, True, None]
    assert results(col("a") == lit(None), schema, *rows) == [None, None, None]
    assert results(lit(None) != col("b"), schema, *rows) == [None, None, None]
    assert results(col("a").isnull(), schema, *rows) == [False, False, True]
    assert results(col("a").fillnull(col("b")), schema, *rows) == [first, second, first]


@pytest.mark.spec("types:5:10", "types:5:13")
def test_restricted_operands_are_their_base() -> None:
    schema = {"small": between(int, 0, 9), "size": oneof(str, ["s", "m"]), "code": regex("[ab]+")}
    row = (3, "s", "ab")
    assert results(col("small") + 1, schema, row) == [4]
    assert results(col("small") / 2, schema, row) == [1.5]
    assert results(col("size").str.concat(col("code")).str.upper(), schema, row) == ["SAB"]
    assert results(col("code") == "ab", schema, row) == [True]


@pytest.mark.spec("types:9.4:1", "types:11:3")
def test_the_first_true_predicate_wins_and_types_widen() -> None:
    schema = {"i": int, "p": Optional[bool], "q": bool}
    expr = when(col("p")).then(col("i")).when(col("q")).then(2.5).otherwise(0)
    rows = [(1, True, True), (1, None, True), (1, False, False)]
    assert results(expr, schema, *rows) == [1.0, 2.5, 0.0]


@pytest.mark.spec("types:9.4:2", "types:11:4")
def test_without_otherwise_the_rest_is_null() -> None:
    schema = {"i": int}
    assert results(when(col("i") > 1).then(col("i") // (col("i") - 1)), schema, (1,), (2,)) == [None, 2]


@pytest.mark.spec("types:9.4:3")
@pytest.mark.parametrize(("fill", "expected"), [(lit(7), [1, 7]), (lit(1.5), [1.0, 1.5]), (lit(None), [1, None])])
def test_null_is_filled(fill: Expr, expected: list[Any]) -> None:
    found = results(col("i").fillnull(fill), {"i": Optional[int]}, (1,), (None,))
    assert found == expected
    assert [type(value) for value in found] == [type(value) for value in expected]


@pytest.mark.spec("types:9.4:4")
def test_filling_what_is_never_null_widens() -> None:
    assert results(col("i").fillnull(0.5), {"i": int}, (1,)) == [1.0]


@pytest.mark.spec("types:11:2")
@pytest.mark.parametrize(
    ("value", "annotation", "stored"),
    [
        (3, float, 3.0),
        ([1, None], list[Optional[int]], [1, None]),
        (Inner(x=None, tags=["a"]), Inner, [None, ["a"]]),
        (Number("1.5"), DecimalType(2), "1.50"),
        ({"b": 1, "a": 2}, dict[str, int], {"a": 2, "b": 1}),
        (b"\x00", bytes, b"\x00"),
    ],
    ids=str,
)
def test_constants_of_all_types(value: Any, annotation: Any, stored: Any) -> None:
    assert constant(lit(value, annotation)) == stored


@pytest.mark.spec("types:11:5")
def test_now_is_the_same_everywhere_in_a_row() -> None:
    assert results(now().dt.since(now(), "microsecond"), {"i": int}, (1,), (2,), now=5) == [0, 0]


def test_now_has_a_value_in_a_query_only() -> None:
    with pytest.raises(NotImplementedError, match="time of a query"):
        compile_expr(now().node, {})


@pytest.mark.parametrize("expr", [col("y") + 0, 0 + col("y"), col("y") - lit(-0.0)])
def test_zero_is_added_as_well(expr: Expr) -> None:
    # From some number of rows on, polars leaves an addition of zero out: -0.0 would stay -0.0.
    assert all(same(value, 0.0) for value in results(expr, {"y": float}, *[(-0.0,)] * 40))


def test_a_zero_less_zero_is_zero() -> None:
    assert all(same(value, 0.0) for value in results(0 - col("y"), {"y": float}, *[(0.0,)] * 40))
