"""What the server runs besides HTTP: the index, the way to Kafka, and the graph as Postgres has it.

Everything comes up by itself and in any order: a part that isn't there yet is waited for, one that goes away is found
again.
"""

import threading
from pathlib import Path

import structlog
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from caraway.config import ConfigurationError, Settings
from caraway.errors import UnavailableError
from caraway.index import IndexReader, IndexStore, IndexWorker
from caraway.ingest import DEAD_LETTERS
from caraway.server.live import Live, make_live
from caraway.server.watch import Watch
from caraway.state import StateReader, connect, migrate
from caraway.topics import TopicWriter, ensure_topics
from caraway.topics.connection import client_config, kafka_logger

LOG = structlog.get_logger(__name__)

# A commit through another server shows here within this time.
GRAPH_INTERVAL_S = 1.0
KAFKA_INTERVAL_S = 2.0
KAFKA_TIMEOUT_S = 3.0
# A log request during an outage of the broker is answered after this time at most.
DELIVERY_TIMEOUT_S = 8.0
# A supervisor gives us 15 s to end.
STOP_S = 3.0


class Deployment:
    """The parts behind the HTTP server."""

    def __init__(self, settings: Settings) -> None:
        """Prepare; nothing runs yet.

        Raises:
            ConfigurationError: Postgres or Kafka isn't named.
            UnavailableError: The folder of the index can't be used.
            ConflictError: Another process has the index open.
        """
        if settings.postgres.url is None:
            raise ConfigurationError("postgres.url: the server needs to know the database (set CARAWAY_POSTGRES__URL)")
        if settings.kafka.bootstrap_servers is None:
            raise ConfigurationError(
                "kafka.bootstrap_servers: the server needs to know the broker (set CARAWAY_KAFKA__BOOTSTRAP_SERVERS)"
            )
        self.postgres_url = settings.postgres.url
        self.bootstrap_servers = settings.kafka.bootstrap_servers
        self.partitions = settings.kafka.partitions
        self._store = IndexStore(_index_folder(settings))
        self.reader = IndexReader(self._store)
        self.index = IndexWorker(self.bootstrap_servers, self._store)
        self.writer = TopicWriter(self.bootstrap_servers, timeout_s=DELIVERY_TIMEOUT_S)
        self._engine = connect(self.postgres_url)
        self.state = StateReader(self._engine)
        self._live: Live | None = None
        self._reloading = threading.Lock()
        self._migrated = False
        self._dead_letters_exist = False
        self._admin = AdminClient(client_config(self.bootstrap_servers), logger=kafka_logger())
        self._watches = {
            "postgres": Watch("postgres", self.reload, GRAPH_INTERVAL_S),
            "kafka": Watch("kafka", self._check_kafka, KAFKA_INTERVAL_S),
        }

    def start(self) -> None:
        """Start everything in the background."""
        self.index.start()
        for watch in self._watches.values():
            watch.start()

    def stop(self) -> None:
        """Stop everything; what is on its way to Kafka gets some time."""
        for watch in self._watches.values():
            watch.stop(STOP_S)
        self.writer.close(STOP_S)
        self.index.stop()
        self._store.close()
        self._engine.dispose()

    @property
    def live(self) -> Live | None:
        """What is served; None before the graph was read."""
        return self._live

    def require_live(self) -> Live:
        """Return what is served.

        Raises:
            UnavailableError: The graph hasn't been read yet.
        """
        if self._live is None:
            reason = self._watches["postgres"].problem() or "it is being read"
            raise UnavailableError(f"the server is starting and doesn't know its definitions yet: postgres {reason}")
        return self._live

    def problems(self) -> dict[str, str]:
        """Tell which parts don't work, and why; empty if all do."""
        found = {name: problem for name, watch in self._watches.items() if (problem := watch.problem()) is not None}
        if not self.index.is_alive():
            found["index"] = "its worker has ended; the log tells why"
        return found

    def reload(self) -> None:
        """Serve the branch's head, if it is another one than so far.

        Raises:
            UnavailableError: Postgres doesn't answer.
        """
        with self._reloading:
            if not self._migrated:
                migrate(self.postgres_url)
                self._migrated = True
            head_id = self.state.head_id() or ""
            if self._live is not None and self._live.version == head_id:
                return
            live = make_live(self.state.head(), self.reader)
            # First the index, so that no query reads one that isn't being filled.
            self.index.set_plans(live.plan.indexes)
            self._live = live
            LOG.info("serving a graph", version=live.version, datasets=len(live.graph.datasets))

    def _check_kafka(self) -> None:
        try:
            self._admin.list_topics(timeout=KAFKA_TIMEOUT_S)
        except KafkaException as error:
            raise UnavailableError(f"no broker answers at {self.bootstrap_servers} ({error.args[0].str()})") from error
        if not self._dead_letters_exist:
            ensure_topics(self.bootstrap_servers, [DEAD_LETTERS], partitions=1)
            self._dead_letters_exist = True


def _index_folder(settings: Settings) -> Path:
    return settings.data_dir / "index"
