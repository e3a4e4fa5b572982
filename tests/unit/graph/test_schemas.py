"""Tests of laws of the schema rules: control computes what the decorators did, from the tree and from its wire form."""

# Type checkers see classes where decorators make datasets.
# mypy: disable-error-code="arg-type, attr-defined, misc, operator, union-attr"
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from caraway.datasets import Average, Count, ExpDecaySum, LastK, Max, Quantile, Sum
from caraway.datasets.nodes import Node
from caraway.dtypes import Hopping, Session, Tumbling
from caraway.dtypes.types import STRING
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.expr import col
from caraway.graph.operators import OPERATOR_TYPES, Aggregate, Dedup, Input, Operator
from caraway.graph.pb.caraway.v1.operators_pb2 import OperatorTree
from caraway.graph.schemas import schema_of
from caraway.graph.trees import datasets_read, parents, without_pickles
from caraway.graph.windows import ContinuousWindow, HoppingWindow, SessionWindow, print_window
from caraway.graph.wire.messages import from_message, to_message
from tests.unit.datasets.shop import FOREVER, HOUR, Orders, Users, Visits

SPECS = {made.fqn(): made.to_spec() for made in (Orders, Users, Visits)}


def steps() -> Iterator[Node]:
    """Yield steps of each operator, some in several forms."""
    slim = Orders.select("user", "shop", "price")
    table = slim.groupby("user").latest()
    yield Users
    yield Orders.filter(col("price") > 1)
    yield Orders.filter(len)
    yield Orders.assign(x=(col("price") * 2).astype(float))
    yield Orders.assign("x", float, len)
    yield Orders.transform(len)
    yield Orders.transform(len, schema={"x": int, "at": int})
    yield slim.drop("shop").rename({"price": "cost", "at": "t"})
    yield slim.dropnull()
    yield Visits.explode("tags", "marks")
    yield slim + slim.filter(col("price") > 2)
    yield slim.dedup()
    yield slim.dedup("user", window=Session("1h"))
    yield slim.dedup("user", window=Tumbling("1h"))
    yield slim.join(Users, how="left", on=["user"], within=("1d", "0s"))
    yield table.join(Users, how="inner", on=["user"], fields=["since"])
    yield slim.groupby("shop").first()
    yield table.changelog(insert="new")
    yield slim.groupby("user").aggregate(
        n=Count(of="shop", dropnull=True, window=HOUR),
        mean=Average(of="price", window=FOREVER, default=None),
        middle=Quantile(of="price", p=0.5, approx=True, window=HOUR),
        last=LastK(of="shop", limit=3, dedup=True, window=HOUR),
        decayed=ExpDecaySum(of="price", half_life="1d", window=HOUR),
        most=Max(of="price", window=HOUR, default=2),
    )
    yield Orders.groupby("user").aggregate(
        cost=Sum(of="cost", window=Tumbling("1d", "1h")), n=Count(window=Hopping("forever", "1d", "1h"))
    )
    yield slim.groupby("user").aggregate(n=Count(window=HOUR), emit="final").filter(col("n") > 1)
    yield Visits.groupby("user").aggregate(n=Count(window=HOUR), along="due")
    yield slim.groupby("user", window=Session("1h")).aggregate(n=Count())
    yield slim.groupby("user", window=Hopping("1d", "1h")).aggregate()
    yield table.groupby("shop").aggregate(n=Count(window=Hopping("forever", "1d")))


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    NODES = list(steps())


def all_of(operator: Operator) -> Iterator[Operator]:
    yield operator
    for parent in parents(operator):
        yield from all_of(parent)


def test_every_operator_is_among_the_steps() -> None:
    assert {type(operator) for node in NODES for operator in all_of(node.node_operator)} == set(OPERATOR_TYPES)


@pytest.mark.parametrize("node", NODES)
def test_the_schema_follows_from_the_tree(node: Node) -> None:
    again = schema_of(node.node_operator, SPECS)
    assert again == node.node_schema
    assert again.terminal == node.node_schema.terminal
    assert list(again.columns) == list(node.node_schema.columns)
    assert without_pickles(node.node_operator) == node.node_operator


def test_pickles_travel_and_are_no_part_of_the_identity() -> None:
    operator = Orders.filter(len).node_operator
    decoded: Any = from_message(to_message(operator, OperatorTree))
    assert decoded.function.pickled == operator.function.pickled
    bare: Any = without_pickles(replace(Orders.dedup().node_operator, of=operator))
    assert bare.of.function.pickled == b""
    assert bare.of.function.source_code == operator.function.source_code


def test_datasets_are_named_once_in_order() -> None:
    joined = Orders.select("user").join(Users, how="left", on=["user"])
    assert datasets_read((joined + joined).node_operator) == ("Orders", "Users")


def test_unknown_datasets_are_told() -> None:
    with pytest.raises(DefinitionError, match="unknown dataset Gone; datasets: Orders, Users, Visits"):
        schema_of(Input(dataset="Gone"), SPECS)
    with pytest.raises(DefinitionError, match="unknown dataset Users; datasets: Orders"):
        schema_of(Orders.select("user").join(Users, how="left", on=["user"]).node_operator, {"Orders": SPECS["Orders"]})


def test_what_only_a_foreign_client_can_send_is_refused() -> None:
    aggregate = Orders.groupby("user").aggregate(n=Count(window=HOUR)).node_operator
    assert isinstance(aggregate, Aggregate)
    (column,) = aggregate.aggregates
    with pytest.raises(DefinitionTypeError, match="n is str, must be int"):
        schema_of(replace(aggregate, aggregates=(replace(column, dtype=STRING),)), SPECS)
    with pytest.raises(DefinitionError, match="no output column"):
        schema_of(replace(aggregate, aggregates=(replace(column, into=""),)), SPECS)
    hopping = HoppingWindow(length_us=2_000_000, stride_us=1_000_000)
    with pytest.raises(DefinitionTypeError, match="dedup: the window is Tumbling or Session"):
        schema_of(Dedup(of=Orders.node_operator, by=("user",), window=hopping), SPECS)
    with pytest.raises(DefinitionError, match="name at least one"):
        schema_of(Dedup(of=Orders.node_operator, by=()), SPECS)


@pytest.mark.parametrize(
    ("window", "text"),
    [
        (ContinuousWindow(length_us=None), 'Continuous("forever")'),
        (HoppingWindow(length_us=60_000_000, stride_us=60_000_000), 'Tumbling("1m")'),
        (
            HoppingWindow(length_us=None, stride_us=60_000_000, lookback_us=1_000_000),
            'Hopping("forever", "1m", lookback="1s")',
        ),
        (SessionWindow(gap_us=1_000_000), 'Session("1s")'),
    ],
)
def test_windows_are_spelled_as_users_write_them(window: Any, text: str) -> None:
    assert print_window(window) == text
