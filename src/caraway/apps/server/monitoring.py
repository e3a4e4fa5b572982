"""The process of the watches (`offline.monitoring`), which a server starts when one of them has something to look at.

The skew watch and the drift watch look at served features, and the quality watch at rows of datasets.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog
from typing_extensions import override

from caraway.compute.expectations.counts import Counts
from caraway.compute.expectations.suite import checks_of as parts_of
from caraway.dataplane.archive.reports import ArchiveReports
from caraway.dataplane.archive.served_log import SERVED
from caraway.offline.monitoring.figures import DATASET_DRIFT_FIGURES, LabelledDistance
from caraway.offline.monitoring.quality.checks import branches_of, checks_of
from caraway.offline.monitoring.quality.metrics import QUALITY_FIGURES, Key
from caraway.offline.monitoring.quality.store import QualityStore
from caraway.process.children.forking import Forked, ForkServer
from caraway.process.recurring import Recurring
from caraway.state.plans import Needed
from caraway.state.profiles import ProfileStore
from caraway.state.watched import WatchedStore, WatchLease

LOG = structlog.get_logger(__name__)

PROGRAM = "caraway.offline.monitoring"
LOOK_SECONDS = 5.0
# Seconds before a process that has ended is started again, since a process that fails might fail again and again.
PAUSE_SECONDS = 10.0


class WatchNews(Protocol):
    """Knows what a watch has found, and whether there is more."""

    @property
    def enabled(self) -> bool:
        """False: the watch doesn't run, and the metrics show what was found before."""

    def show(self) -> None:
        """Show the findings as metrics."""

    def has_news(self) -> bool:
        """Return whether there is something that the watch should look at."""


class MonitoringRunner(Recurring):
    """Keeps the process of the watches running while there is work, and shows their findings as metrics.

    If there are several servers, only one runs a process at a time. It ends with its server, and another one goes on.
    """

    def __init__(
        self,
        watches: Sequence[WatchNews],
        lease: WatchLease,
        *,
        forks: ForkServer,
        name: str,
        environment: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nothing is started before `start`.

        Args:
            watches: The watches, as far as the server knows them.
            lease: The lease of the process, by which a server knows that another one runs it.
            forks: Starts the process.
            name: The name of the process, by which others know that it runs.
            environment: The environment of the process, beside that of this one.
            clock: Returns the time in seconds.
        """
        super().__init__("monitoring", self._look, LOOK_SECONDS)
        self._watches = watches
        self._lease = lease
        self._forks = forks
        self._name_of_process = name
        self._environment = environment
        self._clock = clock
        self._process: Forked | None = None
        self._paused_until = float("-inf")

    def _look(self) -> None:
        for watch in self._watches:
            watch.show()
        if self._process is not None and self._process.poll() is not None:
            LOG.info("the process of the watches has ended", code=self._process.returncode)
            self._process, self._paused_until = None, self._clock() + PAUSE_SECONDS
        if self._process is None and self._clock() >= self._paused_until and self.has_work():
            self._begin()

    def has_work(self) -> bool:
        """Return whether there is something to look at, and no process looks at any.

        Raises `UnavailableError` if Postgres doesn't answer.
        """
        has_news = any(watch.enabled and watch.has_news() for watch in self._watches)
        return has_news and not self._lease.is_held(besides=self._name_of_process)

    def _begin(self) -> None:
        try:
            self._process = self._forks.start(PROGRAM, environment={**os.environ, **self._environment})
        except OSError as error:
            LOG.warning("the process of the watches can't be started", reason=str(error))
            self._paused_until = self._clock() + PAUSE_SECONDS

    @override
    def stop(self, timeout_s: float | None) -> bool:
        """Ask the process to end, and stop; see `Recurring.stop`."""
        process = self._process
        if process is not None:
            process.terminate()
        return super().stop(timeout_s)


@dataclass(frozen=True, slots=True)
class ServedNews:
    """The news of a watch of served features: the archive's table of them has rows that weren't looked at.

    Attributes:
        store: The findings of the watch.
        reports: The tables of the archive.
        show: Shows the findings as metrics.
        enabled: False: the watch doesn't run.
    """

    store: WatchedStore
    reports: ArchiveReports
    show: Callable[[], None]
    enabled: bool

    def has_news(self) -> bool:
        """Return whether there are rows behind those that the watch has looked at."""
        found = self.reports.all().get(SERVED)
        if found is None:
            return False
        seen = self.store.positions(found.report.url.rpartition("/")[2])
        return any(end > seen.get(partition, 0) for partition, end in found.report.positions.items())


@dataclass(frozen=True, slots=True)
class QualityNews:
    """The news of the quality watch: there are datasets with expectations or profiles.

    Attributes:
        store: The counts.
        profiles: The profiles.
        needed: Returns what the branches need; None before that is known.
        enabled: False: the watch doesn't run.
    """

    store: QualityStore
    profiles: ProfileStore
    needed: Callable[[], Needed | None]
    enabled: bool

    def show(self) -> None:
        """Show the counts and the drift of datasets as metrics."""
        # If no dataset has checks, nothing is read from Postgres.
        needed = self._with_checks()
        QUALITY_FIGURES.set({} if needed is None else self._totals(needed))
        DATASET_DRIFT_FIGURES.set([] if needed is None else self._drift(needed))

    def has_news(self) -> bool:
        """Return whether any dataset has expectations or is profiled."""
        return self._with_checks() is not None

    def _with_checks(self) -> Needed | None:
        needed = self.needed()
        if needed is None or not any(planned.plan.checks for planned in needed.commits.values()):
            return None
        return needed

    def _drift(self, needed: Needed) -> list[LabelledDistance]:
        checks, branches = checks_of(needed), branches_of(needed)
        profiled = [check_id for check_id in branches if checks[check_id].profiled]
        found = self.profiles.found(profiled) if profiled else []
        return [
            ((branch, checks[one.scope].dataset.name, one.column), one)
            for one in found
            for branch in branches[one.scope]
        ]

    def _totals(self, needed: Needed) -> dict[Key, Counts]:
        checks, branches = checks_of(needed), branches_of(needed)
        totals = self.store.totals(branches)
        return {
            (branch, checks[check_id].dataset.name, part.name): found.counts
            for check_id, names in branches.items()
            for number, part in enumerate(parts_of(checks[check_id].suite))
            if (found := totals.get((check_id, number))) is not None
            for branch in names
        }
