"""Every operator that the API allows can be planned for the streaming engine."""

# Type checkers see classes where decorators return datasets.
# mypy: disable-error-code="arg-type, attr-defined, misc, operator, type-arg, valid-type, union-attr"
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from caraway.datasets import Average, Count, Distinct, ExpDecaySum, Max, Stddev, Sum
from caraway.dtypes import Hopping, Session, Tumbling
from caraway.expr import col
from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import Graph, PipelineSpec
from tests.unit.datasets.shop import FOREVER, HOUR, Orders, Users, Visits

SLIM = Orders.select("user", "shop", "price")
TABLE = SLIM.groupby("user").latest()
BY_SHOP = SLIM.groupby("user", "shop").aggregate(n=Count(window=Tumbling("1h")))


def planned(build: Callable[[], Any]) -> None:
    """Plan a dataset with the schema of a step's output."""
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
        # A join can stand before another step.
        lambda: TABLE.join(Users, how="left", on=["user"]).filter(col("user") > 1),
        lambda: TABLE.join(Users, how="left", on=["user"]),
        # A table whose rows may be corrected is joined with another table.
        lambda: TABLE.join(Users, how="left", on=["user"], fields=["town"]).join(
            Users, how="left", on=["user"], fields=["born"]
        ),
        lambda: SLIM.groupby("user").first().join(Users, how="inner", on=["user"]),
        lambda: SLIM.dedup("shop").groupby("user").latest().join(Users, how="left", on=["user"]),
        lambda: BY_SHOP.join(Users, how="left", on=["user"]),
        lambda: SLIM.join(Users, how="left", on=["user"], fields=["town"]).join(
            Users, how="left", on=["user"], fields=["born"]
        ),
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
        lambda: SLIM.groupby("user", window=Session("1h")).aggregate(),
        lambda: SLIM.groupby("user", window=Session("1h")).aggregate(n=Count()).filter(col("n") > 1),
        lambda: SLIM.groupby("user").aggregate(n=Count(window=Tumbling("1h"))).filter(col("n") > 1),
        lambda: SLIM.groupby("user").aggregate(n=Count(window=HOUR), emit="final").filter(col("n") > 1),
        lambda: Orders.groupby("user").aggregate(n=Sum(of="cost", window=HOUR), last=Max(of="at", window=HOUR)),
    ],
)
def test_it_is_planned(build: Callable[[], Any]) -> None:
    planned(build)
