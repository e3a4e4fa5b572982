"""The ledger's rules one by one, on a real Postgres and an invented clock; the simulation mixes them."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

from caraway.graph.specs import Graph
from caraway.state.allocation import AssetState
from caraway.state.blueprints import AssetKind
from caraway.state.ledger import LEASE, PAUSE, ActionOutcome, Claim
from caraway.state.model import MAIN, DesiredState, JobState
from caraway.state.plans import Plans
from tests.integration.state.deployment import FIRST, KEEP, SECOND, Deployment
from tests.unit.apps.server.control.graphs import clicks, spend, users

MOMENT = timedelta(microseconds=1)


def kinds(claims: list[Claim]) -> list[AssetKind]:
    return sorted(claim.kind for claim in claims)


def test_things_are_made_from_the_bottom_up_each_by_one(here: Deployment) -> None:
    here.commit(FIRST)
    topics = here.claim_all()
    assert kinds(topics) == [AssetKind.TOPIC] * 2
    assert set(here.states().values()) == {AssetState.CREATING, AssetState.PLANNED}
    for topic in topics:
        assert here.ledger.close(topic, ActionOutcome.DONE)
    middle = here.claim_all()
    assert kinds(middle) == [AssetKind.INGEST, AssetKind.JOB]
    for claim in middle:
        here.ledger.close(claim, ActionOutcome.DONE)
    assert kinds(here.claim_all()) == [AssetKind.INDEX]


def test_the_ledger_expects_only_actions_that_are_due_soon(here: Deployment) -> None:
    second = timedelta(seconds=1)
    assert not here.ledger.expects(second)
    here.commit(FIRST)
    assert here.ledger.expects(timedelta())
    here.work()
    assert not here.ledger.expects(second)
    # The topics of the first commit are kept for a while.
    here.commit(SECOND)
    here.work()
    assert not here.ledger.expects(second)
    here.now = min(here.due().values()) - second
    assert not here.ledger.expects(second - MOMENT)
    assert here.ledger.expects(second)


def test_a_branch_that_may_serve_its_head_is_expected(here: Deployment) -> None:
    here.commit(FIRST)
    here.work()
    here.commit(SECOND)
    while claims := here.claim_all():
        for claim in claims:
            here.ledger.close(claim, ActionOutcome.DONE)
    assert here.ledger.expects(timedelta())
    here.ledger.promote()
    assert not here.ledger.expects(timedelta())


def test_a_worker_that_lost_its_claim_cannot_close_the_entry(here: Deployment) -> None:
    here.commit(Graph(datasets=(clicks(),)))
    (first,) = here.claim_all()
    here.now += LEASE - MOMENT
    assert here.claim_all() == []
    here.now += MOMENT
    (second,) = here.claim_all()
    assert (second.entry, second.token) == (first.entry, first.token + 1)
    assert not here.ledger.close(first, ActionOutcome.DONE)
    assert here.states()[first.asset_id] is AssetState.CREATING
    assert here.ledger.close(second, ActionOutcome.WAITING, "for Godot")
    assert here.claim_all() == []
    here.now += PAUSE
    (third,) = here.claim_all()
    assert third.token == second.token + 1
    assert not here.ledger.close(second, ActionOutcome.DONE)
    assert here.ledger.close(third, ActionOutcome.DONE)


def test_unneeded_assets_stop_at_once_and_are_destroyed_later_from_the_top_down(here: Deployment) -> None:
    first = here.commit(FIRST)
    here.work()
    here.commit(Graph())
    (job,) = here.reader.jobs()
    assert job.desired is DesiredState.STOPPED
    assert set(here.due().values()) == {here.now + KEEP}
    here.now += KEEP - MOMENT
    assert here.claim_all() == []
    here.now += MOMENT
    top = here.claim_all()
    assert kinds(top) == [AssetKind.INDEX, AssetKind.INGEST]
    assert {here.states()[claim.asset_id] for claim in top} == {AssetState.DESTROYING}
    for claim in top:
        here.ledger.close(claim, ActionOutcome.DONE)
    (bottom,) = here.claim_all()
    assert bottom.kind is AssetKind.JOB
    # An asset that is being destroyed isn't reused, nor is the topic that it filled: a new generation replaces both at
    # once. A rollback reuses the other assets.
    here.commit(FIRST, restores=first)
    spent = next(asset_id for asset_id in here.states() if asset_id.startswith("topic:caraway.Spend"))
    assert here.due() == {bottom.asset_id: here.now, spent: here.now}
    assert {job.job_id: job.desired for job in here.reader.jobs()} == {
        bottom.name: DesiredState.STOPPED,
        f"{bottom.name}.2": DesiredState.RUNNING,
    }
    here.ledger.close(bottom, ActionOutcome.DONE)
    here.work()
    gone = {asset_id for asset_id, state in here.states().items() if state is AssetState.GONE}
    assert gone == {claim.asset_id for claim in (*top, bottom)} | {spent}
    assert set(here.reader.references()) == here.states().keys() - gone


def test_a_rollback_in_time_finds_all_as_it_was(here: Deployment) -> None:
    first = here.commit(FIRST)
    here.work()
    (job,) = here.reader.jobs()
    here.commit(Graph())
    here.registry.report(job.job_id, state=JobState.STOPPED, mode="", attempts=1, error="", progress={})
    here.now += KEEP
    back = here.commit(FIRST, restores=first)
    assert here.claim_all() == []
    assert set(here.states().values()) == {AssetState.READY}
    (job,) = here.reader.jobs()
    assert (job.desired, job.state) == (DesiredState.RUNNING, JobState.PENDING)
    assert here.serving() == back


def test_a_fresh_branch_gets_nothing_of_a_deleted_one(here: Deployment) -> None:
    here.branches.create("one")
    here.commit(FIRST, "one")
    here.work()
    old = here.used("one")
    here.branches.delete("one")
    here.branches.create("two")
    here.commit(FIRST, "two")
    assert not old & here.used("two")
    assert {asset_id.partition(":")[0] for asset_id in old} == {"topic", "job", "index", "ingest"}
    assert here.due() == dict.fromkeys(old, here.now + KEEP)
    needed = Plans(here.reader).refresh()
    names = {job.job_id for job in needed.jobs} | {ingest.topic.name for ingest in needed.ingests}
    assert names == {
        asset_id.partition(":")[2]
        for asset_id in here.used("two")
        if asset_id.startswith(("job", "topic:caraway.Clicks"))
    }
    # All of the first branch's assets go in the end, and none of the second one's.
    here.work()
    here.now += KEEP
    here.work()
    gone = {asset_id for asset_id, state in here.states().items() if state is AssetState.GONE}
    assert gone == old
    assert set(here.reader.references()) == here.used("two") == here.states().keys() - gone


def test_the_same_branch_gets_what_it_gave_up_by_a_rollback_only(here: Deployment) -> None:
    first = here.commit(FIRST)
    here.work()
    old = here.used()
    here.commit(Graph())
    here.commit(FIRST)
    assert not old & here.used()
    here.work()
    here.commit(FIRST, restores=first)
    assert here.used() == old
    assert set(here.due()) == here.states().keys() - old


def test_a_rollback_finds_its_data_although_another_branch_has_the_same_definitions(here: Deployment) -> None:
    first = here.commit(FIRST)
    here.work()
    old = here.used()
    here.commit(Graph())
    here.branches.create("other")
    here.commit(FIRST, "other")
    here.work()
    here.commit(FIRST, restores=first)
    assert here.used() == old
    fresh = here.used("other")
    assert not old & fresh
    # Each branch keeps its own assets in later commits, and a third one shares those of one of them.
    more = Graph(datasets=(*FIRST.datasets, users()))
    here.commit(more)
    here.commit(more, "other")
    assert here.used() > old
    assert here.used("other") > fresh
    both = here.used() & here.used("other")
    assert {(asset.kind, asset.dataset) for asset in here.reader.assets() if asset.id in both} == {
        (kind, "Users") for kind in (AssetKind.TOPIC, AssetKind.INGEST, AssetKind.INDEX)
    }
    here.branches.create("third")
    here.commit(FIRST, "third")
    assert here.used("third") in (old, fresh)
    here.branches.clone("copy", MAIN)
    here.commit(FIRST, "copy")
    assert here.used("copy") == old
    jobs = {job.job_id for job in Plans(here.reader).refresh().jobs}
    assert jobs == {asset_id.partition(":")[2] for asset_id in old | fresh if asset_id.startswith("job:")}


def test_a_rollback_whose_data_are_gone_shares_those_of_another_branch(here: Deployment) -> None:
    first = here.commit(FIRST)
    here.work()
    old = here.used()
    here.commit(Graph())
    here.branches.create("other")
    here.commit(FIRST, "other")
    here.work()
    here.now += KEEP
    here.work()
    here.commit(FIRST, restores=first)
    assert here.used() == here.used("other")
    assert not here.used() & old


def test_a_branch_serves_the_older_commit_until_all_of_the_newer_is_ready(here: Deployment) -> None:
    first = here.commit(FIRST)
    here.work()
    old = set(here.reader.references())
    second = here.commit(SECOND)
    assert here.serving() == first
    # Committing the same again doesn't switch the branch either.
    again = here.commit(SECOND)
    assert here.serving() == first
    here.branches.clone("copy", MAIN)
    assert here.serving("copy") == first
    assert here.ledger.promote() == ()
    assert old < set(here.reader.references())
    assert here.reader.references() == {asset_id: {MAIN, "copy"} for asset_id in here.reader.references()}
    here.work()
    assert (here.serving(), here.serving("copy")) == (again, again)
    assert second != again
    left = old - set(here.reader.references())
    assert {asset_id.partition(":")[0] for asset_id in left} == {"topic", "job", "index"}
    assert here.due() == dict.fromkeys(left, here.now + KEEP)
    # A commit that only adds a dataset is served without waiting.
    added = here.commit(Graph(datasets=(*SECOND.datasets, users())))
    assert here.serving() == added
    here.work()
    here.branches.delete("copy")
    assert set(here.due()) == left
    here.branches.clone("other", MAIN)
    here.commit(FIRST, restores=first)
    here.branches.delete("other")
    assert any("Users" in asset_id for asset_id in here.due())


def test_equal_commits_at_once_share_their_assets(here: Deployment) -> None:
    names = [f"branch{number}" for number in range(4)]
    for name in names:
        here.branches.create(name)
    for above in range(6):
        start = Barrier(len(names))
        graph = Graph(datasets=(clicks(version=above + 1), spend(version=above + 1, above=float(above))))

        def commit(name: str, start: Barrier = start, graph: Graph = graph) -> str:
            start.wait(60)
            return here.commit(graph, name)

        with ThreadPoolExecutor(len(names)) as pool:
            assert len(set(pool.map(commit, names))) == len(names)
    live = [asset.content for asset in here.reader.assets()]
    assert len(live) == len(set(live))
