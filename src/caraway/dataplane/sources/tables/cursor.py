"""The reader of tables in the order of a cursor: a column that grows with each change of a row.

A round reads from the greatest value of the last round less the disorder, up to the greatest value that was there when
the round began. A row that becomes visible later than that is read by the next round, because its cursor is at most the
disorder older than what the table had. Rows that come again unchanged are recognised by their digests (`window`).

If the table has a primary key, pages follow one another by cursor and key. Otherwise a page ends with the last row of a
value of the cursor, and the rows of a value that fills a whole page are read in one go, in as many batches as needed.
"""

import time
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from secrets import randbits
from typing import Any

import structlog

from caraway.dataplane.ingest.table import ColumnTable
from caraway.dataplane.sources.reader import Items, Position, Progress, SourceBatch, SourceContext
from caraway.dataplane.sources.rounds import Rounds
from caraway.dataplane.sources.row_digests import SEED_BITS
from caraway.dataplane.sources.tables import cursors
from caraway.dataplane.sources.tables.choice import Choice, choose
from caraway.dataplane.sources.tables.cursors import CursorKind, NotATimeError
from caraway.dataplane.sources.tables.database import MAX_NULLS, Database, Page
from caraway.dataplane.sources.tables.digests import Rows, Taken
from caraway.dataplane.sources.tables.window import Window
from caraway.errors import UnavailableError
from caraway.graph.connectors import TableConnector

LOG = structlog.get_logger(__name__)

