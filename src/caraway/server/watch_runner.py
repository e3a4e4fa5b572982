"""The processes of watches, which a server starts when there is something to look at.

The skew watch and the drift watch look at served features, and the quality watch at rows of datasets.
"""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import structlog
from typing_extensions import override

from caraway.archive.reports import ArchiveReports
from caraway.children.forking import Forked, ForkServer
from caraway.recurring import Recurring
from caraway.served.log import SERVED
from caraway.state.watched import WatchedStore

LOG = structlog.get_logger(__name__)

LOOK_SECONDS = 5.0
# After the process has ended, another one isn't begun for so long, since one that fails would fail again and again.
PAUSE_SECONDS = 10.0


class WatchRunner(Recurring, ABC):
    """Keeps the process of a watch running while there is work, and shows its findings as metrics.

    If there are several servers, only one runs a process at a time. It ends with its server, and another one goes on.
    """

    def __init__(
        self,
        watch: str,
        store: WatchedStore,
        *,
        forks: ForkServer,
        program: str,
        enabled: bool,
        name: str,
        environment: Mapping[str, str],
        look_seconds: float = LOOK_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nothing is started before `start`.

        Args:
            watch: The name of the watch, such as "skew".
            store: The findings of the watch.
            forks: Starts the process.
            program: The module that the process runs, one of those of `forks`.
            enabled: False: no process is started, and the metrics show what was found before.
            name: The name of the process, by which others know that it runs.
            environment: The environment of the process, beside that of this one.
            look_seconds: Seconds between two looks.
            clock: Returns the time in seconds.
        """
        super().__init__(watch, self._look, look_seconds)
        self._watch = watch
        self._store = store
        self._forks = forks
        self._program = program
        self._enabled = enabled
        self._name_of_process = name
        self._environment = environment
        self._clock = clock
        self._process: Forked | None = None
        self._paused_until = float("-inf")

    @abstractmethod
    def _show(self) -> None:
        """Show the findings as metrics."""

    @abstractmethod
    def _has_news(self) -> bool:
        """Return whether there is something that the watch should look at."""

    def _look(self) -> None:
        self._show()
        if self._process is not None and self._process.poll() is not None:
            LOG.info("the process of a watch has ended", watch=self._watch, code=self._process.returncode)
            self._process, self._paused_until = None, self._clock() + PAUSE_SECONDS
        if self._enabled and self._process is None and self._clock() >= self._paused_until and self.has_work():
            self._begin()

    def has_work(self) -> bool:
        """Return whether there is something to look at, and no process looks at any.

        Raises `UnavailableError` if Postgres doesn't answer.
        """
        return self._has_news() and not self._store.is_watched(besides=self._name_of_process)

    def _begin(self) -> None:
        try:
            self._process = self._forks.start(self._program, environment={**os.environ, **self._environment})
        except OSError as error:
            LOG.warning("a watch can't be started", watch=self._watch, reason=str(error))
            self._paused_until = self._clock() + PAUSE_SECONDS

    @override
    def stop(self, timeout_s: float | None) -> bool:
        """Ask the process to end, and stop; see `Recurring.stop`."""
        process = self._process
        if process is not None:
            process.terminate()
        return super().stop(timeout_s)


class ServedWatchRunner(WatchRunner):
    """Runs a watch of served features while the archive's table of them has rows that weren't looked at."""

    def __init__(
        self,
        watch: str,
        store: WatchedStore,
        reports: ArchiveReports,
        show: Callable[[], None],
        *,
        forks: ForkServer,
        program: str,
        enabled: bool,
        name: str,
        environment: Mapping[str, str],
    ) -> None:
        """Prepare, with the tables of the archive and what shows the findings as metrics; see `WatchRunner`."""
        super().__init__(
            watch, store, forks=forks, program=program, enabled=enabled, name=name, environment=environment
        )
        self._reports = reports
        self._show_findings = show

    @override
    def _show(self) -> None:
        self._show_findings()

    @override
    def _has_news(self) -> bool:
        found = self._reports.all().get(SERVED)
        if found is None:
            return False
        seen = self._store.positions(found.report.url.rpartition("/")[2])
        return any(end > seen.get(partition, 0) for partition, end in found.report.positions.items())
