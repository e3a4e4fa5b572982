"""All sources that one server reads, each by a worker in a thread of its own."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

import sqlalchemy as sa

from caraway.dataplane.addresses.limits import UNLIMITED, ConnectorLimits, Holder
from caraway.dataplane.confined.fleet import STOP_S, Fleet, Leased
from caraway.dataplane.ingest.targets import Target
from caraway.dataplane.sources.functions.calls import FunctionCalls, SeparateCalls
from caraway.dataplane.sources.live_rows import live_rows_of
from caraway.dataplane.sources.positions import SourcePositions
from caraway.dataplane.sources.reader import Position, Progress, Resolve, SourceContext, SourceReader
from caraway.dataplane.sources.remote import RemoteReader
from caraway.dataplane.sources.removal import SourceRemoval
from caraway.dataplane.sources.topics import SourceTopics
from caraway.dataplane.sources.webhooks import RECEIVED, Receipts, WebhookReader
from caraway.dataplane.sources.worker import WRITE_S, SourceWorker
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.dataplane.topics.producer import TopicWriter
from caraway.graph.plan.model import IngestPlan
from caraway.graph.secrets.hiding import HiddenSecrets
from caraway.process.settings.connectors import SourcesSettings
from caraway.state.blueprints import content_of, source_name
from caraway.state.ownership.members import READERS

# Seconds until a source that failed is tried again: after the first failure, and the longest such pause after many.
RETRY_S = (2.0, 30.0)
# The milliseconds for which the rows of a source are gathered for one request to the broker. The rows of a poll come a
# few hundred at a time, and fewer requests take less time of the broker.
LINGER_MS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """The state of a source, as one server knows it.

    Attributes:
        dataset: The dataset that it feeds.
        topic: The topic to which its rows are written.
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
    topic: str
    source: str
    system: str
    state: str
    owned: bool = False
    lag: int | None = None
    position: Position = field(default_factory=dict)
    progress: Progress | None = None
    per_second: float | None = None
    remaining_s: float | None = None
    rows: int = 0
    read_at: float | None = None
    polled_at: float | None = None
    dead_letters: int = 0
    watermark_us: int | None = None
    newest_us: int | None = None
    error: str = ""


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
        self._fleet = Fleet("source", engine, READERS, member, self._begin, then=self.call.end_idle)

    def start(self) -> None:
        """Start to read."""
        self._fleet.start()

    def stop(self) -> None:
        """Stop to read, and let other servers do it."""
        self._fleet.stop()
        self.call.stop()

    def set_plans(self, ingests: Iterable[IngestPlan]) -> None:
        """Read these sources from now on; of webhooks, to which clients send rows, watch the bounded ones."""
        self._fleet.set_plans(
            {name_of(ingest): ingest for ingest in ingests if ingest.source.connector.reader or ingest.source.bounded}
        )

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
        # A source that still has a plan is never removed, even if the ledger (`caraway.state.ledger`) lists another
        # source of the same name as gone.
        self.removal.start(frozenset(map(source_name, gone)) - self._fleet.wanted.keys())

    def statuses(self) -> list[SourceStatus]:
        """Return the state of each source."""
        return self._fleet.statuses(_status, _standby)

    def _begin(self, name: str, plan: IngestPlan) -> Leased[IngestPlan, SourceWorker]:
        # Each source has its own producer, and only its worker awaits the rows. So a write is durable as soon as the
        # producer has no rows left, and the rows of log requests don't wait behind those of sources.
        writer = TopicWriter(self._bootstrap_servers, timeout_s=WRITE_S, linger_ms=LINGER_MS, by_drain=True)
        functions = self._functions()
        connector = plan.source.connector
        target = Target(plan, functions)
        secrets = HiddenSecrets(self._resolve)
        context = self.context(name, plan, target, secrets)

        def connect() -> SourceReader:
            if not connector.reader:
                return WebhookReader(plan.source, lambda: self.positions.item(RECEIVED, [name]).get(name, b""))
            return RemoteReader(connector, context, self._limits)

        worker = SourceWorker(
            name,
            target,
            connect=connect,
            right=self._fleet.right(name),
            positions=self.positions,
            topics=self._topics,
            writer=writer,
            erased=self._erased,
            is_late=lambda: self._is_late(target.topic),
        )
        hold = Holder(self._limits, connector)

        def finish() -> None:
            functions.stop()
            try:
                with hold():
                    worker.stop()
            finally:
                writer.close(STOP_S)

        title = f"source {target.source} of {target.dataset}"
        return Leased(plan, worker, title=title, secrets=secrets, hold=hold, retry_s=RETRY_S, finish=finish)


def _status(running: Leased[IngestPlan, SourceWorker]) -> SourceStatus:
    """Return the state of a source that this server is to read."""
    worker, error = running.worker, running.work.failure
    target = worker.target
    return SourceStatus(
        dataset=target.dataset,
        topic=target.topic,
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
        watermark_us=None if target.newest_us is None else target.newest_us - running.plan.source.disorder_us,
        newest_us=target.newest_us,
        error=error,
    )


def _standby(plan: IngestPlan) -> SourceStatus:
    """Return the state of a source that another server is to read."""
    return SourceStatus(
        dataset=plan.topic.dataset,
        topic=plan.topic.name,
        source=plan.source.connector.identifier,
        system=plan.source.connector.system_name,
        state="standby",
    )


def _state(worker: SourceWorker, error: str) -> str:
    if error:
        return "failing"
    if not worker.owned:
        return "standby"
    if worker.closed:
        return "closed"
    return "waiting" if worker.waits else "reading"