# The first page that a reader asks for has this many rows, since nobody knows yet how long rows are. A later page has
# about as many rows as fit into the byte limit of a batch.
FIRST_ROWS = 100
# The bytes of a sample.
PEEK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """How far the table is read: the position, but for the time of the next round.

    Attributes:
        round: The number of the round that goes on, or of the last one.
        of_pass: The number of the pass, which grows with each round and each start within one.
        least: The value of the cursor from which the round reads, None from the first.
        most: The value up to which the round reads; None between two rounds.
        after: The values of cursor and key of the last row that is read; None at the beginning of a round.
        next_least: The value from which the next round reads.
        read: How many rows the first round has read.
        total: About how many rows the first round has; None if that isn't known.
        columns: The columns of the digests, which stay the same if the table gets further ones.
        kind: How the cursor grows; None before the first round.
        seed: The seed of the digests.
    """

    round: int = 0
    of_pass: int = 0
    least: Any = None
    most: Any = None
    after: Sequence[Any] | None = None
    next_least: Any = None
    read: int = 0
    total: int | None = None
    columns: Sequence[str] = ()
    kind: CursorKind | None = None
    seed: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the position."""
        return {
            # The seed is stored as a text, since a large number in JSON may lose digits.
            "seed": f"{self.seed:x}",
            "round": self.round,
            "pass": self.of_pass,
            "least": cursors.to_json(self.least),
            "most": cursors.to_json(self.most),
            "after": None if self.after is None else cursors.all_to_json(self.after),
            "next_least": cursors.to_json(self.next_least),
            "read": self.read,
            "total": self.total,
            "columns": list(self.columns),
            "kind": self.kind,
        }

    @staticmethod
    def from_json(position: Position) -> "_Place":
        """Return the place of a position."""
        if not position:
            return _Place(seed=randbits(SEED_BITS))
        return _Place(
            seed=int(position["seed"], 16),
            round=position["round"],
            of_pass=position["pass"],
            least=cursors.from_json(position["least"]),
            most=cursors.from_json(position["most"]),
            after=cursors.all_from_json(position["after"]),
            next_least=cursors.from_json(position["next_least"]),
            read=position["read"],
            total=position["total"],
            columns=tuple(position["columns"]),
            kind=None if (kind := position["kind"]) is None else CursorKind(kind),
        )


class CursorReader:
    """Reads one table (`SourceReader`); `Database` has what differs between systems."""

    reads_ahead = True

    def __init__(
        self,
        open_database: Callable[[], Database],
        connector: TableConnector,
        context: SourceContext,
        *,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare to read.

        Args:
            open_database: Makes the database, which connects at its first use.
            connector: The table and the cursor.
            context: The source.
            now: Returns the time in seconds since the epoch, which may jump.
            clock: Returns the time in seconds, which never jumps.
            sleep: Waits for some seconds.
        """
        self._database = open_database()
        self._cursor = connector.cursor or ""
        self._context = context
        self._clock = clock
        self._rounds = Rounds(context.source.every_us, now=now, sleep=sleep)
        self._place = _Place()
        self._choice: Choice | None = None
        self._rows: int | None = None
        self._window = Window({})
        # The unread rows of a cursor value that fills more than a page, and how many rows with each digest the pass has
        # met.
        self._rest: Rows | None = None
        self._passed: Counter[bytes] = Counter()
        self._limit = FIRST_ROWS
        self._begun_at = 0.0
        self._found = False
        self._idle_at: float | None = None
        # `_is_fresh` becomes true when this reader begins its first round, and `_is_through` when that round ends.
        self._is_fresh = self._is_through = False

    def seek(self, position: Position, items: Items) -> Position:
        """Go on from a place in the table; see `SourceReader.seek`."""
        place = _Place.from_json(position)
        self._rounds.next_at = position.get("next_at", 0.0)
        # An interrupted pass may have met only some rows of a cursor value. The round goes on as a new pass, which
        # knows all rows of the earlier one.
        self._place = replace(place, of_pass=place.of_pass + (place.most is not None))
        self._window = Window(items)
        self._look()
        # The seed must be saved before any row is read.
        return position or self._position()

    def poll(self, *, rows: int, size: int, timeout_s: float) -> SourceBatch | None:
        """Return the next rows of a round, or wait for the next round; see `SourceReader.poll`."""
        try:
            if self._place.most is None:
                if not self._rounds.wait(timeout_s):
                    return None
                self._begin()
                if self._place.most is None:
                    return self._batch(self._nothing(), (), {})
            return self._read(rows, size)
        except NotATimeError as error:
            raise self._not_a_time(error) from None

    def is_ahead(self, mark: str) -> bool:
        """Return whether a row with this mark may still be read.

        A round that began after a crash reads all rows again that were written before it, if they are still there. So
        none is ahead when it has ended. Before that, the order of the cursor tells.
        """
        if self._is_through:
            return False
        _, is_known, digits = mark.partition("@")
        place = self._place
        if not is_known or place.most is None or place.after is None:
            return True
        found = cursors.from_tag(digits)
        if not self._is_fresh and found >= self._rank(place.next_least):
            # The row may have been written in a later round before the crash. The new reader hasn't begun that round
            # again yet.
            return True
        return bool(found >= self._rank(place.after[0]))

    def acknowledge(self, position: Position) -> None:
        """Do nothing: a database doesn't keep how far it was read."""

    def lag(self) -> int | None:
        """Return nothing: counting rows would take a scan of the table."""
        return None

    def idle_at(self) -> float | None:
        """Return when the last round began, if it found no new rows."""
        return self._idle_at

    def progress(self) -> Progress | None:
        """Return how far the first round is, if the database has an estimate of the table's rows."""
        place = self._place
        if place.round != 1 or place.most is None or place.total is None:
            return None
        return Progress(done=place.read, total=max(place.read, place.total), unit="rows")

    def peek(self, rows: int) -> SourceBatch:
        """Return the first rows of the table, after checks of its columns and of the cursor."""
        choice = self._look()
        bounds = self._database.bounds(choice.cursor)
        if bounds.greatest is None:
            return self._batch(self._nothing(), (), {})
        try:
            self._rank(bounds.greatest)
            page = Page(
                columns=choice.names, keys=choice.keys, least=None, most=bounds.greatest, after=None, limit=rows
            )
            with closing(Rows(self._database.rows(page), choice.digests)) as found:
                # A sample of large rows has fewer of them: none is added behind `PEEK_BYTES`.
                taken = found.take(rows, PEEK_BYTES)
            return self._batch(taken, range(len(taken)), {})
        except NotATimeError as error:
            raise self._not_a_time(error) from None

    def close(self) -> None:
        """End the connection."""
        self._close_rest()
        self._database.close()

    # The steps of a round, from its beginning to its end.

    def _look(self) -> Choice:
        """Read which columns the table has, and choose those that are read."""
        shape = self._database.shape()
        self._choice = choice = choose(
            shape,
            self._cursor,
            self._context,
            self._place.seed,
            before=self._place.columns,
            where=self._database.where,
        )
        kind = self._place.kind
        if kind is not None and kind is not choice.kind:
            raise UnavailableError(
                f"{self._database.where}: the cursor {choice.cursor.name} is a {choice.kind} now and was a {kind}, so "
                "it can't be told which rows were read; change the type back, or commit a higher version of the dataset"
            )
        self._rows = shape.rows
        place = self._place
        if place.after is not None and list(place.columns[: len(place.after)]) != choice.names[: len(place.after)]:
            # The primary key was changed, so `after` doesn't fit it any more. The last value of the cursor is read
            # again.
            place = replace(place, after=None, least=place.after[0])
        self._place = replace(place, columns=choice.digested, kind=choice.kind)
        self._window.follow(self._rank, choice.schema, has_key=choice.has_key)
        return choice

    def _begin(self) -> None:
        """Begin a round: note up to which value it reads, and from which value the next one does."""
        self._rounds.begin()
        self._begun_at, self._found, self._is_fresh = self._clock(), False, True
        choice = self._look()
        place = self._place
        bounds = self._database.bounds(choice.cursor)
        if bounds.nulls:
            self._warn(bounds.nulls)
        if bounds.greatest is None:
            self._end()
            return
        next_least = cursors.moved_back(
            choice.kind,
            bounds.greatest,
            self._context.source.disorder_us,
            bounds.now_us,
            self._context.integer_overlap,
        )
        if place.next_least is not None and self._rank(next_least) < self._rank(place.next_least):
            # Rows were deleted, or the database's clock was set back. Earlier rows wouldn't be recognised, since the
            # window lacks them.
            next_least = place.next_least
        self._place = replace(
            place,
            round=place.round + 1,
            of_pass=place.of_pass + 1,
            least=place.next_least,
            most=bounds.greatest,
            after=None,
            next_least=next_least,
            total=self._rows if place.round == 0 else None,
        )

    def _warn(self, nulls: int) -> None:
        LOG.warning(
            "rows without a cursor are not read",
            source=self._context.name,
            at=self._database.where,
            cursor=self._chosen.cursor.name,
            rows=f"{nulls:,}" if nulls < MAX_NULLS else f"{MAX_NULLS:,} or more",
        )

    def _read(self, rows: int, size: int) -> SourceBatch:
        """Return the next rows of the round."""
        choice, place = self._chosen, self._place
        limit = min(rows, self._limit)
        if self._rest is not None:
            return self._read_rest(self._rest, limit, size)
        page = Page(
            columns=choice.names,
            keys=choice.keys,
            least=place.least,
            most=place.most,
            after=place.after,
            limit=limit,
        )
        with closing(Rows(self._database.rows(page), choice.digests)) as found:
            taken = found.take(limit, size)
        count = len(taken)
        # A full page may also be the last one. The next page is empty then.
        is_end = count < limit and taken.size < size
        if count:
            self._limit = max(1, min(rows, size * count // max(taken.size, 1)))
        if choice.has_key or is_end:
            after = [column[-1] for column in taken.columns[: choice.keys]] if count else place.after
            return self._pass_on(taken, after, is_end=is_end)
        # Some rows with the last cursor value may be missing from the page, so all rows with that value are read again.
        cursor = taken.columns[0]
        last = cursor[-1]
        if whole := cursor.index(last):
            return self._pass_on(taken.first(whole), [cursor[whole - 1]], is_end=False)
        page = replace(page, least=last, most=last, after=None, limit=None)
        self._rest = Rows(self._database.rows(page), choice.digests, last)
        return self._read_rest(self._rest, limit, size)

    def _read_rest(self, rest: Rows, limit: int, size: int) -> SourceBatch:
        """Return the next rows of a value of the cursor that fills more than a page."""
        taken = rest.take(limit, size)
        after = [rest.value] if taken.is_all else self._place.after
        batch = self._pass_on(taken, after, is_end=False)
        if taken.is_all:
            self._close_rest()
        return batch

    def _close_rest(self) -> None:
        rest, self._rest = self._rest, None
        self._passed.clear()
        if rest is not None:
            rest.close()

    def _pass_on(self, taken: Taken, after: Sequence[Any] | None, *, is_end: bool) -> SourceBatch:
        """Return rows as a batch, less those that were read before, and note how far the table is read."""
        place, window, digests = self._place, self._window, taken.digests
        new: Sequence[int] = ()
        equal: dict[int, int] = {}
        if digests:
            least, most = taken.columns[0][0], taken.columns[0][-1]
            # The rows are sorted by the cursor, so its least value comes first. Texts are sorted as texts, and not by
            # their times.
            new, equal = window.known(least, most, place.of_pass).new(digests, self._passed)
            if self._rest is None:
                self._passed.clear()
            window.add(place.round, place.of_pass, least, most, digests)
            self._found = self._found or bool(new)
        read = place.read + (len(taken) if place.total is not None else 0)
        self._place = place = replace(place, after=after, read=read)
        next_least = self._rank(place.next_least)
        passed = None if after is None else self._rank(after[0])
        if passed is not None:
            # A page is dropped once this round has read past its last value, since its rows can't come again by then.
            # A page of this round with values from `next_least` on stays, since the next round reads its rows again.
            window.drop(lambda of_round, most: most < passed and (of_round < place.round or most < next_least))
        if is_end:
            self._end()
        return self._batch(taken, new, equal)

    def _end(self) -> None:
        place = self._place
        self._is_through = self._is_fresh
        self._idle_at = None if self._found else self._begun_at
        if place.most is not None:
            next_least = self._rank(place.next_least)
            self._window.drop(lambda of_round, most: of_round < place.round or most < next_least)
        self._place = replace(place, most=None, after=None, total=None)

    # The batches of rows that are handed over.

    @property
    def _chosen(self) -> Choice:
        assert self._choice is not None  # noqa: S101 (set by seek and peek)
        return self._choice

    def _rank(self, value: Any) -> Any:
        return cursors.rank(self._chosen.kind, value)

    def _nothing(self) -> Taken:
        return Taken(columns=[[] for _ in self._chosen.fetched], digests=[], size=0, is_all=True)

    def _batch(self, taken: Taken, new: Sequence[int], equal: Mapping[int, int]) -> SourceBatch:
        """Return the new ones of some rows.

        Args:
            taken: The rows.
            new: The numbers of the new ones.
            equal: How many equal rows came before such a row, for those before which any came.
        """
        choice, where, digests = self._chosen, self._database.where, taken.digests
        found = taken.columns
        if len(new) < len(taken):
            found = [[values[number] for number in new] for values in found]
        keys = found[: choice.keys]

        def mark(row: int) -> str:
            number = new[row]
            before = equal.get(number, 0)
            name = urlsafe_b64encode(digests[number]).decode().rstrip("=")
            order = cursors.tag(choice.kind, keys[0][row])
            return f"{name}{f'!{before}' if before else ''}{f'@{order}' if order else ''}"

        columns, faults = choice.payload(found)
        return SourceBatch(
            rows=ColumnTable(columns, len(new), faults),
            mark=mark,
            origin=lambda row: {"table": where, **choice.key_of([values[row] for values in keys])},
            position=self._position(),
            items=self._window.changes(),
            size=taken.size,
        )

    def _position(self) -> Position:
        return {**self._place.to_json(), "next_at": self._rounds.next_at}

    def _not_a_time(self, error: NotATimeError) -> UnavailableError:
        return UnavailableError(
            f"{self._database.where}: the cursor {self._chosen.cursor.name} has the value {str(error)!r}, "
            'which is no time such as "2024-05-01 12:00:00"; correct the row, or use another column as the cursor'
        )
