"""The index as queries see it: datasets by name, keys as values instead of bytes."""

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Protocol

from caraway.plan.model import IndexPlan, RecordSchema
from caraway.query import Instants
from caraway.topics.codec import RecordCodec

# Below this many rows it costs more to look for equal keys than it saves.
MIN_ROWS_TO_SHARE = 8


class Index(Protocol):
    """What holds the rows (`caraway.index.IndexReader`)."""

    def read(
        self, plan: IndexPlan, keys: Sequence[bytes], at_us: Sequence[int] | int, columns: Sequence[str]
    ) -> tuple[list[list[object]], list[bool]]:
        """Read the rows of `keys` as of `at_us`: a list for each of `columns`, and whether each key was found."""
        ...


class DatasetReader:
    """Reads the datasets of one graph; a `Reader` of `caraway.query`."""

    def __init__(self, index: Index, plans: Iterable[IndexPlan]) -> None:
        """Read from `index` the datasets that `plans` are for."""
        self._index = index
        self._datasets = {plan.dataset: (plan, _encoder(plan)) for plan in plans}

    def read(
        self, dataset: str, keys: Sequence[tuple[object, ...]], at_us: Instants, columns: Sequence[str]
    ) -> tuple[list[list[object]], list[bool]]:
        """Read the rows of `keys` as of `at_us`; equal keys are read once."""
        plan, encode = self._datasets[dataset]
        encoded = [encode(key) for key in keys]
        if len(encoded) < MIN_ROWS_TO_SHARE or not isinstance(at_us, int):
            return self._index.read(plan, encoded, at_us, columns)
        places = {key: place for place, key in enumerate(dict.fromkeys(encoded))}
        if len(places) == len(encoded):
            return self._index.read(plan, encoded, at_us, columns)
        values, found = self._index.read(plan, list(places), at_us, columns)
        order = [places[key] for key in encoded]
        return [[column[place] for place in order] for column in values], [found[place] for place in order]


def _encoder(plan: IndexPlan) -> Callable[[tuple[object, ...]], bytes]:
    """Return what makes the bytes of a key.

    Records of an aggregate have the keys in the order of its groupby, which need not be that of the dataset.
    """
    schema = RecordSchema(keys=plan.keys, columns=plan.keys, timestamp=plan.schema.timestamp, fingerprint=0)
    encode = RecordCodec(schema).encode_key
    record = [key.name for key in plan.keys]
    dataset = [field.name for field in plan.fields if field.name in record]
    if record == dataset:
        return lambda key: encode(key) or b""
    reorder: Callable[[Any], tuple[object, ...]] = itemgetter(*(dataset.index(name) for name in record))
    return lambda key: encode(reorder(key)) or b""
