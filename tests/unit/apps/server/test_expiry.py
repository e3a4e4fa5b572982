"""Tests of expiry: versions that no commit keeps expire; offline indexes and windows keep all."""

import threading
from dataclasses import replace

import pytest

from caraway.apps.server.expiry import Expiry, histories
from caraway.errors import UnavailableError
from caraway.graph.plan.model import IndexPlan
from caraway.graph.plan.planner import plan_graph
from caraway.state.plans import Planned
from tests.unit.compute.query import garden

YEAR_US = 365 * 24 * 3_600_000_000
GRAPH = garden.graph()
PLANNED = Planned(graph=GRAPH, plan=plan_graph(GRAPH))


def plan_of(dataset: str) -> IndexPlan:
    return next(plan for plan in PLANNED.plan.indexes if plan.dataset == dataset)


def with_history(us: int, *, offline: bool = False) -> Planned:
    specs = tuple(
        replace(spec, history_us=us, index=replace(spec.index, offline=offline))
        if spec.name == "OnlineOnly" and spec.index is not None
        else spec
        for spec in GRAPH.datasets
    )
    return replace(PLANNED, graph=replace(GRAPH, datasets=specs))


def test_only_versions_without_an_offline_index_expire() -> None:
    assert histories({"c": PLANNED}) == {plan_of("OnlineOnly").asset: 2 * YEAR_US}
    assert histories({}) == {}


def test_of_several_commits_the_one_that_keeps_most_counts() -> None:
    asset = plan_of("OnlineOnly").asset
    commits = {"a": with_history(5), "b": with_history(9), "c": with_history(7)}
    assert histories(commits) == {asset: 9}
    for place in ("0", "z"):
        assert histories({**commits, place: with_history(1, offline=True)}) == {}


class Sweeps:
    def __init__(self, *, away: bool = False) -> None:
        self.asked: list[tuple[bytes, int]] = []
        self._away = away

    def expire(self, asset: bytes, horizon_us: int, stopping: threading.Event) -> int:
        assert not stopping.is_set()
        if self._away:
            raise UnavailableError("the disk is away")
        self.asked.append((asset, horizon_us))
        return 3


@pytest.mark.parametrize("away", [False, True])
def test_the_horizon_is_the_history_back_from_now(away: bool) -> None:
    sweeps = Sweeps(away=away)
    expiry = Expiry(sweeps.expire, lambda: {"a": with_history(5_000_000)}, clock=lambda: 100.0)
    assert expiry.sweep() == (0 if away else 3)
    assert sweeps.asked == ([] if away else [(plan_of("OnlineOnly").asset, 95_000_000)])
