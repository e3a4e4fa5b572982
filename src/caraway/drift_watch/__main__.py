"""`python -m caraway.drift_watch`: profile served features, until SIGTERM, or as long as there are any."""

import os
import sys
import threading
import time
from datetime import timedelta
from functools import partial

import structlog

from caraway.children.ending import on_request_to_end
from caraway.cluster.leases import HeldLease, Lease
from caraway.config.errors import ConfigurationError
from caraway.config.settings import Settings, load_settings
from caraway.drift_watch.watch import DriftWatch, Parts
from caraway.erasure.keys import ErasedKeys
from caraway.errors import CarawayError
from caraway.logs import configure_logging
from caraway.offline.queries.model import LATER
from caraway.recurring import Recurring
from caraway.secrets.keyring import open_keyring
from caraway.served.drift import LEASE
from caraway.served.skew import watcher
from caraway.state.database import connect

LOG = structlog.get_logger(__name__)

# A process that hasn't renewed its lease for so long has died, and another one goes on.
LASTING = timedelta(seconds=15)
RENEW_SECONDS = 3.0
# A profile can always be made later, so all other work goes first.
NICENESS = 15
# The most that a watch works, as a share of the time: after a pass of a second it rests for at least nine.
SHARE = 0.1
# A process without work ends after so long, since it takes some 200 MB. The server starts one when rows have come.
IDLE_SECONDS = 300.0
RETRY_SECONDS = (2.0, 60.0)
STOP_SECONDS = 5.0


class Passes(Recurring):
    """The passes of a watch, with pauses in between."""

    def __init__(self, watch: DriftWatch, seconds: float, ended: threading.Event) -> None:
        """Prepare passes that are at least so many seconds apart; `ended` is set when there is nothing to do."""
        super().__init__("drift", self._act, self._pause_s, retry_s=RETRY_SECONDS, at_once=True)
        self._watch = watch
        self._seconds = seconds
        self._ended = ended
        self._took = 0.0
        self._worked_at = time.monotonic()

    def _act(self) -> None:
        began = time.monotonic()
        try:
            worked = self._watch.run_once()
        finally:
            now = time.monotonic()
            self._took = now - began
        if worked:
            self._worked_at = now
        elif now > self._worked_at + IDLE_SECONDS:
            self._ended.set()

    def _pause_s(self) -> float:
        return max(self._seconds, self._took * (1 - SHARE) / SHARE)


def main() -> int:
    """Watch with the settings of the environment; return the exit code."""
    try:
        os.umask(0o077)
        os.nice(NICENESS)
        settings = load_settings()
        configure_logging(settings.log_level)
        if settings.postgres.url is None:
            raise ConfigurationError("postgres.url: the drift watch needs to know the database")
        return _watch(settings, settings.postgres.url)
    except CarawayError as error:
        sys.stderr.write(f"drift: {error}\n")
        return 1


def _watch(settings: Settings, url: str) -> int:
    database = connect(url)
    lease = HeldLease(
        Lease(engine=database, name=LEASE, owner=watcher(settings.data_dir)), LASTING, renew_s=RENEW_SECONDS
    )
    # A process that was started anew takes the lease of its predecessor at once, since its server runs one at a time.
    if not lease.keep(succeeds=True):
        return LATER
    stopping = threading.Event()
    on_request_to_end(stopping.set)
    erased = ErasedKeys(lambda: open_keyring(settings.key_file).mac_keys())
    watch = DriftWatch(settings, Parts(database, erased))
    renewing = Recurring("lease", partial(_keep, lease), RENEW_SECONDS)
    passes = Passes(watch, settings.drift.seconds, stopping)
    renewing.start()
    passes.start()
    try:
        stopping.wait()
        # A pass that isn't over by then is made again by the next process, since it has recorded nothing.
        passes.stop(STOP_SECONDS)
    finally:
        renewing.stop(RENEW_SECONDS)
        lease.release()
    return 0


def _keep(lease: HeldLease) -> None:
    if not lease.keep(succeeds=False):
        LOG.error("the lease of the drift watch is lost")
        os._exit(LATER)


if __name__ == "__main__":
    sys.exit(main())
