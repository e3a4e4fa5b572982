"""`python -m caraway.offline.monitoring`: run the watches of a deployment, until SIGTERM, or as long as they have work.

The process has the lowest priority, and runs once in a deployment, under a lease.
"""

import os
import sys
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from pkgutil import resolve_name

import structlog

from caraway.offline.monitoring.figures import SERVED_WATCHES
from caraway.offline.monitoring.quality.watch import QUALITY
from caraway.offline.monitoring.watch import Kind, Watching
from caraway.process.children.ending import LATER, on_request_to_end
from caraway.process.collector import collect_rarely
from caraway.process.program import database_url, run_program
from caraway.process.recurring import Recurring
from caraway.process.settings.settings import Settings
from caraway.state.database import connect, require_tables
from caraway.state.ownership.leases import HeldLease, Lease
from caraway.state.tables import metadata
from caraway.state.watched import LEASE, watcher

LOG = structlog.get_logger(__name__)

WATCHES: tuple[Kind, ...] = (*(resolve_name(watch.kind) for watch in SERVED_WATCHES), QUALITY)
# How long the lease of the process lasts. If the process doesn't renew the lease in this time, another process may take
# over.
LASTING = timedelta(seconds=15)
RENEW_SECONDS = 3.0
# The priority of the process is low, since a watch can always look at things later. Processes that answer requests go
# first.
NICENESS = 15
# Seconds without work after which the process ends, since it takes some 200 MB of memory. For new work, the server
# starts another process.
IDLE_SECONDS = 300.0
LOOK_SECONDS = 5.0
# When the process stops, a pass has this many seconds to end. A pass that takes longer has recorded nothing, so the
# next process makes it again.
STOP_SECONDS = 5.0


def main() -> int:
    """Run the watches with the settings of the environment, unless another process does; return the exit code."""
    return run_program("monitoring", _run, niceness=NICENESS)


def _run(settings: Settings) -> int:
    collect_rarely()
    database = connect(database_url(settings, "monitoring"))
    require_tables(database, metadata.tables)
    lease = HeldLease(
        Lease(engine=database, name=LEASE, owner=watcher(settings.data_dir)), LASTING, renew_s=RENEW_SECONDS
    )
    # With `succeeds`, a new process takes over the lease of its predecessor at once. The predecessor has ended, since a
    # server runs one such process at a time.
    if not lease.keep(succeeds=True):
        return LATER
    stopping = threading.Event()
    on_request_to_end(stopping.set)
    renewing = Recurring("lease", lambda: _keep(lease), RENEW_SECONDS)
    renewing.start()
    try:
        _watch([Watching(kind, settings, database) for kind in WATCHES if kind.enabled(settings)], stopping)
    finally:
        renewing.stop(RENEW_SECONDS)
        lease.release()
    return 0


def _keep(lease: HeldLease) -> None:
    if not lease.keep(succeeds=False):
        LOG.error("the lease of the watches is lost")
        os._exit(LATER)


def _watch(watches: Sequence[Watching], stopping: threading.Event) -> None:
    """Run watches until the event is set, or until none of them has had anything to do for a while."""

    def end_if_idle() -> None:
        if all(time.monotonic() > watching.worked_at + IDLE_SECONDS for watching in watches):
            stopping.set()

    # This thread calls `wait` once, without a timeout, and another thread looks for idleness. The handler of a signal
    # runs in this thread and sets the event: if it interrupted a call that holds the event's lock, it would wait for
    # ever.
    looking = Recurring("idle", end_if_idle, LOOK_SECONDS)
    for thread in (*watches, looking):
        thread.start()
    stopping.wait()
    for thread in (*watches, looking):
        thread.stop(0)
    until = time.monotonic() + STOP_SECONDS
    for watching in watches:
        watching.stop(max(0.0, until - time.monotonic()))


if __name__ == "__main__":
    sys.exit(main())
