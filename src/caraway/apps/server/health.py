"""The health of a server: its parts that don't work, and why."""

import time
from collections.abc import Callable, Mapping, Sequence

import structlog

from caraway.apps.server.watch import Watch
from caraway.dataplane.archive.served_log import SERVED, SERVED_TOPIC_CONFIG
from caraway.dataplane.topics.admin import BrokerAdmin, ensure_topics
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS, DEAD_LETTERS_CONFIG
from caraway.errors import UnavailableError
from caraway.state.losses import Loss

LOG = structlog.get_logger(__name__)

KAFKA_TIMEOUT_S = 3.0
# Seconds between two reads from Postgres of the topics that have lost records, and the most of these that a warning
# lists.
LOSSES_S = 5.0
TOLD_LOSSES = 5


class Health:
    """The watches of the parts that a server depends on, and its index."""

    def __init__(
        self,
        watches: Mapping[str, Watch],
        index_problem: Callable[[], str | None],
        warnings: Sequence[Callable[[], str]] = (),
    ) -> None:
        """Report on the parts with these names.

        Args:
            watches: The watches by the names of the parts.
            index_problem: Returns why the index can't be read, if it can't.
            warnings: Each returns what the operator should change although all parts work; empty if there is nothing.
        """
        self._warnings = warnings
        self._watches = watches
        self._index_problem = index_problem

    def warning(self) -> str:
        """Return what the operator should change although all parts work; empty if there is nothing."""
        return "; ".join(filter(None, (warning() for warning in self._warnings)))

    def problems(self) -> dict[str, str]:
        """Return the reason for each part that doesn't work, by part; empty if all work."""
        found = {name: problem for name, watch in self._watches.items() if (problem := watch.problem()) is not None}
        if found.keys() & {"postgres", "kafka"}:
            # The watch "ledger" does the actions of the ledger, which need Postgres and Kafka. If one of the two fails,
            # the watch fails as well. Only the cause is reported then.
            found.pop("ledger", None)
        if (problem := self._index_problem()) is not None:
            found["index"] = problem
        return found


class KnownLosses:
    """The topics that have lost records which a reader in any process had read, during the last day. Thread safe."""

    def __init__(self, read: Callable[[], Sequence[Loss]], *, clock: Callable[[], float] = time.monotonic) -> None:
        """Prepare. `read` returns the losses, and `clock` the time in seconds."""
        self._read, self._clock = read, clock
        self._read_at = float("-inf")
        self._found: Sequence[Loss] = ()

    def __call__(self) -> Sequence[Loss]:
        """Return the losses, those of the last read if Postgres doesn't answer."""
        now = self._clock()
        if now >= self._read_at + LOSSES_S:
            self._read_at = now
            try:
                self._found = self._read()
            except UnavailableError as error:
                LOG.debug("losses of records can't be read", reason=str(error))
        return self._found

    def warning(self) -> str:
        """Return what was lost, and the remedy; "" if nothing was."""
        found = self()
        more = len(found) - TOLD_LOSSES
        texts = [loss.text for loss in found[:TOLD_LOSSES]]
        return "; ".join([*texts, f"and {more} more like these, which the log has"] if more > 0 else texts)


class KafkaCheck:
    """The check that the broker answers. At its first answer the topics of the server itself are created."""

    def __init__(self, bootstrap_servers: str) -> None:
        """Check the broker "host:port"."""
        self._bootstrap_servers = bootstrap_servers
        self._ready = False
        self._admin = BrokerAdmin(bootstrap_servers)

    def warning(self) -> str:
        """Return that topics are on one broker each, though nobody chose that; "" if that isn't known."""
        return self._admin.warning

    def brokers(self) -> frozenset[tuple[str, int]]:
        """Return the hosts and ports of all brokers that have been seen."""
        return self._admin.brokers

    def __call__(self) -> None:
        """Check once. Raises `UnavailableError` if no broker answers."""
        servers = self._bootstrap_servers
        self._admin.cluster(KAFKA_TIMEOUT_S)
        if not self._ready:
            ensure_topics(servers, [DEAD_LETTERS], partitions=1, config=DEAD_LETTERS_CONFIG)
            ensure_topics(servers, [SERVED], partitions=1, config=SERVED_TOPIC_CONFIG)
            self._ready = True
            self._admin.cluster(KAFKA_TIMEOUT_S)
            if self._admin.warning:
                LOG.warning(self._admin.warning)
