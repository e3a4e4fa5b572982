"""The stream of a replication slot: messages of its output plugin, and the answers that keep it alive.

psycopg has no interface for the replication protocol, but libpq has all that it needs: `START_REPLICATION` is a command
that begins a COPY in both directions, whose messages are read and written like those of any COPY.
"""

import time
from collections.abc import Container
from struct import Struct

import psycopg
from psycopg import pq

from caraway.dataplane.sources.cdc.postgres.connection import Connection, wait_for
from caraway.dataplane.sources.cdc.postgres.pgoutput import EPOCH_US, HEAD
from caraway.errors import UnavailableError

_STATUS = Struct(">cQQQqB")
_KEEPALIVE = Struct(">QQB")
# The offset of the plugin's message in a message of the COPY: behind `w`, two LSNs and a time.
DATA = 25
# The first byte of a message of the COPY that has a message of the plugin, "w".
PLUGIN = 0x77
# The seconds between two answers to the server. It ends a connection that hasn't answered for wal_sender_timeout, which
# is 60 s by default.
ANSWER_S = 10.0


class Stream:
    """Reads a slot."""

    def __init__(self, connection: Connection, where: str, slot: str, publication: str, lsn: int) -> None:
        """Start to read behind an LSN.

        Raises:
            UnavailableError: The slot can't be read.
        """
        self._whole, self._connection = connection, connection.pgconn
        self._where = where
        self._confirmed = lsn
        self._answered_at = time.monotonic()
        # A message that was read and not handed over yet.
        self._ahead: bytes | None = None
        self.sent = lsn
        """The LSN up to which the server has decoded its log, and sent what belongs to the publication."""
        options = f"proto_version '1', publication_names '{publication}', messages 'true'"
        command = f'START_REPLICATION SLOT "{slot}" LOGICAL {spelled_lsn(lsn)} ({options})'
        result = self._connection.exec_(command.encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise UnavailableError(f"{where}, slot {slot}: {result.get_error_message().strip()}")
        self._connection.nonblocking = 1

    def read(self, timeout_s: float) -> bytes | None:
        """Return the next message of the plugin, without its header; None if none came."""
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            return ahead
        size, data = self._connection.get_copy_data(1)
        if size > 0 and data[0] == PLUGIN:
            # Most messages have been received already, so no deadline is needed, and the clock isn't read.
            return bytes(data[DATA:])
        return self._awaited(size, data, time.monotonic() + timeout_s)

    def alike(self, first: bytes, heads: Container[bytes], *, rows: int, size: int) -> list[bytes]:
        """Return a message that was read, and those behind it that are here already and begin in one of these ways.

        Args:
            first: The message that was read.
            heads: The beginnings, of `HEAD` bytes.
            rows: The most messages.
            size: The bytes behind which no further message is added.
        """
        found, total, get = [first], len(first), self._connection.get_copy_data
        is_last = False
        while len(found) < rows and total < size:
            length, data = get(1)
            if length <= 0:
                if length < 0 or is_last:
                    # The next `read` waits for more, or raises the error.
                    break
                # The buffer of libpq is empty, since it holds only some kB; the socket may have more.
                self._consume()
                is_last = True
                continue
            is_last = False
            message = bytes(data)
            if message[0] != PLUGIN:
                self._keepalive(message)
                continue
            message = message[DATA:]
            if message[:HEAD] not in heads:
                self._ahead = message
                break
            found.append(message)
            total += len(message)
        return found

    def _awaited(self, size: int, data: memoryview, deadline: float) -> bytes | None:
        """Return the next message of the plugin from what came last on, or None if none came before the deadline."""
        while True:
            if size > 0:
                if data[0] == PLUGIN:
                    return bytes(data[DATA:])
                self._keepalive(bytes(data))
                size, data = self._connection.get_copy_data(1)
                continue
            if size < 0:
                raise UnavailableError(f"{self._where}: {self._why()}")
            if time.monotonic() > self._answered_at + ANSWER_S:
                self._answer()
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            wait_for(self._connection, min(left, ANSWER_S))
            self._consume()
            size, data = self._connection.get_copy_data(1)

    def confirm(self, lsn: int) -> None:
        """Allow the server to forget what is before an LSN."""
        self._confirmed = max(self._confirmed, lsn)
        self._answer()

    def ask(self) -> None:
        """Ask the server how far it has decoded its log; `sent` has the answer later."""
        self._answer(asks=True)

    def close(self) -> None:
        """End the connection."""
        self._whole.close()

    def _keepalive(self, data: bytes) -> None:
        end, _, asks = _KEEPALIVE.unpack_from(data, 1)
        self.sent = max(self.sent, end)
        if asks:
            self._answer()

    def _answer(self, *, asks: bool = False) -> None:
        self._answered_at = time.monotonic()
        now = time.time_ns() // 1_000 - EPOCH_US
        confirmed = self._confirmed
        try:
            self._connection.put_copy_data(_STATUS.pack(b"r", confirmed, confirmed, confirmed, now, asks))
            # Bytes that the socket can't take now stay in libpq's buffer, so that an answer never blocks the reader.
            # The next read or answer sends them.
            self._connection.flush()
        except psycopg.Error as error:
            raise UnavailableError(f"{self._where}: {error}") from None

    def _consume(self) -> None:
        try:
            self._connection.consume_input()
        except psycopg.Error as error:
            raise UnavailableError(f"{self._where}: {error}") from None

    def _why(self) -> str:
        message = self._connection.get_error_message().strip()
        result = self._connection.get_result()
        return (result.get_error_message().strip() if result is not None else "") or message or "the stream ended"


def spelled_lsn(lsn: int) -> str:
    """Return an LSN as Postgres writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
