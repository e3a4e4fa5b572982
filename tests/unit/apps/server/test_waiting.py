"""Tests of goals along a plan: nothing counts as served before all parts between it and its sources have caught up."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from caraway.apps.server.handlers.waiting import WaitBody, wait
from caraway.apps.server.http.messages import Request
from caraway.apps.server.waiting.goals import Goal, Goals, source_topics
from caraway.apps.server.waiting.markers import Markers, Seen
from caraway.dataplane.index.feeding.worker import IndexStatus
from caraway.dataplane.topics.markers import Arrival, decode_arrival, is_marker, job_tag
from caraway.errors import ForbiddenError, InvalidInputError
from caraway.graph.plan.model import GraphPlan, JobPlan
from caraway.state.model import JobRecord, JobState
from caraway.state.permissions import Grant, Mode
from tests.unit.apps.server.asking import Headers
from tests.unit.apps.server.reports import index_status, job_record
from tests.unit.apps.server.test_access import BY_TARGET, gate, owner
from tests.unit.apps.server.visits import Busy, Hourly, Visits, plan_of


@pytest.fixture(scope="module")
def plan() -> GraphPlan:
    return plan_of(Visits, Hourly, Busy)


def status(asset: bytes, offsets: Goal, *, unsent: bool = False) -> IndexStatus:
    return index_status(asset=asset.hex(), offsets=dict(offsets), unsent=unsent)


def record(job: JobPlan, **progress: Any) -> JobRecord:
    return job_record(job, progress=progress)


def ends(topics: Iterable[str]) -> dict[str, dict[int, int]]:
    return {topic: {0: 50, 1: 60} for topic in topics}


def never(_job: JobPlan) -> None:
    return None


def test_goals_go_from_topic_to_topic_along_jobs_and_indexes(plan: GraphPlan) -> None:
    (visits,) = source_topics(plan)
    first = next(job for job in plan.jobs if visits in {topic.name for topic in job.inputs})
    emitting = next(index for index in plan.indexes if index.emits is not None)
    last = next(job for job in plan.jobs if job is not first)
    serving = next(index for index in plan.indexes if index.emits is None and index.dataset == "Busy")
    assert emitting.emits is not None
    assert {topic.name for topic in last.inputs} == {emitting.emits.name}
    goals = Goals(plan, {visits: {0: 10, 1: 20}})

    goals.advance(ends, [], [], never)
    assert [(lag.kind, lag.name) for lag in goals.lagging([], [])] == [("job", first.job_id)]
    # One partition is one record short.
    told = [record(first, positions={visits: {"0": 10, "1": 19}})]
    goals.advance(ends, [], told, never)
    assert first.output.name not in goals.known
    told = [record(first, positions={visits: {"0": 10, "1": 20}})]
    goals.advance(ends, [], told, never)
    assert goals.known[first.output.name] == {0: 50, 1: 60}
    assert [lag.kind for lag in goals.lagging([], told)] == ["index"]
    behind = [status(emitting.asset, {0: 50, 1: 59})]
    (lag,) = goals.lagging(behind, told)
    assert (lag.records, lag.reason) == (1, "it is 1 records behind")

    # An earlier process of the server has read all records, but hasn't sent all rows that follow from them.
    waiting = [status(emitting.asset, {0: 50, 1: 60}, unsent=True)]
    goals.advance(ends, waiting, told, never)
    assert emitting.emits.name not in goals.known
    (lag,) = goals.lagging(waiting, told)
    assert (lag.records, lag.reason) == (1, "rows that it has computed aren't on their topic yet")
    assert goals.done(waiting) == 1

    level = [status(emitting.asset, {0: 50, 1: 60})]
    arrived: dict[str, Goal] = {}
    goals.advance(ends, level, told, lambda job: arrived.get(job.job_id))
    assert [lag.name for lag in goals.lagging(level, told)] == [last.job_id]
    # Markers show the positions of the arrivals, not the end of the topic.
    arrived[last.job_id] = {0: 7, 1: 8}
    goals.advance(ends, level, told, lambda job: arrived.get(job.job_id))
    assert goals.known[last.output.name] == {0: 7, 1: 8}
    almost = [*level, status(serving.asset, {0: 7, 1: 7})]
    assert [lag.name for lag in goals.lagging(almost, told)] == [serving.asset.hex()]
    assert goals.done(almost) == goals.parts - 1
    served = [*level, status(serving.asset, {0: 7, 1: 8})]
    assert goals.lagging(served, told) == []
    assert goals.done(served) == goals.parts


def test_jobs_say_why_they_lag(plan: GraphPlan) -> None:
    (visits,) = source_topics(plan)
    goals = Goals(plan, {visits: {0: 10}})
    job = next(job for job in plan.jobs if visits in {topic.name for topic in job.inputs})
    running = record(job, lag_records=1_200)
    reasons: list[tuple[list[JobRecord], str]] = [
        ([], "no engine has taken it yet"),
        ([replace(running, state=JobState.FAILING, error="no slots")], "it fails: no slots"),
        ([replace(running, state=JobState.STARTING)], "it is starting; an engine has to run it"),
        ([replace(running, state=JobState.STOPPED, paused=True)], "it is paused; a person has to let it go on"),
        ([running], "it has not shown yet that it has done all rows"),
    ]
    for records, reason in reasons:
        (lag,) = goals.lagging([], records)
        assert lag.reason == reason
    assert lag.records == 1_200


def test_a_wait_without_markers_pauses_between_two_looks() -> None:
    writer: Any = None
    pauses: list[float] = []
    markers = Markers("127.0.0.1:1", writer, {}, pause=pauses.append)
    markers.begin()
    for _ in range(3):
        markers.read(0.02)
    assert pauses == [0.02] * 3


def test_a_marker_has_arrived_when_all_copies_of_all_partitions_are_in_all_partitions() -> None:
    seen = Seen()
    arrivals = [
        (partition, Arrival(token=bytes(16), job=bytes(8), copies=2, path=bytes([0, 0, 0, source, 0, 0, 0, task])))
        for partition in range(2)
        for source in range(3)
        for task in range(2)
    ]
    for offset, (partition, arrival) in enumerate(arrivals):
        assert seen.goal(sources=3, partitions=2) is None
        seen.add(arrival, partition, offset)
        # Arrivals may be delivered again after a restart of the job.
        seen.add(arrival, partition, offset)
    assert seen.goal(sources=3, partitions=2) == {0: 6, 1: 12}


def test_arrivals_are_read_as_jobs_write_them() -> None:
    value = (2).to_bytes(4, "big") + job_tag("Busy.busy-1") + b"t" * 16 + bytes([0, 0, 0, 3])
    arrival = decode_arrival(value)
    assert arrival == Arrival(token=b"t" * 16, job=job_tag("Busy.busy-1"), copies=2, path=bytes([0, 0, 0, 3]))
    assert arrival is not None
    assert arrival.partition == 3
    assert decode_arrival(value[:20]) is None
    assert is_marker(b"\xc1caraway.marker")
    assert not is_marker(None)


def request(body: bytes) -> Request[WaitBody]:
    headers: Any = {}
    return Request("POST", "/api/v1/wait", "", headers, body, body_form=WaitBody)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"[]", "an object is expected"),
        (b'{"seconds": 11}', "from 0 to 10"),
        (b'{"seconds": true}', "from 0 to 10"),
        (b'{"seconds": "1"}', "from 0 to 10"),
        (b'{"since": 3}', "since is"),
        (b'{"since": {"t": [1]}}', "what an earlier answer gave"),
        (b'{"since": {"t": {"0": -1}}}', "what an earlier answer gave"),
        (b'{"since": {"t": {"x": 1}}}', "what an earlier answer gave"),
        (b'{"since": {"t": {"0": 1.5}}}', "what an earlier answer gave"),
        (b'{"since": {"t": {"99999999999": 1}}}', "what an earlier answer gave"),
    ],
)
def test_a_body_that_is_wrong_is_refused(body: bytes, message: str) -> None:
    parts: Any = SimpleNamespace()
    with pytest.raises(InvalidInputError, match=message):
        asyncio.run(wait(parts, request(body)))


@pytest.mark.parametrize("mode", Mode)
def test_only_who_may_do_something_on_the_branch_may_wait(mode: Mode) -> None:
    ready = gate(x=owner(Grant(modes=frozenset({mode}), branches=frozenset({"dev"}))))
    token = {"authorization": "Bearer x"}
    ready.admit(BY_TARGET["wait"], Headers(**token, **{"x-caraway-branch": "dev"}))
    with pytest.raises(ForbiddenError, match=r"'ada' lacks .* on branch 'main' \(wait\)"):
        ready.admit(BY_TARGET["wait"], Headers(**token))
