import threading
from collections.abc import Collection, Mapping

import pytest
from typing_extensions import override

from caraway.dataplane.streams.engine.job_ownership import Work
from caraway.dataplane.streams.engine.jobs import JobStatus
from caraway.dataplane.streams.engine.link import RegistryLink
from caraway.errors import UnavailableError
from caraway.graph.plan.model import JobPlan
from caraway.state.model import JobState
from caraway.state.registry import JobRegistry

pytestmark = pytest.mark.slow


class FlakyRegistry(JobRegistry):
    """A registry that can be unreachable."""

    def __init__(self) -> None:
        self.away = False
        self.asked = threading.Semaphore(0)
        self.told: list[tuple[str, str]] = []
        self.gone: frozenset[str] = frozenset()

    @override
    def desired_jobs(self) -> tuple[JobPlan, ...]:
        self.asked.release()
        if self.away:
            raise UnavailableError("Postgres is away")
        return ()

    @override
    def gone_jobs(self) -> frozenset[str]:
        return self.gone

    @override
    def report(
        self,
        job_id: str,
        *,
        state: str,
        mode: str,
        attempts: int,
        error: str = "",
        progress: Mapping[str, object] | None = None,
    ) -> None:
        self.told.append((job_id, state))


def rounds(link: RegistryLink, registry: FlakyRegistry, count: int) -> None:
    """Wait for so many rounds, without the pauses between them."""
    for _ in range(count):
        link.wake()
        assert registry.asked.acquire(timeout=10)


def status(state: JobState) -> dict[str, JobStatus]:
    return {"a": JobStatus(state=state, mode="real-time")}


def test_nothing_is_wanted_before_the_registry_has_answered() -> None:
    registry = FlakyRegistry()
    registry.away = True
    link = RegistryLink(registry)
    heard = [link.desired[1]]
    link.start()
    rounds(link, registry, 2)
    heard.append(link.desired[1])
    registry.away = False
    rounds(link, registry, 2)
    heard.append(link.desired[1])
    link.stop(5)
    assert heard == [None, None, ()]


def test_after_an_outage_the_newest_state_is_reported_and_only_once() -> None:
    registry = FlakyRegistry()
    registry.away = True
    link = RegistryLink(registry)
    link.start()
    link.report(status(JobState.STARTING), Work())
    rounds(link, registry, 1)
    link.report(status(JobState.RUNNING), Work())
    rounds(link, registry, 1)
    registry.away = False
    rounds(link, registry, 2)
    link.report(status(JobState.RUNNING), Work())
    rounds(link, registry, 2)
    link.report(status(JobState.STOPPED), Work())
    link.stop(5)
    assert registry.told == [("a", "running"), ("a", "stopped")]


def test_what_is_gone_is_cleared_away_unless_it_is_under_way() -> None:
    registry, cleared = FlakyRegistry(), list[Collection[str]]()

    def clear(gone: Collection[str]) -> Collection[str]:
        cleared.append(gone)
        return gone

    registry.gone = frozenset({"a", "b"})
    link = RegistryLink(registry)
    link.report({}, Work(jobs=frozenset({"b"})))
    link.begin(clear, None)
    link.start()
    rounds(link, registry, 3)
    link.stop(5)
    assert cleared == [{"a"}]
