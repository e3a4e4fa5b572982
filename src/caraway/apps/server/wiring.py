"""The construction of a server's parts from its settings."""

import socket
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import sqlalchemy as sa
from prometheus_client import REGISTRY, generate_latest

from caraway.apps.server.access.gate import Gate
from caraway.apps.server.access.provider import provider_of
from caraway.apps.server.control.reconciler import Control
from caraway.apps.server.deployment import Deployment
from caraway.apps.server.divided_server_index import DividedServerIndex
from caraway.apps.server.erasure.eraser import Eraser
from caraway.apps.server.erasure.recomputing import Recomputing
from caraway.apps.server.expiry import Expiry
from caraway.apps.server.figures import AllFigures, page
from caraway.apps.server.freshness.arrivals import Arrivals
from caraway.apps.server.freshness.freshness import FreshnessWatch
from caraway.apps.server.health import Health, KafkaCheck
from caraway.apps.server.lags import Lags
from caraway.apps.server.monitoring import PROGRAM as MONITORING
from caraway.apps.server.monitoring import MonitoringRunner, QualityNews, ServedNews
from caraway.apps.server.offline_runner import PROGRAM, OfflineRunner
from caraway.apps.server.rates import Rates
from caraway.apps.server.reconciling import Reconciling
from caraway.apps.server.served_graph import ServedGraphs
from caraway.apps.server.server_index import ServerIndex
from caraway.apps.server.tracing.tracer import tracer_of
from caraway.apps.server.watch import Watch
from caraway.compute.extractors.pool import FunctionPool
from caraway.dataplane.addresses.limits import limits_of
from caraway.dataplane.archive.reports import ArchiveReports
from caraway.dataplane.archive.served_log import CLOSE_S, ServedLog
from caraway.dataplane.index.storage.snapshots import Snapshots
from caraway.dataplane.ingest.backpressure import Backpressure, Bounds
from caraway.dataplane.ingest.erased_letters import LetterErasure
from caraway.dataplane.ingest.intake_process import IntakeProcess
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.dataplane.sinks.sinks import Sinks
from caraway.dataplane.sinks.writer import SignIn
from caraway.dataplane.sources.functions.calls import FunctionCalls
from caraway.dataplane.sources.sources import Sources
from caraway.dataplane.sources.trials import SourceTrials
from caraway.dataplane.topics.credentials import sign_in
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.dataplane.topics.letters import LetterReader
from caraway.dataplane.topics.newest import NewestReader
from caraway.dataplane.topics.producer import TopicWriter
from caraway.errors import UnavailableError
from caraway.graph.plan.model import GraphPlan
from caraway.graph.secrets.resolver import resolver
from caraway.graph.systems import Secretish
from caraway.offline.monitoring.figures import DRIFT_FIGURES, SKEW_FIGURES
from caraway.offline.monitoring.openlineage.starting import lineage_watches
from caraway.offline.monitoring.openlineage.watch import LineageWatch
from caraway.offline.monitoring.quality.profiles import DatasetProfiles
from caraway.offline.monitoring.quality.store import QualityStore
from caraway.offline.queries.addresses import AllowedPlaces
from caraway.offline.queries.places import spark_folder
from caraway.offline.queries.store import OfflineQueries
from caraway.process.children.forking import ForkServer
from caraway.process.confinement.configured import confinement_of, write_note
from caraway.process.secrets.keyring import open_keyring
from caraway.process.settings.certificates import warning_of
from caraway.process.settings.errors import ConfigurationError
from caraway.process.settings.settings import Settings
from caraway.state.access import Access
from caraway.state.audit import AuditLog
from caraway.state.blueprints import AssetKind
from caraway.state.database import connect, end_retries, require_tables
from caraway.state.drift import DriftStore
from caraway.state.erasures import ErasureLog
from caraway.state.ledger import Ledger
from caraway.state.listening import Listener
from caraway.state.migrate import migrate
from caraway.state.plans import Needed, Plans
from caraway.state.reader import StateReader
from caraway.state.replays import Replays
from caraway.state.secrets import SecretStore
from caraway.state.skew import SkewStore
from caraway.state.tables import metadata
from caraway.state.watched import WatchLease, watcher

