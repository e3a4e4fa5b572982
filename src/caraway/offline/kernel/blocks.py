"""Rows of groups in order of time, in blocks on the disk: what `Timeline` is for rows that don't fit into memory.

The rows are sorted as runs, which are then merged, a range of rows at a time (Knuth, The Art of Computer Programming,
volume 3, section 5.4). Each range becomes a block, which is a file. A row's position is its place among all rows, so
whatever is computed from positions is the same for blocks as for rows in memory.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from caraway.offline.kernel.timeline import Timeline

Ints = npt.NDArray[np.int64]
_T = TypeVar("_T")

# The columns by which rows are sorted. Names of a dataset's fields contain no space, so no field has one of these
# names.
GROUP, AT = "row group", "row at"
# About this many blocks are merged at a time. Reading a part of a run takes a millisecond, however small the part is,
# so fewer and larger parts save time.
PIECE_BLOCKS = 4
# The number of rows of a batch in the file of a run. A batch is read as a whole, so the rest of the first and of the
# last batch of a part is read with it.
BATCH_ROWS = 8_192
# Samples of each run, this many for each block of rows, tell where to divide the runs for merging. More samples make
# the divisions more equal in size.
_SAMPLES = 64
# Bytes of memory that a timeline takes for each row.
TIMELINE_BYTES = 16


@dataclass(frozen=True, slots=True)
class BlockSizes:
    """The sizes of what is in memory at a time.

    Attributes:
        run_rows: The rows that are sorted together.
        block_rows: The rows of a block, about.
        cache_bytes: The memory for what is computed from blocks, until it is computed again.
    """

    run_rows: int = 1 << 19
    block_rows: int = 1 << 17
    cache_bytes: int = 64 << 20


class BlockCache:
    """Holds what was computed last from blocks."""

    def __init__(self, limit: int) -> None:
        """Hold at most `limit` bytes."""
        self._limit = limit
        self._held: OrderedDict[tuple[object, ...], tuple[Any, int]] = OrderedDict()
        self._bytes = 0

    def get(self, key: tuple[object, ...], compute: Callable[[], _T], size: Callable[[_T], int]) -> _T:
        """Return what `compute` returned for a key, computed anew if it isn't held any more."""
        if key in self._held:
            self._held.move_to_end(key)
            found: _T = self._held[key][0]
            return found
        made = compute()
        self._held[key] = made, size(made)
        self._bytes += size(made)
        # The newest result stays in the cache, even if it is larger than the limit by itself.
        while self._bytes > self._limit and len(self._held) > 1:
            _, (_, freed) = self._held.popitem(last=False)
            self._bytes -= freed
        return made


class Blocks:
    """Rows of some groups on the disk, in the order of groups, and of time in each group."""

    def __init__(
        self, folder: Path, rows: Sequence[int], firsts: Sequence[tuple[int, int]], sizes: Ints, cache: BlockCache
    ) -> None:
        """Take blocks that `sorted_blocks` wrote.

        Args:
            folder: The folder.
            rows: The number of rows of each block.
            firsts: The group and time of each block's first row.
            sizes: The number of rows of each group.
            cache: Holds what is computed from the blocks.
        """
        self._folder = folder
        self.starts: Ints = np.concatenate([np.zeros(1, np.int64), np.cumsum(rows, dtype=np.int64)])
        """The position of each block's first row, and the number of all rows behind them."""
        self.begins: Ints = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
        """The position of each group's first row, and the number of all rows behind them."""
        self.cache = cache
        """The results that were computed from the blocks last."""
        self._groups, times = (np.array([first[side] for first in firsts], np.int64) for side in (0, 1))
        self._firsts = Timeline(self._groups, times, len(sizes))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def frame(self, number: int, columns: Sequence[str]) -> pl.DataFrame:
        """Return some columns of a block."""
        return pl.read_ipc(_file(self._folder, number), columns=list(columns))

    def up_to(self, groups: Ints, times: Ints) -> Ints:
        """Return the position behind a group's last row at or before a time; see `Timeline.up_to`."""
        found = np.zeros(len(groups), np.int64)
        if not len(self):
            return found
        numbers = np.maximum(self._firsts.up_to(groups, times) - 1, 0)
        for number, places in _parted(numbers):
            timeline = self._timeline(number)
            first = int(self._groups[number])
            # A group before the block's own comes before all of its rows, and a group after them behind all of its
            # rows. The timeline has no such groups, so they are mapped to its first and last one.
            asked = np.clip(groups[places] - first, 0, len(timeline.begins) - 2)
            before = groups[places] < first
            found[places] = self.starts[number] + np.where(before, 0, timeline.up_to(asked, times[places]))
        return found

    def by_block(self, positions: Ints) -> Iterator[tuple[int, Ints, Ints]]:
        """Yield each block that has some of the rows, with their places among `positions`, and in the block.

        The position behind the last row counts as one of the last block.
        """
        if not len(positions) or not len(self):
            return
        numbers = np.minimum(np.searchsorted(self.starts, positions, side="right") - 1, len(self) - 1)
        for number, places in _parted(numbers):
            yield number, places, positions[places] - self.starts[number]

    def _timeline(self, number: int) -> Timeline:
        rows = int(self.starts[number + 1] - self.starts[number])
        return self.cache.get((self, GROUP, number), lambda: self._sorted(number), lambda _: rows * TIMELINE_BYTES)

    def _sorted(self, number: int) -> Timeline:
        frame = self.frame(number, [GROUP, AT])
        groups = frame[GROUP].to_numpy() - self._groups[number]
        # One more group, without rows, stands for all groups behind the block.
        return Timeline(groups, frame[AT].to_numpy(), int(groups[-1]) + 2)


