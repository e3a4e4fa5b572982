"""The health of a server: its parts that don't work, and why."""

from collections.abc import Callable, Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from caraway.errors import UnavailableError
from caraway.served.log import SERVED, SERVED_TOPIC_CONFIG
from caraway.server.watch import Watch
from caraway.topics.admin import ensure_topics
from caraway.topics.connection import client_config, kafka_logger
from caraway.topics.dead_letters import DEAD_LETTERS, DEAD_LETTERS_CONFIG

KAFKA_TIMEOUT_S = 3.0


class Health:
    """The watches of the parts that a server depends on, and its index."""

    def __init__(self, watches: Mapping[str, Watch], index_problem: Callable[[], str | None]) -> None:
        """Report on the parts with these names; `index_problem` returns why the index can't be read, if it can't."""
        self._watches = watches
        self._index_problem = index_problem

    def problems(self) -> dict[str, str]:
        """Return the reason for each part that doesn't work, by part; empty if all work."""
        found = {name: problem for name, watch in self._watches.items() if (problem := watch.problem()) is not None}
        if found.keys() & {"postgres", "kafka"}:
            # The watch "ledger" does the actions of the ledger, which need Postgres and Kafka. It fails whenever one of
            # these does, so then only the cause is reported.
            found.pop("ledger", None)
        if (problem := self._index_problem()) is not None:
            found["index"] = problem
        return found


class KafkaCheck:
    """The check that the broker answers. At its first answer the topics of the server itself are created."""

    def __init__(self, bootstrap_servers: str) -> None:
        """Check the broker "host:port"."""
        self._bootstrap_servers = bootstrap_servers
        self._ready = False
        self._admin = AdminClient(client_config(bootstrap_servers), logger=kafka_logger())

    def __call__(self) -> None:
        """Check once. Raises `UnavailableError` if no broker answers."""
        servers = self._bootstrap_servers
        try:
            self._admin.list_topics(timeout=KAFKA_TIMEOUT_S)
        except KafkaException as error:
            raise UnavailableError(f"no broker answers at {servers} ({error.args[0].str()})") from error
        if not self._ready:
            ensure_topics(servers, [DEAD_LETTERS], partitions=1, config=DEAD_LETTERS_CONFIG)
            ensure_topics(servers, [SERVED], partitions=1, config=SERVED_TOPIC_CONFIG)
            self._ready = True
