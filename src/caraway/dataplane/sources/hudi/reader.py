"""The reader of copy-on-write Hudi tables: first the rows as of the newest instant, then those that each writes.

Instants are read in the order in which they were requested, and the files of each in a fixed order, so that a row has
the same number each time (the number of the instant among those that were read, that of the file, and the row's in the
file). A row is one of the instant that Hudi has written beside it, so rows that were only copied to another file don't
come again. An instant that removes rows stops the source.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from caraway.dataplane.sources.columns import check_columns
from caraway.dataplane.sources.hudi.files import DataFile, OpenFile, digest, live, written
from caraway.dataplane.sources.hudi.tables import HudiFolder, OpenTable
from caraway.dataplane.sources.hudi.timeline import recent_of, unread
from caraway.dataplane.sources.reader import Items, Position, SourceContext
from caraway.dataplane.sources.rounds import Rounds
from caraway.dataplane.sources.snapshots.reader import FIRST_PLACE, SnapshotReader
from caraway.dataplane.sources.snapshots.reading import Columns, SnapshotRows
from caraway.dataplane.sources.snapshots.rows import BEGIN_ANEW
from caraway.errors import UnavailableError
from caraway.graph.connectors import FilesConnector, S3Connector
from caraway.graph.sources import Cdc


class HudiReader(SnapshotReader[str, DataFile]):
    """Reads a Hudi table (`SourceReader`).

    The position has the last instant that was read in full (`done`) and those before it (`recent`), the one that is
    being read with a file of it and a row of the file, and how many instants were read (`number`). For the first
    instant, it has a digest of the files (`files`).
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
            UnavailableError: Deletes are to be read, too.
        """
        self._folder = HudiFolder(connector, context)
        if context.source.cdc is Cdc.NATIVE:
            raise UnavailableError(
                f'{self._folder.where} is read by its upserts only, and cdc="native" would be its deletes, too; use '
                'cdc="upsert" or "append"'
            )
        super().__init__(context, "a Hudi table", rounds)
        self._done: str | None = None
        self._recent: Sequence[str] = ()
        self._instant: str | None = None
        self._files = ""
        self._table: OpenTable | None = None

    def seek(self, position: Position, items: Items) -> Position:
        """Go on; the first time, begin with the rows as of the instant that is the newest now."""
        del items
        if not position:
            instant, files = self._newest()
            position = {"done": None, "recent": [], "instant": instant, "files": files, **FIRST_PLACE}
        self._done, self._recent = position["done"], position["recent"]
        self._instant, self._files = position["instant"], position["files"]
        self._go_on(position)
        return position

    def _newest(self) -> tuple[str | None, str]:
        """Return the newest instant, and a digest of its files; None and an empty text if there is none."""
        table = self._open()
        if not table.timeline.readable:
            return None, ""
        instant = table.timeline.readable[-1]
        return instant, digest(live(table, instant))

    def _open(self) -> OpenTable:
        """Open the table as it is now, and check that it has the columns."""
        table = self._table = self._folder.open()
        # A table without rows has no columns yet, so there is nothing to check.
        if table.schema.names:
            check_columns(self._context, table.schema.names, table.where)
        return table

    def _begin(self) -> None:
        """Find the instants that this round reads."""
        if self._done is None and self._instant is None:
            # The table had no rows when its reading began, so its first rows are read as a whole.
            self._instant, self._files = self._newest()
        table = self._open()
        if self._done is None:
            # The next round reads the instants behind the first one. Here, the list is only needed for the check below.
            found = [] if self._instant is None else list(table.timeline.readable)
        else:
            found = unread(table.timeline, self._done, self._recent, table.where)
        if self._instant is not None:
            if self._instant not in found:
                raise UnavailableError(
                    f"{table.where}: the instant {self._instant} is gone from the timeline before it was read in full, "
                    f"since it was archived or rolled back; {BEGIN_ANEW}"
                )
            found = [] if self._done is None else found[found.index(self._instant) + 1 :]
        self._pending = found

    @property
    def _is_within(self) -> bool:
        return self._instant is not None

    @property
    def _is_first(self) -> bool:
        return self._done is None

    def _enter(self, step: str) -> bool:
        self._instant = step
        return False

    def _leave(self) -> int:
        table = self._table
        assert table is not None  # noqa: S101 (an instant was read)
        assert self._instant is not None  # noqa: S101 (as above)
        self._done, self._recent = self._instant, recent_of(table.timeline, self._instant)
        self._instant, self._files = None, ""
        return 1

    def _opened(self) -> SnapshotRows[DataFile]:
        table, instant = self._table, self._instant
        assert table is not None  # noqa: S101 (the round has begun)
        assert instant is not None  # noqa: S101 (one is read)
        files = live(table, instant) if self._done is None else written(table, instant)
        if self._done is None and digest(files) != self._files:
            raise UnavailableError(
                f"{table.where}: the cleaner has removed files of the instant {instant} before they were read; "
                f"keep them for longer (hoodie.cleaner.commits.retained), and {BEGIN_ANEW}"
            )
        wanted = self._context.columns
        names = [name for name in table.schema.names if wanted is None or name in wanted]

        def opened(file: DataFile, _: Columns) -> OpenFile:
            return OpenFile(table, file, names)

        where = f"{table.where}, instant {instant}"
        return SnapshotRows(files, opened, names=names, keys=(), shows_gone=False, where=where)

    def _origin(self, read: DataFile) -> tuple[Mapping[str, object], int]:
        # The time is 0, since only envelopes have the time of their instant.
        return {"file": read.path, "instant": self._instant}, 0

    def _position(self) -> dict[str, Any]:
        return {
            "done": self._done,
            "recent": list(self._recent),
            "instant": self._instant,
            "files": self._files,
            **self._place(),
        }
