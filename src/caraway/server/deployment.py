"""The parts of a server behind HTTP: the index, the connections to Kafka and Postgres, and the graph.

The parts start by themselves and in any order: each waits for a part that isn't there yet, and finds one again that
went away.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from caraway.archive.reports import ArchiveReports
from caraway.control.reconciler import Control
from caraway.erasure.eraser import Eraser
from caraway.erasure.keys import ErasedKeys
from caraway.erasure.requests import ErasureLog
from caraway.ingest.backpressure import Backpressure
from caraway.ingest.intake_process import IntakeProcess
from caraway.ingest.sources.sources import Sources
from caraway.ingest.sources.trials import SourceTrials
from caraway.monitoring.quality.profiles import DatasetProfiles
from caraway.monitoring.quality.store import QualityStore
from caraway.objects.folder import ObjectFolder
from caraway.offline.queries.addresses import AllowedPlaces
from caraway.offline.queries.store import OfflineQueries
from caraway.secrets.keyring import Keyring
from caraway.secrets.store import SecretStore
from caraway.served.drift import DriftStore
from caraway.served.log import ServedLog
from caraway.served.skew import SkewStore
from caraway.server.access.gate import Gate
from caraway.server.freshness.freshness import FreshnessWatch
from caraway.server.health import Health
from caraway.server.lags import Lags
from caraway.server.offline_runner import OfflineRunner
from caraway.server.served_graph import ServedGraphs
from caraway.server.server_index import ServerIndex
from caraway.server.tracing.spans import Tracer
from caraway.sinks.sinks import Sinks
from caraway.state.access import Access
from caraway.state.audit import AuditLog
from caraway.state.reader import StateReader
from caraway.state.replays import Replays
from caraway.topics.letters import LetterReader
from caraway.topics.newest import NewestReader
from caraway.topics.producer import TopicWriter

# The longest wait, in seconds, for traces to be sent at the end.
TRACES_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """The parts, which `caraway.server.wiring` makes and connects.

    Attributes:
        access: The accounts, roles and tokens; None if the server needs no tokens.
        bootstrap_servers: The broker, "host:port".
        freshness: Measures how old what queries read is.
        figures: Returns the page of metrics.
        offline_memory_mb: The memory that the process of an offline query may have for records, in MiB.
        offline_places: The addresses of files that offline queries may name.
        tracer: Decides which requests are traced; None: none are.
        starts: The functions that start the parts, in order.
        stops: The functions that stop the parts, in order.
    """

    access: Access | None
    archive_reports: ArchiveReports
    audit: AuditLog
    backpressure: Backpressure
    bootstrap_servers: str
    figures: Callable[[], bytes]
    control: Control
    drift: DriftStore
    drift_false_alarms: float
    erased: ErasedKeys
    eraser: Eraser
    erasures: ErasureLog
    freshness: FreshnessWatch
    gate: Gate
    graphs: ServedGraphs
    health: Health
    index: ServerIndex
    intake: IntakeProcess
    keyring: Keyring
    lags: Lags
    letters: LetterReader
    newest: NewestReader
    offline_memory_mb: int
    offline_places: AllowedPlaces
    objects: ObjectFolder
    offline_queries: OfflineQueries
    offline_runner: OfflineRunner
    profiles: DatasetProfiles
    quality: QualityStore
    replays: Replays
    secrets: SecretStore
    served: ServedLog
    skew: SkewStore
    sinks: Sinks
    sources: Sources
    state: StateReader
    tracer: Tracer | None
    trials: SourceTrials
    writer: TopicWriter
    starts: Sequence[Callable[[], object]]
    stops: Sequence[Callable[[], object]]

    def start(self) -> None:
        """Start all parts in the background."""
        for start in self.starts:
            start()

    def stop(self) -> None:
        """Stop all parts; records on their way to Kafka get some time to arrive."""
        for stop in self.stops:
            stop()
        if self.tracer is not None:
            self.tracer.stop(TRACES_S)
