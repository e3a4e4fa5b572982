"""The reader of Hudi tables: first the rows as of the newest instant, then what each further one has changed.

Instants are read in the order in which they were requested, and the file groups of each in a fixed order, so that a row
has the same number each time (the number of the instant among those that were read, that of the file slice, and the
row's in the slice). With cdc "append" and "upsert", rows that were added are read; with "native" also those that were
removed. Compaction and clustering make no rows.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from caraway.errors import UnavailableError
from caraway.graph.connectors import FilesConnector, S3Connector
from caraway.ingest.sources.columns import check_columns
from caraway.ingest.sources.hudi.changes import ReadSlice, changes, digest, live
from caraway.ingest.sources.hudi.rows import OpenSlice
from caraway.ingest.sources.hudi.tables import HudiFolder, OpenTable
from caraway.ingest.sources.hudi.timeline import Instant, recent_of, unread
from caraway.ingest.sources.reader import Items, Position, SourceContext
from caraway.ingest.sources.rounds import Rounds
from caraway.ingest.sources.snapshots.reader import FIRST_PLACE, SnapshotReader
from caraway.ingest.sources.snapshots.reading import Columns, SnapshotRows
from caraway.ingest.sources.snapshots.rows import BEGIN_ANEW


class HudiReader(SnapshotReader[Instant, ReadSlice]):
    """Reads a Hudi table (`SourceReader`).

    The position has the last instant that was read in full (`done`) and those before it (`recent`), the one that is
    being read with a file slice of it and a row of the slice, and how many instants were read (`number`). For the first
    instant, it has a digest of the slices.
    """

    most_steps = 20

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
        self._folder = HudiFolder(connector, context)
        super().__init__(context, "a Hudi table", rounds)
        self._done: str | None = None
        self._recent: Sequence[str] = ()
        self._instant: str | None = None
        self._slices = ""
        # The instant that is read.
        self._current: Instant | None = None
        self._table: OpenTable | None = None

    def seek(self, position: Position, items: Items) -> Position:
        """Go on; the first time, begin with the rows as of the instant that is the newest now."""
        del items
        if not position:
            instant, slices = self._newest()
            position = {"done": None, "recent": [], "instant": instant, "slices": slices, **FIRST_PLACE}
        self._done, self._recent = position["done"], position["recent"]
        self._instant, self._slices = position["instant"], position["slices"]
        self._go_on(position)
        return position

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

    @property
    def _is_within(self) -> bool:
        return self._instant is not None

    @property
    def _is_first(self) -> bool:
        return self._done is None

    def _enter(self, step: Instant) -> bool:
        self._current, self._instant = step, step.at
        return False

    def _leave(self) -> int:
        table = self._table
        assert table is not None  # noqa: S101 (an instant was read)
        assert self._instant is not None  # noqa: S101 (as above)
        self._done, self._recent = self._instant, recent_of(table.timeline, self._instant)
        self._instant, self._slices = None, ""
        return 1

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

    def _origin(self, read: ReadSlice) -> tuple[Mapping[str, object], int]:
        instant = self._current
        assert instant is not None  # noqa: S101 (one is read)
        return {"file": read.path, "instant": instant.at}, instant.completed_ms

    def _position(self) -> dict[str, Any]:
        return {
            "done": self._done,
            "recent": list(self._recent),
            "instant": self._instant,
            "slices": self._slices,
            **self._place(),
        }
