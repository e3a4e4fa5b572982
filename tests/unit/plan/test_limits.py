"""What the streaming engine can't run yet is refused by name; all else is planned."""

# Checkers see classes where decorators make datasets.
# mypy: disable-error-code="arg-type, attr-defined, misc, operator, type-arg, valid-type, union-attr"
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from caraway.datasets import Average, Count, Distinct, ExpDecaySum, Max, Stddev, Sum
from caraway.dtypes import Hopping, Session, Tumbling
from caraway.errors import CommitError
from caraway.expr import col
from caraway.graph.operators import Input
from caraway.graph.specs import Graph, PipelineSpec
from caraway.plan import plan_graph
from tests.unit.datasets.shop import FOREVER, HOUR, Orders, Users, Visits

SLIM = Orders.select("user", "shop", "price")
TABLE = SLIM.groupby("user").latest()


def planned(build: Callable[[], Any]) -> None:
    """Plan a dataset that is whatever comes out of a step."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        node = build()
    schema = node.node_schema
    roles = {name: (name in schema.keys, name == schema.timestamp) for name in schema.columns}
    template = Users.to_spec().fields[1]
    fields = tuple(
        replace(template, name=name, dtype=schema.columns[name], key=key, timestamp=timestamp)
        for name, (key, timestamp) in roles.items()
    )
    inputs = ("Orders", "Users", "Visits")
    pipeline = PipelineSpec(name="compute", inputs=inputs, operator=node.node_operator)
    derived = replace(Users.to_spec(), name="Derived", fields=fields, index=None, pipelines=(pipeline,))
    plan_graph(Graph(datasets=(Orders.to_spec(), Users.to_spec(), Visits.to_spec(), derived)))


@pytest.mark.parametrize(
    ("build", "name"),
    [
        # Wherever it stands.
        (lambda: TABLE.join(Users, how="left", on=["user"]).filter(col("user") > 1), "from a keyed left side"),
        (lambda: TABLE.join(Users, how="left", on=["user"]), "from a keyed left side"),
        (
            lambda: SLIM.join(Users, how="left", on=["user"], fields=["town"]).join(
                Users, how="left", on=["user"], fields=["born"]
            ),
            "`join` of Users with itself",
        ),
        (lambda: SLIM.groupby("user", window=Session("1h")).aggregate(), '`groupby(window=Session("1h"))`'),
        (
            lambda: SLIM.groupby("user").aggregate(n=Count(window=Tumbling("1h"))).filter(col("n") > 1),
            "steps behind `aggregate`",
        ),
    ],
)
def test_what_the_streaming_engine_lacks_is_refused(build: Callable[[], Any], name: str) -> None:
    with pytest.raises(CommitError) as caught:
        planned(build)
    assert str(caught.value).startswith("the streaming engine doesn't run ")
    assert name in str(caught.value)
    assert str(caught.value).endswith("yet; dataset Derived, pipeline compute")


def test_what_reads_an_aggregated_dataset_is_refused() -> None:
    # On the topic of such a dataset are contributions, none of its rows.
    node = SLIM.groupby("user").aggregate(n=Count(window=Tumbling("1h")))
    of, counts = Users.to_spec().fields[1], node.node_schema
    fields = tuple(
        replace(of, name=name, dtype=dtype, key=name in counts.keys, timestamp=name == counts.timestamp)
        for name, dtype in counts.columns.items()
    )
    made = PipelineSpec(name="count", inputs=("Orders",), operator=node.node_operator)
    counted = replace(Users.to_spec(), name="Counted", fields=fields, index=None, sources=(), pipelines=(made,))
    read = PipelineSpec(name="read", inputs=("Counted",), operator=Input(dataset="Counted"))
    reader = replace(counted, name="Reader", pipelines=(read,))
    with pytest.raises(CommitError, match="reads Counted, which an aggregate makes, yet; dataset Reader"):
        plan_graph(Graph(datasets=(Orders.to_spec(), counted, reader)))


@pytest.mark.parametrize(
    "build",
    [
        lambda: Users,
        lambda: SLIM.filter(col("price") > 1).assign(x=col("price").astype(float)).drop("shop").rename({"x": "y"}),
        lambda: TABLE.filter(col("price") > 1),
        lambda: TABLE.filter(len),
        lambda: Orders.assign("x", int, len).transform(len),
        lambda: Orders.dropnull(),
        lambda: Visits.explode("tags").filter(col("user") > 1),
        lambda: SLIM + SLIM.filter(col("price") > 1),
        lambda: SLIM.join(Users, how="left", on=["user"]),
        lambda: SLIM.groupby("shop").aggregate(
            n=Count(window=HOUR), most=Max(of="price", window=HOUR), mean=Average(of="price", window=FOREVER)
        ),
        lambda: TABLE.groupby("shop").aggregate(n=Count(window=FOREVER), spread=Stddev(of="price", window=FOREVER)),
        lambda: TABLE.groupby("shop").aggregate(n=Count(window=Hopping("forever", "1h"))),
        lambda: TABLE.groupby("shop").aggregate(n=Count(window=HOUR), most=Max(of="price", window=FOREVER)),
        lambda: Visits.groupby("user").aggregate(n=Count(window=HOUR), along="due"),
        lambda: SLIM.groupby("user").aggregate(n=Count(window=HOUR), emit="final"),
        lambda: SLIM.groupby("user").aggregate(n=Count(window=Tumbling("1h"))),
        lambda: SLIM.groupby("user", window=Tumbling("1h")).aggregate(n=Count()),
        lambda: SLIM.groupby("user", window=Hopping("2h", "1h")).aggregate(),
        lambda: SLIM.groupby("user").aggregate(
            n=Count(of="shop", dropnull=True, window=HOUR),
            seen=Distinct(of="shop", unordered=True, window=HOUR),
            spent=ExpDecaySum(of="price", half_life="1h", window=HOUR),
        ),
        lambda: Orders.groupby("user").aggregate(n=Sum(of="cost", window=HOUR), last=Max(of="at", window=HOUR)),
    ],
)
def test_the_rest_is_planned(build: Callable[[], Any]) -> None:
    planned(build)
