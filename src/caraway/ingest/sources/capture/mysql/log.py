"""The log of a MySQL or MariaDB table: the binary log, read as a replica does, and chunks of the table beside it."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pymysqlreplication.constants import FIELD_TYPE
from pymysqlreplication.event import (
    BinLogEvent,
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

from caraway.addresses.names import name_parts
from caraway.errors import UnavailableError
from caraway.graph.systems import MySQLSystem
from caraway.ingest.sources.capture.log import (
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
from caraway.ingest.sources.capture.mysql import catalog, chunks
from caraway.ingest.sources.capture.mysql.connection import Queries, Server
from caraway.ingest.sources.capture.mysql.prepared import Prepared, listed, spelled_xid
from caraway.ingest.sources.capture.mysql.statements import Effect, effect
from caraway.ingest.sources.capture.mysql.stream import MOST, START, Stream, file_number
from caraway.ingest.sources.capture.mysql.transactions import (
    Emptied,
    Item,
    Known,
    Replaced,
    Rows,
    Transaction,
    is_undone,
    kind_of,
)
from caraway.ingest.sources.capture.mysql.values import ReadColumn, readers
from caraway.ingest.sources.reader import SourceContext

# The types of events that mean a part of the log is missing, or has a form that can't be read.
_UNREADABLE = {
    26: "the server lost changes (an incident event)",
    40: "the transaction is compressed; run `SET GLOBAL binlog_transaction_compression = OFF`",
}
# MySQL's transactions without GTIDs, and those with tagged ones.
_ANONYMOUS, _TAGGED = 34, 42
# Events of group replication, which say nothing about rows.
_OTHERS = frozenset({36, 37})
_IGNORABLE = 0x80
_STANDALONE = 1
_CHARACTERS = frozenset({FIELD_TYPE.STRING, FIELD_TYPE.VAR_STRING, FIELD_TYPE.VARCHAR, FIELD_TYPE.BLOB})
_MEMBERS = frozenset({FIELD_TYPE.ENUM, FIELD_TYPE.SET})
SECOND_US = 1_000_000
# The remedy if changes are missing: nothing else loads the table anew.
RELOAD = "raise the version of the dataset, which loads the table anew"
# A load waits so many seconds for transactions of XA before it tells what it waits for.
OLDER_S = 5.0
# The files of the log whose births are remembered: the one of the position, and those that the reader is ahead.
_REMEMBERED = 8


class MySQLLog:
    """Reads the changes of a table (`ChangeLog`).

    A coordinate is the number of a file of the log, and a position in it: that of its begin for a transaction, that
    behind its commit for an end. The state has the name of the files, when each was begun (which tells logs that were
    reset from those that were read), the columns of the key, the places of transactions of XA that were prepared, and
    the transactions that weren't seen in the table yet: for MySQL their GTIDs, for MariaDB the names of those of XA.
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
        self._prepared = Prepared()
        self._unseen: set[str] = set()
        # When chunks were first held up by transactions that are older than the log that is read.
        self._held_at: float | None = None
        self._key: list[str] = []
        self._loading = False
        self._is_stale = False
        self._columns: dict[int, list[ReadColumn]] = {}
        self._transaction: Transaction | None = None
        self._known: Known | None = None
        self._delivery: Iterator[Event] = iter(())
        self._end: Coordinate = (0, 0)
        self._returned: Coordinate = (0, 0)
        self._watermark: Coordinate | None = None
        self._is_starting = self._is_idle = False

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
        self._prepared = Prepared() if at is None else Prepared.of_state(state)
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
                # The chunks that were read are in the order of another key.
                raise LostLogError(self.first_state())
            self._check_log(queries, at)
        self._start(at)

    def next(self, timeout_s: float, *, rows: int, size: int) -> Event | None:
        """Return the next event; see `ChangeLog.next`."""
        del rows, size
        deadline = time.monotonic() + timeout_s
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

    def state(self) -> Mapping[str, Any]:
        """Return what tells the log, and what is known beyond the position; see the class."""
        if self._loading and self._unseen:
            self._see(self._connected)
        found: dict[str, Any] = {"log": self._prefix, "key": self._key, **self._prepared.state()}
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
        if not self._may_begin(queries) or not self._see(queries):
            return None
        queries.all("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        try:
            place = self._place(queries)
            if queries.is_mariadb and place < self._returned:
                # A transaction that was returned can't be seen yet.
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
        """Forget what is needed only before a place. The server keeps its log for as long as its settings say."""
        self._prepared.forget(at)

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
        # The right to read the log shows only when it is read.
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
        # A file may be followed by another one that is gone already. Then nothing is known about its end.
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
            # Such a long file ended with this transaction.
            at = (at[0] + 1, START)
        name = self._table.name
        self._transaction, self._columns = None, {}
        self._end = at
        self._returned = max(self._returned, at)
        self._stream = Stream(self._server.keywords(), self._where, self._file(at[0]), at, name)

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
        """Return whether chunks may be read, since no transaction is prepared that is older than the log that is read.

        It raises `UnavailableError` if such a transaction stays for some seconds.
        """
        if not self._prepared.is_begun and (older := self._prepared.begin(queries, self._end)):
            self._held_at = self._held_at or time.monotonic()
            if time.monotonic() >= self._held_at + OLDER_S:
                raise UnavailableError(
                    f"{self._where}: the load of table {self._names[1]} waits for transactions of XA that were "
                    f"prepared before it: {', '.join(sorted(older)[:3])[:200]}; commit them or roll them back"
                )
        return self._prepared.is_begun

    def _see(self, queries: Queries) -> bool:
        """Return whether all transactions that were returned can be seen by a new snapshot.

        MySQL counts a GTID when that is so; MariaDB lists a transaction of XA as prepared until then.
        """
        if not self._unseen:
            return True
        if queries.is_mariadb:
            self._unseen &= listed(queries) or frozenset()
            return not self._unseen
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
                self._rows(event)
            case XidEvent():
                self._finish(is_committed=True)
            case XAPrepareEvent():
                self._prepare(event)
            case QueryEvent():
                self._statement(event)
            case FormatDescriptionEvent():
                self._check_birth(event)
            case NotImplementedEvent():
                self._take_unknown(event)
            case RotateEvent():
                self._columns = {}
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
        elif kind in _UNREADABLE:
            raise UnavailableError(f"{self._where}: {self._here}: {_UNREADABLE[kind]}; {RELOAD}")
        elif kind not in _OTHERS and not event.packet.flags & _IGNORABLE:
            raise UnavailableError(f"{self._where}: {self._here}: events of type {kind} can't be read; {RELOAD}")

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
        origin = {"file": stream.file, "pos": start[1], "gtid": gtid, "server_id": event.packet.server_id}
        # A session may write any time (SET timestamp). One in the future would stay the time of all later changes.
        at_us = min(event.timestamp * SECOND_US, time.time_ns() // 1_000)
        is_standalone = not isinstance(event, MariadbGtidEvent) or bool(event.flags & _STANDALONE)
        self._end = max(self._end, start)
        self._transaction = Transaction(start, at_us, origin, gtid, is_standalone)
        known = self._known
        if known is not None and known.start == start:
            self._returned = max(self._returned, known.end)
            self._delivery = iter([Begin(known.at, at_us, origin)])

    def _map(self, event: TableMapEvent) -> None:
        """Note how rows of the table are read from here on."""
        if not self._table.name.matches(event.schema, event.table):
            return
        if self._is_stale:
            self._read_catalog()
        described = event.optional_metadata
        if not described.column_name_list:
            raise UnavailableError(
                f"{self._where}: {self._here}: the log has no names of columns; run `SET GLOBAL binlog_row_metadata = "
                f"FULL`, and {RELOAD}"
            )
        is_mariadb = self._connected.is_mariadb
        characters, members = iter(described.charset_collation_list), iter(described.enum_and_set_collation_list)
        collations = []
        for column in event.columns:
            has_text = column.type in _CHARACTERS or (is_mariadb and column.type == FIELD_TYPE.GEOMETRY)
            found = next(characters, None) if has_text else next(members, None) if column.type in _MEMBERS else None
            collations.append(found)
        try:
            self._columns[event.table_id] = readers(event.columns, collations, self._table.kinds)
        except ValueError as error:
            raise UnavailableError(f"{self._where}: table {self._names[1]}: {error}") from None

    def _rows(self, event: RowsEvent) -> None:
        if not self._table.name.matches(event.schema, event.table):
            return
        columns = self._columns[event.table_id]
        if isinstance(event, PartialUpdateRowsEvent):
            raise UnavailableError(
                f"{self._where}: {self._here}: a session logs parts of JSON; it must set binlog_row_value_options = "
                f"''; {RELOAD}"
            )
        bitmaps = [event.columns_present_bitmap, getattr(event, "columns_present_bitmap2", None)]
        whole = (1 << len(columns)) - 1
        if any(bits is not None and int.from_bytes(bits, "little") & whole != whole for bits in bitmaps):
            raise UnavailableError(
                f"{self._where}: {self._here}: a session logs parts of rows; it must set binlog_row_image = FULL; "
                f"{RELOAD}"
            )
        data = event.packet.read(event.event_size - event.packet.read_bytes)
        self._add(Rows(kind_of(event), data, columns, self._table.key_names))

    def _add(self, item: Item) -> None:
        transaction, known, place = self._transaction, self._known, self._opened.start
        assert transaction is not None  # noqa: S101 (a change is in a transaction)
        if known is None:
            transaction.add(place, item)
        elif not is_undone(place, known.undone):
            self._delivery = self._changes([(place, item)])

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
                    transaction.roll_back(rest[3:].strip(), self._opened.end)
                return
            case "ROLLBACK":
                self._finish(is_committed=False)
                return
            case "SAVEPOINT":
                if transaction is not None:
                    transaction.savepoints[rest.strip()] = self._opened.end
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
                why = (
                    f"{self._here}: `{' '.join(statement.split())[:80]}` changes rows of the table without logging them"
                )
                self._add(Replaced(f"{self._where}: {why}; {RELOAD}"))
        if transaction is not None and transaction.is_standalone:
            self._finish(is_committed=True)

    def _xa(self, rest: str) -> None:
        verb, _, xid = rest.partition(" ")
        transaction = self._transaction
        match verb.upper():
            case "START" if transaction is not None:
                transaction.is_standalone = False
            case "COMMIT":
                self._commit_prepared(xid)
            case "ROLLBACK":
                self._prepared.end(xid, self._opened.end)
                self._transaction = None

    def _prepare(self, event: XAPrepareEvent) -> None:
        """Note where a prepared transaction is. It is read again when it is committed."""
        transaction, known = self._transaction, self._known
        if event.one_phase:
            self._finish(is_committed=True)
        elif known is not None:
            self._finish_known(known)
        elif transaction is not None:
            # As in the statement that ends it.
            xid = spelled_xid(event.xid_gtrid, event.xid_bqual, event.xid_format_id)
            self._prepared.prepare(xid, transaction.start if transaction.has_changes else None)
            self._transaction = None

    def _commit_prepared(self, xid: str) -> None:
        transaction, end = self._transaction, self._opened.end
        self._transaction = None
        if not self._prepared.is_known(xid, end):
            raise UnavailableError(
                f"{self._where}: {self._here}: the transaction {xid[:80]} was prepared before the log was read, so its "
                f"changes may be missing; {RELOAD}"
            )
        start = self._prepared.place(xid)
        self._prepared.end(xid, end)
        if start is None or transaction is None:
            return
        if self._loading and self._connected.is_mariadb:
            self._unseen.add(xid)
        self._see_later(transaction)
        self._read_again(Known(start, transaction.start, end, ()))

    def _read_again(self, known: Known) -> None:
        self._start(known.start)
        self._known = known

    def _finish(self, *, is_committed: bool) -> None:
        """End a transaction, and hand over its changes if they count."""
        transaction, known, end = self._transaction, self._known, self._opened.end
        self._transaction = None
        if known is not None:
            self._finish_known(known)
        elif transaction is not None and transaction.has_changes and is_committed:
            self._see_later(transaction)
            if transaction.is_large:
                self._read_again(Known(transaction.start, transaction.start, end, tuple(transaction.undone)))
                return
            items = [(place, item) for place, item in transaction.items if not is_undone(place, transaction.undone)]
            self._returned = max(self._returned, end)
            self._delivery = self._transaction_events(transaction, items, end)

    def _see_later(self, transaction: Transaction) -> None:
        if self._loading and not self._connected.is_mariadb and transaction.gtid is not None:
            self._unseen.add(transaction.gtid)

    def _finish_known(self, known: Known) -> None:
        """End a transaction that was read again."""
        self._transaction = self._known = None
        if known.at != known.start:
            # It was prepared there, and committed later, where reading goes on.
            self._start(known.end)
        self._end = max(self._end, known.end)
        self._delivery = iter([Commit(known.end)])

    def _transaction_events(
        self, transaction: Transaction, items: list[tuple[Coordinate, Item]], end: Coordinate
    ) -> Iterator[Event]:
        yield Begin(transaction.start, transaction.at_us, transaction.origin)
        yield from self._changes(items)
        yield Commit(end)

    def _changes(self, items: list[tuple[Coordinate, Item]]) -> Iterator[Event]:
        for _, item in items:
            if isinstance(item, Replaced):
                # All that came before is handed over first.
                yield Quiet(self._opened.start, is_end=False)
                raise UnavailableError(item.why)
            try:
                yield from item.changes()
            except (ValueError, IndexError) as error:
                raise UnavailableError(
                    f"{self._where}: a row of table {self._names[1]} can't be read from the binary log "
                    f"{self._opened.file} before {self._opened.end[1]}: {error}"
                ) from error
