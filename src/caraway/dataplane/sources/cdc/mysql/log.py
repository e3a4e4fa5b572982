"""The log of a MySQL or MariaDB table: the binary log, read as a replica does, and chunks of the table beside it."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pymysqlreplication.event import (
    BinLogEvent,
    ExecuteLoadQueryEvent,
    FormatDescriptionEvent,
    GtidEvent,
    HeartbeatLogEvent,
    MariadbGtidEvent,
    NotImplementedEvent,
    QueryEvent,
    RotateEvent,
    XAPrepareEvent,
    XidEvent,
)
from pymysqlreplication.row_event import PartialUpdateRowsEvent, RowsEvent, TableMapEvent

from caraway.dataplane.addresses.names import name_parts
from caraway.dataplane.sources.cdc.log import (
    Begin,
    Change,
    Chunk,
    Commit,
    Coordinate,
    Event,
    LostLogError,
    Quiet,
    Row,
    Started,
    Watermark,
)
from caraway.dataplane.sources.cdc.mysql import catalog, chunks
from caraway.dataplane.sources.cdc.mysql.connection import Queries, Server
from caraway.dataplane.sources.cdc.mysql.statements import Effect, effect
from caraway.dataplane.sources.cdc.mysql.stream import HEADER, MOST, START, UNREADABLE, Stream, file_number
from caraway.dataplane.sources.cdc.mysql.transactions import Emptied, Item, Known, Rows, Transaction, is_undone
from caraway.dataplane.sources.cdc.mysql.values import Reading, reading
from caraway.dataplane.sources.reader import SourceContext
from caraway.errors import UnavailableError
from caraway.graph.systems import MySQLSystem

# The types of events that mean a part of the log is missing, or has a form that can't be read.
_UNREADABLE = {
    26: "the server lost changes (an incident event)",
    40: "the transaction is compressed; run `SET GLOBAL binlog_transaction_compression = OFF`",
    **dict.fromkeys(range(165, 172), "the event is compressed; run `SET GLOBAL log_bin_compress = OFF`"),
}
# The types of MariaDB's events with compressed rows. Such an event begins with the number of its table (`_table_id`).
_COMPRESSED_ROWS = range(166, 172)
# The types of the events that begin MySQL's transactions without a GTID, and with a tagged one.
_ANONYMOUS, _TAGGED = 34, 42
# Events of group replication, which say nothing about rows.
_OTHERS = frozenset({36, 37})
_IGNORABLE = 0x80
_STANDALONE = 1
SECOND_US = 1_000_000
# The remedy if changes are missing: a new version of the dataset is the only way to load the table again.
RELOAD = "raise the version of the dataset, which loads the table anew"
# The server lists an XA transaction as prepared only a moment after it has logged it. So a list is complete only if it
# is made `LISTED_S` after reading of the log began: then it has all transactions that were prepared before. If some of
# them are still prepared after `OLDER_S`, the load fails with their names.
LISTED_S, OLDER_S = 1.0, 5.0
# The number of log files whose birth (time and server of creation) is remembered for `_check_birth`: the file of the
# position, and the later ones that the reader has begun.
_REMEMBERED = 8


class MySQLLog:
    """Reads the changes of a table (`ChangeLog`).

    A coordinate is the number of a file of the log, and a position in it: that of its begin for a transaction, that
    behind its commit for an end. The state has the name of the files, when each was begun (which tells logs that were
    reset from those that were read), the columns of the key, and the GTIDs of MySQL's transactions that weren't seen in
    the table yet.
    """

    def __init__(self, system: MySQLSystem, table: str, context: SourceContext, texts: frozenset[str]) -> None:
        """Prepare; `texts` are the columns whose JSON stays text."""
        self._server = Server(system, context.resolve, context.endpoints)
        self._where = self._server.where
        parts = name_parts(table, self._where)
        self._names = (parts[0] if len(parts) == 2 else system.database, parts[-1])
        self._texts = texts
        self._queries: Queries | None = None
        self._stream: Stream | None = None
        self._prefix = ""
        self._births: dict[int, list[int]] = {}
        self._unseen: set[str] = set()
        # `_opened_at` is the time at which reading of the log began. `_older` has the XA transactions that were
        # prepared before and that the server still lists, or None until the list is complete: the first chunk waits for
        # them (`_may_begin`).
        self._opened_at = 0.0
        self._older: frozenset[str] | None = None
        self._key: list[str] = []
        self._loading = False
        self._is_stale = False
        self._readings: dict[int, Reading] = {}
        self._transaction: Transaction | None = None
        self._known: Known | None = None
        self._delivery: Iterator[Event] = iter(())
        self._end: Coordinate = (0, 0)
        self._returned: Coordinate = (0, 0)
        self._watermark: Coordinate | None = None
        self._is_starting = self._is_idle = False
        self._error: UnavailableError | None = None

    def first_state(self) -> Mapping[str, Any]:
        """Return nothing: the server keeps its log for all, and for as long as its settings say."""
        return {}

    def open(self, state: Mapping[str, Any], at: Coordinate | None, *, loading: bool) -> None:
        """Connect, and read the log from a place on; see `ChangeLog.open`."""
        self._loading = loading
        queries = self._queries = self._server.connect()
        catalog.check_server(queries, self._names[0])
        self._read_catalog()
        self._births = {int(number): birth for number, birth in state.get("births", {}).items()}
        self._unseen = set(state.get("unseen", ()))
        self._is_starting = at is None
        if at is None:
            file, end, _, _ = catalog.log_status(queries)
            at = (file_number(file), end)
            self._prefix = file.rpartition(".")[0]
            self._key = list(self._table.key_names)
        else:
            self._prefix, self._key = state["log"], state["key"]
            if loading and self._key != list(self._table.key_names):
                # The table has another key now, and the chunks that were read are in the order of the old one, so the
                # load begins anew.
                raise LostLogError(self.first_state())
            self._check_log(queries, at)
        self._opened_at, self._older = time.monotonic(), None
        self._start(at)

    def next(self, timeout_s: float, *, rows: int, size: int) -> Event | None:
        """Return the next event; see `ChangeLog.next`."""
        del rows, size
        if self._error is not None:
            raise self._error
        try:
            return self._next(time.monotonic() + timeout_s)
        except UnavailableError as error:
            # The events before the error are handed over first: this call ends without one, and the next call raises
            # the error.
            self._error = error
            return None

    def state(self) -> Mapping[str, Any]:
        """Return what tells the log, and what is known beyond the position; see the class."""
        if self._loading and self._unseen:
            self._see(self._connected)
        found: dict[str, Any] = {"log": self._prefix, "key": self._key}
        found["births"] = {str(number): birth for number, birth in self._births.items()}
        if self._unseen:
            found["unseen"] = sorted(self._unseen)
        return found

    def chunk(self, after: Sequence[str | None] | None, *, rows: int, size: int) -> Chunk | None:
        """Return rows of the table behind a key; see `ChangeLog.chunk`."""
        if self._is_stale:
            self._read_catalog()
        queries = self._connected
        if self._key != list(self._table.key_names):
            raise UnavailableError(f"{self._where}: the key of table {self._names[1]} has changed, so it is read anew")
        if (after is None and not self._may_begin(queries)) or not self._see(queries):
            return None
        queries.all("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        try:
            place = self._place(queries)
            if queries.is_mariadb and place < self._returned:
                # A transaction was handed over that the snapshot doesn't show yet, so rows of the snapshot may be older
                # than its changes. The caller tries again.
                return None
            found = chunks.read_chunk(queries, self._table, after, rows=rows, size=size)
        finally:
            queries.all("COMMIT")
        if found is not None:
            self._watermark = place
        return found

    def loaded(self) -> None:
        """Note that no chunk follows."""
        self._loading = False
        self._unseen.clear()

    def complete(self, changes: Sequence[Change]) -> None:
        """Do nothing: the log has whole rows."""

    def confirm(self, at: Coordinate) -> None:
        """Do nothing: the server keeps its log for as long as its settings say."""

    def estimated_rows(self) -> int:
        """Return how many rows the table has by its statistics."""
        return self._table.rows

    def sample(self, rows: int) -> list[Row]:
        """Return some rows of the table, and check all that reading needs."""
        queries = self._queries = self._server.connect()
        catalog.check_server(queries, self._names[0])
        self._read_catalog()
        file, end, _, _ = catalog.log_status(queries)
        self._prefix = file.rpartition(".")[0]
        self._start((file_number(file), end))
        # The server checks the right to read the log only when a connection reads it.
        self._opened.read(0.0)
        found = chunks.read_chunk(queries, self._table, None, rows=rows, size=1 << 20)
        return [] if found is None else found.rows()

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the table's primary key."""
        return self._table.key_names

    @property
    def has_whole_rows(self) -> bool:
        """True: `binlog_row_image` is FULL."""
        return True

    @property
    def whole_rows_remedy(self) -> str:
        """The statement that puts whole rows into the log."""
        return "run `SET GLOBAL binlog_row_image = FULL`"

    def close(self) -> None:
        """End the connections."""
        stream, queries = self._stream, self._queries
        self._stream = self._queries = None
        for open_one in (stream, queries):
            if open_one is not None:
                open_one.close()

    @property
    def _connected(self) -> Queries:
        assert self._queries is not None  # noqa: S101 (it is open)
        return self._queries

    @property
    def _opened(self) -> Stream:
        assert self._stream is not None  # noqa: S101 (it is open)
        return self._stream

    @property
    def _is_at_watermark(self) -> bool:
        return self._watermark is not None and self._transaction is None and self._end >= self._watermark

    def _read_catalog(self) -> None:
        self._table = catalog.table_of(self._connected, *self._names, self._texts)
        self._is_stale = False

    def _file(self, number: int) -> str:
        return f"{self._prefix}.{number:06d}"

    def _check_log(self, queries: Queries, at: Coordinate) -> None:
        """Raise `UnavailableError` if the server doesn't have the place in its log any more."""
        sizes = {file_number(name): size for name, size in catalog.logs(queries) if name.startswith(self._prefix + ".")}
        number, position = at
        # A position of `MOST` stands for any place behind 4 GiB, so it isn't compared with the size of the file.
        if number in sizes and (position <= sizes[number] or position >= MOST):
            return
        if sizes and number < min(sizes):
            raise UnavailableError(
                f"{self._where}: the server has removed the binary log {self._file(number)} before it was read "
                f"({catalog.retention(queries)}), so changes are missing; let it keep its logs longer than a source "
                f"may stand still, and {RELOAD}"
            )
        raise UnavailableError(self._other(number))

    def _other(self, number: int) -> str:
        return (
            f"{self._where}: the binary log {self._file(number)} isn't the one that was read: this is another server, "
            "or somebody ran RESET MASTER, so the position means nothing here; give the address of the server that was "
            f"read, or {RELOAD}"
        )

    def _start(self, at: Coordinate) -> None:
        """Read the log from a place on, which is no transaction's inside."""
        if self._stream is not None:
            self._stream.close()
        if at[1] >= MOST:
            # A transaction that ends behind 4 GiB is the last one of its file, so the next one is at the start of the
            # next file.
            at = (at[0] + 1, START)
        name = self._table.name
        self._transaction, self._readings = None, {}
        self._end = at
        self._returned = max(self._returned, at)
        self._stream = Stream(self._server.keywords(), self._where, self._file(at[0]), at, name)

    def _next(self, deadline: float) -> Event | None:
        while True:
            if (event := next(self._delivery, None)) is not None:
                return event
            if self._is_at_watermark:
                self._watermark = None
                return Watermark()
            found = self._opened.read(max(0.0, deadline - time.monotonic()))
            if found is not None:
                self._is_idle = isinstance(found, HeartbeatLogEvent)
                self._take(found)
            if self._is_starting and self._end[0] in self._births:
                self._is_starting = False
                return self._started()
            if found is None or self._is_idle or time.monotonic() >= deadline:
                return next(self._delivery, None) or self._quiet()

    def _started(self) -> Started:
        ((now_us,),) = self._connected.all("SELECT CAST(unix_timestamp(now(6)) * 1000000 AS SIGNED)")
        return Started(self._end, int(now_us), self.state())

    def _quiet(self) -> Quiet | None:
        if self._transaction is not None or self._known is not None or self._is_starting:
            return None
        return Quiet(self._end, is_end=self._is_idle)

    def _place(self, queries: Queries) -> Coordinate:
        """Return the place in the log up to which a snapshot that was just made has its transactions.

        MariaDB knows it exactly. The end of MySQL's log is at or behind it.
        """
        if queries.is_mariadb:
            found = dict(queries.all("SHOW STATUS LIKE 'binlog_snapshot_%%'"))
            values = {name.casefold(): value for name, value in found.items()}
            return file_number(values["binlog_snapshot_file"]), int(values["binlog_snapshot_position"])
        file, end, _, _ = catalog.log_status(queries)
        return file_number(file), end

    def _may_begin(self, queries: Queries) -> bool:
        """Return whether chunks may be read: no transaction of XA is left that was prepared before the log was read.

        Nobody knows its changes, which the log has where it was prepared. Those that are prepared later are noticed in
        the log. A busy server always has one of these, so that no load may wait for them.

        Raises:
            UnavailableError: Such a transaction has stayed for some seconds.
        """
        waited_s = time.monotonic() - self._opened_at
        if waited_s < LISTED_S:
            return False
        prepared = catalog.prepared(queries)
        self._older = prepared if self._older is None else self._older & prepared
        if self._older and waited_s >= OLDER_S:
            raise UnavailableError(
                f"{self._where}: the load of table {self._names[1]} waits for transactions of XA that were prepared "
                f"before it: {', '.join(sorted(self._older)[:3])[:200]}; commit them or roll them back"
            )
        return not self._older

    def _see(self, queries: Queries) -> bool:
        """Return whether all transactions that were returned can be seen by a new snapshot.

        MySQL counts a GTID when that is so. MariaDB has the position of the snapshot.
        """
        if not self._unseen:
            return True
        unseen = ",".join(sorted(self._unseen))
        ((left,),) = queries.all("SELECT GTID_SUBTRACT(%s, @@global.gtid_executed)", unseen)
        if not left:
            self._unseen.clear()
        return not left

    def _take(self, event: BinLogEvent) -> None:
        """Take an event of the log; what follows from it is put into `_delivery`."""
        match event:
            case MariadbGtidEvent() | GtidEvent():
                self._begin(event, event.gtid)
            case TableMapEvent():
                self._map(event)
            case RowsEvent():
                self._add_rows(event)
            case XidEvent():
                self._finish(is_committed=True)
            case XAPrepareEvent():
                self._prepare(event)
            case QueryEvent():
                self._statement(event)
            case ExecuteLoadQueryEvent():
                self._check_load(event)
            case FormatDescriptionEvent():
                self._check_birth(event)
            case NotImplementedEvent():
                self._take_unknown(event)
            case RotateEvent():
                self._readings = {}
        if self._transaction is None and self._known is None:
            self._end = max(self._end, self._opened.end)

    def _take_unknown(self, event: NotImplementedEvent) -> None:
        kind = event.event_type
        if kind in {_ANONYMOUS, _TAGGED}:
            if self._loading:
                raise UnavailableError(
                    f"{self._where}: a transaction has {'no' if kind == _ANONYMOUS else 'a tagged'} GTID, so a load "
                    "can't tell whether it is visible; write without, or wait until the table is loaded"
                )
            self._begin(event, None)
        elif kind in _COMPRESSED_ROWS and _table_id(event) not in self._readings:
            # Rows of another table are skipped: `_readings` has only the table that is captured.
            return
        elif kind in _UNREADABLE:
            raise self._refused(_UNREADABLE[kind])
        elif kind not in _OTHERS and not event.packet.flags & _IGNORABLE:
            raise self._refused(f"events of type {kind} can't be read")

    def _refused(self, why: str) -> UnavailableError:
        """Return the error for the last event, which the source can't get past."""
        return UnavailableError(f"{self._where}: {self._here}: {why}; {RELOAD}")

    @property
    def _here(self) -> str:
        stream = self._opened
        return f"the binary log {stream.file} at {stream.start[1]}"

    def _check_birth(self, event: FormatDescriptionEvent) -> None:
        number = self._opened.end[0]
        birth = [event.timestamp, event.packet.server_id]
        if self._births.setdefault(number, birth) != birth:
            raise UnavailableError(self._other(number))
        for old in sorted(self._births)[:-_REMEMBERED]:
            del self._births[old]

    def _begin(self, event: BinLogEvent, gtid: str | None) -> None:
        stream = self._opened
        start = stream.start
        if stream.end[1] >= MOST:
            raise self._refused("it begins behind 4 GiB of the file, where the protocol has no positions")
        origin = {"file": stream.file, "pos": start[1], "gtid": gtid, "server_id": event.packet.server_id}
        # A session may set its time as it likes (SET timestamp). The reader's times never go back, so a time in the
        # future would become that of all later changes.
        at_us = min(event.timestamp * SECOND_US, time.time_ns() // 1_000)
        is_standalone = not isinstance(event, MariadbGtidEvent) or bool(event.flags & _STANDALONE)
        self._end = max(self._end, start)
        self._transaction = Transaction(start, at_us, origin, gtid, is_standalone)
        known = self._known
        if known is not None and known.start == start:
            self._returned = max(self._returned, known.end)
            self._delivery = iter([Begin(known.start, at_us, origin)])

    def _map(self, event: TableMapEvent) -> None:
        """Note how rows of the table are read from here on."""
        if not self._table.name.matches(event.schema, event.table):
            return
        if self._is_stale:
            self._read_catalog()
        described = event.optional_metadata
        if not described.column_name_list:
            raise self._refused("the log has no names of columns; run `SET GLOBAL binlog_row_metadata = FULL`")
        try:
            self._readings[event.table_id] = reading(
                event.columns,
                described.charset_collation_list,
                self._table.kinds,
                self._table.key_names,
                is_mariadb=self._connected.is_mariadb,
            )
        except ValueError as error:
            raise self._refused(f"table {self._names[1]}: {error}") from None

    def _add_rows(self, event: RowsEvent) -> None:
        if not self._table.name.matches(event.schema, event.table):
            return
        if isinstance(event, PartialUpdateRowsEvent):
            raise self._refused("a session logs parts of JSON; it must set binlog_row_value_options = ''")
        bitmaps = [event.columns_present_bitmap, getattr(event, "columns_present_bitmap2", None)]
        whole = (1 << len(event.columns)) - 1
        if any(bits is not None and int.from_bytes(bits, "little") & whole != whole for bits in bitmaps):
            raise self._refused("a session logs parts of rows; it must set binlog_row_image = FULL")
        self._add(Rows(event, self._readings[event.table_id], self._table.key_names))

    def _add(self, item: Item) -> None:
        transaction, known = self._transaction, self._known
        assert transaction is not None  # noqa: S101 (a change is in a transaction)
        if known is None:
            transaction.add(item)
            return
        if not is_undone(transaction.count, known.undone):
            self._delivery = self._changes(item)
        transaction.count += 1

    def _statement(self, event: QueryEvent) -> None:
        statement = event.query
        transaction = self._transaction
        verb, _, rest = statement[:200].partition(" ")
        match verb.upper():
            case "BEGIN":
                if transaction is not None:
                    transaction.is_standalone = False
                return
            case "COMMIT":
                self._finish(is_committed=True)
                return
            case "ROLLBACK" if rest[:3].upper() == "TO ":
                if transaction is not None:
                    transaction.roll_back(rest[3:].strip())
                return
            case "ROLLBACK":
                self._finish(is_committed=False)
                return
            case "SAVEPOINT":
                if transaction is not None:
                    transaction.savepoints[rest.strip()] = transaction.count
                return
            case "XA":
                self._xa(rest)
                return
        schema = event.schema.decode(errors="replace")
        match effect(statement, schema, self._table.name):
            case Effect.EMPTIES:
                self._add(Emptied())
                self._is_stale = True
            case Effect.ALTERS:
                self._is_stale = True
            case Effect.REPLACES:
                shown = " ".join(statement.split())[:80]
                raise self._refused(f"`{shown}` changes rows of the table without logging them")
        if transaction is not None and transaction.is_standalone:
            self._finish(is_committed=True)

    def _check_load(self, event: ExecuteLoadQueryEvent) -> None:
        """Raise `UnavailableError` if LOAD DATA was logged as a statement that may be about the table."""
        statement = event.packet.read(event.event_size - event.packet.read_bytes).decode(errors="replace")
        if self._table.name.table.casefold() in statement.casefold():
            raise self._refused("LOAD DATA changes rows of the table without logging them")

    def _xa(self, rest: str) -> None:
        verb = rest.partition(" ")[0].upper()
        if verb == "START" and self._transaction is not None:
            self._transaction.is_standalone = False
        elif verb in {"COMMIT", "ROLLBACK"}:
            # The COMMIT or ROLLBACK of a prepared transaction of XA is in the log as a transaction of its own, without
            # changes.
            self._finish(is_committed=verb == "COMMIT")

    def _prepare(self, event: XAPrepareEvent) -> None:
        """End a transaction of XA. If it isn't committed here, nobody knows yet whether its changes will count."""
        transaction = self._transaction
        if not event.one_phase and transaction is not None and transaction.count:
            xid = (event.xid_gtrid + event.xid_bqual).decode(errors="backslashreplace")
            raise self._refused(
                f"the transaction {xid[:80]} of XA was prepared with changes of table {self._names[1]}, and changes "
                "that are committed later can't be read; write without XA, or commit in one phase"
            )
        self._finish(is_committed=bool(event.one_phase))

    def _finish(self, *, is_committed: bool) -> None:
        """End a transaction, and hand over its changes if they count."""
        transaction, known, end = self._transaction, self._known, self._opened.end
        self._transaction = self._known = None
        if known is not None:
            self._end = max(self._end, known.end)
            self._delivery = iter([Commit(known.end)])
        elif transaction is not None and transaction.count and is_committed:
            self._see_later(transaction)
            if transaction.is_large:
                self._start(transaction.start)
                self._known = Known(transaction.start, end, tuple(transaction.undone))
                return
            self._returned = max(self._returned, end)
            self._delivery = self._transaction_events(transaction, end)

    def _see_later(self, transaction: Transaction) -> None:
        if self._loading and not self._connected.is_mariadb and transaction.gtid is not None:
            self._unseen.add(transaction.gtid)

    def _transaction_events(self, transaction: Transaction, end: Coordinate) -> Iterator[Event]:
        yield Begin(transaction.start, transaction.at_us, transaction.origin)
        items = transaction.items
        while items:
            # Each item is removed from the queue before its rows are decoded, since decoded rows take much more memory
            # than those in the log.
            number, item = items.popleft()
            if not is_undone(number, transaction.undone):
                yield from self._changes(item)
        yield Commit(end)

    def _changes(self, item: Item) -> Iterator[Event]:
        try:
            yield from item.changes()
        except UNREADABLE as error:
            raise UnavailableError(
                f"{self._where}: a row of table {self._names[1]} can't be read from the binary log "
                f"{self._opened.file} before {self._opened.end[1]}: {error}; {RELOAD}"
            ) from error


def _table_id(event: NotImplementedEvent) -> int:
    """Return the number of the table of rows that the library doesn't know, which stands behind the header."""
    event.packet.rewind(1 + HEADER)
    return int.from_bytes(event.packet.read(6), "little")
