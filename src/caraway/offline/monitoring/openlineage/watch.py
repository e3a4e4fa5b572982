"""The watch over commits and jobs, whose changes are sent as events by one server of a deployment."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import structlog

from caraway.dataplane.objects.folder import ObjectFolder
from caraway.graph.specs import Graph
from caraway.offline.monitoring.openlineage.runs import DECODER, ENCODER, Key, Run, RunChange, changes
from caraway.offline.monitoring.openlineage.sender import EventSender
from caraway.process.recurring import Recurring
from caraway.state.model import BranchRecord, JobRecord
from caraway.state.ownership.leases import HeldLease
from caraway.state.plans import Needed

LOG = structlog.get_logger(__name__)

# Seconds between two looks at commits and jobs.
LOOK_SECONDS = 5.0
# The object that stores the runs under way, and its folder. A server that takes over reads the object, and ends the
# runs that the former server has begun.
FOLDER = "openlineage"
OBJECT = f"{FOLDER}/runs.json"


class MakesEvents(Protocol):
    """Makes events as JSON (`caraway.offline.monitoring.openlineage.events.Events`)."""

    def definitions(self, branch: str, graph: Graph) -> Iterator[bytes]:
        """Yield the definitions of a branch."""
        ...

    def run(self, change: RunChange, graph: Graph | None) -> bytes:
        """Return the event of a run that has begun or ended."""
        ...


class LineageWatch:
    """Looks at commits and jobs in a thread of its own. Only the server that holds the lease sends events."""

    def __init__(
        self,
        events: MakesEvents,
        sender: EventSender,
        *,
        needed: Callable[[], Needed | None],
        jobs: Callable[[], Sequence[JobRecord]],
        objects: ObjectFolder,
        lease: HeldLease,
    ) -> None:
        """Prepare; nothing is read before `start`.

        Args:
            events: Makes events.
            sender: Sends them.
            needed: Returns what the branches need; None as long as it isn't known.
            jobs: Returns the jobs as engines report them.
            objects: The object store.
            lease: The lease of the one server that sends events.
        """
        self._events = events
        self._sender = sender
        self._needed = needed
        self._jobs = jobs
        self._objects = objects
        self._lease = lease
        self._heads: dict[str, str] = {}
        self._runs: dict[Key, Run] | None = None
        self._work = Recurring("lineage watch", self.look, LOOK_SECONDS, finish=lease.release)

    def start(self) -> None:
        """Start the thread, and that of the sender."""
        self._sender.start()
        self._work.start()

    def stop(self, timeout_s: float) -> None:
        """End both threads, and wait at most `timeout_s` for each."""
        self._work.stop(timeout_s)
        self._sender.stop(timeout_s)

    def look(self) -> None:
        """Send what has changed since the last look.

        Raises `UnavailableError` if Postgres or the object store doesn't answer.
        """
        if not self._lease.keep(succeeds=True):
            self._heads, self._runs = {}, None
            return
        needed = self._needed()
        if needed is None:
            return
        for branch in needed.heads.branches:
            self._send_definitions(branch, needed)
        self._heads = {branch.name: branch.head for branch in needed.heads.branches if branch.head is not None}
        self._send_runs(needed)

    def _send_definitions(self, branch: BranchRecord, needed: Needed) -> None:
        """Send the definitions of the head of a branch, unless they were sent."""
        if branch.head is None or self._heads.get(branch.name) == branch.head:
            return
        number = 0
        for event in self._events.definitions(branch.name, needed.commits[branch.head].graph):
            self._sender.put(event)
            number += 1
        LOG.info("definitions are sent to openlineage.url", branch=branch.name, commit=branch.head, events=number)

    def _send_runs(self, needed: Needed) -> None:
        known = self._read() if self._runs is None else self._runs
        found, now = changes(known, _runs_of(needed), self._jobs())
        # Runs are stored before their events are sent, so that a server that takes over can end each run that was
        # announced.
        if now != known:
            self._objects.write(OBJECT, ENCODER.encode(list(now.values())))
        self._runs = now
        heads = {branch.name: branch.head for branch in needed.heads.branches}
        for change in found:
            head = heads.get(change.run.branch)
            self._sender.put(self._events.run(change, None if head is None else needed.commits[head].graph))

    def _read(self) -> dict[Key, Run]:
        if not any(stored.name == OBJECT for stored in self._objects.stored(FOLDER)):
            return {}
        return {(run.branch, run.job_id): run for run in DECODER.decode(self._objects.read(OBJECT))}


def _runs_of(needed: Needed) -> dict[Key, Run]:
    """Return a new run for each job that a branch needs, for the commit that it serves or for its head."""
    return {
        (branch.name, job.job_id): Run(
            run_id=str(uuid.uuid4()),
            branch=branch.name,
            dataset=job.dataset,
            pipeline=job.pipeline,
            job_id=job.job_id,
            attempts=0,
        )
        for branch in needed.heads.branches
        for commit in dict.fromkeys((branch.serving, branch.head))
        if commit is not None
        for job in needed.commits[commit].plan.jobs
    }
