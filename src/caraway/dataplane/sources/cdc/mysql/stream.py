"""The stream of a binary log: events of a server that takes this program for a replica.

mysql-replication speaks the protocol and reads events. This module waits for them for a limited time, and ends the
stream when the connection is lost: the library would go on in the middle of a transaction.

Three private names are used, which bounds the versions of both libraries in `pyproject.toml`: the socket and the file
of PyMySQL's connection, which tell whether something has come, and the library's reader of a statement's variables.
"""

import secrets
import select
import ssl
import struct
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pymysql
from pymysql.connections import Connection
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import (
    BinLogEvent,
    ExecuteLoadQueryEvent,
    FormatDescriptionEvent,
    GtidEvent,
    HeartbeatLogEvent,
    MariadbBinLogCheckPointEvent,
    MariadbGtidEvent,
    MariadbGtidListEvent,
    NotImplementedEvent,
    PreviousGtidsEvent,
    QueryEvent,
    RotateEvent,
    XAPrepareEvent,
    XidEvent,
)
from pymysqlreplication.exceptions import MalformedBinLogEvent
from pymysqlreplication.row_event import (
    DeleteRowsEvent,
    PartialUpdateRowsEvent,
    TableMapEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)

from caraway.dataplane.sources.cdc.log import Coordinate
from caraway.dataplane.sources.cdc.mysql.connection import spelled
from caraway.dataplane.sources.cdc.mysql.statements import TableName
from caraway.dataplane.sources.tables.mysql_connection import DatabaseConnection
from caraway.errors import UnavailableError

# If the server has no event for the reader, it sends a heartbeat each time that this many seconds have passed.
HEARTBEAT_S = 1.0
# A server that sends nothing for this many seconds counts as gone.
SILENCE_S = 60
# The server waits this many seconds for a reader that doesn't receive, such as while Kafka is down.
STALLED_S = 3_600
# The first position in a file: the file begins with four bytes that identify its format.
START = 4
# In the protocol, a position in a file has 32 bits. A transaction may reach beyond 4 GiB of its file. Its end then gets
# this position. Such a transaction is the last one of its file; the next transaction is in the next file.
MOST = 1 << 32
# The bytes of an event's header, and the flag of events that aren't in the log, since the server makes them for the
# reader.
HEADER, _ARTIFICIAL = 19, 0x20
_EVENTS = (
    FormatDescriptionEvent,
    RotateEvent,
    HeartbeatLogEvent,
    GtidEvent,
    MariadbGtidEvent,
    MariadbGtidListEvent,
    MariadbBinLogCheckPointEvent,
    PreviousGtidsEvent,
    QueryEvent,
    ExecuteLoadQueryEvent,
    XidEvent,
    XAPrepareEvent,
    TableMapEvent,
    WriteRowsEvent,
    UpdateRowsEvent,
    DeleteRowsEvent,
    PartialUpdateRowsEvent,
    # Events of types that the library doesn't know. Without this entry, the library would drop them, and changes could
    # be missed. `MySQLLog._take_unknown` refuses them unless their type is known to say nothing about rows.
    NotImplementedEvent,
)
# The errors of the library for an event, or a value in it, that it can't decode.
UNREADABLE = (
    ValueError,
    LookupError,
    ArithmeticError,
    NotImplementedError,
    TypeError,
    AttributeError,
    AssertionError,
    struct.error,
    MalformedBinLogEvent,
)


def _skip_variables(event: Any, _: int) -> None:
    """Leave out the variables of a statement's session behind the first one's key.

    Each version of the servers has further ones, for which the library would refuse the statement.
    """
    event.packet.advance(event.status_vars_length - 1)


QueryEvent._read_status_vars_value_for_key = _skip_variables  # noqa: SLF001 (the library has no setting for it)


