"""Writing the rows that an index emits to their topics."""

import threading
from collections.abc import Callable, Sequence

from caraway.dataplane.topics.producer import TopicWriter


class NotOursError(Exception):
    """An error of a server that isn't sure to have the right to write rows, because another server may have it now."""


class EmissionWriter:
    """A writer to topics that connects with its first record, since most indexes emit none."""

    def __init__(self, bootstrap_servers: str, may_send: Callable[[], bool] | None = None) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._may_send = may_send
        self._lock = threading.Lock()
        self._writer: TopicWriter | None = None

    def send(self, topic: str, records: Sequence[tuple[bytes, bytes]]) -> None:
        """Write records (key, value) and return when they are durable.

        Raises `NotOursError` if this server may not write them, and `UnavailableError` if the broker doesn't take them;
        some of them may have been written then.
        """
        if self._may_send is not None and not self._may_send():
            raise NotOursError
        with self._lock:
            if self._writer is None:
                self._writer = TopicWriter(self._bootstrap_servers)
            writer = self._writer
        writer.write(topic, [(key, value, None) for key, value in records]).result()

    def close(self) -> None:
        """Disconnect from the broker."""
        with self._lock:
            if self._writer is not None:
                self._writer.close()
