"""All sources that one server reads, each by a worker in a thread of its own."""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import sqlalchemy as sa

from caraway.dataplane.addresses.limits import UNLIMITED, ConnectorLimits, Holder
from caraway.dataplane.confined.process import end_of
from caraway.dataplane.ingest.targets import Target
from caraway.dataplane.sources.functions.calls import FunctionCalls, SeparateCalls
from caraway.dataplane.sources.live_rows import live_rows_of
from caraway.dataplane.sources.positions import SourcePositions
from caraway.dataplane.sources.reader import Position, Progress, Resolve, SourceContext, SourceReader
from caraway.dataplane.sources.remote import RemoteReader
from caraway.dataplane.sources.removal import SourceRemoval
from caraway.dataplane.sources.topics import SourceTopics
from caraway.dataplane.sources.webhooks import RECEIVED, Receipts, WebhookReader
from caraway.dataplane.sources.worker import LASTING, RENEWAL_S, WRITE_S, SourceWorker
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.dataplane.topics.producer import TopicWriter
from caraway.errors import UnavailableError
from caraway.graph.plan.model import IngestPlan
from caraway.graph.secrets.hiding import HiddenSecrets
from caraway.process.recurring import Recurring, follow
from caraway.process.settings.connectors import SourcesSettings
from caraway.state.blueprints import content_of, source_name
from caraway.state.ownership.leases import HeldLease, Lease
from caraway.state.ownership.members import READERS
from caraway.state.ownership.shares import Shares

# The seconds between two tries to get the lease of a source that another server reads.
STANDBY_S = 2.0
# The seconds until a source that failed is tried again: after the first failure, and at most after many.
RETRY_S = (2.0, 30.0)
# The seconds after which a server looks which sources it is to read, and starts and stops workers; `set_plans` makes it
# do so at once.
FOLLOW_S = 5.0
# The seconds for which the stop of a worker is awaited, which first finishes what it is doing; then its process is
# ended.
STOP_S = 5.0
# The milliseconds for which the rows of a source are gathered for one request to the broker. The rows of a poll come a
# few hundred at a time, and fewer requests take less time of the broker.
LINGER_MS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """The state of a source, as one server knows it.

    Attributes:
        dataset: The dataset that it feeds.
        source: The connector, as people read it.
        system: The name of its system.
        state: "reading", "waiting" while what is computed from its rows is too far behind, "closed" if it was bounded
            and has ended, "failing" if `error` says why it isn't read, or "standby" if another server reads it, or
            nobody yet.
        owned: True if this server reads it.
        lag: How many rows of the source aren't read yet; None if this server doesn't know.
        position: How far it is read, as far as this server knows: for Kafka, the offset of the next record of each
            partition.
        progress: How far the current load is; None if none is going on, or its size isn't known.
        per_second: The units of the progress a second; None if that isn't known.
        remaining_s: The seconds until the current load is complete, at its pace; None if that isn't known.
        rows: How many rows this server has read.
        read_at: When this server read the last row, in seconds since the epoch; None if it has read none.
        polled_at: When the source last answered this server, in seconds since the epoch; None if it hasn't.
        dead_letters: How many rows became dead letters since this server started to read.
        watermark_us: The newest event time that this server read, less the source's disorder, in microseconds since the
            epoch; None if it has read no row.
        newest_us: The newest event time that this server read, in microseconds since the epoch; None if it has read no
            row.
        error: Why this server can't read it now; empty if nothing failed.
    """

    dataset: str
    source: str
    system: str
    state: str
    owned: bool
    lag: int | None
    position: Position
    progress: Progress | None
    per_second: float | None
    remaining_s: float | None
    rows: int
    read_at: float | None
    polled_at: float | None
    dead_letters: int
    watermark_us: int | None
    newest_us: int | None
    error: str


def name_of(plan: IngestPlan) -> str:
    """Return the name under which the position of a source is kept."""
    return content_of(plan).partition(":")[2]


