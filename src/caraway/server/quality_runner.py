"""The process of the quality watch, which a server starts when a dataset has expectations."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

import structlog

from caraway.children.process import LAUNCHER
from caraway.expectations.counts import Counts
from caraway.expectations.suite import checks_of as parts_of
from caraway.quality.checks import branches_of, checks_of
from caraway.quality.metrics import QUALITY_FIGURES, Key
from caraway.quality.store import QualityStore
from caraway.recurring import Recurring
from caraway.state.plans import Needed

LOG = structlog.get_logger(__name__)

LOOK_SECONDS = 5.0
# After the process has ended, another one isn't begun for so long: starting one takes a second of a processor.
PAUSE_SECONDS = 10.0
PROGRAM = (sys.executable, "-m", "caraway.quality")


class QualityRunner(Recurring):
    """Keeps a process running while there are datasets with expectations, and shows its counts as metrics.

    If there are several servers, only one runs a process at a time. It ends with its server, and another one goes on.
    """

    def __init__(
        self,
        store: QualityStore,
        needed: Callable[[], Needed | None],
        *,
        enabled: bool,
        name: str,
        environment: Mapping[str, str],
        look_seconds: float = LOOK_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nothing is started before `start`.

        Args:
            store: The counts.
            needed: Returns what the branches need; None before that is known.
            enabled: False: no process is started, and the metrics show what was counted before.
            name: The name of the process, by which others know that it runs.
            environment: The environment of the process, beside that of this one.
            look_seconds: Seconds between two looks.
            clock: Returns the time in seconds.
        """
        super().__init__("quality", self._look, look_seconds)
        self._store = store
        self._needed = needed
        self._enabled = enabled
        self._name_of_process = name
        self._environment = environment
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._paused_until = float("-inf")

    def _look(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            LOG.info("the process of the quality watch has ended", code=self._process.returncode)
            self._process, self._paused_until = None, self._clock() + PAUSE_SECONDS
        needed = self._needed()
        # Without expectations nothing is read from Postgres.
        if needed is None or not any(planned.plan.checks for planned in needed.commits.values()):
            QUALITY_FIGURES.set({})
            return
        QUALITY_FIGURES.set(self._totals(needed))
        may_begin = self._enabled and self._process is None and self._clock() >= self._paused_until
        if may_begin and not self._store.is_watched(besides=self._name_of_process):
            self._begin()

    def _totals(self, needed: Needed) -> dict[Key, Counts]:
        checks, branches = checks_of(needed), branches_of(needed)
        totals = self._store.totals(branches)
        return {
            (branch, checks[check_id].dataset.name, part.name): found.counts
            for check_id, names in branches.items()
            for number, part in enumerate(parts_of(checks[check_id].suite))
            if (found := totals.get((check_id, number))) is not None
            for branch in names
        }

    def _begin(self) -> None:
        # The kernel ends the process when this thread ends.
        launcher = [sys.executable, "-I", "-S", str(LAUNCHER), f"--parent={os.getpid()}"]
        command = [*launcher, f"--signal={int(signal.SIGTERM)}", "--", *PROGRAM]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env={**os.environ, **self._environment})
        except OSError as error:
            LOG.warning("the quality watch can't be started", reason=str(error))
            self._paused_until = self._clock() + PAUSE_SECONDS

    def stop(self, timeout_s: float | None) -> bool:
        """Ask the process to end, and stop; see `Recurring.stop`."""
        process = self._process
        if process is not None:
            process.terminate()
        return super().stop(timeout_s)
