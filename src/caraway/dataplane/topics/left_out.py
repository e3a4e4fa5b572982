"""Dead letters of records on a topic that a follower of the topic leaves out, because it can't read or apply them.

Such a letter has the place of the record, not its row: what can't be read can't be compared with erased keys.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import orjson
import structlog

from caraway.dataplane.topics.admin import ensure_topics
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS, DEAD_LETTERS_CONFIG, KEY_BYTES
from caraway.dataplane.topics.identity import spelled
from caraway.dataplane.topics.metrics import count_letters
from caraway.dataplane.topics.producer import TopicItem, TopicWriter

LOG = structlog.get_logger(__name__)

# The most warnings that are logged about the records left out of one batch. Followers write a dead letter for every
# left-out record, whether or not a warning is logged; offline reads write no dead letters.
LOGGED = 5
# The most characters of a reason.
MAX_REASON = 1000


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A record that is left out: its position as an identity (`caraway.dataplane.topics.identity`), and why."""

    position: bytes
    reason: str


def log_left_out(dataset: str, topic: str, records: Sequence[LeftOut]) -> None:
    """Log some of the records that are left out of a batch. Offline reads do no more: followers write dead letters."""
    for record in records[:LOGGED]:
        position, reason = spelled(record.position), record.reason
        LOG.warning("a record is left out", dataset=dataset, topic=topic, position=position, reason=reason)


# A function that stores the records that a follower leaves out, given the names of the dataset and of its topic. The
# follower reads on only after the function has returned. The function may raise `UnavailableError`.
LeaveOut = Callable[[str, str, Sequence[LeftOut]], object]


class LeftOutLetters:
    """Writes the dead letters of records that followers of topics leave out. Thread safe.

    It connects with the first letter, since hardly any follower ever writes one.
    """

    def __init__(self, bootstrap_servers: str, follower: str) -> None:
        """Prepare to write to the broker "host:port" for followers of this kind, such as "index"."""
        self._bootstrap_servers = bootstrap_servers
        self._follower = follower
        self._lock = threading.Lock()
        self._writer: TopicWriter | None = None

    def write(self, dataset: str, topic: str, records: Sequence[LeftOut]) -> None:
        """Write a dead letter for each of these records of a dataset's topic, and return when they are durable.

        A record that is left out again, after a restart or by another server, has the same letter: the topic keeps one.

        Raises `UnavailableError` if the broker doesn't take them.
        """
        if not records:
            return
        log_left_out(dataset, topic, records)
        items: list[TopicItem] = []
        for record in records:
            letter = {
                "dataset": dataset,
                "topic": topic,
                "follower": self._follower,
                "position": spelled(record.position),
                "reason": [{"field": "", "message": record.reason[:MAX_REASON]}],
                "row": None,
                "time": time.time_ns() // 1000,
            }
            name = f"{self._follower} {topic}/{spelled(record.position)}"
            items.append((blake2b(name.encode(), digest_size=KEY_BYTES).digest(), orjson.dumps(letter), None))
        self._connected().write(DEAD_LETTERS, items).result()
        count_letters(dataset, self._follower, len(items))

    def close(self) -> None:
        """Disconnect from the broker."""
        with self._lock:
            if self._writer is not None:
                self._writer.close()

    def _connected(self) -> TopicWriter:
        with self._lock:
            if self._writer is None:
                ensure_topics(self._bootstrap_servers, [DEAD_LETTERS], partitions=1, config=DEAD_LETTERS_CONFIG)
                self._writer = TopicWriter(self._bootstrap_servers)
            return self._writer
