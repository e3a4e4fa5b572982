"""The mode of a job: real-time, unless a step needs Python, which the reason mentions."""

# Type checkers see classes where decorators return datasets.
# mypy: disable-error-code="arg-type, attr-defined, misc, operator"
from collections.abc import Callable
from typing import Any

import pytest

from caraway.expr import col
from caraway.graph.plan.model import JobMode
from caraway.graph.plan.modes import REAL_TIME_REASON, mode_of
from tests.unit.datasets.shop import Orders, Users, Visits


def cheap(frame: Any) -> Any:
    return frame["price"].map(lambda price: price < 10)


PARSED = col("shop").str.parse(int).fillnull(0).astype(int)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: Orders.filter(cheap), "filter by the Python function cheap"),
        (
            lambda: Orders.assign("low", bool, cheap),
            "assign: column low is made by the Python function cheap",
        ),
        (lambda: Orders.transform(cheap), "transform by the Python function cheap"),
        (
            lambda: Orders.assign(n=PARSED),
            "assign: column n: str.parse() reads JSON more strictly than Spark does",
        ),
        (
            lambda: Orders.filter(col("shop").str.json_extract("$.a").isnull()),
            "filter: str.json_extract() reads JSON more strictly than Spark does, and knows more paths",
        ),
        # A Python step is found at any position, on either side of a union, and each reason is listed once.
        (
            lambda: (Orders.select("user", "price") + Orders.select("user", "price").filter(cheap)).filter(cheap),
            "filter by the Python function cheap",
        ),
        (
            lambda: Orders.filter(cheap).assign(n=PARSED).groupby("user").latest(),
            (
                "filter by the Python function cheap; "
                "assign: column n: str.parse() reads JSON more strictly than Spark does"
            ),
        ),
    ],
)
def test_what_needs_python_runs_in_micro_batches(build: Callable[[], Any], reason: str) -> None:
    assert mode_of(build().node_operator) == (JobMode.MICRO_BATCH, reason)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Orders.filter(col("price") > 1).assign(x=col("price").astype(float)),
        lambda: Visits.explode("tags").dropnull("tags"),
        lambda: Orders.join(Users, how="left", on=["user"], fields=["town"]),
    ],
)
def test_the_rest_runs_in_real_time(build: Callable[[], Any]) -> None:
    assert mode_of(build().node_operator) == (JobMode.REAL_TIME, REAL_TIME_REASON)
