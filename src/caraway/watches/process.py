"""The process of a watch, which has the lowest priority and runs once in a deployment."""

import os
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import sqlalchemy as sa
import structlog

from caraway.children.ending import on_request_to_end
from caraway.cluster.leases import HeldLease, Lease
from caraway.collector import collect_rarely
from caraway.config.errors import ConfigurationError
from caraway.config.settings import Settings, load_settings
from caraway.errors import CarawayError
from caraway.logs import configure_logging
from caraway.offline.queries.model import LATER
from caraway.recurring import Recurring
from caraway.state.database import connect
from caraway.state.watched import watcher

LOG = structlog.get_logger(__name__)

# A process that hasn't renewed its lease for so long has died, and another one goes on.
LASTING = timedelta(seconds=15)
RENEW_SECONDS = 3.0
# A watch can always look at things later, so all that answers requests goes first.
NICENESS = 15
# The most that a watch works which makes passes, as a share of the time: after a pass of a second it rests for at least
# nine.
SHARE = 0.1
# A process without work ends after so long, since it takes some 200 MB. The server starts one when rows have come.
IDLE_SECONDS = 300.0
RETRY_SECONDS = (2.0, 60.0)
STOP_SECONDS = 5.0

Run = Callable[[Settings, sa.Engine, threading.Event], None]


def run_watch(name: str, lease_name: str, run: Run) -> int:
    """Run a watch with the settings of the environment, unless another process does; return the exit code.

    Args:
        name: The name of the watch, such as "skew".
        lease_name: The name of its lease.
        run: Watches until it is done, or until the event is set, which is when the process is asked to end.
    """
    try:
        os.umask(0o077)
        os.nice(NICENESS)
        collect_rarely()
        settings = load_settings()
        configure_logging(settings.log_level)
        if settings.postgres.url is None:
            raise ConfigurationError(f"postgres.url: the {name} watch needs to know the database")
        return _run(name, lease_name, run, settings, settings.postgres.url)
    except CarawayError as error:
        sys.stderr.write(f"{name}: {error}\n")
        return 1


def _run(name: str, lease_name: str, run: Run, settings: Settings, url: str) -> int:
    database = connect(url)
    lease = HeldLease(
        Lease(engine=database, name=lease_name, owner=watcher(settings.data_dir)), LASTING, renew_s=RENEW_SECONDS
    )
    # A process that was started anew takes the lease of its predecessor at once, since its server runs one at a time.
    if not lease.keep(succeeds=True):
        return LATER
    stopping = threading.Event()
    on_request_to_end(stopping.set)
    renewing = Recurring("lease", partial(_keep, name, lease), RENEW_SECONDS)
    renewing.start()
    try:
        run(settings, database, stopping)
    finally:
        renewing.stop(RENEW_SECONDS)
        lease.release()
    return 0


def _keep(name: str, lease: HeldLease) -> None:
    if not lease.keep(succeeds=False):
        LOG.error("the lease of a watch is lost", watch=name)
        os._exit(LATER)


class Passes(Recurring):
    """The passes of a watch, with pauses in between."""

    def __init__(self, name: str, run_once: Callable[[], bool], seconds: float, ended: threading.Event) -> None:
        """Prepare passes; none is made before `start`.

        Args:
            name: The name of the watch.
            run_once: Makes a pass, and returns whether there was anything to do.
            seconds: The least seconds between two passes.
            ended: Is set when there has been nothing to do for a while.
        """
        super().__init__(name, self._act, self._pause_s, retry_s=RETRY_SECONDS, at_once=True)
        self._run_once = run_once
        self._seconds = seconds
        self._ended = ended
        self._took = 0.0
        self._worked_at = time.monotonic()

    def make(self) -> None:
        """Make passes until the event is set."""
        self.start()
        self._ended.wait()
        # A pass that isn't over by then is made again by the next process, since it has recorded nothing.
        self.stop(STOP_SECONDS)

    def _act(self) -> None:
        began = time.monotonic()
        try:
            worked = self._run_once()
        finally:
            now = time.monotonic()
            self._took = now - began
        if worked:
            self._worked_at = now
        elif now > self._worked_at + IDLE_SECONDS:
            self._ended.set()

    def _pause_s(self) -> float:
        return max(self._seconds, self._took * (1 - SHARE) / SHARE)
