"""Tests of what branches share: data of another branch is read and written by those only who may do so there."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from caraway import connectors, dataset, field, meta
from caraway.apps.server.access.limits import AccessLimits
from caraway.apps.server.access.sharing import Sharing
from caraway.errors import ForbiddenError
from caraway.graph.plan.model import GraphPlan
from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import Graph
from caraway.state.model import BranchHeads, BranchRecord
from caraway.state.permissions import Caller, Grant, Mode
from caraway.state.plans import Needed, Planned

# The branches, the oldest first.
BRANCHES = ("main", "dev", "prod")


@connectors.source(connectors.Webhook(name="hotel").endpoint("guests"), disorder="1h", cdc="upsert")
@meta(owner="a@b.co")
@dataset
class Guests:
    name: str = field(key=True, erase_key=True)
    at: datetime = field(timestamp=True)


GUESTS = Planned(graph=Graph(datasets=(Guests.to_spec(),)), plan=plan_graph(Graph(datasets=(Guests.to_spec(),))))
WRITTEN = [("Guests", GUESTS.plan.topics[0].name)]


def sharing(*holders: str) -> Sharing:
    """Return the checks of a deployment in which these branches hold the dataset Guests, and the others nothing."""
    begun = datetime(2026, 1, 1, tzinfo=UTC)
    heads = tuple(
        BranchRecord(
            name=name, head=name if name in holders else None, serving=None, created_at=begun + timedelta(days=age)
        )
        for age, name in enumerate(BRANCHES)
    )
    needed = Needed(heads=BranchHeads(branches=heads), commits=dict.fromkeys(holders, GUESTS))
    graphs: Any = SimpleNamespace(require_needed=lambda: needed)
    return Sharing(graphs, AccessLimits(graphs))


def caller(branch: str, *modes_elsewhere: Mode) -> Caller:
    """Return somebody who may do everything on a branch, and has these modes on the other ones."""
    own = Grant(modes=frozenset(Mode), branches=frozenset({branch}))
    elsewhere = Grant(modes=frozenset(modes_elsewhere), branches=frozenset(BRANCHES) - {branch})
    return Caller(account="eve", token_id="t", grants=(own, elsewhere))


def commit_of(*holders: str, asset: bool, endpoint: bool) -> Any:
    """Return a commit after which a branch shares an asset with its holders, or the endpoint of the webhook."""
    return SimpleNamespace(
        shared={"topic:x": frozenset(holders)} if asset else {},
        allocation=SimpleNamespace(assets=[SimpleNamespace(id="topic:x", dataset="Guests")]),
        plan_before=GraphPlan(),
        plan_after=GUESTS.plan if endpoint else GraphPlan(),
    )


@pytest.mark.parametrize(("asset", "endpoint"), [(True, False), (False, True), (True, True)])
def test_an_older_branch_joins_a_younger_one_by_the_right_to_write_there(*, asset: bool, endpoint: bool) -> None:
    joined, change = sharing("prod"), commit_of("prod", asset=asset, endpoint=endpoint)
    with pytest.raises(ForbiddenError, match="lacks read-data on branch 'prod' for Guests"):
        joined.check_commit(caller("dev", Mode.WRITE_DATA), "dev", change)
    with pytest.raises(ForbiddenError, match=r"lacks write-data on branch 'prod' for Guests: branch 'dev' is older"):
        joined.check_commit(caller("dev", Mode.READ_DATA), "dev", change)
    joined.check_commit(caller("dev", Mode.READ_DATA, Mode.WRITE_DATA), "dev", change)
    # From then on, writers of the older branch reach the younger one without a right there.
    sharing("dev", "prod").check_written(caller("dev"), "dev", WRITTEN)


@pytest.mark.parametrize(("asset", "endpoint"), [(True, False), (False, True)])
def test_a_younger_branch_joins_an_older_one_by_the_right_to_read_there(*, asset: bool, endpoint: bool) -> None:
    change = commit_of("dev", asset=asset, endpoint=endpoint)
    sharing("dev").check_commit(caller("prod", Mode.READ_DATA), "prod", change)
    with pytest.raises(ForbiddenError, match="lacks write-data on branch 'dev' for Guests"):
        sharing("dev", "prod").check_written(caller("prod", Mode.READ_DATA), "prod", WRITTEN)


def test_a_branch_that_joins_several_must_be_writable_in_each_younger_one() -> None:
    change = commit_of("main", "prod", asset=True, endpoint=False)
    with pytest.raises(ForbiddenError, match="lacks write-data on branch 'prod'"):
        sharing("main", "prod").check_commit(caller("dev", Mode.READ_DATA), "dev", change)


def test_a_branch_without_an_endpoint_gives_no_right_to_log_to_the_branches_that_have_it() -> None:
    for branch in ("main", "dev"):
        with pytest.raises(ForbiddenError, match="lacks write-data on branch 'prod' for Guests"):
            sharing("prod").check_written(caller(branch, Mode.READ_DATA), branch, WRITTEN)
        sharing("prod").check_written(caller(branch, Mode.WRITE_DATA), branch, WRITTEN)