KAFKA_INTERVAL_S = 2.0
# The most seconds for which a row waits until Kafka has it. During an outage of the broker a log request is answered
# with an error after this time.
DELIVERY_TIMEOUT_S = 8.0
# The longest wait, in seconds, for a watch to stop and for the rows of log requests to reach Kafka. A supervisor kills
# the server 15 s after SIGTERM, and `serving.END_S` ends it before.
STOP_S = 3.0
# The longest wait, in seconds, for each part that works in the background (erasure, expiry, snapshots) to
# stop. Their unfinished work is done after the next start, or by another server.
BACKGROUND_STOP_S = 1.0
# The programs whose processes are forked from one that has imported them: imports would take longer than most offline
# queries, and the processes share the memory of what they import.
FORKED = (PROGRAM, MONITORING)


def addresses(settings: Settings) -> tuple[str, str]:
    """Return the URL of Postgres and the address of the broker, at which this process signs in from now on.

    Raises `ConfigurationError` if Postgres or Kafka isn't named.
    """
    if settings.postgres.url is None:
        raise ConfigurationError("postgres.url: the server needs to know the database (set CARAWAY_POSTGRES__URL)")
    return settings.postgres.url, sign_in(settings.kafka)


def function_pool(settings: Settings, secrets: SecretStore, processes: int) -> FunctionPool:
    """Return the processes for users' functions; they aren't started yet."""
    return FunctionPool(
        processes,
        settings.server.extractor_seconds,
        settings.server.extractor_memory_mb,
        secrets=secrets.get,
        confinement=confinement_of(settings),
        started=partial(write_note, settings.data_dir),
    )


def source_functions(settings: Settings, secrets: SecretStore) -> Callable[[], FunctionCalls]:
    """Return what makes the process for the functions of a source."""
    return partial(
        FunctionCalls,
        settings.server.extractor_seconds,
        settings.server.extractor_memory_mb,
        confinement=confinement_of(settings),
        secrets=secrets.get,
    )


class Definitions:
    """The reads of all that the branches need, in tables that the first read creates or brings up to date."""

    def __init__(self, postgres_url: str, plans: Plans, secrets: SecretStore, eraser: Eraser) -> None:
        """Read `plans`, and before them the secrets and erased keys."""
        self._postgres_url = postgres_url
        self._plans = plans
        self._secrets = secrets
        self._eraser = eraser
        self._migrated = False

    def read(self) -> Needed:
        """Return what the branches need now. Raises `UnavailableError` if Postgres doesn't answer."""
        if not self._migrated:
            migrate(self._postgres_url)
            self._migrated = True
        # The erased keys are read before the commits. So when queries begin to use a new commit, they already hide the
        # rows of all keys that were erased before this read.
        self._eraser.refresh()
        self._secrets.refresh()
        return self._plans.refresh()

    def require_tables(self) -> None:
        """Raise UnavailableError as long as the tables don't exist."""
        if not self._migrated:
            raise UnavailableError("the server has not set up the tables yet")


def served_plans(needed: Needed) -> list[GraphPlan]:
    """Return the plans of the commits that branches serve."""
    return [needed.commits[branch.serving].plan for branch in needed.heads.branches if branch.serving is not None]