class Sources:
    """Reads the sources that the branches need. Thread safe."""

    def __init__(
        self,
        bootstrap_servers: str,
        engine: sa.Engine,
        *,
        member: str,
        erased: ErasedKeys,
        resolve: Resolve,
        functions: Callable[[], FunctionCalls],
        settings: SourcesSettings,
        objects_url: str,
        is_late: Callable[[str], bool] = lambda _: False,
        limits: ConnectorLimits = UNLIMITED,
    ) -> None:
        """Prepare; nothing is read before `start`.

        Args:
            bootstrap_servers: The deployment's own broker, "host:port".
            engine: The database (`caraway.state.database.connect`).
            member: The name of this server among those that compete for sources.
            erased: The erased keys.
            resolve: Returns the values of secrets.
            functions: Makes a process for users' functions.
            settings: The settings of sources.
            objects_url: The object store, which has the archive.
            is_late: Returns whether what is computed from the rows of a topic is too far behind.
            limits: The limits of sources.
        """
        self._limits = limits
        self._bootstrap_servers = bootstrap_servers
        self._engine = engine
        self._member = member
        self._erased = erased
        self._resolve = resolve
        self._functions = functions
        self._settings = settings
        self._objects_url = objects_url
        self._is_late = is_late
        # The processes in which users' functions of webhooks run. Each source that is read has its own process.
        self.call = SeparateCalls(functions)
        self.positions = SourcePositions(engine)
        self.receipts = Receipts(self.positions, name_of)
        """Notes of rows that come to bounded webhooks."""
        self.removal = SourceRemoval(self.positions, resolve, settings, limits)
        """Removes sources that are gone for good."""
        self._topics = SourceTopics(bootstrap_servers)
        self._shares = Shares(engine, READERS, member)
        self._wanted: Mapping[str, IngestPlan] = {}
        self._running: dict[str, _Running] = {}
        self._lock = threading.Lock()
        self._follower = Recurring("sources", self._follow, FOLLOW_S)

    def start(self) -> None:
        """Start to read."""
        self._follower.start()

    def stop(self) -> None:
        """Stop to read, and let other servers do it."""
        self._follower.stop(STOP_S)
        self.set_plans(())
        self._follow()
        with suppress(UnavailableError):
            self._shares.leave()
        self.call.stop()

    def set_plans(self, ingests: Iterable[IngestPlan]) -> None:
        """Read these sources from now on; of webhooks, to which clients send rows, watch the bounded ones."""
        self._wanted = {
            name_of(ingest): ingest for ingest in ingests if ingest.source.connector.reader or ingest.source.bounded
        }
        self._follower.wake()

    def context(self, name: str, plan: IngestPlan, target: Target, resolve: Resolve) -> SourceContext:
        """Return all that the reader of a source knows besides its connector; `resolve` looks up its secrets."""
        return SourceContext(
            name=name,
            source=plan.source,
            dataset=plan.dataset,
            columns=target.columns,
            resolve=resolve,
            endpoints=self._settings.endpoints,
            local_folders=self._settings.local_folders,
            live_rows=live_rows_of(self._bootstrap_servers, self._objects_url, plan.topic),
            integer_overlap=self._settings.integer_overlap,
            ca_file=self._settings.ca_file,
        )

    def forget(self, gone: Collection[str]) -> None:
        """Begin to remove sources that are gone for good, given the names of their assets; it returns at once."""
        # A source that is read is never removed, whatever the ledger says of another one of its name.
        self.removal.start(frozenset(map(source_name, gone)) - self._wanted.keys())

    def statuses(self) -> list[SourceStatus]:
        """Return the state of each source."""
        running = dict(self._running)
        others = [_standby(plan) for name, plan in self._wanted.items() if name not in running]
        return [*(each.status for each in running.values()), *others]

    def _follow(self) -> None:
        """Start and stop workers, so that they are those of the wanted sources that this server is to read."""
        with self._lock:
            known = self._wanted
            mine = self._shares.mine(known)
            wanted = {name: plan for name, plan in known.items() if name in mine}
            follow(self._running, wanted, self._run, STOP_S)
        self.call.end_idle()

    def _run(self, name: str, plan: IngestPlan) -> "_Running":
        # Each source has a producer of its own, whose rows its worker alone awaits. So a write can be known by a drain,
        # and no rows of log requests wait behind those of sources.
        writer = TopicWriter(self._bootstrap_servers, timeout_s=WRITE_S, linger_ms=LINGER_MS, by_drain=True)
        functions = self._functions()
        connector = plan.source.connector
        target = Target(plan, functions)
        secrets = HiddenSecrets(self._resolve)
        context = self.context(name, plan, target, secrets)
        lease = Lease(engine=self._engine, name=f"source {name}", owner=self._member)

        def connect() -> SourceReader:
            if not connector.reader:
                return WebhookReader(plan.source, lambda: self.positions.item(RECEIVED, [name]).get(name, b""))
            return RemoteReader(connector, context, self._limits)

        worker = SourceWorker(
            name,
            target,
            connect=connect,
            right=HeldLease(lease, LASTING, renew_s=RENEWAL_S),
            positions=self.positions,
            topics=self._topics,
            writer=writer,
            erased=self._erased,
            is_late=lambda: self._is_late(target.topic),
        )
        hold = Holder(self._limits, connector)
        running = _Running(plan, target, worker, writer=writer, functions=functions, secrets=secrets, hold=hold)
        running.work.start()
        return running


