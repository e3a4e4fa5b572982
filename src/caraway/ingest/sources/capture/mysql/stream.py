"""The stream of a binary log: events of a server that takes this program for a replica.

mysql-replication speaks the protocol and reads events. Its connection is replaced here by one that can wait for a
limited time, that ends instead of going on in the middle of a transaction, and that counts positions also beyond 4 GiB.
"""

import secrets
import select
import ssl
from collections.abc import Mapping
from typing import Any

import pymysql
from pymysql.connections import (  # type: ignore[attr-defined]  # the stubs lack it
    Connection,
    MysqlPacket,
)
from pymysql.constants import COMMAND
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import (
    BinLogEvent,
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
from pymysqlreplication.row_event import (
    DeleteRowsEvent,
    PartialUpdateRowsEvent,
    TableMapEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)

from caraway.errors import UnavailableError
from caraway.ingest.sources.capture.log import Coordinate
from caraway.ingest.sources.capture.mysql import events
from caraway.ingest.sources.capture.mysql.connection import spelled
from caraway.ingest.sources.capture.mysql.statements import TableName
from caraway.ingest.sources.tables.mysql_connection import DatabaseConnection

# A server that has nothing more says so after this time, and then as often.
HEARTBEAT_S = 1.0
# A server that says nothing for so long is gone.
SILENCE_S = 60
# The server waits so long for a reader that can't take more, such as while Kafka is down.
STALLED_S = 3_600
# The first position in a file, behind the four bytes by which it is recognised.
START = 4
# Positions of the protocol have 32 bits. A transaction may be longer, but none begins behind them.
MOST = 1 << 32
# The error of a server that doesn't have the position, and of one that can't read its log.
FATAL = 1236
_READ = 1 << 16
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
    XidEvent,
    XAPrepareEvent,
    TableMapEvent,
    WriteRowsEvent,
    UpdateRowsEvent,
    DeleteRowsEvent,
    PartialUpdateRowsEvent,
    # The types that the library doesn't know.
    NotImplementedEvent,
)


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
        self._connection: _Connection | None = None
        self._number = at[0]
        names = None if table.folds_case else [table.table]
        self._reader = BinLogStreamReader(
            {**keywords, "read_timeout": SILENCE_S},
            # Two readers with one number would end each other's streams.
            server_id=(1 << 30) + secrets.randbelow(1 << 31),
            blocking=True,
            resume_stream=True,
            log_file=file,
            log_pos=at[1],
            only_events=_EVENTS,
            filter_non_implemented_events=False,
            only_tables=names,
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

    def read(self, timeout_s: float) -> "BinLogEvent | None":
        """Return the next event; None if none came.

        Raises:
            UnavailableError: The log can't be read from here.
        """
        connection = self._connection
        if connection is not None and not connection.is_ready(timeout_s):
            return None
        try:
            event = self._reader.fetchone()
        except (pymysql.Error, OSError, _CutError) as error:
            raise UnavailableError(f"{self._where}: the binary log {self.file}: {spelled(error)}") from None
        except (ValueError, LookupError, NotImplementedError) as error:
            raise UnavailableError(
                f"{self._where}: an event of the binary log {self.file} behind {self.end[1]} can't be read: {error}"
            ) from None
        if event is None:
            raise UnavailableError(f"{self._where}: the server ended the stream of the binary log {self.file}")
        connection = self._connection
        assert connection is not None  # noqa: S101 (it has read an event)
        if isinstance(event, RotateEvent):
            self.file = event.next_binlog
            self._number = file_number(self.file)
            connection.end = event.position
        elif isinstance(event, HeartbeatLogEvent) and file_number(event.ident) == self._number:
            # Behind the last event of a file, the server may still say that it waits there.
            connection.end = max(connection.end, connection.end - connection.end % MOST + event.packet.log_pos)
        self.start, self.end = (self._number, connection.start), (self._number, connection.end)
        return event

    def close(self) -> None:
        """End the connections."""
        # The library's own way waits for the server.
        for name in ("_stream_connection", "_ctl_connection"):
            if (connection := getattr(self._reader, name, None)) is not None:
                connection._force_close()  # noqa: SLF001 (the driver has no other name for it)

    def _connect(self, **keywords: Any) -> "Connection[Any]":
        if "cursorclass" in keywords:
            # The library reads settings of the server by it.
            return DatabaseConnection(**keywords)
        if self._connection is not None:
            # It would go on in the middle of a transaction, whose tables it has forgotten.
            raise _CutError("the connection was lost")
        self._connection = _Connection(self.end[1], **keywords)
        with self._connection.cursor() as cursor:
            cursor.execute(f"SET SESSION net_write_timeout = {STALLED_S}")
            cursor.execute("SHOW GLOBAL VARIABLES LIKE 'binlog_checksum'")
            row = cursor.fetchone()
            self._connection.has_checksum = row is not None and row[1] != "NONE"
        return self._connection


def file_number(file: str) -> int:
    """Return the number of a log, which is at the end of its name."""
    return int(file.rpartition(".")[2])


class _CutError(Exception):
    """The connection of a stream is lost."""


class _Connection(DatabaseConnection):
    """A connection of which one knows if something can be read, and that counts the positions of events."""

    def __init__(self, at: int, **keywords: Any) -> None:
        self.start = self.end = at
        # The first is true if the library expects checksums, the second one if the events of this file have them.
        self.has_checksum = self._has_checksum = False
        self._incoming: _Incoming | None = None
        super().__init__(**keywords)

    def is_ready(self, timeout_s: float) -> bool:
        """Return whether something has come, or the end; wait for it if not."""
        return self._incoming is None or self._incoming.is_ready(timeout_s)

    def _write_bytes(self, data: bytes) -> None:
        super()._write_bytes(data)  # type: ignore[misc]  # the stubs lack it
        if self._incoming is None and data[4:5] == bytes([COMMAND.COM_BINLOG_DUMP]):
            # From here on only events come. All that was read before is used up.
            self._incoming = self._rfile = _Incoming(self._sock)  # type: ignore[attr-defined]  # as above

    def _read_packet(self, packet_type: type[MysqlPacket] = MysqlPacket) -> MysqlPacket:
        if self._incoming is None:
            return super()._read_packet(packet_type)  # type: ignore[no-untyped-call]  # as above
        try:
            packet = super()._read_packet(packet_type)  # type: ignore[no-untyped-call]  # as above
        except pymysql.OperationalError as error:
            # The library would connect again for some of these.
            raise _CutError(*error.args) from None
        data = packet._data  # noqa: SLF001 (as the library does)
        if data[:1] == b"\0":
            self._count(data)
            packet = packet_type(b"\0" + self._plain(data[1:]), self.encoding)
        return packet

    def _plain(self, event: bytes) -> bytes:
        kind, flags = event[4], int.from_bytes(event[17:19], "little")
        if kind == events.FORMAT:
            self._has_checksum = events.has_checksums(event)
            return event
        if flags & events.ARTIFICIAL:
            return event
        return events.plain(event, has_checksum=self._has_checksum, wants_checksum=self.has_checksum)

    def _count(self, data: bytes) -> None:
        _, kind, _, size, position, flags = events.HEADER.unpack_from(data, 1)
        self.start = self.end
        if not position or flags & events.ARTIFICIAL or kind in {events.ROTATE, events.HEARTBEAT}:
            return
        end = self.end - self.end % MOST + position
        if end < self.end:
            end += MOST
            if end - size > self.end + MOST // 2:
                raise _CutError(f"the position {position} follows {self.end}")
        self.start, self.end = end - size, end


class _Incoming:
    """The bytes that a socket receives, in place of the driver's file, which doesn't tell what it holds."""

    def __init__(self, connection: Any) -> None:
        self._socket = connection
        self._data = b""
        self._at = 0

    def is_ready(self, timeout_s: float) -> bool:
        """Return whether something has come; wait for it if not."""
        if self._at < len(self._data):
            return True
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        # `select.select` would refuse a socket whose number is above 1,023.
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        return bool(poller.poll(1_000 * timeout_s))

    def read(self, size: int) -> bytes:
        """Return so many bytes, or fewer at the end."""
        end = self._at + size
        if end <= len(self._data):
            found = self._data[self._at : end]
            self._at = end
            return found
        parts = [self._data[self._at :]]
        missing = size - len(parts[0])
        self._data, self._at = b"", 0
        while missing > 0:
            more = self._socket.recv(max(_READ, min(missing, 1 << 20)))
            if not more:
                break
            parts.append(more[:missing])
            if len(more) > missing:
                self._data, self._at = more, missing
            missing -= len(parts[-1])
        return b"".join(parts)

    def close(self) -> None:
        """Do nothing: the driver closes the socket itself."""
