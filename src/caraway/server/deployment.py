"""The parts of the server besides HTTP: the index, the connection to Kafka, and the graph as Postgres has it.

The parts start by themselves and in any order: each waits for a part that isn't there yet, and finds one again that
went away.
"""

import socket
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import structlog
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from prometheus_client import generate_latest

from caraway.config import ConfigurationError, Settings
from caraway.confinement.configured import confinement_of, write_note
from caraway.control import Control
from caraway.errors import UnavailableError
from caraway.graph.wire import decode_graph
from caraway.index import IndexReader, IndexStatus, IndexStore, IndexWorker
from caraway.index.storage.rebuilding import Rebuilding
from caraway.index.storage.snapshots import SnapshotKeeper, Snapshots
from caraway.ingest import DEAD_LETTERS
from caraway.integrations.keyring import open_keyring
from caraway.integrations.resolver import resolver
from caraway.objects import ObjectFolder
from caraway.plan.model import IndexPlan
from caraway.query import FunctionPool
from caraway.server.access.gate import Gate
from caraway.server.collector import keep_what_is_here
from caraway.server.figures import page
from caraway.server.partitions.server_shards import ServerShards
from caraway.server.partitions.sharding import is_divided
from caraway.server.served_graph import ServedGraph, compile_served_graphs, served_graph_of
from caraway.server.upkeep.archive import Archive
from caraway.server.upkeep.emitting import LEASE, EmissionRight
from caraway.server.upkeep.erased_rows import ErasedRows
from caraway.server.upkeep.eraser import Eraser
from caraway.server.upkeep.expiry import Expiry
from caraway.server.upkeep.served import SERVED, SERVED_TOPIC_CONFIG, ServedLog
from caraway.server.watch import Watch
from caraway.state import (
    MAIN,
    Access,
    AssetKind,
    AuditLog,
    ErasureLog,
    Ledger,
    Needed,
    Plans,
    Replays,
    SealedSecretStore,
    StateReader,
    connect,
    migrate,
)
from caraway.state.blueprints import EMITS
from caraway.state.leases import Lease
from caraway.state.listening import Listener
from caraway.state.secret_store import SecretStore
from caraway.topics import ErasedKeys, TopicWriter, ensure_topics
from caraway.topics.connection import client_config, kafka_logger
from caraway.topics.credentials import sign_in

LOG = structlog.get_logger(__name__)

KAFKA_INTERVAL_S = 2.0
# Interval between two looks at the ledger while actions wait, such as for an index to catch up; a branch switches at
# most this much late.
LEDGER_INTERVAL_S = 0.5
# Interval between two looks at the ledger when nothing is due. Postgres notifies this server of changes, so these looks
# find only changes whose notification was lost.
IDLE_INTERVAL_S = 2.0
# Interval between two searches for indexes that nobody needs any more.
FORGET_INTERVAL_S = 30.0
# Interval between two renewals of the right to write rows of aggregates; without them another server takes over.
EMISSION_INTERVAL_S = 2.0
KAFKA_TIMEOUT_S = 3.0
# Longest wait for Kafka to take a row: a log request during an outage of the broker is answered after this time at
# most.
DELIVERY_TIMEOUT_S = 8.0
# Longest wait for each part to stop; a supervisor gives the server 15 s to end.
STOP_S = 3.0
# Longest wait for background work to stop. Unfinished work is done again after the next start, or by another server.
BACKGROUND_STOP_S = 1.0


