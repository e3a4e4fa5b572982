"""The reading of a table that keeps snapshots: the rows of the newest one, then what each further one has changed.

A format of tables calls what it reads in one go a step: an instant of Hudi, or a commit of Iceberg. Steps are read one
after another, and the files of each in a fixed order, so that a row has the same number each time (the number of the
step, that of the file, and the row's in the file).
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

from caraway.dataplane.ingest.table import Table
from caraway.dataplane.sources.files.keys import key_columns
from caraway.dataplane.sources.files.pieces import ArrowInserts, ArrowTable, cast_types
from caraway.dataplane.sources.reader import Items, Position, Progress, SourceBatch, SourceContext
from caraway.dataplane.sources.rounds import PolledInRounds, Rounds, place_of
from caraway.dataplane.sources.snapshots.batches import Part, batch_of, deleted
from caraway.dataplane.sources.snapshots.reading import File, SnapshotRows
from caraway.dataplane.sources.snapshots.rows import Rows
from caraway.graph.sources import Cdc

Step = TypeVar("Step")
# The beginning of the first read: the part of a position that is the same for all formats.
FIRST_PLACE: Mapping[str, Any] = {"number": 0, "file": 0, "row": 0, "next": 0.0, "reading": True}


class SnapshotReader(PolledInRounds, Generic[Step, File]):
    """The part of a `SourceReader` that the formats share; a subclass finds the steps and their files."""

    reads_ahead = True

    # A batch ends after this many steps, even if they have no rows, so that the position moves on.
    most_steps: ClassVar[int]

    def __init__(self, context: SourceContext, kind: str, rounds: Rounds | None) -> None:
        """Prepare to read.

        Args:
            context: All that the reader knows besides its connector.
            kind: The kind of the table with its article, such as "an Iceberg table", for errors.
            rounds: The rounds; None for those of the machine's clock.

        Raises:
            UnavailableError: The key is computed, so rows can't be compared.
        """
        self._context = context
        self._rounds = rounds or Rounds(context.source.every_us)
        self._is_native = context.source.cdc is Cdc.NATIVE
        self._keys = key_columns(context, kind) if self._is_native else ()
        self._types = cast_types(context.dataset, context.source)
        self._number = self._file = self._row = 0
        # The steps of this round that aren't begun; None if they aren't known.
        self._pending: list[Step] | None = None
        self._reading: SnapshotRows[File] | None = None

    def is_ahead(self, mark: str) -> bool:
        """Return whether a row isn't read yet, by the numbers of its step, its file and its own."""
        return place_of(mark) >= (self._number, self._file, self._row)

    def progress(self) -> Progress | None:
        """Return how many bytes of the files of the current step are read."""
        if not self._rounds.is_on or self._reading is None:
            return None
        sizes = [each.size for each in self._reading.files]
        current = min(self._reading.read_bytes, sizes[self._file]) if self._file < len(sizes) else 0
        return Progress(done=sum(sizes[: self._file]) + current, total=sum(sizes), unit="bytes")

    def peek(self, rows: int) -> SourceBatch:
        """Return some rows of the newest snapshot, and check that its files can be read."""
        self.seek({}, {})
        self._begin()
        return self._read(rows, 1 << 40)

    def close(self) -> None:
        """Close what is open."""
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    def _go_on(self, position: Position) -> None:
        """Go on from the part of a position that all formats have."""
        self._number, self._file, self._row = (int(position[name]) for name in ("number", "file", "row"))
        self._rounds.go_on(position)

    def _place(self) -> dict[str, Any]:
        """Return the part of the position that all formats have."""
        return {"number": self._number, "file": self._file, "row": self._row, **self._rounds.to_json()}

    def _prepare(self) -> None:
        if self._pending is None:
            self._begin()

    def _read(self, rows: int, size: int) -> SourceBatch:
        parts: list[Part] = []
        left, read, passed = rows, 0, 0
        is_fence = False
        while left > 0 and read < size and passed < self.most_steps:
            if not self._is_within:
                if not self._pending:
                    self._rounds.end()
                    self._pending = None
                    break
                is_fence = self._enter(self._pending.pop(0))
                if is_fence:
                    break
            reading = self._reading = self._reading or self._opened()
            before = reading.read_bytes
            some = reading.next(self._file, self._row, left)
            read += max(0, reading.read_bytes - before)
            if some is not None:
                parts.append(self._part(reading.files[self._file], some))
                left -= len(some.numbers)
                self._row = int(some.numbers[-1]) + 1
            elif self._file + 1 < len(reading.files):
                self._file, self._row = self._file + 1, 0
            else:
                self.close()
                passed += 1
                self._number, self._file, self._row = self._number + self._leave(), 0, 0
        return batch_of(parts, self._position(), read, is_fence=is_fence)

    def _part(self, read: File, rows: Rows) -> Part:
        origin, ts_ms = self._origin(read)
        table: Table
        if not self._is_native:
            table = ArrowTable(rows.batch, self._types)
        elif read.is_gone:
            table = deleted(rows.batch, self._types, ts_ms)
        else:
            ops = ["r" if self._is_first else "c"] * len(rows.numbers)
            table = ArrowInserts(rows.batch, self._types, ops, ts_ms)
        return Part(prefix=f"{self._number}-{self._file}", origin=origin, numbers=rows.numbers, table=table)

    @abstractmethod
    def seek(self, position: Position, items: Items) -> Position:
        """Go on from a position, and return it; see `SourceReader.seek`."""

    @property
    @abstractmethod
    def _is_within(self) -> bool:
        """True while a step is read."""

    @property
    @abstractmethod
    def _is_first(self) -> bool:
        """True until the rows that the table had at first are read."""

    @abstractmethod
    def _begin(self) -> None:
        """Find the steps that this round reads."""

    @abstractmethod
    def _enter(self, step: Step) -> bool:
        """Begin a step; return True if the position must be saved before its rows are read."""

    @abstractmethod
    def _leave(self) -> int:
        """End the step, whose rows are all read; return by how much the number of the next one is greater."""

    @abstractmethod
    def _opened(self) -> SnapshotRows[File]:
        """Return the files of the step that is read."""

    @abstractmethod
    def _origin(self, read: File) -> tuple[Mapping[str, object], int]:
        """Return the place of a file's rows, for dead letters, and the time of the step in milliseconds."""

    @abstractmethod
    def _position(self) -> Position:
        """Return the position behind the rows that are read."""
