"""The reader of Hudi tables: first the rows as of the newest instant, then what each further one has changed.

Instants are read in the order in which they were requested, and the file groups of each in a fixed order, so that a row
has the same number each time (the number of the instant among those that were read, that of the file slice, and the
row's in the slice). With cdc "append" and "upsert", rows that were added are read; with "native" also those that were
removed. Compaction and clustering make no rows.
"""

import time
from collections.abc import Sequence
from typing import Any

from caraway.errors import UnavailableError
from caraway.graph.connectors import FilesConnector, S3Connector
from caraway.graph.sources import Cdc
from caraway.ingest.sources.files.keys import key_columns
from caraway.ingest.sources.hudi.changes import ReadSlice, changes, digest, live
from caraway.ingest.sources.hudi.rows import OpenSlice
from caraway.ingest.sources.hudi.tables import HudiFolder, OpenTable
from caraway.ingest.sources.hudi.timeline import Instant, recent_of, unread
from caraway.ingest.sources.reader import Items, Position, Progress, SourceBatch, SourceContext
from caraway.ingest.sources.rounds import ReadInRounds, Rounds, place_of
from caraway.ingest.sources.snapshots.batches import Part, batch_of, table_of
from caraway.ingest.sources.snapshots.columns import check_columns
from caraway.ingest.sources.snapshots.reading import Columns, SnapshotRows
from caraway.ingest.sources.snapshots.rows import BEGIN_ANEW, Rows

# The most instants of one batch: those without rows are passed over, but the position has to move.
BATCH_INSTANTS = 20


