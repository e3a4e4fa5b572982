"""The slots of Spark that a commit needs, and what its summary says of them."""

from dataclasses import replace
from datetime import timedelta

import pytest

from caraway.apps.server.control.service import CommitService
from caraway.apps.server.control.slot_demand import SlotDemand, find_slot_demand
from caraway.graph.plan.planner import plan_graph
from caraway.graph.wire.graphs import CommitRequest
from tests.unit.apps.server.control.test_service import FIRST, World
from tests.unit.apps.server.control.test_world import JOB


def test_each_engine_s_newest_report_counts() -> None:
    plan = plan_graph(FIRST)
    created = {job.job_id for job in plan.jobs}
    old = replace(JOB, progress={"slots_free": 99, "engine": "a"}, updated_at=JOB.updated_at - timedelta(seconds=9))
    jobs = [
        replace(JOB, progress={"slots_free": 10, "engine": "a"}),
        old,
        replace(JOB, progress={"slots_free": 5, "engine": "b"}),
        replace(JOB, progress={}),
    ]
    found = find_slot_demand(plan, created, lambda: jobs, partitions=3, processors=2)
    assert found == SlotDemand(needed=5, jobs=1, free=15), "three tasks read, and two keep rows"
    assert find_slot_demand(plan, set(), lambda: jobs, partitions=3, processors=2) is None, "no job is new"
    assert find_slot_demand(plan, created, lambda: [JOB], partitions=3, processors=2) is None, (
        "no engine has reported slots"
    )


@pytest.mark.parametrize(
    ("slots", "end"),
    [
        (
            SlotDemand(needed=4, jobs=2, free=20),
            "and 20 are free; about 8 further jobs like these would find slots",
        ),
        (
            SlotDemand(needed=4, jobs=2, free=1),
            "and 1 is free. Some won't start until branches or pipelines that nobody needs are deleted",
        ),
    ],
)
def test_a_preview_says_how_many_jobs_find_slots(slots: SlotDemand, end: str) -> None:
    world = World()
    service = CommitService(world, world, world, slots=lambda _plan, _created: slots)
    preview = service.commit(CommitRequest(message="first", graph=FIRST, preview=True))
    assert f"slots: the new jobs need 4 slots of Spark, {end}" in preview.summary
    assert world.commits == []
