"""The index as queries see it: datasets by name, keys as values instead of bytes."""

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Protocol, runtime_checkable

from caraway.plan.model import IndexPlan, RecordSchema
from caraway.query import Instants
from caraway.topics.codec import RecordCodec
from caraway.topics.keys import check_read

# Number of rows below which the search for equal keys costs more than it saves.
MIN_ROWS_TO_SHARE = 8

Rows = tuple[list[list[object]], list[bool]]


class Index(Protocol):
    """A source of rows (`caraway.index.IndexReader`)."""

    def read(self, plan: IndexPlan, keys: Sequence[bytes], at_us: Sequence[int] | int, columns: Sequence[str]) -> Rows:
        """Read the rows of `keys` as of `at_us`: a list for each of `columns`, and whether each key was found."""
        ...


@runtime_checkable
class PartlyRemote(Index, Protocol):
    """An index that has some of the rows here, and reads the rest from other servers (`caraway.server.partitions`)."""

    async def read_async(
        self, plan: IndexPlan, keys: Sequence[bytes], at_us: Sequence[int] | int, columns: Sequence[str]
    ) -> Rows:
        """Read without blocking the event loop; see `read`."""
        ...


class DatasetReader:
    """Reads the datasets of one graph; a `Reader` of `caraway.query`."""

    def __init__(self, index: Index, plans: Iterable[IndexPlan]) -> None:
        """Read from `index` the datasets that `plans` are for."""
        self._index = index
        self._datasets = {plan.dataset: (plan, _encoder(plan)) for plan in plans}

    def read(self, dataset: str, keys: Sequence[tuple[object, ...]], at_us: Instants, columns: Sequence[str]) -> Rows:
        """Read the rows of `keys` as of `at_us`; equal keys are read once."""
        plan, encode = self._datasets[dataset]
        encoded = [encode(key) for key in keys]
        distinct = _distinct(encoded, at_us)
        if distinct is None:
            return self._index.read(plan, encoded, at_us, columns)
        return _each(encoded, distinct, self._index.read(plan, list(distinct), at_us, columns))


class PartlyRemoteReader(DatasetReader):
    """Reads the datasets of one graph from an index that is divided; an `AsyncReader` of `caraway.query`."""

    def __init__(self, index: PartlyRemote, plans: Iterable[IndexPlan]) -> None:
        """Read from `index` the datasets that `plans` are for."""
        super().__init__(index, plans)
        self._remote = index

    async def read_async(
        self, dataset: str, keys: Sequence[tuple[object, ...]], at_us: Instants, columns: Sequence[str]
    ) -> Rows:
        """Read without blocking the event loop; see `read`."""
        plan, encode = self._datasets[dataset]
        encoded = [encode(key) for key in keys]
        distinct = _distinct(encoded, at_us)
        if distinct is None:
            return await self._remote.read_async(plan, encoded, at_us, columns)
        return _each(encoded, distinct, await self._remote.read_async(plan, list(distinct), at_us, columns))


def _distinct(encoded: Sequence[bytes], at_us: Instants) -> dict[bytes, int] | None:
    """Return the position of each key among the distinct ones; None if sharing reads saves nothing."""
    if len(encoded) < MIN_ROWS_TO_SHARE or not isinstance(at_us, int):
        return None
    positions = {key: position for position, key in enumerate(dict.fromkeys(encoded))}
    return None if len(positions) == len(encoded) else positions


def _each(encoded: Sequence[bytes], positions: dict[bytes, int], read: Rows) -> Rows:
    """Copy the row of each distinct key to all positions of that key."""
    values, found = read
    order = [positions[key] for key in encoded]
    return [[column[position] for position in order] for column in values], [found[position] for position in order]


def _encoder(plan: IndexPlan) -> Callable[[tuple[object, ...]], bytes]:
    """Return the function that encodes a key.

    Records of an aggregate have the keys in the order of its groupby, which need not be that of the dataset.
    """
    schema = RecordSchema(keys=plan.keys, columns=plan.keys, timestamp=plan.schema.timestamp, fingerprint=0)
    encode = RecordCodec(schema).encode_key
    record = [key.name for key in plan.keys]
    dataset = [field.name for field in plan.fields if field.name in record]
    if record == dataset:
        return lambda key: _checked(encode(key) or b"")
    reorder: Callable[[Any], tuple[object, ...]] = itemgetter(*(dataset.index(name) for name in record))
    return lambda key: _checked(encode(reorder(key)) or b"")


def _checked(key: bytes) -> bytes:
    check_read(key)
    return key
