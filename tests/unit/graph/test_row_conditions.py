"""Conditions of expectations: parsed, typed, and never executed."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.dtypes import types as t
from caraway.errors import DefinitionError
from caraway.expr.polars.compiler import compile_expr
from caraway.expr.polars.values import to_polars
from caraway.graph.row_conditions import row_condition

TYPES: dict[str, t.DataType] = {"x": t.INT, "y": t.optional(t.FLOAT), "k": t.STRING, "at": t.DATETIME, "a b": t.INT}
ROW: dict[str, Any] = {"x": 1, "y": None, "k": "a", "at": 1_704_067_200_000_000, "a b": 2}


def true_of(text: str, **values: Any) -> bool | None:
    import polars as pl  # noqa: PLC0415 (only here)

    row = {**ROW, **values}
    frame = pl.DataFrame([to_polars(name, [row[name]], dtype) for name, dtype in TYPES.items()])
    found: bool | None = frame.select(compile_expr(row_condition(text, TYPES), TYPES)).item()
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x == 1", True),
        ("x != 1", False),
        ("not x == 1", False),
        ("~(x == 1)", False),
        ("0 < x <= 1", True),
        ("0 < x < 1", False),
        ("x in [1, 2]", True),
        ("x not in (1, 2)", False),
        ("y > 1", None),
        ("y.isnull()", True),
        ("y.notnull() or k == 'a'", True),
        ("x > 1 and k == 'a'", False),
        ("(x >= 1) & (k == 'a') | (x == 7)", True),
        ("`a b` == 2", True),
        ("-x + 3 * x == 2", True),
        ("x % 2 == 1", True),
        ("at >= '2024-01-01'", True),
        ("at > '2024-01-01T00:00:00+00:00'", False),
        ("at == '2024-01-01 01:00+01:00'", True),
        (" or ".join(f"x == {n}" for n in range(150, 0, -1)), True),
    ],
)
def test_a_condition_is_true_of_some_rows(text: str, expected: bool | None) -> None:
    assert true_of(text) is expected


@given(x=st.integers(-3, 3), low=st.integers(-3, 3), high=st.integers(-3, 3))
def test_conditions_mean_what_they_do_in_pandas(x: int, low: int, high: int) -> None:
    text = f"({low} < x <= {high}) or not x in [{low}, 2] and x % 3 != {abs(high)}"
    by_pandas: Any = pd.DataFrame({"x": [x]}).eval(text, engine="python")
    assert true_of(text, x=x) == bool(by_pandas[0])


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("x + 1", "neither true nor false"),
        ("z > 1", "no column z"),
        ("k == 3", "can't compare"),
        ("y == None", "isnull"),
        ("(x", "can't be parsed"),
        ("x is 1", "isnull"),
        ("x in []", "list of constants"),
        ("x in y", "list of constants"),
        ("k.str.len() > 1", "isn't supported"),
        ("at > 'noon-ish, perhaps'", "no time"),
        ("x > 1 if x else x < 1", "isn't supported"),
        ("~" * 60 + "(x == 1)", "deep"),
        ("x == 1" + " " * 2_000, "at most 2,000 characters"),
        (7, "is a text"),
    ],
)
def test_what_is_no_condition_is_refused(text: Any, named: str) -> None:
    with pytest.raises(DefinitionError, match=r"^row_condition .*") as caught:
        row_condition(text, TYPES)
    assert named in str(caught.value)


def test_nothing_is_executed(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    for text in (f"open({str(trace)!r}, 'w')", f"@open({str(trace)!r}, 'w')", f"[open({str(trace)!r}, 'w')][0] == x"):
        with pytest.raises(DefinitionError):
            row_condition(text, TYPES)
    assert not trace.exists()
