"""Reading aggregates whose groupby has a window: a row for each closed bucket, found by its begin and end."""

from collections.abc import Sequence
from functools import partial

from rocksdict import RdictIter

from caraway.errors import InvalidInputError
from caraway.graph.windows import HoppingWindow
from caraway.index.descent import totals_of
from caraway.index.entries import Contents, KeyEntries, Shape
from caraway.index.frontier import read_frontier
from caraway.index.geometry import Geometry
from caraway.index.keys import key_prefix
from caraway.index.lists import ListReader
from caraway.index.results import results_of
from caraway.index.spans import last_end
from caraway.index.windows import Read, finish_all, pick
from caraway.plan.model import IndexPlan, RecordSchema
from caraway.topics import RecordCodec


class BucketReader:
    """Reads the rows of one index by group and window."""

    def __init__(self, plan: IndexPlan, columns: Sequence[str], geometry: Geometry) -> None:
        """Prepare to read `columns`.

        Raises:
            InvalidInputError: A column that the dataset doesn't have, or buckets that have no begin.
        """
        if plan.window is None or plan.window.length_us is None:
            raise InvalidInputError(f"{plan.dataset}: buckets without a begin can't be keys")
        self._asset = plan.asset
        self._window: HoppingWindow = plan.window
        self._length_us = plan.window.length_us
        self._shows_empty = bool(plan.aggregates)
        self._shape = Shape(plan, geometry)
        schema = plan.schema
        self._keys = RecordCodec(
            RecordSchema(keys=plan.keys, columns=plan.keys, timestamp=schema.timestamp, fingerprint=0)
        )
        results = results_of(plan, self._shape.layout)
        wanted = [results[name] for name in columns if name in results]
        self._summed = [result for result in wanted if result.finish is not None]
        self._lists = [(r, ListReader(r.spec, self._shape)) for r in wanted if r.finish is None]
        self._needed = frozenset[int]().union(*(result.extras for result in wanted))
        keys = {column.name: position for position, column in enumerate(plan.keys)}
        self._columns = tuple(pick(name, plan, keys, results) for name in columns)

    def bound(self, iterator: RdictIter) -> Read:
        """Return what reads keys from one state of the database."""
        return partial(self._read, iterator, read_frontier(iterator, self._asset))

    def _read(self, iterator: RdictIter, frontier_us: int | None, key: bytes, at_us: int) -> tuple[list[object], bool]:
        """Return the columns' values as of `at_us`, and whether the bucket is closed and there."""
        *group, bounds = echo = self._keys.decode_key(key)
        values: dict[str, object] = {}
        end_us = self._closed_end(bounds, frontier_us, at_us)
        found = end_us is not None and self._fill(iterator, group, end_us, at_us, values)
        return [pick(echo, values, end_us if found else None) for pick in self._columns], found

    def _closed_end(self, bounds: object, frontier_us: int | None, at_us: int) -> int | None:
        """Return the end of a bucket by the bounds asked for; None if there is none such, or it isn't closed yet."""
        match bounds:
            case [int(begin_us), int(end_us)]:
                if end_us - begin_us != self._length_us or last_end(self._window, end_us) != end_us:
                    return None
                if frontier_us is None or end_us > min(at_us, frontier_us - self._window.lookback_us):
                    return None
                return end_us
            case _:
                raise InvalidInputError(f"{bounds!r} is no window; it has a begin and an end")

    def _fill(
        self, iterator: RdictIter, group: Sequence[object], end_us: int, at_us: int, values: dict[str, object]
    ) -> bool:
        key = self._shape.codec.encode_key(group) or b""
        entries = KeyEntries(self._shape, iterator, key_prefix(self._asset, key))
        span = end_us - self._length_us, end_us - 1
        if not _has_any(entries, *span):
            # After a run of buckets with rows there is one that shows that nothing came any more.
            stride_us = self._window.stride_us
            if not self._shows_empty or not _has_any(entries, span[0] - stride_us, span[1] - stride_us):
                return False
        contents = Contents(entries, entries.root(), ())
        for _, total in totals_of(self._shape, contents, [span], self._needed):
            finish_all(self._summed, total, at_us, values)
        for result, reader in self._lists:
            values[result.name] = reader.read(contents, span)
        return True


def _has_any(entries: KeyEntries, first: int, last: int) -> bool:
    time_us = entries.first_time(first)
    return time_us is not None and time_us <= last
