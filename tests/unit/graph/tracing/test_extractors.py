"""Tests that a traced extractor has the extractor's results, and that functions that can't be traced aren't."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import FunctionType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.compute.extractors.traced import TracedExtractor, expressions_of
from caraway.compute.query.batch import Batch
from caraway.compute.query.expressions import FEW_ROWS
from caraway.compute.query.functions import compile_function
from caraway.compute.query.model import PythonStep, TypedColumn
from caraway.dtypes.types import BOOL, FLOAT, INT, STRING, BetweenType, DataType, optional
from caraway.expr.printer import print_node
from caraway.graph.tracing.extractors import trace_extractor
from tests.unit.compute.query.steps import by_value, step_of
from tests.unit.graph.tracing.functions import COLUMNS, of, rows_of

INPUTS = ("i", "j", "f", "g", "b", "c", "s", "t")
TYPED = [(name, COLUMNS[name]) for name in INPUTS]
MANY = FEW_ROWS + 1


def step(function: Callable[..., Any], outputs: Mapping[str, DataType], inputs: str = "ijfgbcst") -> PythonStep:
    given, made = ({f"A.{name}": of[name] for name in names} for of, names in ((COLUMNS, inputs), (outputs, outputs)))
    return step_of(by_value(function), given, made)


def made(body: str) -> Callable[..., Any]:
    """Return a function whose result is the text `body` over the columns."""
    names: dict[str, Any] = {"pd": pd}
    exec(f"def function(cls, ts, {', '.join(INPUTS)}):\n    return {body}", names)  # noqa: S102 (our own text)
    function = names["function"]
    assert isinstance(function, FunctionType)
    return function


def of_series(dtype: DataType) -> st.SearchStrategy[str]:
    return of(dtype, 3).map(lambda text: text.replace('df["r"]', "i").replace('df["', "").replace('"]', ""))


def batch(seed: int, rows: int) -> Batch:
    return Batch({f"A.{name}": values for name, values in rows_of(seed, rows).items()}, rows, 0, past=False)


# Ints may be declared as floats.
@pytest.mark.parametrize(("kind", "declared"), [*((t, t) for t in (INT, FLOAT, BOOL, STRING)), (INT, FLOAT)], ids=str)
@given(data=st.data(), seed=st.integers(0, 2**32), rows=st.sampled_from([1, 3, MANY]))
def test_traced_series_are_what_the_extractor_gives(
    kind: DataType, declared: DataType, data: st.DataObject, seed: int, rows: int
) -> None:
    text = data.draw(of_series(kind))
    form = data.draw(st.sampled_from(["({}).rename('x')", "pd.Series({}, name='x')", "pd.DataFrame({{'x': {}}})"]))
    of_one = step(made(form.format(text)), {"x": optional(declared)})
    found = expressions_of(of_one)
    assert found is not None, text
    ours, theirs = batch(seed, rows), batch(seed, rows)
    assert TracedExtractor(of_one, found).fills(ours)
    compile_function(of_one, lambda *_: None)(theirs)  # type: ignore[arg-type] # nothing is looked up
    assert [*map(repr, ours.columns["A.x"])] == [*map(repr, theirs.columns["A.x"])], print_node(found["A.x"])


def test_several_series_in_a_frame_are_told_apart_by_name() -> None:
    frame = step(
        made('pd.DataFrame({"x": i * 2, "extra": s, "y": (g > 1).rename("z")})'), {"x": INT, "y": optional(BOOL)}
    )
    found = expressions_of(frame)
    assert found is not None
    assert {name: print_node(node) for name, node in found.items()}.keys() == {"A.x", "A.y"}
    assert print_node(found["A.x"]) == '(col("A.i") * 2)'


NAMES = {
    "i": "i",
    "i * 2": "i",
    "2 - i": "i",
    "i + i": "i",
    "j.fillna(1)": "j",
    "(i + j).rename('i')": "i",
    "pd.Series(i, name='x')": "x",
    "pd.Series(data=i)": "i",
    "i + j": None,
    "i.rename('x') + i": None,
}


@pytest.mark.parametrize(("body", "name"), NAMES.items())
def test_the_name_of_a_series_is_that_which_pandas_gives_it(body: str, name: str | None) -> None:
    for output in ("i", "j", "x"):
        assert (trace_extractor(made(body), TYPED, [(output, optional(INT))]) is not None) == (output == name)


FACTOR = 3
FACTORS = [3]


def scaled(cls: Any, ts: Any, i: Any, by: int = 2) -> Any:
    del cls, ts
    return (i * by + FACTOR).rename("x")


def caught(cls: Any, ts: Any, i: Any) -> Any:
    del cls, ts
    try:
        wanted = i.clip(0, 3)
    except:  # noqa: E722 (what a user may write)
        wanted = i
    return wanted.rename("x")


def test_a_function_may_have_names_constants_and_defaults() -> None:
    found = trace_extractor(scaled, [("i", INT)], [("x", INT)])
    assert found is not None
    assert print_node(found["x"]) == '((col("i") * 2) + 3)'


@pytest.mark.parametrize(
    "function",
    [
        lambda cls, ts, i: (i + cls.offset).rename("x"),
        lambda cls, ts, i: (i + cls).rename("x"),
        lambda cls, ts, i: (i + ts.dt.hour).rename("x"),
        lambda cls, ts, i: ts.rename("x"),
        lambda cls, ts, i: np.maximum(i, 0).rename("x"),
        lambda cls, ts, i: (i + pd.Timestamp.now().hour).rename("x"),
        lambda cls, ts, i: pd.Series([1], name="x"),
        lambda cls, ts, i: pd.Series(i, name="x", dtype="Int64"),
        lambda cls, ts, i: pd.DataFrame([i], columns=["x"]),
        lambda cls, ts, i: pd.DataFrame({"x": 1}),
        lambda cls, ts, i: pd.DataFrame({"x": i})["x"],
        lambda cls, ts, i: pd.DataFrame({"y": i}),
        lambda cls, ts, i: pd.concat([i.rename("x")], axis=1),
        lambda cls, ts, i: (i + FACTORS[0]).rename("x"),
        lambda cls, ts, i: i.rename(1),
        lambda cls, ts, i: i.rename({0: 1}),
        lambda cls, ts, i: i.rename("x").sort_values(),
        lambda cls, ts, i: i[::-1].rename("x"),
        lambda cls, ts, i: i.astype("float64").rename("x"),
        lambda cls, ts, i: (i / 2).rename("x"),
        lambda cls, ts, i: (i > 2).rename("x"),
        lambda cls, ts: 1,
        lambda cls, ts, i: None,
        caught,
        len,
    ],
)
def test_what_cannot_be_recorded_stays_a_function(function: Callable[..., Any]) -> None:
    assert trace_extractor(function, [("i", INT)], [("x", INT)]) is None


def test_restricted_outputs_and_inputs_of_other_types_stay_functions() -> None:
    assert trace_extractor(scaled, [("i", INT)], [("x", BetweenType(INT, 0, 9))]) is None
    assert trace_extractor(lambda cls, ts, i: i.rename("x"), [("i", COLUMNS["l"])], [("x", COLUMNS["l"])]) is None
    assert trace_extractor(scaled, [("i", BetweenType(INT, 0, 9))], [("x", INT)]) is not None


def test_nulls_that_may_not_be_are_for_the_function_to_tell() -> None:
    doubled = step(made("(j * 2).rename('x')"), {"x": INT})
    found = expressions_of(doubled)
    assert found is not None
    traced = TracedExtractor(doubled, found)
    good, bad = (Batch({f"A.{n}": [v] for n in "ijfgbcst"}, 1, 0, past=False) for v in (1, None))
    assert traced.fills(good)
    assert good.columns["A.x"] == [2]
    assert not traced.fills(bad)


def test_what_is_looked_up_supplied_in_part_or_of_no_known_type_stays_a_function() -> None:
    both = step(made("pd.DataFrame({'x': i, 'y': j})"), {"x": INT, "y": optional(INT)})
    assert expressions_of(both) is not None
    untyped = (*both.inputs[:-1], TypedColumn(name="A.t", dtype=None))
    for other in (replace(both, datasets=("D",)), replace(both, kept=("A.x",)), replace(both, inputs=untyped)):
        assert expressions_of(other) is None, other
