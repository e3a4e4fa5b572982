"""The records behind a lookup, in columns, wherever they come from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from caraway.compute.why.model import Position, Source
from caraway.compute.why.windows import NEVER

Ints = npt.NDArray[np.int64]
Row = Mapping[str, object]
Key = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A record.

    Attributes:
        time_us: Its event time.
        row: Its columns in stored form.
        end_us: The time at which another record ends it; NEVER if none does.
        deleted: True if it deletes its key.
        ingested_us: The time of its ingestion, if that is known.
        position: Its place on a topic, if it has one.
        origin: The facts from which the history finds its source record.
    """

    time_us: int
    row: Row
    end_us: int = NEVER
    deleted: bool = False
    ingested_us: int | None = None
    position: Position | None = None
    origin: object = None


class Parts(Protocol):
    """The inputs of a group, in the order in which an aggregate takes them."""

    times: Ints
    """Their event times in microseconds."""
    ends: Ints
    """The times at which they are taken back, NEVER for others."""

    def column(self, name: str, places: Ints) -> list[object]:
        """Return the values of some of them in a column, in stored form."""
        ...

    def held(self, place: int) -> Held:
        """Return one of them."""
        ...


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of a group.

    Attributes:
        parts: The inputs.
        max_event_time_us: The greatest event time of all groups; the present if the clock closes windows as well, and
            no event time is later.
    """

    parts: Parts
    max_event_time_us: int


class HeldParts(Parts):
    """Records in memory."""

    def __init__(self, records: Sequence[Held]) -> None:
        """Hold records, which are in order."""
        self._records = records
        self.times = np.array([record.time_us for record in records], np.int64)
        self.ends = np.array([record.end_us for record in records], np.int64)

    def column(self, name: str, places: Ints) -> list[object]:
        """Return values of a column; see `Parts`."""
        return [self._records[place].row[name] for place in places.tolist()]

    def held(self, place: int) -> Held:
        """Return a record; see `Parts`."""
        return self._records[place]


class Histories(Protocol):
    """The records of datasets."""

    def erased(self, dataset: str, key: Key) -> bool:
        """Return whether a key of a dataset is erased."""
        ...

    def has_inputs(self, dataset: str) -> bool:
        """Return whether the rows of an aggregation are computed; False if they were given by themselves in a test."""
        ...

    def inputs(self, dataset: str, key: Key) -> Inputs:
        """Return the inputs of a group of an aggregation; the key has no window."""
        ...

    def versions(self, dataset: str, key: Key) -> Sequence[Held]:
        """Return all versions of a key, deletes among them, in order; `end_us` needn't be set."""
        ...

    def sources(self, dataset: str, records: Sequence[Held]) -> Sequence[Source | None]:
        """Return the source records from which records of a dataset were made; None for those of a source."""
        ...


# A function that returns why a dataset, or one of its fields, is hidden from the caller; None if it is shown.
Hidden = Callable[[str, str | None], str | None]


def all_shown(dataset: str, field: str | None) -> None:
    """Hide nothing."""
    del dataset, field
