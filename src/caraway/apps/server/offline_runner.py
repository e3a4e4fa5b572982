"""The processes of a server that work on offline queries, and the removal of old results."""

import os
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

import structlog

from caraway.dataplane.objects.folder import ObjectFolder
from caraway.offline.queries.model import folder_of
from caraway.offline.queries.store import OfflineQueries, process_name
from caraway.process.children.ending import LATER
from caraway.process.children.forking import Forked, ForkServer
from caraway.process.recurring import Recurring
from caraway.process.scratch import sweep

LOG = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0
# Seconds between two checks for ended processes while as many run as are allowed, so that further queries have to wait.
FULL_SECONDS = 0.05
# Seconds until a query is begun again after its process found that something doesn't answer.
PAUSE_SECONDS = 10.0
# Old results are looked for once in this many looks.
LOOKS_PER_TIDYING = 600
PROGRAM = "caraway.offline"


class OfflineRunner(Recurring):
    """Starts a process for each waiting offline query, a few at a time; queries whose process died wait again.

    The processes end with this one, and their queries then go on in processes of others or after the next start.
    """

    def __init__(
        self,
        queries: OfflineQueries,
        objects: ObjectFolder,
        *,
        forks: ForkServer,
        processes: int,
        kept: timedelta,
        environment: Mapping[str, str],
        scratch: Path,
        started: Callable[[str, int], object] = lambda _query, _pid: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nothing is started before `start`.

        Args:
            queries: The records of queries.
            objects: The object store, which has results.
            forks: Starts the processes.
            processes: The most processes at a time.
            kept: The time after the end of a query until its results are removed.
            environment: The environment of the processes, beside that of this one.
            scratch: The folder in which queries on Spark have their folders of temporary files.
            started: Called with the id of a query and the number of its new process.
            clock: Returns the time in seconds.
        """
        super().__init__("offline-queries", self._look, self.pause_seconds)
        self._forks = forks
        self._queries = queries
        self._objects = objects
        self._processes = processes
        self._kept = kept
        self._environment = environment
        self._scratch = scratch
        self._started = started
        self._clock = clock
        self._running: dict[str, Forked] = {}
        self._paused: dict[str, float] = {}
        self._looks = 0

    def pause_seconds(self) -> float:
        """Return the seconds until the next look, unless the runner is woken before."""
        # Nothing wakes the runner when a process ends, so it looks often while no further one may run. Such a look
        # doesn't query the database.
        return FULL_SECONDS if len(self._running) >= self._processes else LOOK_SECONDS

    def _look(self) -> None:
        ended = False
        for query_id, process in list(self._running.items()):
            code = process.poll()
            if code is not None:
                del self._running[query_id]
                self._queries.release(query_id, process_name(process.pid))
                if code == LATER:
                    self._paused[query_id] = self._clock() + PAUSE_SECONDS
                LOG.info("the process of an offline query has ended", query=query_id, code=code)
                ended = True
        if ended or not self._looks:
            # A process that was killed, perhaps together with the server, may have left folders behind.
            sweep()
            sweep(self._scratch)
        self._paused = {query_id: until for query_id, until in self._paused.items() if until > self._clock()}
        if len(self._running) < self._processes:
            known = self._running.keys() | self._paused.keys()
            waiting = [query.id for query in self._queries.waiting() if query.id not in known]
            for query_id in waiting[: self._processes - len(self._running)]:
                self._begin(query_id)
        self._looks += 1
        if self._looks % LOOKS_PER_TIDYING == 0:
            self.tidy()

    def _begin(self, query_id: str) -> None:
        try:
            process = self._forks.start(PROGRAM, [query_id], environment={**os.environ, **self._environment})
        except OSError as error:
            LOG.warning("no process for an offline query can be started", query=query_id, reason=str(error))
            return
        self._running[query_id] = process
        self._started(query_id, process.pid)

    def tidy(self) -> None:
        """Remove the results of old queries, and their records."""
        for query_id in self._queries.old(self._kept):
            self._objects.remove_folder(folder_of(query_id))
            self._queries.forget(query_id)
            LOG.info("removed the results of an old offline query", query=query_id)

    def stop(self, timeout_s: float | None) -> bool:
        """Ask the processes to end, and stop; see `Recurring.stop`."""
        for process in list(self._running.values()):
            process.terminate()
        return super().stop(timeout_s)
