"""Definitions with two jobs in a row, an index between them that sends rows on, and a dataset without jobs."""

# Type checkers see classes where decorators make datasets and featuresets.
# mypy: disable-error-code="arg-type, list-item, type-arg, attr-defined"
from datetime import datetime
from typing import Any

from caraway.client import Client
from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, dataset, field, pipeline
from caraway.dtypes import Continuous, Tumbling
from caraway.graph.plan.model import GraphPlan
from caraway.graph.plan.planner import plan_graph
from caraway.lib import inputs

__owner__ = "module@example.com"
webhook = Webhook(name="web")


@source(webhook.endpoint("visits"), disorder="1d", cdc="append")
@dataset
class Visits:
    user: int
    at: datetime


@dataset
class Hourly:
    user: int = field(key=True)
    visits: int
    at: datetime

    @pipeline
    @inputs(Visits)
    def by_hour(cls, visits: Dataset) -> Any:
        return visits.dedup(by=["user"]).groupby("user").aggregate(visits=Count(window=Tumbling("1h")))


@dataset(index=True)
class Busy:
    user: int = field(key=True)
    hours: int
    at: datetime

    @pipeline
    @inputs(Hourly)
    def busy(cls, hourly: Dataset) -> Any:
        return hourly.changelog(delete="gone").groupby("user").aggregate(hours=Count(window=Continuous("forever")))


@source(webhook.endpoint("pages"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Pages:
    page: int = field(key=True)
    title: str
    at: datetime


def plan_of(*datasets: Any) -> GraphPlan:
    return plan_graph(Client.build_commit("m", [*datasets], []).graph)
