"""The reasons for which jobs are waited for, and a worker's outcome after an error."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from caraway.apps.server.control.summary import differences
from caraway.apps.server.control.worker import perform
from caraway.apps.server.control.world import Deployed, unready, unstopped
from caraway.errors import UnavailableError
from caraway.graph.specs import Graph
from caraway.state.allocation import Action
from caraway.state.blueprints import AssetKind
from caraway.state.ledger import FIRST_BACKOFF, LAST_BACKOFF, ActionOutcome, Claim, Closed, backoff
from caraway.state.model import DesiredState, JobRecord, JobState
from tests.unit.apps.server.control.graphs import clicks, shopper, spend, users

NOW = datetime(2030, 1, 1, tzinfo=UTC)
JOB = JobRecord(
    job_id="Spend.1",
    commit_id="c",
    dataset="Spend",
    pipeline="sum_up",
    mode="real-time",
    mode_reason="",
    desired=DesiredState.RUNNING,
    state=JobState.RUNNING,
    error="",
    attempts=1,
    updated_at=NOW,
    progress={"lag_records": 0},
)


def test_a_job_is_ready_when_it_has_reported_that_it_has_caught_up() -> None:
    assert not unready(JOB)
    assert unready(replace(JOB, progress={"lag_records": 5})) == "the job is 5 records behind"
    assert "hasn't reported its progress" in unready(replace(JOB, progress={}))
    assert "out of memory" in unready(replace(JOB, state=JobState.FAILING, error="out of memory"))
    assert "an engine has to run it" in unready(replace(JOB, state=JobState.PENDING))
    paused = replace(JOB, state=JobState.STOPPED, paused=True)
    assert unready(paused) == "the job is paused; a person has to let it go on"
    assert "isn't registered" in unready(None)


def test_a_job_may_be_destroyed_when_no_engine_runs_it() -> None:
    stopping = replace(JOB, desired=DesiredState.STOPPED)
    assert "its engine has to stop it" in unstopped(stopping, NOW)
    assert not unstopped(stopping, NOW + timedelta(minutes=2)), "an engine that is silent for so long has ended"
    assert unstopped(JOB, NOW + timedelta(minutes=2)), "it is wanted"
    assert not unstopped(replace(stopping, state=JobState.STOPPED), NOW)
    assert not unstopped(replace(stopping, state=JobState.PENDING, attempts=0), NOW)
    assert unstopped(replace(stopping, state=JobState.PENDING, attempts=3), NOW)
    assert not unstopped(None, NOW)


class World:
    """Records the calls; topics fail if the test says so."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[tuple[str, ...]] = []
        self._error = error

    def deployed(self) -> Deployed:
        return Deployed(
            make_topics=lambda names: self._ask("make", *names),
            drop_topics=lambda names: self._ask("drop", *names),
            job=self.job,
            index_lag=lambda asset: f"{asset} is behind",
            clock=lambda: NOW,
        )

    def job(self, job_id: str) -> JobRecord | None:
        return JOB if job_id == JOB.job_id else None

    def _ask(self, action: str, *names: str) -> None:
        self.asked.append((action, *names))
        if self._error is not None and "bad" in names:
            raise self._error


def _claim(action: Action, kind: AssetKind, name: str) -> Claim:
    return Claim(entry=1, token=1, action=action, asset_id=f"{kind}:{name}", kind=kind, attempts=0, until=NOW)


@pytest.mark.parametrize(
    ("action", "kind", "name", "outcome"),
    [
        (Action.CREATE, AssetKind.TOPIC, "t", (ActionOutcome.DONE, "")),
        (Action.DESTROY, AssetKind.TOPIC, "t", (ActionOutcome.DONE, "")),
        (Action.CREATE, AssetKind.JOB, "Spend.1", (ActionOutcome.DONE, "")),
        (Action.CREATE, AssetKind.JOB, "Spend.2", (ActionOutcome.WAITING, "the job isn't registered")),
        (
            Action.DESTROY,
            AssetKind.JOB,
            "Spend.1",
            (ActionOutcome.WAITING, "the job is running; its engine has to stop it"),
        ),
        (Action.DESTROY, AssetKind.JOB, "Spend.2", (ActionOutcome.DONE, "")),
        (Action.CREATE, AssetKind.INDEX, "ab", (ActionOutcome.WAITING, "ab is behind")),
        (Action.DESTROY, AssetKind.INDEX, "ab", (ActionOutcome.DONE, "")),
        (Action.CREATE, AssetKind.INGEST, "i", (ActionOutcome.DONE, "")),
        (Action.DESTROY, AssetKind.INGEST, "i", (ActionOutcome.DONE, "")),
    ],
)
def test_actions(action: Action, kind: AssetKind, name: str, outcome: tuple[ActionOutcome, str]) -> None:
    world = World()
    claim = _claim(action, kind, name)
    assert perform([claim], world.deployed()) == [Closed(claim, *outcome)]
    if kind is AssetKind.TOPIC:
        assert world.asked == [("make" if action is Action.CREATE else "drop", "t")]


@pytest.mark.parametrize(
    ("error", "reason"), [(UnavailableError("no broker"), "no broker"), (OSError("disk"), "OSError: disk")]
)
def test_an_error_is_reported_and_ends_nothing(error: Exception, reason: str) -> None:
    claim = _claim(Action.CREATE, AssetKind.TOPIC, "bad")
    assert perform([claim], World(error).deployed()) == [Closed(claim, ActionOutcome.FAILED, reason)]


def test_topics_are_made_together_and_a_bad_one_fails_alone() -> None:
    good, bad = (_claim(Action.CREATE, AssetKind.TOPIC, name) for name in ("good", "bad"))
    world = World()
    assert perform([good, bad], world.deployed()) == [Closed(claim, ActionOutcome.DONE) for claim in (good, bad)]
    assert world.asked == [("make", "good", "bad")]
    failing = World(UnavailableError("no broker"))
    assert perform([good, bad], failing.deployed()) == [
        Closed(good, ActionOutcome.DONE),
        Closed(bad, ActionOutcome.FAILED, "no broker"),
    ]


def test_pauses_grow_to_a_bound() -> None:
    pauses = [backoff(attempts) for attempts in range(60)]
    assert pauses[0] == FIRST_BACKOFF
    assert pauses == sorted(pauses)
    assert pauses[-1] == LAST_BACKOFF


def test_differences_between_graphs() -> None:
    before = Graph(datasets=(clicks(), spend()), featuresets=(shopper("user", "spent"),))
    after = Graph(datasets=(clicks(), spend(version=2, above=5.0), users()), featuresets=(shopper("user"),))
    assert differences(before, before) == {"added": [], "removed": [], "changed": [], "details": {}}
    found = differences(before, after)
    assert found["added"] == ["dataset Users"]
    assert found["removed"] == ["feature Shopper.spent"]
    assert found["changed"] == ["dataset Spend", "featureset Shopper"]
    assert found["details"] == {
        "dataset Spend": (
            "version 1 → 2",
            "pipeline sum_up return clicks.filter(col('price') > 1.0) → return clicks.filter(col('price') > 5.0)",
        ),
        "featureset Shopper": ("feature spent there → not there", "extractor Shopper.spent there → not there"),
    }
