"""The reader of the index: rows of datasets as of a time."""

from collections.abc import Sequence
from typing import Protocol

from rocksdict import RdictIter

from caraway.errors import UnavailableError
from caraway.index.records.versions import VersionReader
from caraway.index.storage.database import DamagedError
from caraway.index.storage.geometry import Geometry
from caraway.index.storage.keys import FIRST_TIME_US, LAST_TIME_US
from caraway.index.windows.buckets import BucketReader
from caraway.index.windows.windows import Elsewhere, WindowReader
from caraway.plan.model import IndexKind, IndexPlan

# The most readers that are kept, one for each plan and set of columns. They are few in practice, since the sets of
# columns come from features.
KEPT_READERS = 1000

KindReader = VersionReader | WindowReader | BucketReader


class Readable(Protocol):
    """A database to read from: that of this process (`IndexStore`), or of another process (`IndexFollower`)."""

    geometry: Geometry

    @property
    def refusing(self) -> bool:
        """True while reads are refused."""
        ...

    def iterator(self) -> RdictIter:
        """Return an iterator over all entries as they are now."""
        ...

    def mark_damaged(self, reason: str) -> None:
        """Note that a read found damage."""
        ...


class IndexReader:
    """A reader of lookups. Thread safe; each call sees everything that was written before it."""

    def __init__(self, store: Readable, *, elsewhere: Elsewhere | None = None) -> None:
        """Read from `store`; if that is a part of the index, `elsewhere` returns the max event time of the others."""
        self._store = store
        self._elsewhere = elsewhere
        self._readers: dict[tuple[bytes, tuple[str, ...]], KindReader] = {}

    def read(
        self, plan: IndexPlan, keys: Sequence[bytes], at_us: Sequence[int] | int, columns: Sequence[str]
    ) -> tuple[list[list[object]], list[bool]]:
        """Return the rows of `keys` as of `at_us`.

        All keys see the same state of the index. A row is found when the key has one at its time: for versions one that
        holds, for aggregates any aggregate input, even if all have left the window by then. Values of a row that isn't
        found are null, except keys, which are those asked for, and aggregates with a default.

        Args:
            plan: The index.
            keys: Kafka keys (`RecordCodec.encode_key`); with the window as the last part, if that is a key too.
            at_us: The time of each row, or one for all rows, in microseconds since the epoch.
            columns: Fields of the dataset: keys, values, the timestamp (that of the row found).

        Returns:
            For each column the values in stored form, one for each key; and whether each key was found.

        Raises:
            InvalidInputError: The dataset lacks a column, or a key can't be decoded.
            UnavailableError: The database is damaged, being built anew or closed, or the disk fails.
        """
        if self._store.refusing:
            raise UnavailableError("the index was damaged and isn't built anew yet; try again in a moment")
        reader = self._reader(plan, tuple(columns))
        times = [at_us] * len(keys) if isinstance(at_us, int) else at_us
        rows, found = [], []
        try:
            read = reader.bound(self._store.iterator(), self._elsewhere)
            for key, time_us in zip(keys, times, strict=True):
                values, there = read(key, min(max(time_us, FIRST_TIME_US), LAST_TIME_US))
                rows.append(values)
                found.append(there)
        except DamagedError as error:
            self._store.mark_damaged(str(error))
            raise
        return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in columns], found

    def _reader(self, plan: IndexPlan, columns: tuple[str, ...]) -> KindReader:
        # The asset is a hash of the dataset's definition, so it stands for the plan.
        name = plan.asset, columns
        reader = self._readers.get(name)
        if reader is None:
            if len(self._readers) >= KEPT_READERS:
                self._readers.clear()
            reader = self._readers[name] = self._made(plan, columns)
        return reader

    def _made(self, plan: IndexPlan, columns: tuple[str, ...]) -> KindReader:
        if plan.kind is IndexKind.VERSIONS:
            return VersionReader(plan, columns)
        if plan.window is not None:
            return BucketReader(plan, columns, self._store.geometry)
        return WindowReader(plan, columns, self._store.geometry)