class _Running:
    """A source that is being read."""

    def __init__(
        self,
        plan: IngestPlan,
        target: Target,
        worker: SourceWorker,
        *,
        writer: TopicWriter,
        functions: FunctionCalls,
        secrets: HiddenSecrets,
        hold: Holder,
    ) -> None:
        self.plan = plan
        self._hold = hold
        self._secrets = secrets
        self._target = target
        self._worker = worker
        self._writer = writer
        self._functions = functions
        name = f"source {target.source} of {target.dataset}"
        self._owned = False
        # Each call reads once, so that an error is over in `status` as soon as the next read has succeeded.
        self.work = Recurring(
            name,
            self._run,
            self._pause_s,
            retry_s=RETRY_S,
            at_once=True,
            finish=self._finish,
            interrupt=end_of,
        )

    @property
    def status(self) -> SourceStatus:
        """The state of the source."""
        target, worker, error = self._target, self._worker, self.work.failure
        return SourceStatus(
            dataset=target.dataset,
            source=target.source,
            system=target.system,
            state=_state(worker, error),
            owned=worker.owned,
            lag=worker.lag,
            position=worker.position,
            progress=worker.progress,
            per_second=worker.pace.per_second,
            remaining_s=worker.pace.remaining_s(worker.progress),
            rows=worker.rows,
            read_at=worker.read_at,
            polled_at=worker.polled_at,
            dead_letters=worker.dead_letters,
            watermark_us=None if target.newest_us is None else target.newest_us - self.plan.source.disorder_us,
            newest_us=target.newest_us,
            error=error,
        )

    def _run(self) -> None:
        with self._secrets.hidden(), self._hold():
            self._owned = self._worker.step()

    def _pause_s(self) -> float:
        """Return the seconds before the next read: 0 while this server may read, as a read waits for records itself."""
        return 0.0 if self._owned else STANDBY_S

    def _finish(self) -> None:
        self._functions.stop()
        try:
            with self._hold():
                self._worker.stop()
        finally:
            self._writer.close(STOP_S)


def _standby(plan: IngestPlan) -> SourceStatus:
    """Return the state of a source that another server is to read."""
    return SourceStatus(
        dataset=plan.topic.dataset,
        source=plan.source.connector.identifier,
        system=plan.source.connector.system_name,
        state="standby",
        owned=False,
        lag=None,
        position={},
        progress=None,
        per_second=None,
        remaining_s=None,
        rows=0,
        read_at=None,
        polled_at=None,
        dead_letters=0,
        watermark_us=None,
        newest_us=None,
        error="",
    )


def _state(worker: SourceWorker, error: str) -> str:
    if error:
        return "failing"
    if not worker.owned:
        return "standby"
    if worker.closed:
        return "closed"
    return "waiting" if worker.waits else "reading"