class HudiReader(ReadInRounds):
    """Reads a Hudi table (`SourceReader`).

    The position has the last instant that was read in full (`done`) and those before it (`recent`), the one that is
    being read with a file slice of it and a row of the slice, and how many instants were read (`number`). For the first
    instant, it has a digest of the slices.
    """

    def __init__(
        self, connector: S3Connector | FilesConnector, context: SourceContext, *, rounds: Rounds | None = None
    ) -> None:
        """Prepare to read.

        Args:
            connector: The folder of the table.
            context: All else that the reader knows.
            rounds: The rounds, if they aren't those of the machine's clock.

        Raises:
            UnavailableError: The key is computed, so rows can't be compared.
        """
        self._context = context
        self._rounds = rounds or Rounds(context.source.every_us)
        self._folder = HudiFolder(connector, context)
        self._is_native = context.source.cdc is Cdc.NATIVE
        self._keys = key_columns(context, "a Hudi table") if self._is_native else ()
        self._types = {field.name: field.dtype for field in context.dataset.fields}
        self._done: str | None = None
        self._recent: Sequence[str] = ()
        self._instant: str | None = None
        self._slices = ""
        self._number = self._file = self._row = 0
        # The instants of this round that aren't begun, and the one that is read.
        self._pending: list[Instant] | None = None
        self._current: Instant | None = None
        self._table: OpenTable | None = None
        self._reading: SnapshotRows[ReadSlice] | None = None

    def seek(self, position: Position, items: Items) -> Position:
        """Go on; the first time, begin with the rows as of the instant that is the newest now."""
        del items
        if not position:
            instant, slices = self._newest()
            position = {
                "done": None,
                "recent": [],
                "instant": instant,
                "slices": slices,
                "number": 0,
                "file": 0,
                "row": 0,
                "next": 0.0,
                "reading": True,
            }
        self._done, self._recent = position["done"], position["recent"]
        self._instant, self._slices = position["instant"], position["slices"]
        self._number, self._file, self._row = (int(position[name]) for name in ("number", "file", "row"))
        self._rounds.go_on(position)
        return position

    def poll(self, *, rows: int, size: int, timeout_s: float) -> SourceBatch | None:
        """Return the next rows; see `SourceReader.poll`."""
        begun = time.monotonic()
        if not self._rounds.is_on:
            if not self._rounds.wait(timeout_s):
                return None
            self._rounds.begin()
        if self._pending is None:
            self._begin()
        batch = self._read(rows, size)
        self._rounds.note(len(batch.rows), begun)
        return batch

    def is_ahead(self, mark: str) -> bool:
        """Return whether a row isn't read yet, by the numbers of its instant, its file slice and its own."""
        return place_of(mark) >= (self._number, self._file, self._row)

    def progress(self) -> Progress | None:
        """Return how many bytes of the file slices of the current instant are read."""
        if not self._rounds.is_on or self._reading is None:
            return None
        sizes = [each.size for each in self._reading.files]
        current = min(self._reading.read_bytes, sizes[self._file]) if self._file < len(sizes) else 0
        return Progress(done=sum(sizes[: self._file]) + current, total=sum(sizes), unit="bytes")

    def peek(self, rows: int) -> SourceBatch:
        """Return some rows as of the newest instant, and check that the table can be read."""
        self.seek({}, {})
        self._begin()
        return self._read(rows, 1 << 40)

    def close(self) -> None:
        """Close what is open."""
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    def _newest(self) -> tuple[str | None, str]:
        """Return the newest instant, and a digest of its file slices; None and an empty text if there is none."""
        table = self._open()
        if not table.timeline.readable:
            return None, ""
        instant = table.timeline.readable[-1].at
        return instant, digest(table, live(table, instant))

    def _open(self) -> OpenTable:
        """Open the table as it is now, and check that it has the columns."""
        table = self._table = self._folder.open()
        # A table without rows has no columns yet.
        if table.schema.names:
            check_columns(self._context, table.schema.names, table.where)
        return table

    def _begin(self) -> None:
        """Find the instants that this round reads."""
        if self._done is None and self._instant is None:
            # The table had no rows; what it has now is read as a whole.
            self._instant, self._slices = self._newest()
        else:
            self._open()
        table = self._table
        assert table is not None  # noqa: S101 (it was opened just now)
        timeline = table.timeline
        if self._done is None:
            # The instants behind the first one are those of the next round.
            self._pending = []
            if self._instant is not None:
                self._current = self._there(timeline.readable, self._instant)
            return
        found = unread(timeline, self._done, self._recent, table.where)
        if self._instant is not None:
            self._current = self._there(found, self._instant)
            found = found[found.index(self._current) + 1 :]
        self._pending = found

    def _there(self, instants: Sequence[Instant], at: str) -> Instant:
        for instant in instants:
            if instant.at == at:
                return instant
        raise UnavailableError(
            f"{self._folder.where}: the instant {at} is gone from the timeline before it was read in full, since it "
            f"was archived or rolled back; {BEGIN_ANEW}"
        )

    def _read(self, rows: int, size: int) -> SourceBatch:
        parts: list[Part] = []
        left, read, passed = rows, 0, 0
        while left > 0 and read < size and passed < BATCH_INSTANTS:
            if self._instant is None and not self._next_instant():
                self._rounds.end()
                self._pending = None
                break
            reading = self._reading = self._reading or self._opened()
            before = reading.read_bytes
            some = reading.next(self._file, self._row, left)
            read += max(0, reading.read_bytes - before)
            if some is not None:
                parts.append(self._part(reading, some))
                left -= len(some.numbers)
                self._row = int(some.numbers[-1]) + 1
            elif self._file + 1 < len(reading.files):
                self._file, self._row = self._file + 1, 0
            else:
                passed += 1
                self._end_instant()
        return batch_of(parts, self._position(), read)

    def _next_instant(self) -> bool:
        """Go to the next instant of this round; return False if there is none."""
        if not self._pending:
            return False
        self._current = self._pending.pop(0)
        self._instant = self._current.at
        return True

    def _end_instant(self) -> None:
        table = self._table
        assert table is not None  # noqa: S101 (an instant was read)
        assert self._instant is not None  # noqa: S101 (as above)
        self.close()
        self._done, self._recent = self._instant, recent_of(table.timeline, self._instant)
        self._instant, self._slices = None, ""
        self._number, self._file, self._row = self._number + 1, 0, 0

    def _opened(self) -> SnapshotRows[ReadSlice]:
        # The files are listed anew, since the cleaner may have removed some since the round began.
        table, instant = self._folder.open(), self._instant
        assert instant is not None  # noqa: S101 (one is read)
        if self._done is None:
            files = live(table, instant)
            if digest(table, files) != self._slices:
                raise UnavailableError(
                    f"{table.where}: the cleaner has removed files of the instant {instant} before they were read; "
                    f"keep them for longer (hoodie.cleaner.commits.retained), and {BEGIN_ANEW}"
                )
        else:
            known = [each.at for each in table.timeline.done]
            at = known.index(instant) if instant in known else 0
            if not at:
                raise UnavailableError(
                    f"{table.where}: the instants before {instant} were archived before it was read; keep more of them "
                    f"(hoodie.keep.min.commits), and {BEGIN_ANEW}"
                )
            files = changes(table, instant, known[at - 1])
        every = list(table.schema.names)
        wanted = self._context.columns
        names = [name for name in every if wanted is None or name in wanted]

        def opened(read: ReadSlice, which: Columns) -> OpenSlice:
            return OpenSlice(table, read, every if which is Columns.ALL else names)

        return SnapshotRows(
            files,
            opened,
            names=names,
            keys=self._keys,
            shows_gone=self._is_native,
            where=f"{table.where}, instant {instant}",
        )

    def _part(self, reading: SnapshotRows[ReadSlice], rows: Rows) -> Part:
        read, instant = reading.files[self._file], self._current
        assert instant is not None  # noqa: S101 (one is read)
        op = ("d" if read.is_gone else "r" if self._done is None else "c") if self._is_native else None
        return Part(
            prefix=f"{self._number}-{self._file}",
            origin={"file": read.path, "instant": instant.at},
            numbers=rows.numbers,
            table=table_of(rows, self._types, op, instant.completed_ms),
        )

    def _position(self) -> dict[str, Any]:
        return {
            "done": self._done,
            "recent": list(self._recent),
            "instant": self._instant,
            "slices": self._slices,
            "number": self._number,
            "file": self._file,
            "row": self._row,
            **self._rounds.to_json(),
        }
