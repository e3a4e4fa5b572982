"""The construction of a server's parts from its settings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from prometheus_client import REGISTRY, generate_latest

from caraway.apps.server.access.gate import Gate
from caraway.apps.server.access.provider import provider_of
from caraway.apps.server.control.reconciler import Control
from caraway.apps.server.deployment import (
    Accounts,
    Connectors,
    Deployment,
    Erasure,
    Monitoring,
    Offline,
    Status,
    Topics,
)
from caraway.apps.server.emitting import LEASE, EmissionRight
from caraway.apps.server.erasure.eraser import Eraser
from caraway.apps.server.erasure.recomputing import Recomputing
from caraway.apps.server.expiry import Expiry
from caraway.apps.server.figures import AllFigures, page
from caraway.apps.server.foundation import Definitions, Foundation, foundation_of, function_pool, served_plans
from caraway.apps.server.freshness.arrivals import Arrivals
from caraway.apps.server.freshness.freshness import FreshnessWatch
from caraway.apps.server.health import Health, KafkaCheck, KnownLosses
from caraway.apps.server.index_database import IndexDatabase
from caraway.apps.server.index_loads import IndexLoads
from caraway.apps.server.index_shards import IndexShards
from caraway.apps.server.lags import Lags
from caraway.apps.server.monitoring import PROGRAM as MONITORING
from caraway.apps.server.monitoring import MonitoringRunner, QualityNews, ServedNews, WatchNews
from caraway.apps.server.offline_runner import PROGRAM, OfflineRunner
from caraway.apps.server.parts import ServerPart, ServerParts, nothing, thread_part
from caraway.apps.server.rates import Rates
from caraway.apps.server.reconciling import Reconciling
from caraway.apps.server.served_graph import ServedGraphs
from caraway.apps.server.server_index import ServerIndex
from caraway.apps.server.tracing.spans import Tracer
from caraway.apps.server.tracing.tracer import tracer_of
from caraway.apps.server.watch import Watch
from caraway.compute.extractors.pool import FunctionPool
from caraway.compute.extractors.worker import TARGET
from caraway.dataplane.addresses.limits import limits_of
from caraway.dataplane.archive.reports import ArchiveReports
from caraway.dataplane.archive.served_log import CLOSE_S, ServedLog
from caraway.dataplane.archive.store.past import Pasts
from caraway.dataplane.index.feeding.worker import IndexWorker
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.storage.snapshots import SnapshotKeeper, Snapshots
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.ingest.backpressure import Backpressure, Bounds
from caraway.dataplane.ingest.erased_letters import LetterErasure
from caraway.dataplane.ingest.intake_process import IntakeProcess
from caraway.dataplane.sinks.sinks import Sinks
from caraway.dataplane.sinks.writer import SignIn
from caraway.dataplane.sources.sources import Sources
from caraway.dataplane.sources.trials import SourceTrials
from caraway.dataplane.topics.letter_reader import LetterReader
from caraway.dataplane.topics.newest import NewestReader
from caraway.dataplane.topics.producer import TopicWriter
from caraway.offline.monitoring.figures import SERVED_WATCHES
from caraway.offline.monitoring.openlineage.starting import lineage_watches
from caraway.offline.monitoring.openlineage.watch import LineageWatch
from caraway.offline.monitoring.quality.store import QualityStore
from caraway.offline.queries.addresses import AllowedPlaces
from caraway.offline.queries.places import spark_folder
from caraway.offline.queries.store import OfflineQueries
from caraway.process.children.forking import ForkServer
from caraway.process.settings.certificates import warning_of
from caraway.process.settings.settings import Settings
from caraway.state.access import Access
from caraway.state.audit import AuditLog
from caraway.state.blueprints import AssetKind
from caraway.state.database import end_retries
from caraway.state.erasures import ErasureLog
from caraway.state.ledger import Ledger
from caraway.state.listening import Listener
from caraway.state.losses import Losses
from caraway.state.ownership.leases import Lease
from caraway.state.plans import Needed
from caraway.state.profiles import ProfileStore, Subject
from caraway.state.replays import Replays
from caraway.state.skew import SkewStore
from caraway.state.watched import WatchLease, watcher

KAFKA_INTERVAL_S = 2.0
# The most seconds that a request waits for Postgres to return the topics that have lost records.
LOSSES_TIMEOUT_S = 1.0
# The most seconds for which a row waits until Kafka has it. During an outage of the broker a log request is answered
# with an error after this time.
DELIVERY_TIMEOUT_S = 8.0
# The longest wait, in seconds, for a watch to stop and for the rows of log requests to reach Kafka. A supervisor kills
# the server 15 s after SIGTERM, and `serving.END_S` ends it before.
STOP_S = 3.0
# The longest wait, in seconds, for traces to be sent at the end.
TRACES_S = 1.0
# The longest wait, in seconds, for each part that works in the background (erasure, expiry, snapshots) to stop. The
# unfinished work of such a part is done after the next start, or by another server.
BACKGROUND_STOP_S = 1.0
# The programs of offline queries and of watches. Their processes are forked from one that has imported the programs:
# the imports would take longer than most offline queries, and forked processes share the memory of what was imported.
FORKED = (PROGRAM, MONITORING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """The parts that work beside requests, and that no handler calls.

    Attributes:
        expiry: Removes expired rows from the index.
        forks: Starts the processes of offline queries and of watches.
        functions: The processes for users' functions.
        loads: Has indexes loaded by files that lack a long history.
        listener: Hears of changes that another server or a command has made.
        runners: Keep the watches running.
        watches: Look at the parts on which a server depends, by their names.
    """

    expiry: Expiry
    forks: ForkServer
    functions: FunctionPool
    loads: IndexLoads
    listener: Listener
    runners: tuple[MonitoringRunner | LineageWatch, ...]
    watches: Mapping[str, Watch]


def deploy(settings: Settings, *, shared: Path | None = None) -> Deployment:
    """Return the parts of a server; nothing runs before their start.

    Args:
        settings: The settings of the server.
        shared: The folder that this process shares with those that read its index (`caraway.apps.server.workers`).

    Raises:
        ConfigurationError: Postgres or Kafka isn't named, or a library for traces isn't installed.
        UnavailableError: The folder of the index can't be used, or the address of the object store means nothing.
        ConflictError: Another process has the database of the index open.
    """
    base, arrivals, forks = foundation_of(settings), Arrivals(), ForkServer(FORKED, functions=TARGET)
    index = _index(base, arrivals, is_shared=shared is not None)
    functions = function_pool(settings, base.secrets, settings.server.extractor_processes)
    topics, accounts, monitoring = _topics(base), _accounts(base), _monitoring(base)
    kafka_check = KafkaCheck(base.servers)
    erasure, offline = _erasure(base, index, topics), _offline(base, forks)
    connectors = _connectors(base, topics, kafka_check)
    lags = _lags(base, index, topics, shared)

    definitions = Definitions(base.url, base.plans, base.secrets, erasure.eraser)
    graphs = ServedGraphs(
        definitions.read,
        index.rows,
        functions,
        settings.server.poll_seconds,
        follow=partial(_follow, index, lags, connectors),
        call=connectors.sources.call,
    )
    control = _control(base, index, connectors, functions)
    reconciling = _reconciling(base, control, index, connectors, definitions)
    watches = {
        "postgres": graphs.watch,
        "kafka": Watch("kafka", kafka_check, KAFKA_INTERVAL_S),
        "ledger": Watch("ledger", reconciling.run, reconciling.interval_s),
    }

    background = Background(
        expiry=Expiry(index.expire, lambda: {} if base.plans.needed is None else base.plans.needed.commits),
        forks=forks,
        functions=functions,
        loads=_loads(base, index, offline),
        listener=Listener(base.engine, partial(_wake, watches["postgres"], watches["ledger"], accounts.gate)),
        runners=_runners(base, forks, monitoring),
        watches=watches,
    )
    losses = _losses(base)
    status = Status(
        figures=generate_latest if shared is None else partial(page, shared),
        freshness=_freshness(base, index, topics, arrivals),
        health=_health(settings, watches, index, [kafka_check.warning, losses.warning]),
        lags=lags,
        losses=losses,
    )
    tracer = tracer_of(settings.traces)
    return Deployment(
        accounts=accounts,
        connectors=connectors,
        control=control,
        erasure=erasure,
        graphs=graphs,
        index=index,
        monitoring=monitoring,
        offline=offline,
        parts=ServerParts(
            [
                *_foundation_parts(base, tracer, index, control, background),
                *_background_parts(background, erasure, offline, index),
                *_data_parts(index, topics, functions, runs_functions=shared is None),
                *_front_parts(accounts, connectors, status, watches),
            ]
        ),
        secrets=base.secrets,
        state=base.state,
        status=status,
        topics=topics,
        tracer=tracer,
    )


def _losses(base: Foundation) -> KnownLosses:
    return KnownLosses(Losses(base.engine, timeout_seconds=LOSSES_TIMEOUT_S).recent)


def _health(
    settings: Settings, watches: Mapping[str, Watch], index: ServerIndex, warnings: Sequence[Callable[[], str]]
) -> Health:
    return Health(watches, index.problem, [partial(warning_of, settings.server), index.warning, *warnings])


def _follow(index: ServerIndex, lags: Lags, connectors: Connectors, needed: Needed) -> None:
    """Have the parts follow what the branches need from now on."""
    index.follow(needed.indexes)
    lags.follow(served_plans(needed))
    connectors.sources.set_plans(needed.ingests)
    connectors.sinks.set_plans(needed.sinks)


def _wake(*woken: Watch | Gate) -> None:
    """Wake the watches that read commits and tokens, which any server or command may have changed."""
    for each in woken:
        each.wake()


def _foundation_parts(
    base: Foundation, tracer: Tracer | None, index: ServerIndex, control: Control, background: Background
) -> list[ServerPart]:
    """Return the parts that work from their construction on; they stop last."""
    traces = [] if tracer is None else [ServerPart(name="traces", stop=partial(tracer.stop, TRACES_S))]
    return [
        *traces,
        # A thread that waits for the end of an outage of Postgres would keep the process from ending, so all such waits
        # are ended.
        ServerPart(name="postgres", ask=partial(end_retries, base.engine), stop=base.engine.dispose),
        ServerPart(name="the database of the index", stop=index.close),
        ServerPart(name="the processes of offline queries and watches", stop=background.forks.end),
        ServerPart(name="control", stop=control.close),
    ]


def _background_parts(
    background: Background, erasure: Erasure, offline: Offline, index: ServerIndex
) -> list[ServerPart]:
    """Return the parts whose unfinished work is done after the next start, or by another server."""
    keeper = index.keeper
    return [
        thread_part("listener", background.listener, BACKGROUND_STOP_S),
        thread_part("expiry", background.expiry, BACKGROUND_STOP_S),
        thread_part("erasure", erasure.eraser, BACKGROUND_STOP_S),
        thread_part("offline queries", offline.runner, BACKGROUND_STOP_S),
        thread_part("loads of indexes", background.loads, BACKGROUND_STOP_S),
        *(thread_part("monitoring", runner, BACKGROUND_STOP_S) for runner in background.runners),
        *([] if keeper is None else [thread_part("snapshots", keeper, BACKGROUND_STOP_S)]),
    ]


def _data_parts(
    index: ServerIndex, topics: Topics, functions: FunctionPool, *, runs_functions: bool
) -> list[ServerPart]:
    """Return the parts through which rows go, the index first: it stops after those that write.

    A process that answers queries itself starts the processes that run extractors. If readers answer queries, they
    start such processes of their own.
    """
    return [
        ServerPart(name="index", start=index.start, stop=index.stop),
        ServerPart(name="functions", start=functions.start if runs_functions else nothing, stop=functions.stop),
        ServerPart(name="the producer of what is served", stop=partial(topics.served_writer.close, BACKGROUND_STOP_S)),
        ServerPart(name="what is served", start=topics.served.start, stop=partial(topics.served.stop, CLOSE_S)),
        ServerPart(name="the producer of rows", stop=partial(topics.writer.close, STOP_S)),
        ServerPart(name="intake", stop=partial(topics.intake.stop, STOP_S)),
        ServerPart(name="newest rows", stop=topics.newest.close),
        ServerPart(name="dead letters", stop=topics.letters.close),
    ]


def _front_parts(
    accounts: Accounts, connectors: Connectors, status: Status, watches: Mapping[str, Watch]
) -> list[ServerPart]:
    """Return the parts that set others to work; they stop first."""
    return [
        ServerPart(name="lags", start=status.lags.start, stop=status.lags.stop),
        ServerPart(name="sinks", start=connectors.sinks.start, stop=connectors.sinks.stop),
        ServerPart(name="trials of sources", stop=connectors.trials.stop),
        ServerPart(name="sources", start=connectors.sources.start, stop=connectors.sources.stop),
        ServerPart(
            name="freshness", start=status.freshness.start, stop=partial(status.freshness.stop, BACKGROUND_STOP_S)
        ),
        ServerPart(name="gate", start=accounts.gate.start, stop=accounts.gate.stop),
        *(thread_part(f"the watch of {name}", watch, STOP_S) for name, watch in watches.items()),
    ]


def _index(base: Foundation, arrivals: Arrivals, *, is_shared: bool) -> ServerIndex:
    settings, count = base.settings, base.settings.index.shards
    # If the index is divided, this database has only the indexes that write rows of aggregates to a topic for jobs. A
    # snapshot doesn't know which of these rows were written after it. So the indexes aren't restored from snapshots,
    # but built anew from their topic.
    snapshots = Snapshots(base.objects) if count is None else None
    restore = None if snapshots is None else snapshots.restore
    store = IndexStore(settings.data_dir / "index", restore=restore, shared=is_shared)
    emission = EmissionRight(Lease(engine=base.engine, name=LEASE, owner=base.member), store)
    worker = IndexWorker(
        base.servers,
        store,
        base.erased,
        may_emit=emission.may_send,
        past_of=Pasts(base.servers, settings.objects_url),
        note_arrivals=arrivals.note if count is None else None,
        note_loss=Losses(base.engine).note,
    )
    seconds = settings.server.snapshot_seconds
    keeper = SnapshotKeeper(snapshots, store, seconds) if seconds and snapshots is not None else None
    whole = IndexDatabase(store=store, worker=worker, keeper=keeper)
    if count is None:
        return ServerIndex(whole, emission, IndexReader(store, base.erased))
    # Only one process at a time can open the database, so it is opened before the shards' port. A second server with
    # this data folder then fails with that reason, and not because the port is in use.
    shards = IndexShards(
        settings,
        base.servers,
        base.engine,
        objects=base.objects,
        erased=base.erased,
        member=base.member,
        keyring=base.keyring,
        count=count,
    )
    return ServerIndex(whole, emission, shards.rows, shards)


def _topics(base: Foundation) -> Topics:
    server, servers = base.settings.server, base.servers
    served_writer = TopicWriter(servers)
    return Topics(
        servers=servers,
        writer=TopicWriter(servers, timeout_s=DELIVERY_TIMEOUT_S),
        intake=IntakeProcess(timeout_s=DELIVERY_TIMEOUT_S),
        backpressure=Backpressure(Bounds(records=server.max_lag_records, seconds=server.max_lag_seconds)),
        served=ServedLog(served_writer),
        served_writer=served_writer,
        letters=LetterReader(servers),
        replays=Replays(base.engine),
        newest=NewestReader(servers),
    )


def _accounts(base: Foundation) -> Accounts:
    server, audit = base.settings.server, AuditLog(base.engine)
    access = Access(base.engine, by="server") if server.tokens else None
    gate = Gate(audit, access, admin_token_file=server.admin_token_file, provider=provider_of(base.settings.oidc))
    return Accounts(access=access, audit=audit, gate=gate)


def _erasure(base: Foundation, index: ServerIndex, topics: Topics) -> Erasure:
    erasures = ErasureLog(base.engine)
    eraser = Eraser(
        erasures,
        base.erased,
        index,
        topics.writer,
        recomputing=Recomputing(base.engine),
        letters=LetterErasure(base.servers, base.erased),
        member=base.member,
        needed=base.needed,
    )
    return Erasure(erased=base.erased, eraser=eraser, erasures=erasures, keyring=base.keyring)


def _monitoring(base: Foundation) -> Monitoring:
    return Monitoring(
        drift=ProfileStore(base.engine, Subject.FEATURES),
        false_alarms=base.settings.drift.false_alarms,
        profiles=ProfileStore(base.engine, Subject.DATASETS),
        quality=QualityStore(base.engine),
        skew=SkewStore(base.engine),
    )


def _runners(base: Foundation, forks: ForkServer, found: Monitoring) -> tuple[MonitoringRunner | LineageWatch, ...]:
    """Return what keeps the process of the watches running, and the senders of lineage."""
    settings, reports = base.settings, ArchiveReports(base.engine)
    stores = [(watch, watch.store(base.engine)) for watch in SERVED_WATCHES]
    watches: tuple[WatchNews, ...] = (
        *(
            ServedNews(store, reports, partial(watch.show, store), getattr(settings, watch.name).enabled)
            for watch, store in stores
        ),
        QualityNews(found.quality, found.profiles, base.needed, settings.quality.enabled),
    )
    runner = MonitoringRunner(
        watches,
        WatchLease(base.engine),
        forks=forks,
        name=watcher(settings.data_dir),
        environment=settings.environment(),
    )
    lineage = lineage_watches(
        settings.openlineage,
        base.engine,
        base.objects,
        member=base.member,
        needed=base.needed,
        jobs=base.state.jobs,
    )
    return runner, *lineage


def _offline(base: Foundation, forks: ForkServer) -> Offline:
    settings, queries = base.settings, OfflineQueries(base.engine)
    offline = settings.offline
    return Offline(
        memory_mb=offline.memory_mb,
        objects=base.objects,
        places=AllowedPlaces(offline.local_files, offline.endpoints, offline.own_rights, offline.roles),
        queries=queries,
        reports=ArchiveReports(base.engine),
        runner=OfflineRunner(
            queries,
            base.objects,
            forks=forks,
            processes=offline.processes,
            kept=timedelta(days=offline.kept_days),
            environment=settings.environment(),
            scratch=spark_folder(settings),
        ),
    )


def _loads(base: Foundation, index: ServerIndex, offline: Offline) -> IndexLoads:
    return IndexLoads(
        index.databases,
        offline.queries,
        base.objects,
        limit=base.settings.index.load_records,
        member=base.member,
        needed=base.needed,
        jobs=base.state.running_jobs,
        wake=offline.runner.wake,
    )


def _connectors(base: Foundation, topics: Topics, kafka_check: KafkaCheck) -> Connectors:
    settings, limits, resolve = base.settings, limits_of(base.settings, kafka_check.brokers), base.resolve()
    sources = Sources(
        base.servers,
        base.engine,
        member=base.member,
        erased=base.erased,
        resolve=resolve,
        functions=base.functions,
        settings=settings.sources,
        objects_url=settings.objects_url,
        is_late=topics.backpressure.is_late,
        limits=limits,
    )
    sinks = Sinks(
        base.servers,
        base.engine,
        member=base.member,
        folder=settings.data_dir,
        objects_url=settings.objects_url,
        erased=base.erased,
        sign_in=SignIn(resolve=resolve, ca_file=settings.sources.ca_file, endpoints=settings.sources.endpoints),
        product=settings.sinks.names,
        limits=limits,
    )
    trials = SourceTrials(sources.context, base.functions, resolve, limits)
    return Connectors(sinks=sinks, sources=sources, trials=trials)


def _lags(base: Foundation, index: ServerIndex, topics: Topics, shared: Path | None) -> Lags:
    figures = REGISTRY if shared is None else AllFigures(shared)
    return Lags(index.positions, base.state.running_jobs, topics.backpressure, rates=Rates(figures.collect))


def _freshness(base: Foundation, index: ServerIndex, topics: Topics, arrivals: Arrivals) -> FreshnessWatch:
    return FreshnessWatch(
        base.servers,
        topics.writer,
        plans=base.served_plans,
        positions=index.positions,
        jobs=base.state.running_jobs,
        arrivals=arrivals,
        advance_clock=index.advance_clock,
        interval_s=base.settings.server.heartbeat_seconds,
        file=base.settings.data_dir / "run" / "freshness.json",
        whole=base.settings.index.shards is None,
    )


def _control(base: Foundation, index: ServerIndex, connectors: Connectors, functions: FunctionPool) -> Control:
    return Control.connect(
        base.url,
        base.servers,
        partitions=base.settings.kafka.partitions,
        processors=base.settings.spark.processors,
        index_lag=index.lag,
        look_up=base.resolve(),
        try_sources=connectors.trials.faults,
        check_sink=connectors.sinks.check,
        check_functions=functions.lacking,
    )


def _reconciling(
    base: Foundation, control: Control, index: ServerIndex, connectors: Connectors, definitions: Definitions
) -> Reconciling:
    return Reconciling(
        control.reconciler,
        Ledger(base.engine),
        index,
        {AssetKind.INGEST: connectors.sources.forget, AssetKind.SINK: connectors.sinks.forget},
        definitions.require_tables,
    )
