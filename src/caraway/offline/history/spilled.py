"""Histories whose records don't fit into memory: they are sorted on the disk, and read in blocks.

The answers are those of `VersionHistory` and `AggregateHistory` to the bit, since both are computed from positions of
rows in the same order, and sums are exact. In memory are the keys, a run or some blocks of records, and what is asked.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from math import ceil
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from caraway.dataplane.archive.store.reading import ArchivedRecords
from caraway.dataplane.topics.codec import DELETE, PUT
from caraway.dtypes.types import DATETIME
from caraway.expr.polars.values import INSTANT, polars_type
from caraway.graph.plan.model import IndexPlan
from caraway.offline.history.aggregates import AggregateHistory, ended, is_complete
from caraway.offline.history.groups import MISSING, Groups
from caraway.offline.history.inputs import NEVER
from caraway.offline.history.intervals import WindowInputs
from caraway.offline.history.records import END, INGESTED, OP, ORDER, REV, TIME, index_frame, settled
from caraway.offline.history.spilled_inputs import BlockInputs
from caraway.offline.history.versions import Versions
from caraway.offline.kernel.blocks import AT, GROUP, BlockCache, BlockSizes, sorted_blocks

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_BUCKET = "record bucket"


@dataclass(frozen=True, slots=True)
class Spill:
    """The place on the disk for the records of an index, and what is in memory at a time.

    Attributes:
        folder: A folder of its own.
        rows: The number of all records, about.
        sizes: The sizes of runs and blocks.
    """

    folder: Path
    rows: int
    sizes: BlockSizes


class _Settling:
    """The records of an index, each identity once, some at a time; see `settled`."""

    def __init__(self, plan: IndexPlan, pieces: Iterable[ArchivedRecords], wanted: Sequence[str], spill: Spill) -> None:
        """Take the records of the index's topic, of whose rows some columns are wanted."""
        self._plan = plan
        self._pieces = pieces
        names = dict.fromkeys([*(key.name for key in plan.schema.keys), *wanted])
        if plan.along:
            # `held` compares the end of an input with its begin. If `along` is set, another column gives the record's
            # time, and the begin is in the timestamp column.
            names |= {plan.schema.timestamp: None}
        self._names = [*names, TIME, OP, INGESTED, ORDER]
        self._folder = spill.folder / "identities"
        self._rows = spill.sizes.run_rows
        self._buckets = max(ceil(spill.rows / spill.sizes.run_rows), 1)
        self.revised = False
        """True if some records were left out, because others replace or retract them."""

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yield the records. Those of identities that differ in the last byte only come together."""
        files: dict[int, list[Path]] = {}
        numbers = count()
        for frame in self._named():
            if REV not in frame.columns:
                # Records without this column are identified by their positions alone, so no other frame contains a
                # revision of one of them.
                yield self._settled(frame)
                continue
            for bucket, some in _parted(frame, self._buckets):
                path = self._folder / f"{next(numbers)}.arrow"
                self._folder.mkdir(parents=True, exist_ok=True)
                some.write_ipc(path)
                files.setdefault(bucket, []).append(path)
        for paths in files.values():
            frame = pl.concat([pl.read_ipc(path) for path in paths])
            for path in paths:
                path.unlink()
            yield self._settled(frame)

    def _settled(self, frame: pl.DataFrame) -> pl.DataFrame:
        found = settled(frame)
        self.revised |= found.height < frame.height
        return found.select(self._names)

    def _named(self) -> Iterator[pl.DataFrame]:
        """Yield frames of records with an identity, put together, and frames of others."""
        waiting: list[pl.DataFrame] = []
        for piece in self._pieces:
            frame = index_frame(self._plan, piece, numbers=False)
            if REV not in frame.columns:
                yield frame
                continue
            waiting.append(frame)
            if sum(one.height for one in waiting) >= self._rows:
                yield pl.concat(waiting)
                waiting = []
        if waiting:
            yield pl.concat(waiting)


def _parted(frame: pl.DataFrame, count: int) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield the records of each bucket: all records whose identities differ in the last byte only are in one."""
    base = frame[ORDER].bin.encode("hex").str.head(-2)
    marked = frame.with_columns((base.hash(0) % count).cast(pl.Int64).alias(_BUCKET))
    for (bucket,), some in marked.partition_by(_BUCKET, include_key=False, as_dict=True).items():
        yield bucket, some