def deploy(settings: Settings, *, shared: Path | None = None) -> Deployment:
    """Return the parts of a server; nothing runs before `Deployment.start`.

    Args:
        settings: The settings of the server.
        shared: The folder that this process shares with those that read its index (`caraway.apps.server.workers`).

    Raises:
        ConfigurationError: Postgres or Kafka isn't named, or a library for traces isn't installed.
        UnavailableError: The folder of the index can't be used, or the address of the object store means nothing.
        ConflictError: Another process has the database of the index open.
    """
    (url, servers), server = addresses(settings), settings.server
    member = f"{socket.gethostname()}:{settings.data_dir}"
    objects, keyring, engine = ObjectFolder(settings.objects_url), open_keyring(settings.key_file), connect(url)
    arrivals, erasures = Arrivals(), ErasureLog(engine)
    require_tables(engine, metadata.tables)
    # `ErasedKeys` calls this after new erasures, and at each test while it lacks the secret of some hash. The key file
    # is read anew each time, because an operator may add the missing secret to it at any time.
    erased = ErasedKeys(lambda: open_keyring(settings.key_file).mac_keys())
    index: ServerIndex
    if settings.index.shards is None:
        index = ServerIndex(
            settings,
            servers,
            engine,
            snapshots=Snapshots(objects),
            erased=erased,
            member=member,
            shared=shared is not None,
            note_arrivals=arrivals.note,
        )
    else:
        index = DividedServerIndex(
            settings,
            servers,
            engine,
            objects=objects,
            erased=erased,
            member=member,
            keyring=keyring,
            shards=settings.index.shards,
        )
    state, secrets = StateReader(engine), SecretStore(engine, keyring)
    plans, functions = Plans(state), function_pool(settings, secrets, server.extractor_processes)
    # Rows of queries with `log=true` have a producer of their own: in a common queue they could delay rows whose log
    # request waits until Kafka has them.
    intake = IntakeProcess(timeout_s=DELIVERY_TIMEOUT_S)
    writer, served_writer = TopicWriter(servers, timeout_s=DELIVERY_TIMEOUT_S), TopicWriter(servers)
    served = ServedLog(served_writer)

    eraser = Eraser(
        erasures,
        erased,
        index,
        writer,
        recomputing=Recomputing(engine),
        letters=LetterErasure(servers, erased),
        member=member,
        needed=lambda: plans.needed,
    )
    expiry = Expiry(index.expire, lambda: {} if plans.needed is None else plans.needed.commits)
    offline_queries, reports, audit = OfflineQueries(engine), ArchiveReports(engine), AuditLog(engine)
    access = Access(engine, by="server") if server.tokens else None
    skew, quality, drift, forks = SkewStore(engine), QualityStore(engine), DriftStore(engine), ForkServer(FORKED)
    runners: list[MonitoringRunner | LineageWatch] = [
        _monitoring(settings, engine, forks, (skew, drift, quality), plans),
        *lineage_watches(
            settings.openlineage, engine, objects, member=member, needed=lambda: plans.needed, jobs=state.jobs
        ),
    ]
    offline_runner = OfflineRunner(
        offline_queries,
        objects,
        forks=forks,
        processes=settings.offline.processes,
        kept=timedelta(days=settings.offline.kept_days),
        environment=settings.environment(),
        scratch=spark_folder(settings),
    )
    definitions, resolve = Definitions(url, plans, secrets, eraser), _resolve(settings, secrets)
    backpressure = Backpressure(Bounds(records=server.max_lag_records, seconds=server.max_lag_seconds))
    newest, lags, letters, freshness = (
        NewestReader(servers),
        Lags(
            index.positions,
            state.running_jobs,
            backpressure,
            rates=Rates((REGISTRY if shared is None else AllFigures(shared)).collect),
        ),
        LetterReader(servers),
        FreshnessWatch(
            servers,
            writer,
            plans=lambda: () if plans.needed is None else served_plans(plans.needed),
            positions=index.positions,
            jobs=state.running_jobs,
            arrivals=arrivals,
            interval_s=server.heartbeat_seconds,
            file=settings.data_dir / "run" / "freshness.json",
            whole=settings.index.shards is None,
        ),
    )
    limits = limits_of(settings)
    sources = Sources(
        servers,
        engine,
        member=member,
        erased=erased,
        resolve=resolve,
        functions=source_functions(settings, secrets),
        settings=settings.sources,
        objects_url=settings.objects_url,
        is_late=backpressure.is_late,
        limits=limits,
    )
    trials = SourceTrials(sources.context, source_functions(settings, secrets), resolve, limits)

    sinks = Sinks(
        servers,
        engine,
        member=member,
        folder=settings.data_dir,
        objects_url=settings.objects_url,
        erased=erased,
        sign_in=SignIn(resolve=resolve, ca_file=settings.sources.ca_file, endpoints=settings.sources.endpoints),
        product=settings.sinks.names,
        limits=limits,
    )

    def follow(needed: Needed) -> None:
        index.follow(needed.indexes)
        lags.follow(served_plans(needed))
        sources.set_plans(needed.ingests)
        sinks.set_plans(needed.sinks)

    graphs = ServedGraphs(
        definitions.read, index.rows, functions, server.poll_seconds, follow=follow, call=sources.call
    )
    gate = Gate(audit, access, admin_token_file=server.admin_token_file, provider=provider_of(settings.oidc))
    control = Control.connect(
        url,
        servers,
        partitions=settings.kafka.partitions,
        processors=settings.spark.processors,
        index_lag=index.lag,
        look_up=resolve,
        try_sources=trials.faults,
        check_sink=sinks.check,
        check_functions=functions.lacking,
    )
    reconciling = Reconciling(
        control.reconciler,
        Ledger(engine),
        index,
        {AssetKind.INGEST: sources.forget, AssetKind.SINK: sinks.forget},
        definitions.require_tables,
    )
    kafka_check = KafkaCheck(servers)
    watches = {
        "postgres": graphs.watch,
        "kafka": Watch("kafka", kafka_check, KAFKA_INTERVAL_S),
        "ledger": Watch("ledger", reconciling.run, reconciling.interval_s),
    }

    def look_at_once() -> None:
        """Wake the watches that read commits and tokens, which any server or command may have changed."""
        for woken in (watches["postgres"], watches["ledger"], gate):
            woken.wake()

    listener = Listener(engine, look_at_once)
    background = [
        part for part in (listener, expiry, eraser, offline_runner, *runners, index.keeper) if part is not None
    ]
    starts: list[Callable[[], object]] = [
        served.start,
        index.start,
        lags.start,
        freshness.start,
        sources.start,
        sinks.start,
        expiry.start,
        *(watch.start for watch in watches.values()),
        eraser.start,
        offline_runner.start,
        *(runner.start for runner in runners),
        gate.start,
        listener.start,
    ]
    if shared is None:
        # Without a shared folder this process answers queries itself, so it starts the processes that run extractors.
        # With one, the readers answer queries and start such processes of their own.
        starts.insert(0, functions.start)
    return Deployment(
        access=access,
        archive_reports=reports,
        audit=audit,
        backpressure=backpressure,
        bootstrap_servers=servers,
        freshness=freshness,
        figures=generate_latest if shared is None else partial(page, shared),
        control=control,
        drift=drift,
        drift_false_alarms=settings.drift.false_alarms,
        erased=erased,
        eraser=eraser,
        erasures=erasures,
        gate=gate,
        graphs=graphs,
        health=Health(
            watches, index.problem, [partial(warning_of, settings.server), kafka_check.warning, index.warning]
        ),
        index=index,
        intake=intake,
        keyring=keyring,
        lags=lags,
        letters=letters,
        newest=newest,
        offline_memory_mb=settings.offline.memory_mb,
        offline_places=AllowedPlaces(
            settings.offline.local_files,
            settings.offline.endpoints,
            settings.offline.own_rights,
            settings.offline.roles,
        ),
        objects=objects,
        offline_queries=offline_queries,
        offline_runner=offline_runner,
        profiles=DatasetProfiles(engine),
        quality=quality,
        replays=Replays(engine),
        secrets=secrets,
        served=served,
        skew=skew,
        sinks=sinks,
        sources=sources,
        state=state,
        tracer=tracer_of(settings.traces),
        trials=trials,
        writer=writer,
        starts=starts,
        stops=[
            # A thread that waits for the end of an outage of Postgres would keep the process from ending.
            partial(end_retries, engine),
            # Threads are asked to stop before one of them is waited for, so that they stop side by side.
            *(partial(part.stop, 0) for part in (*background, *watches.values())),
            *(partial(watch.stop, STOP_S) for watch in watches.values()),
            gate.stop,
            partial(freshness.stop, BACKGROUND_STOP_S),
            sources.stop,
            trials.stop,
            sinks.stop,
            lags.stop,
            letters.close,
            newest.close,
            partial(intake.stop, STOP_S),
            partial(writer.close, STOP_S),
            partial(served.stop, CLOSE_S),
            partial(served_writer.close, BACKGROUND_STOP_S),
            functions.stop,
            index.stop,
            control.close,
            *(partial(part.stop, BACKGROUND_STOP_S) for part in background),
            forks.end,
            index.close,
            engine.dispose,
        ],
    )


