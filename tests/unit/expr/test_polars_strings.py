from datetime import UTC, datetime
from typing import Any, Optional

import pytest

from caraway.dtypes import struct
from caraway.errors import InvalidInputError
from caraway.expr import Expr, col, lit
from tests.unit.expr.polars_results import constant, results

TEXT = {"s": Optional[str]}


def rule(row: str, expr: Expr, expected: Any) -> Any:
    return pytest.param(expr, expected, id=f"{row}: {expr}", marks=pytest.mark.spec(f"types:12.2:{row}"))


CASES: list[tuple[str, Expr, Any]] = [
    ("1", lit("ß").str.upper(), "SS"),
    ("1", lit("ΑΣ").str.lower(), "ας"),
    ("1", lit("İ").str.lower(), "i̇"),
    ("2", lit("aé😀").str.len(), 3),
    ("2", lit("").str.len(), 0),
    ("3", lit("a").str.concat("b"), "ab"),
    ("4", lit("a.c").str.contains("."), True),
    ("4", lit("abc").str.contains("a.c"), False),
    ("4", lit("abc").str.contains("B"), False),
    ("4", lit("abc").str.contains(""), True),
    ("5", lit("a.c").str.startswith("a."), True),
    ("5", lit("abc").str.startswith("a."), False),
    ("5", lit("abc").str.endswith("bc"), True),
    ("5", lit("abc").str.endswith(""), True),
    ("6", lit("a,b,,c,").str.split(","), ["a", "b", "", "c", ""]),
    ("6", lit("").str.split(","), [""]),
    ("6", lit("abc").str.split(","), ["abc"]),
    ("6", lit("a::b:c").str.split("::"), ["a", "b:c"]),
    ("6", lit("a.b").str.split("."), ["a", "b"]),
    ("6", lit("aé😀").str.split(""), ["a", "é", "😀"]),
    ("6", lit("").str.split(""), []),
    ("9", lit('{"a": [1, "x"]}').str.json_extract("$.a[1]"), "x"),
]


@pytest.mark.parametrize(("expr", "expected"), [rule(*case) for case in CASES])
def test_texts_as_the_spec_names_them(expr: Expr, expected: Any) -> None:
    assert constant(expr) == expected


@pytest.mark.parametrize(
    "expr",
    [
        col("s").str.lower(),
        col("s").str.upper(),
        col("s").str.len(),
        lit("a").str.concat(col("s")),
        col("s").str.concat("a"),
        lit("a").str.contains(col("s")),
        col("s").str.contains("a"),
        col("s").str.startswith("a"),
        lit("a").str.endswith(col("s")),
        col("s").str.split(","),
        col("s").str.strptime("%Y"),
        col("s").str.parse(int),
        col("s").str.json_extract("$"),
    ],
    ids=str,
)
def test_null_gives_null(expr: Expr) -> None:
    assert results(expr, TEXT, (None,), (None,)) == [None, None]


@pytest.mark.spec("types:12.2:7", "types:12.2.1:4")
def test_instants_are_read_in_their_zone() -> None:
    expr = col("s").str.strptime("%Y-%m-%d %H", "America/New_York")
    expected = int(datetime(2024, 1, 2, 8, tzinfo=UTC).timestamp()) * 1_000_000
    assert results(expr, TEXT, ("2024-01-02 03",), (None,)) == [expected, None]


@pytest.mark.spec("types:12.2.1:8")
def test_one_bad_text_fails_all_rows_and_is_named() -> None:
    with pytest.raises(InvalidInputError, match='"nonsense" is no datetime in the format "%Y"'):
        results(col("s").str.strptime("%Y"), TEXT, ("2024",), ("nonsense",), (None,))


@struct
class Point:
    x: int
    y: Optional[float]


@pytest.mark.spec("types:12.2:8")
@pytest.mark.parametrize(
    ("annotation", "text", "expected"),
    [
        (int, "3", 3),
        (Optional[int], "null", None),
        (list[Point], '[{"x": 1}, {"y": 2, "x": 3}]', [[1, None], [3, 2.0]]),
        (Optional[Point], "null", None),
        (Optional[Point], '{"x": 1, "z": 0}', [1, None]),
    ],
)
def test_values_are_parsed(annotation: Any, text: str, expected: Any) -> None:
    expr = col("s").str.parse(annotation)
    assert results(expr, TEXT, (text,), (None,)) == [expected, None]
    assert constant(lit(text).str.parse(annotation)) == expected


def test_a_bad_document_is_named() -> None:
    with pytest.raises(InvalidInputError, match=r"str\.parse\(\): 'nope' holds no int"):
        results(col("s").str.parse(int), TEXT, ("1",), ("nope",))
