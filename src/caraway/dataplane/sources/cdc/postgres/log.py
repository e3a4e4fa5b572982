"""The log of a Postgres table: a replication slot that is streamed, and chunks of the table beside it."""

import secrets
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from caraway.dataplane.sources.cdc.log import (
    Begin,
    Change,
    Chunk,
    Commit,
    Coordinate,
    Event,
    Key,
    LostLogError,
    Puts,
    Quiet,
    Row,
    Started,
    Truncate,
    Watermark,
)
from caraway.dataplane.sources.cdc.postgres import catalog, pgoutput
from caraway.dataplane.sources.cdc.postgres.chunks import TableReader
from caraway.dataplane.sources.cdc.postgres.columns import columns_of, values_of
from caraway.dataplane.sources.cdc.postgres.connection import Connection, Server, query
from caraway.dataplane.sources.cdc.postgres.pgoutput import HEAD, UNCHANGED, Relation
from caraway.dataplane.sources.cdc.postgres.slots import SlotMaker
from caraway.dataplane.sources.cdc.postgres.stream import Stream
from caraway.dataplane.sources.cdc.postgres.values import Values
from caraway.dataplane.sources.reader import Resolve, SourceContext
from caraway.errors import UnavailableError
from caraway.graph.systems import PostgresSystem

PREFIX = b"caraway"
# The seconds between two checks in the catalog that the table is still the one that is published.
CHECK_S = 30.0
# The seconds between two requests by which a quiet stream asks the server how far it has decoded its log. Without them,
# the slot would retain WAL that has nothing for it.
ASK_S = 1.0
# Fewer messages than this are decoded one by one, since columns are faster only for many.
LEAST_PUTS = 32