class Deployment:
    """The parts behind the HTTP server."""

    def __init__(self, settings: Settings, *, shared: Path | None = None) -> None:
        """Build the parts; nothing runs before `start`.

        Args:
            settings: The settings of the server.
            shared: The folder that this process shares with those that read its index (`caraway.server.workers`).

        Raises:
            ConfigurationError: Postgres or Kafka isn't named.
            UnavailableError: The folder of the index can't be used, or the address of the object store means nothing.
            ConflictError: Another process has the database of the index open.
        """
        if settings.postgres.url is None:
            raise ConfigurationError("postgres.url: the server needs to know the database (set CARAWAY_POSTGRES__URL)")
        if settings.kafka.bootstrap_servers is None:
            raise ConfigurationError(
                "kafka.bootstrap_servers: the server needs to know the broker (set CARAWAY_KAFKA__BOOTSTRAP_SERVERS)"
            )
        self.postgres_url = settings.postgres.url
        self.bootstrap_servers = sign_in(settings.kafka)
        self.partitions = settings.kafka.partitions
        self._objects = ObjectFolder(settings.objects_url)
        snapshots = Snapshots(self._objects)
        divided = settings.index.shards is not None
        # If the index is divided, this store holds only the indexes whose rows are written for jobs, and these have no
        # snapshots.
        self._store = IndexStore(
            _index_folder(settings), restore=None if divided else snapshots.restore, shared=shared is not None
        )
        # With a shared folder the readers answer queries, and this process needs no processes for users' functions.
        self._answers_queries = shared is None
        self.figures = generate_latest if shared is None else partial(page, shared)
        seconds = settings.server.snapshot_seconds
        self._keeper = SnapshotKeeper(snapshots, self._store, seconds) if seconds and not divided else None
        self.keyring = open_keyring(settings.key_file)
        # The key file is read again each time, because an operator may add a missing key to it at any time.
        self.erased = ErasedKeys(lambda: open_keyring(settings.key_file).mac_keys())
        self._engine = connect(self.postgres_url)
        member = f"{socket.gethostname()}:{settings.data_dir}"
        self._emission = EmissionRight(Lease(engine=self._engine, name=LEASE, owner=member), self._store)
        self._emitting = False
        self.index = IndexWorker(self.bootstrap_servers, self._store, self.erased, may_emit=self._emission.may_send)
        self._rebuilding = Rebuilding(self.index, self._store)
        self._server_shards = self._shared_out(settings, member) if divided else None
        self._rows = IndexReader(self._store, self.erased) if self._server_shards is None else self._server_shards.index
        self._expiry = Expiry(
            self._server_shards or self.index, lambda: {} if self._needed is None else self._needed.commits
        )
        self.secrets = SecretStore(SealedSecretStore(self._engine), self.keyring)
        self.functions = FunctionPool(
            settings.server.extractor_processes,
            settings.server.extractor_seconds,
            settings.server.extractor_memory_mb,
            secrets=self.secrets.get,
            confinement=confinement_of(settings),
            started=partial(write_note, settings.data_dir),
        )
        self.writer = TopicWriter(self.bootstrap_servers, timeout_s=DELIVERY_TIMEOUT_S)
        # This writer is separate from the one above: rows that are kept of queries must not delay rows that a log
        # request waits for.
        self._served_writer = TopicWriter(self.bootstrap_servers)
        self.served = ServedLog(self._served_writer)
        erased_rows = ErasedRows(self.erased, lambda commit: decode_graph(self.state.graph(commit)))
        self._archive = Archive(
            self.bootstrap_servers,
            self._objects,
            settings.server.archive_seconds,
            member=member,
            hides=erased_rows.hides,
        )
        self.erasures = ErasureLog(self._engine)
        self.eraser = Eraser(
            self.erasures,
            self.erased,
            self._server_shards or self.index,
            self.writer,
            archive=(erased_rows, self._objects),
            member=member,
            needed=lambda: self.needed,
        )
        self.state = StateReader(self._engine)
        self.gate = Gate(
            AuditLog(self._engine),
            Access(self._engine, by="server") if settings.server.tokens else None,
            admin_token_file=settings.server.admin_token_file,
        )
        self.control = Control.connect(
            self.postgres_url,
            self.bootstrap_servers,
            partitions=self.partitions,
            index_lag=self._index_lag,
            look_up=resolver(self._newest_secret, kept_s=0.0).resolve,
        )
        self._ledger = Ledger(self._engine)
        self._plans = Plans(self.state)
        self._needed: Needed | None = None
        self._served_graphs: Mapping[str, ServedGraph] = {}
        self._reloading = threading.Lock()
        self._forgot_at = time.monotonic()
        self._emission_renewed_at = float("-inf")
        self._migrated = self._own_topics_exist = False
        self._admin = AdminClient(client_config(self.bootstrap_servers), logger=kafka_logger())
        self._watches = {
            "postgres": Watch("postgres", self.reload, settings.server.poll_seconds),
            "kafka": Watch("kafka", self._check_kafka, KAFKA_INTERVAL_S),
            "ledger": Watch("ledger", self._reconcile, self._ledger_interval_s),
        }
        self._listener = Listener(self._engine, self._look_at_once)

    def _shared_out(self, settings: Settings, member: str) -> ServerShards:
        return ServerShards(
            settings,
            self.bootstrap_servers,
            self._engine,
            objects=self._objects,
            erased=self.erased,
            keyring=self.keyring,
            member=member,
            whole=self.index,
        )

    def start(self) -> None:
        """Start all parts in the background."""
        if self._answers_queries:
            self.functions.start()
        self.served.start()
        self.index.start()
        self._rebuilding.start()
        if self._server_shards is not None:
            self._server_shards.start()
        self._expiry.start()
        if self._keeper is not None:
            self._keeper.start()
        for watch in self._watches.values():
            watch.start()
        self.eraser.start()
        self.gate.start()
        self._listener.start()

    def stop(self) -> None:
        """Stop all parts; records on their way to Kafka get some time to arrive."""
        parts = (self._listener, self._archive, self._expiry, self.eraser, self._keeper)
        background = [part for part in parts if part is not None]
        for part in background:
            part.stop(0)
        for watch in self._watches.values():
            watch.stop(STOP_S)
        self.gate.stop()
        self.writer.close(STOP_S)
        self.served.close()
        self._served_writer.close(BACKGROUND_STOP_S)
        self.functions.stop()
        self._rebuilding.stop(STOP_S)
        self.index.stop()
        if self._server_shards is not None:
            self._server_shards.stop()
        self._let_others_emit()
        self.control.close()
        for part in background:
            part.stop(BACKGROUND_STOP_S)
        self._store.close()
        self._engine.dispose()

    def _let_others_emit(self) -> None:
        try:
            self._emission.release()
        except UnavailableError as error:
            LOG.info("another server can write rows of aggregates only after a while", reason=str(error))

    @property
    def needed(self) -> Needed | None:
        """All assets that the branches need; None before the graph was read."""
        return self._needed

    @property
    def replays(self) -> Replays:
        """The record of dead letters that were sent again."""
        return Replays(self._engine)

    @property
    def served_graph(self) -> ServedGraph | None:
        """The graph that the main branch serves; None before the graph was read."""
        return self._served_graphs.get(MAIN)

    def require_served_graph(self, branch: str = MAIN) -> ServedGraph:
        """Return the graph that a branch serves.

        Raises:
            UnavailableError: The graph hasn't been read yet.
            UnknownEntityError: There is no such branch.
        """
        return served_graph_of(branch, self._served_graphs, self._watches["postgres"].problem)

    def problems(self) -> dict[str, str]:
        """Return the reason for each part that doesn't work, by part; empty if all work."""
        found = {name: problem for name, watch in self._watches.items() if (problem := watch.problem()) is not None}
        if found.keys() & {"postgres", "kafka"}:
            # The ledger works through Postgres and Kafka, so a failure of one of these isn't its own problem.
            found.pop("ledger", None)
        if (rebuilt := self._rebuilding.problem()) is not None:
            found["index"] = rebuilt
        elif not self.index.is_alive():
            found["index"] = "its worker has ended; the log tells why"
        elif self._server_shards is not None and (missing := self._server_shards.problem()) is not None:
            found["index"] = missing
        return found

    def index_status(self) -> dict[str, object]:
        """Return the state of this server's index, as plain values."""
        return self.index.status() if self._server_shards is None else self._server_shards.status()

    def index_positions(self) -> list[IndexStatus]:
        """Return how far each index of this server is."""
        return self.index.positions() if self._server_shards is None else self._server_shards.positions()

    def reload(self) -> None:
        """Serve what the branches serve now, if it has changed.

        Raises:
            UnavailableError: Postgres doesn't answer.
        """
        with self._reloading:
            if not self._migrated:
                migrate(self.postgres_url)
                self._migrated = True
            # Erased keys are read first, so that a reload never shows rows of a key that was erased before.
            self.eraser.refresh()
            self.secrets.refresh()
            needed = self._plans.refresh()
            if needed is self._needed:
                return
            # The index follows new plans before queries see them, so that no query reads an index that isn't being
            # filled.
            self.index.set_plans(self._followed(needed))
            if self._server_shards is not None:
                self._server_shards.set_plans(needed.indexes)
            self._served_graphs = compile_served_graphs(needed, self._rows, self.functions, self._served_graphs)
            self._needed = needed
            LOG.info("serving", branches={branch.name: branch.serving for branch in needed.heads.branches})
            keep_what_is_here()

    def _newest_secret(self, name: str) -> str:
        """Return the current value of a secret of the platform's own store."""
        self.secrets.refresh()
        return self.secrets.get(name)

    def _look_at_once(self) -> None:
        """Wake the watches that read commits; any server may have made one."""
        self._watches["postgres"].wake()
        self._watches["ledger"].wake()
        self.gate.wake()

    def _ledger_interval_s(self) -> float:
        return LEDGER_INTERVAL_S if self.control.reconciler.busy else IDLE_INTERVAL_S

    def _reconcile(self) -> None:
        """Do the next steps of the ledger, and forget the indexes that are gone."""
        if not self._migrated:
            raise UnavailableError("is waiting for the tables in Postgres")
        now = time.monotonic()
        if now - self._emission_renewed_at > EMISSION_INTERVAL_S:
            self._emission_renewed_at = now
            self._renew_emission()
        self.control.reconciler.reconcile()
        if now - self._forgot_at > FORGET_INTERVAL_S:
            self._forgot_at = now
            self._forget_indexes()

    def _renew_emission(self) -> None:
        """Renew or claim the right to write rows of aggregates; their topics are followed only with this right."""
        try:
            self._emission.claim_or_renew()
        finally:
            emitting = self._emission.may_send()
            with self._reloading:
                if emitting is not self._emitting:
                    self._emitting = emitting
                    if self._needed is not None:
                        self.index.set_plans(self._followed(self._needed))

    def _followed(self, needed: Needed) -> list[IndexPlan]:
        """Return the indexes that this server follows as a whole; those that emit rows only while it has the right."""
        plans = (
            needed.indexes if self._server_shards is None else [plan for plan in needed.indexes if not is_divided(plan)]
        )
        return [plan for plan in plans if plan.emits is None or self._emitting]

    def _forget_indexes(self) -> None:
        """Remove the entries of indexes that are gone, and of those that became divided, from the store."""
        gone = {bytes.fromhex(name.partition(EMITS)[0]) for name in self._ledger.gone(AssetKind.INDEX)}
        needed = self._needed
        followed = {index.asset for index in needed.indexes} if needed is not None else set()
        for asset in (self._store.assets() & gone) - followed:
            self._store.drop(asset)
            LOG.info("forgot an index", asset=asset.hex())
        if self._server_shards is not None:
            self._server_shards.forget(gone)
            if needed is not None:
                # Entries of indexes that are divided now date from the time before the index was divided.
                for asset in self._store.assets() - {plan.asset for plan in needed.indexes if not is_divided(plan)}:
                    self._store.drop(asset)

    def _index_lag(self, asset: str) -> str:
        """Return the reason why an index hasn't caught up with its topic, "" if it has."""
        name, emits, _ = asset.partition(EMITS)
        if self._server_shards is not None and not emits and self._server_shards.has(name):
            return self._server_shards.lag(name)
        for status in self.index.positions():
            if status.asset == name:
                caught_up = status.following and status.lag == 0
                return (
                    "" if caught_up else f"the index is {status.lag if status.lag is not None else '?'} records behind"
                )
        return "the index isn't followed yet"

    def _check_kafka(self) -> None:
        try:
            self._admin.list_topics(timeout=KAFKA_TIMEOUT_S)
        except KafkaException as error:
            raise UnavailableError(f"no broker answers at {self.bootstrap_servers} ({error.args[0].str()})") from error
        if not self._own_topics_exist:
            ensure_topics(self.bootstrap_servers, [DEAD_LETTERS], partitions=1)
            ensure_topics(self.bootstrap_servers, [SERVED], partitions=1, config=SERVED_TOPIC_CONFIG)
            self._own_topics_exist = True
            self._archive.start()


def _index_folder(settings: Settings) -> Path:
    return settings.data_dir / "index"
