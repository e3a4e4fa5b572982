"""The division of a dataset's records by key, and readers of one division."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import polars as pl

from caraway.dataplane.archive.store.columns import columns_of
from caraway.dataplane.archive.store.reading import ArchivedRecords, ArchivedTopics, Part
from caraway.graph.plan.model import TopicPlan
from caraway.offline.history.records import index_frame
from caraway.offline.kernel.blocks import BlockSizes
from caraway.offline.reader import Memory
from caraway.offline.spark.pieces import RECORDS, Piece, divided, divisions_of
from caraway.offline.spark.work import DividedDataset
from caraway.process.scratch import ScratchFolder

# A task holds at most this many bytes of a dataset's records of one division in memory. More records are sorted on the
# disk.
RECORDS_BYTES = 64 << 20
# A run of sorted records may take a half of this memory, a block of them an eighth.
RUNS, BLOCKS = 2, 8
# The kind of pieces with records of a dataset that has revisions. Spark gathers these pieces by the identities of their
# records first, because a revision and the record that it replaces may have keys of different divisions.
IDENTITIES = 2
_ROW_NUMBER, _DIVISION = "record row", "record division"


class DividedTopic:
    """The records of one division of a dataset: in memory, or in files if there are too many."""

    def __init__(
        self,
        topic: TopicPlan,
        columns: Sequence[str],
        nothing: pl.DataFrame,
        *,
        limit: int = RECORDS_BYTES,
        base: Path | None = None,
    ) -> None:
        """Have no records yet.

        Args:
            topic: The topic.
            columns: The columns of its rows that the records have.
            nothing: No records, with all columns.
            limit: The bytes of records that are in memory.
            base: The folder for the files; None for the system's folder of temporary files.
        """
        self._topic = topic
        self._columns = frozenset(columns)
        self._nothing = nothing
        self._limit = limit
        self._base = base
        self._frames: list[pl.DataFrame] = []
        self._files: list[Path] = []
        self._folder: ScratchFolder | None = None
        self._rows = 0
        self._bytes = 0

    def add(self, frame: pl.DataFrame) -> None:
        """Add records."""
        self._frames.append(frame)
        self._rows += frame.height
        self._bytes += int(frame.estimated_size())
        if self._bytes <= self._limit:
            return
        if self._folder is None:
            self._folder = ScratchFolder("records", self._base)
        for some in self._frames:
            self._files.append(self._folder.path / f"{len(self._files)}.arrow")
            some.write_ipc(self._files[-1], compression="lz4")
        self._frames = []

    @property
    def on_disk(self) -> bool:
        """True if the records are in files."""
        return self._folder is not None

    def close(self) -> None:
        """Remove all records."""
        self._frames = []
        self._files = []
        if self._folder is not None:
            self._folder.remove()
            self._folder = None

    def memory(self) -> Memory:
        """Return what a reader of these records may hold in memory: all of them, unless they are in files."""
        if self._folder is None:
            return Memory(self._rows, BlockSizes())
        width = max(self._bytes // max(self._rows, 1), 1)
        # With these sizes, sorting a run takes about as much memory as the records may take (`_limit`), and so does a
        # block with its sums.
        run_rows, block_rows = (max(self._limit // part // width, 1) for part in (RUNS, BLOCKS))
        return Memory(0, BlockSizes(run_rows, block_rows, self._limit))

    def records(self, topic: TopicPlan, wanted: Sequence[str]) -> ArchivedRecords:
        """Return the records in some columns; see `ArchivedTopics.records`."""
        pieces = [piece.rows for piece in self.pieces(topic, wanted)]
        names = self._names(topic, wanted)
        return ArchivedRecords(pl.concat([self._nothing.select(names), *pieces]), columns_of(topic.schema), {})

    def pieces(self, topic: TopicPlan, wanted: Sequence[str]) -> Iterator[ArchivedRecords]:
        """Yield the records in some columns, some at a time."""
        names = self._names(topic, wanted)
        for file in self._files:
            yield ArchivedRecords(pl.read_ipc(file, columns=names), columns_of(topic.schema), {})
        for frame in self._frames:
            yield ArchivedRecords(frame.select(names), columns_of(topic.schema), {})

    def rows(self, topic: TopicPlan) -> int:
        """Return how many records there are."""
        self._check(topic, ())
        return self._rows

    def _names(self, topic: TopicPlan, wanted: Sequence[str]) -> list[str]:
        self._check(topic, wanted)
        columns = columns_of(topic.schema)
        control = [columns.time, columns.op, columns.ingested, columns.partition, columns.offset, columns.number]
        return list(dict.fromkeys([*wanted, *control, columns.id, columns.rev]))

    def _check(self, topic: TopicPlan, wanted: Sequence[str]) -> None:
        if topic.name != self._topic.name or not self._columns.issuperset(wanted):
            raise AssertionError(f"records of {topic.name} weren't divided with the columns {', '.join(wanted)}")


def divided_part(
    source: ArchivedTopics, dataset: DividedDataset, topic: TopicPlan, part: Part, count: int
) -> Iterator[Piece]:
    """Read a part of a dataset's records, and yield those of each division, or of each division by identity.

    Args:
        source: The records of topics.
        dataset: The dataset.
        topic: Its topic.
        part: The part.
        count: The number of divisions.

    Raises `UnavailableError` if the broker or the object store doesn't answer.
    """
    plan, name = dataset.plan, dataset.plan.dataset
    rows = source.read(topic, dataset.found, part, dataset.columns).with_row_index(_ROW_NUMBER)
    frame = index_frame(plan, ArchivedRecords(rows, columns_of(topic.schema), {}), [_ROW_NUMBER])
    divisions = divisions_of(plan.schema.keys, [frame[key.name] for key in plan.schema.keys], count)
    kept = rows[frame[_ROW_NUMBER]].drop(_ROW_NUMBER)
    if not plan.revised:
        yield from divided(kept, divisions, RECORDS, name)
        return
    marked = kept.with_columns(pl.Series(_DIVISION, divisions, dtype=pl.Int64))
    identities = kept.select(columns_of(topic.schema).id).hash_rows(0) % count
    yield from divided(marked, identities.cast(pl.Int64).to_numpy(), IDENTITIES, name)


def gathered(topic: TopicPlan, name: str, pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Yield the records of one division by identity for the divisions of all revisions of their identities.

    A row of a failed attempt may have another key under the same identity. The division of that key needs the revision
    which replaces the row.
    """
    identity = columns_of(topic.schema).id
    frame = pl.concat([piece.frame for piece in pieces])
    everywhere = frame.select(identity, _DIVISION).unique().filter(pl.col(identity).is_not_null())
    unnamed = frame.filter(pl.col(identity).is_null())
    named = frame.drop(_DIVISION).join(everywhere, on=identity, how="inner").select(frame.columns)
    for some in (unnamed, named):
        yield from divided(some.drop(_DIVISION), some[_DIVISION].to_numpy(), RECORDS, name)
