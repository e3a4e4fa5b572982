"""The parts of a server behind HTTP: the index, the connections to Kafka and Postgres, and the graph.

The parts start by themselves and in any order: each waits for a part that isn't there yet, and finds one again that
went away.
"""

from collections.abc import Callable
from dataclasses import dataclass

from caraway.apps.server.access.gate import Gate
from caraway.apps.server.control.reconciler import Control
from caraway.apps.server.erasure.eraser import Eraser
from caraway.apps.server.freshness.freshness import FreshnessWatch
from caraway.apps.server.health import Health, KnownLosses
from caraway.apps.server.lags import Lags
from caraway.apps.server.offline_runner import OfflineRunner
from caraway.apps.server.parts import ServerParts
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
from caraway.dataplane.topics.letter_reader import LetterReader
from caraway.dataplane.topics.newest import NewestReader
from caraway.dataplane.topics.producer import TopicWriter
from caraway.offline.monitoring.quality.store import QualityStore
from caraway.offline.queries.addresses import AllowedPlaces
from caraway.offline.queries.store import OfflineQueries
from caraway.process.secrets.keyring import Keyring
from caraway.state.access import Access
from caraway.state.audit import AuditLog
from caraway.state.erasures import ErasureLog
from caraway.state.profiles import ProfileStore
from caraway.state.reader import StateReader
from caraway.state.replays import Replays
from caraway.state.secrets import SecretStore
from caraway.state.skew import SkewStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """The parts that decide who may do what.

    Attributes:
        access: The accounts, roles and tokens; None if the server needs no tokens.
        audit: The log of what callers have changed.
        gate: Admits requests.
    """

    access: Access | None
    audit: AuditLog
    gate: Gate


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The parts that write topics and read them.

    Attributes:
        servers: The broker, "host:port".
        writer: Writes the rows of log requests.
        intake: The process that reads large log requests.
        backpressure: Refuses rows while indexes and jobs are behind.
        served: Writes what queries have answered. It has a producer of its own: in a common queue its rows could delay
            those whose log request waits until Kafka has them.
        served_writer: The producer of `served`.
        letters: Reads dead letters.
        replays: The dead letters that were sent again.
        newest: Reads the newest rows of datasets.
    """

    servers: str
    writer: TopicWriter
    intake: IntakeProcess
    backpressure: Backpressure
    served: ServedLog
    served_writer: TopicWriter
    letters: LetterReader
    replays: Replays
    newest: NewestReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """The parts that erase rows by their keys.

    Attributes:
        erased: The erased keys, whose rows are hidden.
        eraser: Erases keys.
        erasures: The records of erasures.
        keyring: The keys by which erased keys are hashed.
    """

    erased: ErasedKeys
    eraser: Eraser
    erasures: ErasureLog
    keyring: Keyring


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The parts that know how the deployment does.

    Attributes:
        figures: Returns the page of metrics.
        freshness: Measures how old what queries read is.
        health: Knows what doesn't work.
        lags: Measures how far indexes and jobs are behind.
        losses: Knows which topics have lost records that somebody had read.
    """

    figures: Callable[[], bytes]
    freshness: FreshnessWatch
    health: Health
    lags: Lags
    losses: KnownLosses


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitoring:
    """The findings of the watches.

    Attributes:
        drift: The drift of served features.
        false_alarms: The share of comparisons of the same distribution that are reported as drift.
        profiles: The profiles of datasets.
        quality: The results of expectations.
        skew: The differences between what was served and what an offline query computes.
    """

    drift: ProfileStore
    false_alarms: float
    profiles: ProfileStore
    quality: QualityStore
    skew: SkewStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Offline:
    """The parts of offline queries.

    Attributes:
        memory_mb: The memory that the process of an offline query may have for records, in MiB.
        objects: The object store.
        places: The addresses of files that offline queries may name.
        queries: The offline queries.
        reports: The tables of the archive, which they read.
        runner: Starts the processes of the queries.
    """

    memory_mb: int
    objects: ObjectFolder
    places: AllowedPlaces
    queries: OfflineQueries
    reports: ArchiveReports
    runner: OfflineRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class Connectors:
    """The parts that read other systems and write to them.

    Attributes:
        sinks: Write rows of datasets to other systems.
        sources: Read rows from other systems.
        trials: Read some rows of sources before they are committed.
    """

    sinks: Sinks
    sources: Sources
    trials: SourceTrials


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """The parts, which `caraway.apps.server.wiring` makes and connects.

    Attributes:
        control: Changes branches by commits.
        graphs: The definitions that branches serve.
        index: The indexes that queries read.
        parts: All that is started and stopped, in order.
        secrets: The secrets of definitions.
        state: Reads what is in Postgres.
        tracer: Decides which requests are traced; None: none are.
    """

    accounts: Accounts
    connectors: Connectors
    control: Control
    erasure: Erasure
    graphs: ServedGraphs
    index: ServerIndex
    monitoring: Monitoring
    offline: Offline
    parts: ServerParts
    secrets: SecretStore
    state: StateReader
    status: Status
    topics: Topics
    tracer: Tracer | None
