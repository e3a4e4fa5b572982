import math
from typing import Any, Optional

import pytest

from caraway.errors import InvalidInputError
from caraway.expr import Expr, col, lit
from tests.unit.expr.polars_results import constant, results, same


def rule(row: str, expr: Expr, expected: Any) -> Any:
    return pytest.param(expr, expected, id=f"{row}: {expr}", marks=pytest.mark.spec(f"types:{row}"))


CASES: list[tuple[str, Expr, Any]] = [
    ("10.3:1", lit(7) / 2, 3.5),
    ("10.3:1", lit(2**53 + 1) / 1, float(2**53)),
    ("10.3:2", lit(1) / 0, math.inf),
    ("10.3:2", lit(-1) / 0, -math.inf),
    ("10.3:2", lit(0) / 0, math.nan),
    ("10.3:3", lit(1.5) // 0, math.inf),
    ("10.3:3", lit(-1.5) // 0, -math.inf),
    ("10.3:3", lit(1.5) % 0, math.nan),
    ("10.3:4", lit(1) // 0, None),
    ("10.3:4", lit(1) % 0, None),
    ("10.3:5", lit(-7) // 2, -4),
    ("10.3:5", lit(-7.0) // 2, -4.0),
    ("10.3:6", lit(-7) % 2, 1),
    ("10.3:6", lit(7) % -2, -1),
    ("10.3:6", lit(-7.5) % 2, 0.5),
    ("10.3:6", lit(7.5) % -2, -0.5),
    ("10.3:7", lit(2**63 - 1) + 1, -(2**63)),
    ("10.3:7", lit(-(2**63)) - 1, 2**63 - 1),
    ("10.3:7", lit(2**62) * 2, -(2**63)),
    ("10.3:7", -lit(-(2**63)), -(2**63)),
    ("10.3:7", lit(3).num.pow(41), 3**41 - 2 * 2**64),
    ("17:4", lit(10).num.pow(63), -(2**63)),
    ("10.3:8", lit(2**53 + 1) == lit(2.0**53), True),
    ("10.3:8", lit(2**53 + 1) > lit(2.0**53), False),
    ("10.3:9", lit(math.nan) == lit(math.nan), True),
    ("10.3:9", lit(math.nan) != lit(math.nan), False),
    ("10.3:9", lit(math.nan) > lit(math.inf), True),
    ("10.3:9", lit(math.nan) < 1, False),
    ("10.4:2", lit(math.nan).isnull(), False),
    ("10.4:2", lit(math.nan).num.is_nan(), True),
    ("10.4:2", lit(math.nan).fillnull(1.0), math.nan),
    ("10.4:4", lit(math.nan).floor(), None),
    ("10.4:4", lit(math.inf).ceil(), None),
    ("10.4:4", lit(-math.inf).round(), None),
    ("10.4:4", lit(1e300).ceil(), None),
    ("10.4:4", lit(2.0**63).floor(), None),
    ("10.4:4", lit(-(2.0**63)).floor(), -(2**63)),
    ("12.1:1", lit(-5).abs(), 5),
    ("12.1:1", lit(-5.5).abs(), 5.5),
    ("12.1:1", lit(-(2**63)).abs(), None),
    ("12.1:2", lit(-2.5).ceil(), -2),
    ("12.1:2", lit(-2.5).floor(), -3),
    ("12.1:2", lit(7).ceil(), 7),
    ("12.1:3", lit(2.5).round(), 3),
    ("12.1:3", lit(-2.5).round(), -3),
    ("12.1:3", lit(1.005).round(2), 1.0),
    ("12.1:3", lit(2.675).round(2), 2.68),
    ("12.1:3", lit(7).round(2), 7.0),
    ("12.1:3", lit(7).round(0), 7),
    ("12.1:3", lit(1.25).round(400), 1.25),
    ("12.1:4", lit(7).num.to_string(), "7"),
    ("12.1:4", lit(1.0).num.to_string(), "1.0"),
    ("12.1:4", lit(1.1).num.to_string(), "1.1"),
    ("12.1:4", lit(1e20).num.to_string(), "1e20"),
    ("12.1:4", lit(1e-7).num.to_string(), "1e-7"),
    ("12.1:4", lit(-0.0).num.to_string(), "-0.0"),
    ("12.1:4", lit(123456789.123).num.to_string(), "123456789.123"),
    ("12.1:4", lit(math.inf).num.to_string(), "inf"),
    ("12.1:4", lit(math.nan).num.to_string(), "NaN"),
    ("12.1:5", lit(4).num.sqrt(), 2.0),
    ("12.1:5", lit(-1.0).num.sqrt(), math.nan),
    ("12.1:6", lit(2).num.pow(10), 1024),
    ("12.1:6", lit(2.0).num.pow(-1), 0.5),
    ("12.1:6", lit(2).num.pow(-1.0), 0.5),
    ("12.1:6", lit(0).num.pow(0), 1),
    ("12.1:6", lit(0.0).num.pow(0), 1.0),
    ("12.1:6", lit(-8.0).num.pow(0.5), math.nan),
    ("12.1:6", lit(-math.inf).num.pow(0.5), math.inf),
    ("12.1:7", lit(math.e).num.log(), 1.0),
    ("12.1:7", lit(0).num.log(), -math.inf),
    ("12.1:7", lit(-1).num.log(), math.nan),
    ("12.1:7", lit(8).num.log(2), 3.0),
    ("12.1:7", lit(8).num.log(1), math.inf),
    ("12.1:7", lit(8).num.log(-2), math.nan),
    ("12.1:8", lit(0).num.sin(), 0.0),
    ("12.1:8", lit(0.0).num.cos(), 1.0),
    ("12.1:8", lit(0.0).num.tan(), 0.0),
    ("12.1:8", lit(math.pi / 2).num.sin(), 1.0),
    ("12.1:8", lit(math.inf).num.sin(), math.nan),
    ("12.1:8", lit(-math.inf).num.tan(), math.nan),
    ("12.1:9", lit(1).num.arcsin(), math.pi / 2),
    ("12.1:9", lit(1.0).num.arccos(), 0.0),
    ("12.1:9", lit(1.0).num.arctan(), math.pi / 4),
    ("12.1:9", lit(1.5).num.arcsin(), math.nan),
    ("12.1:9", lit(-1.5).num.arccos(), math.nan),
    ("12.1:10", lit(1).num.is_nan(), False),
    ("12.1:10", lit(math.inf).num.is_nan(), False),
    ("12.1:11", lit(math.inf).num.is_infinite(), True),
    ("12.1:11", lit(-math.inf).num.is_infinite(), True),
    ("12.1:11", lit(1).num.is_infinite(), False),
]


@pytest.mark.parametrize(("expr", "expected"), [rule(*case) for case in CASES])
def test_numbers_as_the_spec_names_them(expr: Expr, expected: Any) -> None:
    assert same(constant(expr), expected)


NUMBER = {"x": Optional[int], "y": Optional[float]}


@pytest.mark.spec("types:10.2:3")
@pytest.mark.parametrize(
    "expr",
    [
        col("x") + 1,
        1 - col("y"),
        col("x") / col("y"),
        col("x") // 2,
        col("y") % 2.0,
        -col("x"),
        col("x") == col("x"),
        col("y") < 1,
        col("x") == lit(None),
        col("x").num.pow(2),
        col("y").num.pow(col("x")),
        col("y").num.log(10),
        col("x").num.sin(),
        col("y").num.is_nan(),
        col("x").num.is_infinite(),
        col("y").num.to_string(),
        col("y").round(2),
        col("x").abs(),
    ],
    ids=str,
)
def test_null_gives_null(expr: Expr) -> None:
    assert results(expr, NUMBER, (None, None)) == [None]


@pytest.mark.spec("types:12.1:6")
def test_a_negative_power_of_ints_fails_naming_both() -> None:
    with pytest.raises(InvalidInputError, match=r"num\.pow\(\): 2 to the power of -1 is no int; make .* a float"):
        results(col("x").num.pow(-1), NUMBER, (2, None))


def test_a_power_by_a_constant_half_is_no_square_root() -> None:
    # The root of -0.0 is -0.0, its power 0.0.
    assert same(results(col("y").num.pow(0.5), NUMBER, (1, -0.0), (1, -math.inf)), [0.0, math.inf])
