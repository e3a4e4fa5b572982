"""Settings that all clients of the broker share, and where librdkafka's own messages go."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from caraway.dataplane.topics.credentials import client_options, settings_of

LOGGER = logging.getLogger("caraway.kafka")

# While a broker is away, librdkafka logs every attempt of every connection. Messages with the same first word are
# therefore logged once in this many seconds.
REPEAT_AFTER_S = 30.0


class _Sparse(logging.Filter):
    """A filter that passes one message with the same first word in `REPEAT_AFTER_S`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is to be logged."""
        # The message looks like "FAIL [rdkafka#producer-1] [thrd:...]: text": the facility, client and thread, then the
        # text.
        head = record.getMessage().split(" ", 1)[0]
        now = self._clock()
        if now - self._seen.get(head, -REPEAT_AFTER_S) < REPEAT_AFTER_S:
            return False
        self._seen[head] = now
        return True


_sparse = _Sparse()


def kafka_logger() -> logging.Logger:
    """Return the logger of librdkafka's messages: without repetitions, and silent in a process without logging."""
    if _sparse not in LOGGER.filters:
        LOGGER.addFilter(_sparse)
        LOGGER.addHandler(logging.NullHandler())
    return LOGGER


# Settings of every consumer. After a consumer's queue was full, librdkafka fetches nothing for these milliseconds. With
# the default of 1,000, a thread that empties the queue in 200 ms would have nothing to do most of the time.
CONSUMER: Mapping[str, Any] = {"fetch.queue.backoff.ms": 10}


def consumer_config(bootstrap_servers: str) -> dict[str, Any]:
    """Return the settings of every consumer of the platform's topics: those of every client, and `CONSUMER`."""
    return {**client_config(bootstrap_servers), **CONSUMER}


def client_config(bootstrap_servers: str) -> dict[str, Any]:
    """Return the settings of every client: the broker's address, how to connect, and how soon to reconnect."""
    return {
        **client_options(settings_of(bootstrap_servers)),
        "bootstrap.servers": bootstrap_servers,
        # A lost connection is tried again after 50 ms, then with growing pauses of up to 1 s. So a restarted broker is
        # found again within a second; by default the pauses grow to 10 s.
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1000,
        "socket.nagle.disable": True,
        "log.connection.close": False,
        # The milliseconds until the metadata of a topic is requested again if it has no leader yet, as after its
        # creation or a start of the broker. The pauses then grow until there is a leader.
        "topic.metadata.refresh.fast.interval.ms": 100,
    }