class Stream:
    """Reads a log from a position on."""

    def __init__(self, keywords: Mapping[str, Any], where: str, file: str, at: Coordinate, table: TableName) -> None:
        """Prepare to read; the first `read` connects.

        Args:
            keywords: The arguments of PyMySQL.
            where: The server, for messages.
            file: The name of the log.
            at: Its number, and the position in it.
            table: The table whose rows are read.
        """
        self._where = where
        self._connections: list[Connection[Any]] = []
        self._events: Connection[Any] | None = None
        self._reader = BinLogStreamReader(
            {**keywords, "read_timeout": SILENCE_S, "init_command": f"SET SESSION net_write_timeout = {STALLED_S}"},
            # Each stream needs a number of its own: the server ends the stream of a replica when another connects with
            # its number.
            server_id=(1 << 30) + secrets.randbelow(1 << 31),
            blocking=True,
            resume_stream=True,
            log_file=file,
            log_pos=at[1],
            only_events=_EVENTS,
            filter_non_implemented_events=False,
            only_tables=None if table.folds_case else [table.table],
            only_schemas=None if table.folds_case else [table.schema],
            slave_heartbeat=HEARTBEAT_S,
            enable_logging=False,
            pymysql_wrapper=self._connect,
        )
        self.file = file
        self.start: Coordinate = at
        """The position at which the last event begins."""
        self.end: Coordinate = at
        """The position behind it."""

    def read(self, timeout_s: float) -> BinLogEvent | None:
        """Return the next event; None if none came.

        Raises:
            UnavailableError: The log can't be read from here.
        """
        try:
            if self._events is not None and not _is_ready(self._events, timeout_s):
                return None
            event = self._reader.fetchone()
        except (pymysql.Error, OSError, _CutError) as error:
            raise UnavailableError(f"{self._where}: the binary log {self.file}: {spelled(error)}") from None
        except UNREADABLE as error:
            raise UnavailableError(
                f"{self._where}: an event of the binary log {self.file} behind {self.end[1]} can't be read: {error}"
            ) from None
        if event is None:
            raise UnavailableError(f"{self._where}: the server ended the stream of the binary log {self.file}")
        self._move(event)
        return event

    def close(self) -> None:
        """End the connections."""
        for connection in self._connections:
            with suppress(pymysql.Error, OSError):
                connection.close()
        self._connections.clear()

    def _move(self, event: BinLogEvent) -> None:
        """Move the position behind an event."""
        packet, (number, position) = event.packet, self.end
        self.start = self.end
        if isinstance(event, RotateEvent):
            self.file = event.next_binlog
            self.start = self.end = (file_number(self.file), event.position)
            # In another file, a number may stand for another table.
            self._reader.table_map = {}
        elif isinstance(event, HeartbeatLogEvent):
            # A heartbeat may still name the file before, if the server waited at its end. Then it says nothing about
            # this file.
            if file_number(event.ident) == number:
                self.start = self.end = (number, max(position, packet.log_pos))
        elif packet.log_pos and not packet.flags & _ARTIFICIAL:
            end = packet.log_pos if packet.log_pos >= position else MOST
            self.start, self.end = (number, end - packet.event_size), (number, end)
        if isinstance(event, FormatDescriptionEvent):
            self._check_format(event)

    def _check_format(self, event: FormatDescriptionEvent) -> None:
        """Raise `UnavailableError` if the file has checksums and the library expects none, or the reverse."""
        # The library expects checksums if the server's setting asks for them now. The file may have been written before
        # the setting was changed, and its events would be read wrongly.
        if bool(event.checksum_algorithm) != (event.packet.event_size > event.event_size + HEADER):
            was = "CRC32" if event.checksum_algorithm else "NONE"
            raise UnavailableError(
                f"{self._where}: the binary log {self.file} was written with binlog_checksum = {was}, which has "
                f"changed since; run `SET GLOBAL binlog_checksum = {was}` until the source has read it"
            )

    def _connect(self, **keywords: Any) -> "Connection[Any]":
        is_stream = "cursorclass" not in keywords
        if is_stream and self._events is not None:
            # If the connection is lost, the library connects again and would go on in the middle of a transaction.
            raise _CutError("the connection was lost")
        connection = DatabaseConnection(**keywords)
        self._connections.append(connection)
        if is_stream:
            self._events = connection
        return connection


def file_number(file: str) -> int:
    """Return the number of a log, which is at the end of its name."""
    return int(file.rpartition(".")[2])


class _CutError(Exception):
    """The connection of a stream is lost."""


def _is_ready(connection: Any, timeout_s: float) -> bool:
    """Return whether something has come, or the end; wait for it if not."""
    received, file = connection._sock, connection._rfile  # noqa: SLF001 (see the module)
    if received is None:
        return True
    timeout = received.gettimeout()
    received.settimeout(0.0)
    try:
        # `peek` returns the bytes in the file's buffer, or else those that the socket has at this moment; it doesn't
        # wait.
        with suppress(ssl.SSLWantReadError):
            if file.peek():
                return True
    finally:
        received.settimeout(timeout)
    # `select.select` would refuse a socket whose number is above 1,023.
    poller = select.poll()
    poller.register(received, select.POLLIN)
    return bool(poller.poll(1_000 * timeout_s))
