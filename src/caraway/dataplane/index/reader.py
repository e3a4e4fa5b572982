"""The readers of the index: rows of datasets as of a time."""

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

from caraway.compute.query.model import Instants, QueryReader, Reader, Rows
from caraway.dataplane.index.records.versions import VersionReader
from caraway.dataplane.index.storage.database import DamagedError
from caraway.dataplane.index.storage.follower import IndexFollower
from caraway.dataplane.index.storage.keys import FIRST_TIME_US, LAST_TIME_US
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.index.windows.buckets import BucketReader
from caraway.dataplane.index.windows.windows import Elsewhere, WindowReader
from caraway.dataplane.topics.codec import RecordCodec
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.dataplane.topics.keys import check_read
from caraway.dtypes.sizes import Count, count_of
from caraway.errors import TooLargeError, UnavailableError
from caraway.graph.plan.model import IndexKind, IndexPlan

# At most this many readers are kept, one for each plan and set of columns; at the limit all are dropped. There are few
# in practice, since queries read the columns from which features are taken.
KEPT_READERS = 1000
# A read of fewer keys than this isn't searched for equal keys, because the search would cost more than reading some
# keys twice.
MIN_ROWS_TO_SHARE = 8
# The most bytes of the texts and lists of all rows of a read. An answer may have fewer, but a query may compute it from
# longer texts. The bytes are counted after every COUNTED_ROWS rows, so that a read of fewer rows isn't slowed down. A
# row of a topic has at most 900,000 bytes, so that these rows have at most 58 MB.
MAX_READ_BYTES, COUNTED_ROWS = 256 * 1024 * 1024, 64

KindReader = VersionReader | WindowReader | BucketReader


class IndexReader(Reader[IndexPlan, bytes]):
    """A reader of lookups. Thread safe; each call sees everything that was written before it."""

    def __init__(
        self,
        store: IndexStore | IndexFollower,
        erased: ErasedKeys | None = None,
        *,
        elsewhere: Elsewhere | None = None,
        bounded: bool = True,
    ) -> None:
        """Read from `store`; keys that are `erased` are read as if they had never had a row.

        If the database has only a part of the index, `elsewhere` returns the max event time of the other parts. The
        bytes of a read are `bounded`, except in a process whose memory is bounded as a whole.
        """
        self._bounded = bounded
        self._store = store
        self._erased = ErasedKeys(dict) if erased is None else erased
        self._elsewhere = elsewhere
        # For each plan and columns the reader, and the positions of the columns that may have large values, with the
        # counts of these.
        self._readers: dict[tuple[bytes, tuple[str, ...]], tuple[KindReader, list[tuple[int, Count]]]] = {}

    def read(self, plan: IndexPlan, keys: Sequence[bytes], at_us: Instants, columns: Sequence[str], /) -> Rows:
        """Return the rows of `keys` as of `at_us`.

        All keys see the same state of the index. A row is found when the key has one at its time: for versions one that
        holds, for aggregates any aggregate input, even if all have left the window by then. Values of a row that isn't
        found are null, except keys, which are those asked for, and aggregates with a default.

        `keys` are Kafka keys (`RecordCodec.encode_key`), with the window as the last part if that is a key too. The
        other arguments and the answer are those of `Reader.read`.

        Raises:
            InvalidInputError: The dataset lacks a column, or a key can't be decoded.
            TooLargeError: The rows have too many bytes.
            UnavailableError: The database is damaged, being built anew or closed, or the disk fails; or this process
                lacks a secret to compare keys with erased ones.
        """
        if self._store.refusing:
            raise UnavailableError("the index was damaged and isn't built anew yet; try again in a moment")
        reader, counts = self._reader(plan, tuple(columns))
        at_us = hiding_times(self._erased, plan, keys, at_us)
        times = [at_us] * len(keys) if isinstance(at_us, int) else at_us
        rows, found, left = [], [], MAX_READ_BYTES
        try:
            read = reader.bound(self._store.iterator(), self._elsewhere)
            for key, time_us in zip(keys, times, strict=True):
                values, there = read(key, min(max(time_us, FIRST_TIME_US), LAST_TIME_US))
                rows.append(values)
                found.append(there)
                if counts and len(rows) % COUNTED_ROWS == 0:
                    left = _left(plan, rows[-COUNTED_ROWS:], counts, left)
        except DamagedError as error:
            self._store.mark_damaged(str(error))
            raise
        return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in columns], found

    def _reader(self, plan: IndexPlan, columns: tuple[str, ...]) -> tuple[KindReader, list[tuple[int, Count]]]:
        # The asset is a hash of the dataset's definition, so plans with equal assets can share a reader.
        name = plan.asset, columns
        reader = self._readers.get(name)
        if reader is None:
            if len(self._readers) >= KEPT_READERS:
                self._readers.clear()
            counts = {column.name: count_of(column.dtype) for column in plan.fields if self._bounded}
            large = [(n, count) for n, column in enumerate(columns) if (count := counts.get(column)) is not None]
            reader = self._readers[name] = self._made(plan, columns), large
        return reader

    def _made(self, plan: IndexPlan, columns: tuple[str, ...]) -> KindReader:
        if plan.kind is IndexKind.VERSIONS:
            return VersionReader(plan, columns)
        if plan.window is not None:
            return BucketReader(plan, columns, self._store.geometry)
        return WindowReader(plan, columns, self._store.geometry)