def _resolve(settings: Settings, secrets: SecretStore) -> Callable[[Secretish], str]:
    """Return the look-up of secrets that definitions refer to: those of the store, and what the settings list."""

    def newest_secret(name: str) -> str:
        secrets.refresh()
        return secrets.get(name)

    # A list must never open the files of the platform itself.
    own = settings.data_dir, settings.key_file, settings.server.admin_token_file or settings.data_dir
    return resolver(newest_secret, settings.secrets, own).resolve


def _monitoring(
    settings: Settings,
    engine: sa.Engine,
    forks: ForkServer,
    stores: tuple[SkewStore, DriftStore, QualityStore],
    plans: Plans,
) -> MonitoringRunner:
    """Return what keeps the process of the watches running."""
    skew, drift, quality = stores
    reports = ArchiveReports(engine)
    watches = (
        ServedNews(skew, reports, lambda: SKEW_FIGURES.set(skew.totals()), settings.skew.enabled),
        ServedNews(drift, reports, lambda: DRIFT_FIGURES.set(drift.found()), settings.drift.enabled),
        QualityNews(quality, DatasetProfiles(engine), lambda: plans.needed, settings.quality.enabled),
    )
    return MonitoringRunner(
        watches, WatchLease(engine), forks=forks, name=watcher(settings.data_dir), environment=settings.environment()
    )
