"""Tests of pipelines: their specs, terminal datasets, and the functions in them."""

# Type checkers see classes where decorators make datasets.
# mypy: disable-error-code="untyped-decorator, arg-type, attr-defined, misc, type-arg, valid-type, union-attr"
import functools
import subprocess
import sys
import threading
import traceback
from datetime import datetime
from pathlib import Path
from typing import Any

import cloudpickle
import pandas as pd
import pytest

from caraway.datasets import Average, Count, ExpDecaySum, Sum, dataset, field, pipeline
from caraway.dtypes import Tumbling
from caraway.errors import DefinitionError
from caraway.expr import col
from caraway.graph.operators import AssignFunction, FilterFunction
from caraway.lib import includes, inputs, meta
from tests.unit.datasets.shop import FOREVER, HOUR, Orders, Users, derive, derived, total


def test_own_fields_serve_as_names() -> None:
    made = derive(
        lambda cls, orders: orders.groupby(cls.user).aggregate(**{str(cls.total): Sum(of=Orders.price, window=HOUR)}),
        Orders,
    )
    assert made.is_terminal


def test_an_input_may_be_returned_or_come_twice() -> None:
    same = derive(lambda cls, users: users, Users, **{f.name: f.dtype for f in Users.fields})
    assert same.to_spec().pipelines[0].operator == Users.node_operator
    twice = derive(lambda cls, a, b: total(a + b), Orders, Orders)
    (spec,) = twice.to_spec().pipelines
    assert (spec.name, spec.inputs, spec.env) == ("compute", ("Orders",), ())


def test_several_pipelines_with_their_metadata() -> None:
    class Body:
        user: int = field(key=True)
        total: float
        at: datetime

        @meta(owner="ana@example.com")
        @pipeline(env="prod")
        @inputs(Orders)
        def first(cls, orders: Any) -> Any:
            return total(orders)

        @pipeline(env=["~prod", "~test"])
        @meta(description="elsewhere")
        @inputs(Orders)
        def second(cls, orders: Any) -> Any:
            return total(orders.filter(col("price") > 0.0))

    first, second = dataset(Body).to_spec().pipelines
    assert (first.name, first.env, first.metadata.owner) == ("first", ("prod",), "ana@example.com")
    assert (second.env, second.metadata.description) == (("~prod", "~test"), "elsewhere")
    assert "total(orders.filter" in second.source_code


@pytest.mark.parametrize(
    ("build", "terminal"),
    [
        (lambda cls, o: total(o), True),
        (lambda cls, o: o.groupby("user").aggregate(total=Average(of="price", window=HOUR), emit="final"), True),
        (
            lambda cls, o: o.groupby("user").aggregate(
                total=ExpDecaySum(of="price", half_life="1h", window=Tumbling("1h"))
            ),
            True,
        ),
        (lambda cls, o: o.groupby("user").aggregate(total=Sum(of="price", window=Tumbling("1h"))), False),
        (
            lambda cls, o: (
                o.groupby("user")
                .aggregate(total=Sum(of="price", window=FOREVER), emit="final")
                .filter(col("total") > 0.0)
            ),
            False,
        ),
        (lambda cls, o: o.select("user", "price").rename({"price": "total"}).groupby("user").latest(), False),
    ],
)
def test_which_datasets_are_terminal(build: Any, terminal: bool) -> None:
    assert derive(build, Orders).is_terminal is terminal


def test_one_terminal_pipeline_makes_a_dataset_terminal() -> None:
    calm = Sum(of="price", window=Tumbling("1h"))
    builds = {
        "first": (lambda cls, o: total(o), (Orders,)),
        "second": (lambda cls, o: o.groupby("user").aggregate(total=calm), (Orders,)),
    }
    assert derived(builds, {}).is_terminal


def test_an_error_shows_the_line_of_the_step() -> None:
    with pytest.raises(DefinitionError) as caught:
        derive(lambda cls, orders: orders.drop("gone"), Orders)
    lines = [frame.line for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert any(line and 'orders.drop("gone")' in line for line in lines)


def above(frame: pd.DataFrame, limit: float) -> Any:
    return frame["price"] > least(limit)


def least(limit: float) -> float:
    return limit / 2


@includes(least)
def doubled(frame: pd.DataFrame) -> Any:
    return frame["price"] * 2


def test_functions_travel_with_their_text_and_helpers() -> None:
    class Body:
        user: int
        price: float
        at: datetime

        @pipeline
        @includes(above)
        @inputs(Orders)
        def compute(cls, orders: Any) -> Any:
            return (
                orders.filter(lambda df: above(df, 2.0)).assign(str(cls.price), float, doubled).select("user", "price")
            )

    (spec,) = dataset(Body).to_spec().pipelines
    assign = spec.operator.of
    assert isinstance(assign, AssignFunction)
    assert (assign.function.name, assign.column) == ("doubled", "price")
    assert assign.function.source_code.startswith("@includes(least)\ndef doubled")
    assert [text.splitlines()[0] for text in assign.function.includes] == [
        "def least(limit: float) -> float:",
        "def above(frame: pd.DataFrame, limit: float) -> Any:",
    ]
    assert isinstance(assign.of, FilterFunction)
    assert assign.of.function.source_code == "lambda df: above(df, 2.0)"
    frame = pd.DataFrame({"price": [0.5, 1.5]})
    assert cloudpickle.loads(assign.of.function.pickled)(frame).tolist() == [False, True]


@pytest.mark.slow
def test_a_function_runs_where_its_module_is_not(tmp_path: Path) -> None:
    node = Orders.filter(functools.partial(above, limit=2.0))
    operator = node.node_operator
    assert isinstance(operator, FilterFunction)
    assert operator.function.source_code.startswith("partial(limit=2.0) of def above")
    (tmp_path / "partial").write_bytes(operator.function.pickled)
    (tmp_path / "lambda").write_bytes(Orders.filter(lambda df: above(df, 2.0)).node_operator.function.pickled)
    program = (
        "import cloudpickle, pandas\n"
        "for name in ('partial', 'lambda'):\n"
        "    f = cloudpickle.load(open(name, 'rb'))\n"
        "    print(f(pandas.DataFrame({'price': [0.5, 1.5]})).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout == "[False, True]\n[False, True]\n"


def test_what_cannot_be_sent_is_refused() -> None:
    lock = threading.Lock()
    with pytest.raises(DefinitionError, match="filter: the function can't be sent"):
        Orders.filter(lambda df: lock)


def test_an_equal_function_is_an_equal_operator() -> None:
    first, second = (Orders.filter(lambda df: df["price"] > 1) for _ in range(2))
    assert first.node_operator == second.node_operator
    assert Orders.filter(lambda df: df["price"] > 2).node_operator != first.node_operator
    assert Count(window=HOUR) == Count(window=HOUR)
