"""The parts of a server behind HTTP: the index, the connections to Kafka and Postgres, and the graph.

The parts start by themselves and in any order: each waits for a part that isn't there yet, and finds one again that
went away.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from caraway.apps.server.access.gate import Gate
from caraway.apps.server.control.reconciler import Control
from caraway.apps.server.erasure.eraser import Eraser
from caraway.apps.server.freshness.freshness import FreshnessWatch
from caraway.apps.server.health import Health
from caraway.apps.server.lags import Lags
from caraway.apps.server.offline_runner import OfflineRunner
from caraway.apps.server.served_graph import ServedGraphs
from caraway.apps.server.server_index import ServerIndex
from caraway.apps.server.tracing.spans import Tracer
from caraway.dataplane.archive.reports import ArchiveReports
from caraway.dataplane.archive.served_log import ServedLog
from caraway.dataplane.ingest.backpressure import Backpressure
from caraway.dataplane.ingest.intake_process import IntakeProcess
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.dataplane.sinks.sinks import Sinks
from caraway.dataplane.sources.sources import Sources
from caraway.dataplane.sources.trials import SourceTrials
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.dataplane.topics.letters import LetterReader
from caraway.dataplane.topics.newest import NewestReader
from caraway.dataplane.topics.producer import TopicWriter
from caraway.offline.monitoring.quality.profiles import DatasetProfiles
from caraway.offline.monitoring.quality.store import QualityStore
from caraway.offline.queries.addresses import AllowedPlaces
from caraway.offline.queries.store import OfflineQueries
from caraway.process.secrets.keyring import Keyring
from caraway.state.access import Access
from caraway.state.audit import AuditLog
from caraway.state.drift import DriftStore
from caraway.state.erasures import ErasureLog
from caraway.state.reader import StateReader
from caraway.state.replays import Replays
from caraway.state.secrets import SecretStore
from caraway.state.skew import SkewStore

# The longest wait, in seconds, for traces to be sent at the end.
TRACES_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """The parts, which `caraway.apps.server.wiring` makes and connects.

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