def sorted_blocks(
    frames: Iterable[pl.DataFrame],
    folder: Path,
    count: Callable[[], int],
    sizes: BlockSizes,
    cache: BlockCache,
    *,
    by: Sequence[str] = (),
    written: Callable[[pl.DataFrame], pl.DataFrame] = lambda block: block,
) -> Blocks:
    """Sort rows, and write them to a folder in blocks.

    Args:
        frames: The rows, with their groups and times (GROUP, AT) in columns of 64 bits; all have the same columns.
        folder: A folder that doesn't exist.
        count: Returns how many groups there are, after all rows were read.
        sizes: The sizes of runs and blocks.
        cache: Holds what is computed from the blocks.
        by: The columns by which rows of one group and time are sorted.
        written: Returns what is written in place of a block; it is called for one block after the other.
    """
    folder.mkdir(parents=True)
    order = [GROUP, AT, *by]
    runs: list[Path] = []
    samples: list[pl.DataFrame] = []
    for frame in together(frames, sizes.run_rows):
        runs.append(folder / f"run-{len(runs)}.arrow")
        run = frame.sort(order)
        samples.append(run.select(GROUP, AT).gather_every(_every(sizes)))
        run.write_ipc(runs[-1], record_batch_size=BATCH_ROWS)
    total = np.zeros(count(), np.int64)
    rows: list[int] = []
    firsts: list[tuple[int, int]] = []
    for block in _blocks(runs, samples, len(total), order, sizes):
        total += np.bincount(block[GROUP].to_numpy(), minlength=len(total))
        firsts.append((block[GROUP][0], block[AT][0]))
        written(block).write_ipc(_file(folder, len(rows)))
        rows.append(block.height)
    for run_file in runs:
        run_file.unlink()
    return Blocks(folder, rows, firsts, total, cache)


def together(frames: Iterable[pl.DataFrame], rows: int) -> Iterator[pl.DataFrame]:
    """Yield the rows of frames in frames of `rows` to twice as many rows; only the last one may have fewer."""
    waiting: list[pl.DataFrame] = []
    for frame in frames:
        for some in frame.iter_slices(rows):
            waiting.append(some)
            if sum(one.height for one in waiting) >= rows:
                yield pl.concat(waiting)
                waiting = []
    if waiting:
        yield pl.concat(waiting)


def _blocks(
    runs: Sequence[Path], samples: Sequence[pl.DataFrame], count: int, order: Sequence[str], sizes: BlockSizes
) -> Iterator[pl.DataFrame]:
    """Yield the rows of sorted runs in order, in blocks, given the samples of each run."""
    if not runs:
        return
    step = max(PIECE_BLOCKS * sizes.block_rows // _every(sizes), 1)
    firsts = pl.concat(samples).sort(GROUP, AT).gather_every(step).unique(maintain_order=True)
    for piece in _merged(runs, firsts, count, order):
        yield from piece.iter_slices(sizes.block_rows)


def _every(sizes: BlockSizes) -> int:
    """Return the number of rows for each of which there is a sample."""
    return max(sizes.block_rows // _SAMPLES, 1)


def _merged(runs: Sequence[Path], firsts: pl.DataFrame, count: int, order: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Yield the rows of sorted runs in order, in pieces that begin with groups and times, the first of all among them.

    Rows of one group and time are in one piece.
    """
    groups, times = firsts[GROUP].to_numpy(), firsts[AT].to_numpy()
    cuts = []
    for run in runs:
        keys = pl.read_ipc(run, columns=[GROUP, AT])
        timeline = Timeline(keys[GROUP].to_numpy(), keys[AT].to_numpy(), count)
        # A piece begins with the first row whose group and time aren't before those of the sampled row.
        cuts.append([*timeline.up_to(groups, times - 1).tolist(), keys.height])
    for number in range(len(groups)):
        some = [
            pl.scan_ipc(run).slice(cut[number], cut[number + 1] - cut[number]).collect()
            for run, cut in zip(runs, cuts, strict=True)
            if cut[number] < cut[number + 1]
        ]
        if some:
            yield pl.concat(some).sort(order)


def _parted(numbers: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield each number in ascending order, with the places where it is."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    for begin, end in zip(begins, [*begins[1:], len(order)], strict=True):
        yield int(ordered[begin]), order[begin:end]


def _file(folder: Path, number: int) -> Path:
    return folder / f"block-{number}.arrow"