class SpilledVersions(Versions):
    """All versions of an index, in blocks on the disk."""

    def __init__(
        self,
        plan: IndexPlan,
        pieces: Iterable[ArchivedRecords],
        wanted: Sequence[str],
        spill: Spill,
        *,
        known: bool = False,
    ) -> None:
        """Sort the records of the index's topic; if `known`, a record is seen only from its ingestion on."""
        settling = _Settling(plan, pieces, wanted, spill)
        super().__init__(plan, wanted, complete=True)
        kept = [GROUP, AT, TIME, OP, *sorted(self.loaded)]
        self._blocks = sorted_blocks(
            self._frames(settling, known=known),
            spill.folder / "versions",
            lambda: self.groups.count,
            spill.sizes,
            BlockCache(spill.sizes.cache_bytes),
            by=[ORDER],
            written=_holding(kept) if known else lambda block: block.select(kept),
        )
        self.complete = not (known and settling.revised)

    def _frames(self, settling: _Settling, *, known: bool) -> Iterator[pl.DataFrame]:
        for frame in settling.frames():
            at = pl.max_horizontal(TIME, INGESTED) if known else pl.col(TIME)
            yield frame.select(
                pl.Series(GROUP, self.groups.add(frame), dtype=pl.Int64), at.alias(AT), TIME, OP, ORDER, *self.loaded
            )

    def read_series(self, names: Sequence[str], groups: Ints, at_us: Ints) -> tuple[list[pl.Series], Flags]:
        """Return columns as `read` does, as columns of polars."""
        there = groups != MISSING
        found = np.zeros(len(groups), np.bool_)
        asked = groups[there]
        behind = self._blocks.up_to(asked, at_us[there])
        found[there] = behind > self._blocks.begins[asked]
        rows = np.flatnonzero(found)
        wanted = [name if name in self.types else TIME for name in names]
        columns = list(dict.fromkeys([OP, *wanted]))
        pieces: list[pl.DataFrame] = []
        order: list[Ints] = []
        for number, places, local in self._blocks.by_block(behind[found[there]] - 1):
            pieces.append(self._blocks.frame(number, columns)[local])
            order.append(places)
        if not pieces:
            empty = self._nothing(wanted)
            return [empty[name].extend_constant(None, len(groups)) for name in wanted], found
        held = pl.concat(pieces)
        # The pieces come in the order of blocks, which may differ from the order of the rows that are asked for. So
        # `place` maps each of these rows to its place in `held`.
        place = np.empty(len(rows), np.int64)
        place[np.concatenate(order)] = np.arange(len(rows))
        places = np.zeros(len(groups), np.int64)
        places[rows] = place
        found[rows] = held[OP].to_numpy()[place] == PUT
        at = pl.Series(places).set(pl.Series(~found), None)
        series = [held[name].gather(at) for name in wanted]
        return [s if name in self.types else s.cast(INSTANT) for name, s in zip(names, series, strict=True)], found

    def _nothing(self, names: Sequence[str]) -> pl.DataFrame:
        return pl.DataFrame(schema={name: polars_type(self.types.get(name, DATETIME)) for name in names})


def _holding(kept: Sequence[str]) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Return a function that puts in place of each row the one that holds when it is seen: the latest one seen by then.

    It takes the rows in the order in which they are seen, one block after the other.
    """
    last: list[pl.DataFrame] = []

    def holding(block: pl.DataFrame) -> pl.DataFrame:
        frame = pl.concat([*last, block])
        order = frame.select(pl.arg_sort_by(GROUP, TIME, ORDER)).to_series().to_numpy()
        latest = np.empty(frame.height, np.int64)
        latest[order] = np.arange(frame.height)
        # The running maximum never carries over from one group to the next, since all places of a group are greater
        # than those of the groups before it.
        rows = order[np.maximum.accumulate(latest)]
        before = len(last)
        last[:] = [frame[int(rows[-1])]]
        held = frame[rows[before:]]
        return held.with_columns(block[GROUP], block[AT]).select(kept)

    return holding


def spilled_aggregates(
    plan: IndexPlan, pieces: Iterable[ArchivedRecords], wanted: Sequence[str], spill: Spill, *, known: bool = False
) -> AggregateHistory:
    """Return the aggregates of the records of an index's topic; if `known`, a record counts only from its ingestion on.

    Args:
        plan: The index.
        pieces: The records of its topic.
        wanted: The columns that aggregates read.
        spill: The place for the records.
        known: True: a record counts only from its ingestion on.
    """
    types = {column.name: column.dtype for column in plan.schema.columns if column.name in wanted}
    groups = Groups(plan.schema.keys)
    settling = _Settling(plan, pieces, wanted, spill)
    ends = False

    def frames() -> Iterator[pl.DataFrame]:
        nonlocal ends
        for frame in settling.frames():
            if (frame[OP] == DELETE).any():
                ends = True
                frame = ended(plan, frame, known=known)  # noqa: PLW2901 - the same records
            else:
                frame = frame.with_columns(pl.lit(NEVER, pl.Int64).alias(END))  # noqa: PLW2901 - the same records
            at = pl.max_horizontal(TIME, INGESTED) if known else pl.col(TIME)
            numbers = pl.Series(GROUP, groups.add(frame), dtype=pl.Int64)
            yield frame.select(numbers, at.alias(AT), TIME, pl.col(END).cast(pl.Int64), *types)

    cache = BlockCache(spill.sizes.cache_bytes)
    blocks = sorted_blocks(frames(), spill.folder / "inputs", lambda: groups.count, spill.sizes, cache)

    def inputs() -> WindowInputs:
        return BlockInputs(blocks, types, spill.folder, spill.sizes, overlap=ends or known)

    complete = is_complete(plan, known=known, revised=settling.revised)
    return AggregateHistory(plan, groups, frozenset(types), inputs, complete=complete)