class DatasetReader(QueryReader):
    """A reader of the datasets of one graph: by their names, with values as keys instead of bytes."""

    def __init__(self, index: Reader[IndexPlan, bytes], plans: Iterable[IndexPlan]) -> None:
        """Read from `index` the datasets that `plans` are for."""
        self.asks_others = index.asks_others
        self._index = index
        self._datasets = {plan.dataset: (plan, _encoder(plan)) for plan in plans}

    def read(
        self, dataset: str, keys: Sequence[tuple[object, ...]], at_us: Instants, columns: Sequence[str], /
    ) -> Rows:
        """Read the rows of `keys` as of `at_us`; equal keys are read once."""
        plan, encoded, order = self._asked(dataset, keys, at_us)
        rows = self._index.read(plan, encoded, at_us, columns)
        return rows if order is None else _ordered(rows, order)

    async def read_async(
        self, dataset: str, keys: Sequence[tuple[object, ...]], at_us: Instants, columns: Sequence[str], /
    ) -> Rows:
        """Read without blocking the event loop; see `read`."""
        plan, encoded, order = self._asked(dataset, keys, at_us)
        rows = await self._index.read_async(plan, encoded, at_us, columns)
        return rows if order is None else _ordered(rows, order)

    def _asked(
        self, dataset: str, keys: Sequence[tuple[object, ...]], at_us: Instants
    ) -> tuple[IndexPlan, list[bytes], list[int] | None]:
        """Return the index, the keys to read, and the position of each key's row, None if all are read in order."""
        plan, encode = self._datasets[dataset]
        encoded = [encode(key) for key in keys]
        if len(encoded) < MIN_ROWS_TO_SHARE or not isinstance(at_us, int):
            return plan, encoded, None
        positions = {key: position for position, key in enumerate(dict.fromkeys(encoded))}
        if len(positions) == len(encoded):
            return plan, encoded, None
        return plan, list(positions), [positions[key] for key in encoded]


def _left(plan: IndexPlan, rows: Sequence[Sequence[Any]], counts: Sequence[tuple[int, Count]], left: int) -> int:
    """Return the bytes that are left of a read behind some rows. Raises `TooLargeError` if the rows have more."""
    for position, count in counts:
        left = count([row[position] for row in rows], left)
        if left < 0:
            raise TooLargeError(
                f"the texts and lists of the rows that are read of {plan.dataset} may have {MAX_READ_BYTES >> 20} MiB, "
                "and have more; ask for fewer keys or columns at a time"
            )
    return left


def hiding_times(erased: ErasedKeys, plan: IndexPlan, keys: Sequence[bytes], at_us: Instants) -> Instants:
    """Return the times at which to read the keys; for erased keys a time before all rows, at which nothing is found.

    Raises `UnavailableError` if this process lacks a secret to compare keys with erased ones.
    """
    hides = erased.hides(plan.topic, plan.schema.keys)
    if hides is None:
        return at_us
    to_kafka = kafka_key(plan)
    hidden = [hides(to_kafka(key)) for key in keys]
    if not any(hidden):
        return at_us
    times = [at_us] * len(keys) if isinstance(at_us, int) else at_us
    return [FIRST_TIME_US if gone else time_us for gone, time_us in zip(hidden, times, strict=True)]


def kafka_key(plan: IndexPlan) -> Callable[[bytes], bytes]:
    """Return the function that makes a record's Kafka key from the key of a read, which may end with a window."""
    if plan.window is None:
        return lambda key: key
    decode = RecordCodec.of_keys(plan.keys).decode_key
    encode, columns = RecordCodec.of_keys(plan.schema.keys).encode_key, len(plan.schema.keys)
    return lambda key: encode(decode(key)[:columns]) or b""


def _ordered(rows: Rows, order: Sequence[int]) -> Rows:
    values, found = rows
    return [[column[position] for position in order] for column in values], [found[position] for position in order]


def _encoder(plan: IndexPlan) -> Callable[[tuple[object, ...]], bytes]:
    """Return the function that encodes a key.

    Records of an aggregate have the keys in the order of its groupby, which need not be that of the dataset.
    """
    encode = RecordCodec.of_keys(plan.keys).encode_key
    record = [key.name for key in plan.keys]
    dataset = [field.name for field in plan.fields if field.name in record]
    if record == dataset:
        return lambda key: _checked(encode(key) or b"")
    reorder: Callable[[Any], tuple[object, ...]] = itemgetter(*(dataset.index(name) for name in record))
    return lambda key: _checked(encode(reorder(key)) or b"")


def _checked(key: bytes) -> bytes:
    check_read(key)
    return key
