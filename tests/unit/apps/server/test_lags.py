"""Tests of the lags that refuse log requests, and of the lines of the log about them."""

from collections.abc import Mapping, Sequence

import pytest
from structlog.testing import capture_logs

from caraway.apps.server.http.errors import error_response
from caraway.apps.server.lags import LOG_INTERVAL_S, LOGGED_S, Lags, pace_of
from caraway.dataplane.index.feeding.worker import IndexStatus
from caraway.dataplane.ingest.backpressure import RETRY_AFTER_S, Backpressure, BehindError, Bounds
from caraway.errors import UnavailableError
from caraway.graph.plan.model import GraphPlan
from caraway.state.model import JobRecord, JobState
from tests.unit.apps.server.reports import index_status, job_record
from tests.unit.apps.server.visits import Busy, Hourly, Pages, Visits, plan_of

BOUNDS = Bounds(records=1_000, seconds=60.0)


@pytest.fixture(scope="module")
def plan() -> GraphPlan:
    return plan_of(Visits, Pages, Hourly, Busy)


class World:
    """The lags of the indexes of a plan by dataset, the reports of its jobs, and the time."""

    def __init__(self, plan: GraphPlan, bounds: Bounds = BOUNDS) -> None:
        self.plan = plan
        self.waiting: Mapping[str, int] = {}
        self.reports: Sequence[JobRecord] = ()
        self.away = False
        self.now = 1_000_000.0
        self.backpressure = Backpressure(bounds)
        self.lags = Lags(self.positions, self.jobs, self.backpressure, clock=lambda: self.now)
        self.lags.follow([plan])

    def positions(self) -> list[IndexStatus]:
        return [index_status(index, lag=self.waiting.get(index.dataset, 0)) for index in self.plan.indexes]

    def jobs(self) -> Sequence[JobRecord]:
        if self.away:
            raise UnavailableError("Postgres is away")
        return self.reports

    def look(self, after: float = 1.0, **waiting: int) -> None:
        self.now += after
        self.waiting = waiting
        self.lags.refresh()

    def refused(self) -> set[str]:
        """Return the datasets with a source that take no rows now."""
        return {ingest.dataset.name for ingest in self.plan.ingests if self.backpressure.is_late(ingest.topic.name)}


def job(plan: GraphPlan, state: JobState, records: int, seconds: float) -> JobRecord:
    return job_record(plan.jobs[0], state=state, progress={"lag_records": records, "lag_seconds": seconds})


def test_an_index_beyond_both_bounds_refuses_the_rows_from_which_it_is_computed(plan: GraphPlan) -> None:
    world = World(plan)
    world.look()
    world.look(Busy=1_001)
    assert world.refused() == set()
    world.look(60, Busy=1_000)
    assert world.refused() == set()
    world.look(Busy=1_001)
    assert world.refused() == {"Visits"}
    world.look(Pages=1_001)
    assert world.refused() == set()
    world.look(61, Pages=1_001)
    assert world.refused() == {"Pages"}
    world.look()
    assert world.refused() == set()


@pytest.mark.parametrize("bounds", [Bounds(records=0, seconds=60.0), Bounds(records=1_000, seconds=0.0)])
def test_a_bound_of_zero_refuses_nothing(plan: GraphPlan, bounds: Bounds) -> None:
    world = World(plan, bounds)
    world.look()
    world.look(1e6, Busy=10**9)
    assert world.refused() == set()


def test_an_index_that_is_built_from_history_refuses_nothing_unless_it_loses_ground(plan: GraphPlan) -> None:
    world = World(plan)
    for waiting in (9_000_000, 8_000_000, 7_000_000):
        world.look(100, Busy=waiting)
        assert world.refused() == set()
    world.look(100, Busy=7_001_001)
    assert world.refused() == {"Visits"}


def test_an_index_that_no_branch_serves_refuses_nothing(plan: GraphPlan) -> None:
    world = World(plan)
    world.lags.follow([])
    world.look()
    world.look(1e6, Busy=10**9)
    assert world.refused() == set()


def test_a_running_job_beyond_the_bounds_refuses_rows_and_a_failing_one_does_not(plan: GraphPlan) -> None:
    world = World(plan)
    for state, refused in ((JobState.RUNNING, {"Visits"}), (JobState.FAILING, set())):
        world.reports = [job(plan, state, 1_001, 61.0)]
        world.lags.refresh_jobs()
        world.look()
        assert world.refused() == refused
    world.reports = [job(plan, JobState.RUNNING, 1_001, 61.0)]
    world.lags.refresh_jobs()
    world.away = True
    with pytest.raises(UnavailableError):
        world.lags.refresh_jobs()
    world.look()
    assert world.refused() == set()


def test_the_refusal_says_what_is_behind_and_when_to_come_again(plan: GraphPlan) -> None:
    world = World(plan)
    world.look()
    world.look(90, Pages=12_345)
    topic = next(ingest.topic.name for ingest in plan.ingests if ingest.dataset.name == "Pages")
    with pytest.raises(
        BehindError, match=r"index of Pages is 12,345 records and 90 s behind.*nothing.*again after"
    ) as e:
        world.backpressure.check([topic])
    answer = error_response(e.value)
    assert answer.status == 429
    assert ("retry-after", str(RETRY_AFTER_S)) in answer.headers
    assert b'"code":"behind"' in answer.body


def test_the_log_has_one_line_a_minute_and_one_when_the_index_is_back(plan: GraphPlan) -> None:
    world = World(plan)
    world.look()
    with capture_logs() as lines:
        for _ in range(int(LOGGED_S)):
            world.look(Busy=5)
        assert lines == []
        for _ in range(int(LOG_INTERVAL_S)):
            world.look(Busy=5)
        assert [line["lags"]["Busy"]["records"] for line in lines] == [5]
        world.look(LOG_INTERVAL_S, Busy=6)
        world.look()
        world.look(Busy=7)
    assert [line["log_level"] for line in lines] == ["warning", "warning", "info"]
    assert lines[-1]["datasets"] == ["Busy"]


def test_lags_of_the_last_hours_are_kept(plan: GraphPlan) -> None:
    world = World(plan)
    world.look()
    progress = {"lag_seconds": 4.5, "lag_records": 9, "rows_per_second": 12.5}
    world.reports = [job_record(plan.jobs[0], state=JobState.RUNNING, progress=progress)]
    world.lags.refresh_jobs()
    world.look(30, Busy=5)
    world.look(30, Busy=5)
    busy = next(index.asset.hex() for index in plan.indexes if index.dataset == "Busy")
    assert max(seconds for _, seconds in world.lags.past.of(busy)) == 60.0
    job_id = plan.jobs[0].job_id
    assert [world.lags.past.of(name)[-1][1] for name in (job_id, pace_of(job_id))] == [4.5, 12.5]