class PostgresLog:
    """Reads the changes of a table (`ChangeLog`).

    A coordinate is an LSN: that of the commit for a transaction, that behind the commit for an end. The state has the
    names of slot and publication, what tells whether server and table are the same as before, and the xids of
    transactions that were read and weren't seen in a snapshot yet.
    """

    def __init__(self, system: PostgresSystem, table: str, context: SourceContext, texts: frozenset[str]) -> None:
        """Prepare; `texts` are the columns whose JSON stays text."""
        self._server = Server(system, context.resolve, context.endpoints)
        self._where = self._server.where
        self._name = table
        self._texts = texts
        self._state: dict[str, Any] = {}
        self._connection: Connection | None = None
        self._stream: Stream | None = None
        self._maker: SlotMaker | None = None
        self._relations: dict[int, Relation] = {}
        # The first bytes of the messages that can be decoded together, by column, and the operation of each.
        self._heads: Mapping[bytes, str] = {}
        # Messages that were read together, but have to be decoded one by one.
        self._single: deque[bytes] = deque()
        # `_key_places` has the places of the key's columns in a message, for the description of the table and the key
        # in `_placed`.
        self._placed: tuple[Relation | None, Sequence[str]] = (None, ())
        self._key_places: Sequence[int | None] = ()
        self._token = b""
        self._unseen: set[int] = set()
        self._loading = False
        self._end = 0
        self._in_transaction = False
        self._asked_at = self._checked_at = 0.0

    def first_state(self) -> Mapping[str, Any]:
        """Return invented names, so that two deployments with equal definitions don't share a slot."""
        return {"slot": f"caraway_{secrets.token_hex(8)}", "generation": 1}

    def open(self, state: Mapping[str, Any], at: Coordinate | None, *, loading: bool) -> None:
        """Connect, and stream the slot, or begin to make it; see `ChangeLog.open`."""
        self._state = dict(state)
        self._unseen = set(state.get("unseen", ()))
        self._loading = loading
        connection = self._connection = self._server.connect()
        catalog.check_server(connection, self._where)
        self._table = catalog.table_of(connection, self._where, self._name)
        self._values = Values(connection, self._texts)
        self._rows = TableReader(connection, self._where, self._table, self._values)
        slot, publication = self._slot, self._publication
        if at is not None:
            self._check_origin(connection)
        if not catalog.is_published(connection, self._where, publication, self._table):
            catalog.publish(connection, self._where, publication, self._table)
        if at is None:
            self._maker = SlotMaker(self._server, slot)
            return
        found = catalog.slot_of(connection, self._where, slot)
        if found is None or found.status == "lost" or found.confirmed > at[0]:
            self._lost(connection, found)
        self._start(at[0])

    def next(self, timeout_s: float, *, rows: int, size: int) -> Event | None:
        """Return the next event; see `ChangeLog.next`."""
        if self._maker is not None:
            return self._made(self._maker, timeout_s)
        stream = self._stream
        assert stream is not None  # noqa: S101 (it is open)
        deadline = time.monotonic() + timeout_s
        while True:
            if self._single:
                return self._event(self._single.popleft())
            data = stream.read(max(0.0, deadline - time.monotonic()))
            if data is None:
                return self._quiet(stream)
            if data[:HEAD] in self._heads:
                messages = stream.alike(data, self._heads, rows=rows, size=size)
                if len(messages) >= LEAST_PUTS and (puts := self._puts(messages)) is not None:
                    return puts
                self._single.extend(messages)
                continue
            event = self._event(data)
            if event is not None:
                return event

    def state(self) -> Mapping[str, Any]:
        """Return the names, and the transactions that no snapshot has shown yet."""
        if self._loading and self._unseen:
            self._see(query(self._connected, self._where, "SELECT pg_current_snapshot()::text")[0][0])
        return {**self._state, "unseen": sorted(self._unseen)} if self._unseen else self._state

    def chunk(self, after: Sequence[str | None] | None, *, rows: int, size: int) -> Chunk | None:
        """Return rows of the table behind a key; see `ChangeLog.chunk`."""
        found = self._rows.chunk(after, rows=rows, size=size, is_seen=self._see)
        if found is not None:
            self._token = secrets.token_bytes(12)
            # This message is a transaction of its own in the log, behind all transactions that the chunk's snapshot
            # shows. When the reader gets the message, it has reached the chunk's place in the log (`Watermark`).
            query(
                self._connected,
                self._where,
                "SELECT pg_logical_emit_message(true, %s, %s)",
                PREFIX.decode(),
                self._token,
            )
        return found

    def loaded(self) -> None:
        """Note that no chunk follows."""
        self._loading = False
        self._unseen.clear()

    def complete(self, changes: Sequence[Change]) -> None:
        """Read large values that updates left unchanged; see `ChangeLog.complete`."""
        found = self._rows.rows_of([change.key for change in changes if change.key is not None])
        for change in changes:
            row = found.get(change.key or ())
            if row is None or change.after is None:
                change.after = None
                continue
            change.after = {
                name: row.get(name) if value is UNCHANGED else value for name, value in change.after.items()
            }

    def confirm(self, at: Coordinate) -> None:
        """Allow Postgres to remove WAL."""
        if self._stream is not None:
            self._stream.confirm(at[0])

    def estimated_rows(self) -> int:
        """Return how many rows the table has by its statistics."""
        return self._table.rows

    def sample(self, rows: int) -> list[Row]:
        """Return some rows of the table, and check what can be checked without a slot."""
        connection = self._connection = self._server.connect()
        catalog.check_server(connection, self._where)
        self._table = catalog.table_of(connection, self._where, self._name)
        catalog.check_rights(connection, self._where)
        self._values = Values(connection, self._texts)
        reader = TableReader(connection, self._where, self._table, self._values)
        found = reader.chunk(None, rows=rows, size=1 << 20, is_seen=lambda _: True)
        return [] if found is None else found.rows()

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the table's key."""
        return self._table.key

    @property
    def has_whole_rows(self) -> bool:
        """True if the log has all columns of a row before its change."""
        return self._table.identity == "f"

    @property
    def whole_rows_remedy(self) -> str:
        """The statement that puts whole rows into the log."""
        return f"run `ALTER TABLE {self._table.spelled} REPLICA IDENTITY FULL`"

    def close(self) -> None:
        """End the connections."""
        maker, stream, connection = self._maker, self._stream, self._connection
        self._maker = self._stream = self._connection = None
        for open_one in (maker, stream, connection):
            if open_one is not None:
                open_one.close()

    @property
    def _connected(self) -> Connection:
        assert self._connection is not None  # noqa: S101 (it is open)
        return self._connection

    @property
    def _slot(self) -> str:
        return f"{self._state['slot']}_{self._state['generation']}"

    @property
    def _publication(self) -> str:
        return str(self._state["slot"])

    def _check_origin(self, connection: Connection) -> None:
        """Raise `UnavailableError` if the position belongs to another server or table."""
        if self._state.get("system") != self._server.identity():
            raise UnavailableError(
                f"{self._where}: this is another database cluster than the one that was read, so the position in its "
                "log means nothing here; give the old address, or raise the version of the dataset to load anew"
            )
        if self._state.get("table") != self._table.oid:
            slot = catalog.slot_of(connection, self._where, self._next_slot)
            if slot is not None:
                raise LostLogError(self._next_state())
            raise UnavailableError(
                f"{self._where}: table {self._name} was dropped and made again, so its rows have to be loaded again; "
                f"to agree, run {self._agreement()}"
            )

    @property
    def _next_slot(self) -> str:
        return f"{self._state['slot']}_{self._state['generation'] + 1}"

    def _next_state(self) -> Mapping[str, Any]:
        return {"slot": self._state["slot"], "generation": self._state["generation"] + 1}

    def _agreement(self) -> str:
        return (
            f"`SELECT pg_create_logical_replication_slot('{self._next_slot}', 'pgoutput')` in this database: "
            "the dataset's rows are then deleted, and the table is read again"
        )

    def _lost(self, connection: Connection, found: catalog.Slot | None) -> None:
        """Raise what a lost slot means: an error, or the new load to which the user has agreed."""
        if catalog.slot_of(connection, self._where, self._next_slot) is not None:
            raise LostLogError(self._next_state())
        if found is None:
            why = "is gone"
        elif found.status == "lost":
            why = "is invalid, since Postgres removed WAL that it needed (max_slot_wal_keep_size)"
        else:
            why = "was moved on by somebody else"
        raise UnavailableError(
            f"{self._where}: the replication slot {self._slot} {why}, so changes are missing; to agree to a new load, "
            f"run {self._agreement()}"
        )

    def _made(self, maker: SlotMaker, timeout_s: float) -> Started | None:
        lsn = maker.poll(timeout_s)
        if lsn is None:
            return None
        maker.close()
        self._maker = None
        connection = self._connected
        now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
        ((now_us,),) = query(connection, self._where, now)
        old = [f"{self._state['slot']}_{number}" for number in range(1, self._state["generation"])]
        catalog.drop_slots(connection, self._where, old)
        self._state |= {"system": self._server.identity(), "table": self._table.oid}
        self._start(lsn)
        return Started((lsn,), now_us, self._state)

    def _start(self, lsn: int) -> None:
        replicating = self._server.replicate()
        try:
            self._stream = Stream(replicating, self._where, self._slot, self._publication, lsn)
        except BaseException:
            replicating.close()
            raise
        self._end = lsn
        self._asked_at = self._checked_at = time.monotonic()

    def _quiet(self, stream: Stream) -> Quiet | None:
        """Return that the log has nothing, if the server has said how far it is decoded."""
        now = time.monotonic()
        if now > self._asked_at + ASK_S:
            self._asked_at = now
            stream.ask()
        if now > self._checked_at + CHECK_S:
            self._checked_at = now
            self._check(self._connected)
        if self._in_transaction:
            return None
        self._end = max(self._end, stream.sent)
        return Quiet((self._end,), is_end=True)

    def _check(self, connection: Connection) -> None:
        """Raise `UnavailableError` if the table isn't the one whose changes are streamed."""
        self._table = catalog.table_of(connection, self._where, self._name)
        self._check_origin(connection)
        if not catalog.is_published(connection, self._where, self._publication, self._table):
            raise UnavailableError(
                f"{self._where}: table {self._name} isn't in publication {self._publication} any more"
            )

    def _event(self, data: bytes) -> Event | None:
        match data[:1]:
            case b"I":
                return self._insert(data)
            case b"U":
                return self._update(data)
            case b"D":
                return self._delete(data)
            case b"B":
                lsn, at_us, xid = pgoutput.begin(data)
                self._in_transaction = True
                if self._loading:
                    self._unseen.add(xid)
                return Begin((lsn,), at_us, {"txId": xid, "lsn": lsn})
            case b"C":
                self._end = pgoutput.commit_end(data)
                self._in_transaction = False
                return Commit((self._end,))
            case b"R":
                number, relation = pgoutput.relation(data, self._values.loader)
                self._relations[number] = relation
                if number == self._table.oid:
                    self._heads = pgoutput.heads(number, relation)
            case b"T":
                if self._table.oid in pgoutput.truncated(data):
                    return Truncate()
            case b"M":
                if pgoutput.logical_message(data) == (PREFIX, self._token):
                    return Watermark()
        return None

    def _relation(self, data: bytes) -> Relation | None:
        """Return the table of a message; None if it isn't the one that is read, since others may be published, too."""
        number = int.from_bytes(data[1:5])
        return self._relations[number] if number == self._table.oid else None

    def _puts(self, messages: Sequence[bytes]) -> Puts | None:
        """Return the changes of messages that have only new rows; None if the log doesn't have all their values."""
        relation = self._relations[self._table.oid]
        texts = columns_of(messages, len(relation.columns))
        if texts is None:
            return None
        described = zip(relation.columns, relation.loaders, texts, strict=True)
        return Puts(
            ops=[self._heads[message[:HEAD]] for message in messages],
            columns={name: values_of(column, load) for name, load, column in described},
            keys=[
                [None] * len(messages) if place is None else values_of(texts[place], None)
                for place in self._places(relation)
            ],
            size=sum(map(len, messages)),
        )

    def _insert(self, data: bytes) -> Change | None:
        relation = self._relation(data)
        if relation is None:
            return None
        texts = pgoutput.inserted(data, 6, relation)
        if texts is None:
            found, _ = pgoutput.fields(data, 6, relation)
            return Change(
                "c", None, pgoutput.loaded(found, relation), self._key(found), None, len(data), incomplete=True
            )
        return Change("c", None, pgoutput.row_of(texts, relation), self._key_of(texts, relation), None, len(data))

    def _update(self, data: bytes) -> Change | None:
        relation = self._relation(data)
        if relation is None:
            return None
        position, kind = 6, data[5:6]
        before, old_key = None, None
        old: dict[str, Any] = {}
        if kind != b"N":
            old, position = pgoutput.fields(data, position, relation)
            before, old_key = self._before(kind, old, relation), self._key(old)
            position += 1
        texts, _ = pgoutput.fields(data, position, relation)
        if kind == b"O":
            texts = {name: old[name] if text is UNCHANGED else text for name, text in texts.items()}
        after = pgoutput.loaded(texts, relation)
        incomplete = UNCHANGED in texts.values()
        return Change("u", before, after, self._key(texts), old_key, len(data), incomplete)

    def _delete(self, data: bytes) -> Change | None:
        relation = self._relation(data)
        if relation is None:
            return None
        old, _ = pgoutput.fields(data, 6, relation)
        return Change("d", self._before(data[5:6], old, relation), None, self._key(old), None, len(data))

    def _before(self, kind: bytes, texts: dict[str, Any], relation: Relation) -> Row:
        """Return a row before its change. A tuple of kind K has only the key; its other columns are null."""
        row = pgoutput.loaded(texts, relation)
        return row if kind == b"O" else {name: row[name] for name in self._table.key if name in row}

    def _key(self, texts: Mapping[str, Any]) -> Key:
        return tuple(None if (text := texts.get(name)) is None else text.decode() for name in self._table.key)

    def _key_of(self, texts: Sequence[bytes | None], relation: Relation) -> Key:
        """Return the key of a row from its texts in the order of the columns."""
        found: list[str | None] = []
        for place in self._places(relation):
            text = None if place is None else texts[place]
            found.append(None if text is None else text.decode())
        return tuple(found)

    def _places(self, relation: Relation) -> Sequence[int | None]:
        """Return the places of the key's columns among those of a message; None for one that isn't there."""
        key = self._table.key
        if relation is not self._placed[0] or key is not self._placed[1]:
            names = relation.columns
            self._placed = (relation, key)
            self._key_places = [names.index(name) if name in names else None for name in key]
        return self._key_places

    def _see(self, snapshot: str) -> bool:
        """Return whether all transactions that were read are visible in a snapshot."""
        self._unseen = {xid for xid in self._unseen if not _is_visible(xid, snapshot)}
        return not self._unseen


def _is_visible(xid: int, snapshot: str) -> bool:
    """Return whether a finished transaction is visible in a `pg_snapshot` ("xmin:xmax:xip,..."), of 64-bit xids."""
    least, most, running = snapshot.split(":")
    top = int(most)
    whole = (top & ~0xFFFFFFFF) | xid
    if whole > top + (1 << 31):
        whole -= 1 << 32
    if whole < int(least):
        return True
    return whole < top and str(whole) not in running.split(",")


def forget(system: PostgresSystem, state: Mapping[str, Any], resolve: Resolve, endpoints: Mapping[str, str]) -> None:
    """Drop the slots and the publication of a source that is gone for good.

    Raises:
        UnavailableError: Postgres doesn't answer, or refuses; the text has the statements to run by hand.
    """
    server = Server(system, resolve, endpoints)
    with server.connect() as connection:
        slots = [f"{state['slot']}_{number}" for number in range(1, state["generation"] + 2)]
        catalog.drop_slots(connection, server.where, slots)
        catalog.drop_publication(connection, server.where, state["slot"])
