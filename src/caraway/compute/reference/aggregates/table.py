"""The output of an aggregation, which is a function of time and computed when it is read."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from caraway.compute.reference.aggregates.functions import Sample
from caraway.compute.reference.aggregates.running import Running, values
from caraway.compute.reference.aggregates.windows import Life
from caraway.compute.reference.tables import Key, Relation, Row, Version, key_of, ordered

# Encodes keys as in the messages of topics, where the order of the keys' bytes is the order of rows with the same time
# (docs/inside/records.md).
_ENCODE = msgspec.msgpack.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class AggregateColumn:
    """An aggregate, with its output column, and what makes the running aggregate of an empty window."""

    name: str
    running: Callable[[], Running]


@dataclass(frozen=True)
class Group:
    """The rows of one group.

    `samples` has, for each aggregate, the samples that count in it and their lives, in order of time and then of
    arrival; they are complete before the group is read. `since_us` is the time from which the group exists, even
    without samples.
    """

    key_row: Row
    samples: tuple[list[tuple[Life, Sample]], ...]
    since_us: tuple[int, ...] = ()

    @cached_property
    def changes(self) -> list[int]:
        """Return the change points of the group, ascending; the group exists from the first one on."""
        lives = [life for samples in self.samples for life, _ in samples]
        leaves = [life.leave_us for life in lives if life.leave_us is not None]
        return sorted({*self.since_us, *(life.enter_us for life in lives), *leaves})


class Aggregated:
    """A table of groups; see `caraway.compute.reference.tables.Table`."""

    def __init__(
        self, keys: Sequence[str], timestamp: str, columns: Sequence[AggregateColumn], groups: Mapping[Key, Group]
    ) -> None:
        """Hold `groups`, which must not change any more."""
        self._keys = keys
        self._timestamp = timestamp
        self._columns = columns
        self._groups = groups

    @cached_property
    def _relation(self) -> Relation:
        return Relation(self._keys, ordered(self._history()))

    def _in_order(self) -> list[Group]:
        """Return the groups by the bytes of their keys: among rows of one time the greater key is the later row."""
        return sorted(self._groups.values(), key=lambda group: _ENCODE([group.key_row[name] for name in self._keys]))

    @property
    def empty(self) -> bool:
        """Return whether there is no group."""
        return not self._groups

    @property
    def versions(self) -> Sequence[Version]:
        """Return all values that the groups ever have, those of times to come included, at which rows leave windows."""
        return self._relation.versions

    @property
    def by_key(self) -> Mapping[Key, Sequence[Version]]:
        """Return the versions of each group."""
        return self._relation.by_key

    def find_all(self, asked: Sequence[tuple[Key, int]]) -> list[Version | None]:
        """Compute the rows of groups at times; a row's time stamp is that of the last change."""
        found: list[Version | None] = [None] * len(asked)
        places_of: dict[Key, list[int]] = {}
        for place, (key, at_us) in enumerate(asked):
            group = self._groups.get(key)
            if group is not None and at_us >= group.changes[0]:
                places_of.setdefault(key, []).append(place)
        for key, places in places_of.items():
            places.sort(key=lambda place: asked[place][1])
            versions = self._versions(self._groups[key], [asked[place][1] for place in places])
            for place, version in zip(places, versions, strict=True):
                found[place] = version
        return found

    def keyed_by(self, keys: Sequence[str]) -> "Aggregated":
        """Return the same table with its keys in another order; see `caraway.compute.reference.tables.Table`."""
        if tuple(keys) == tuple(self._keys):
            return self
        groups = {key_of(group.key_row, keys): group for group in self._groups.values()}
        return Aggregated(keys, self._timestamp, self._columns, groups)

    def _history(self) -> Iterator[Version]:
        for group in self._in_order():
            yield from self._versions(group, group.changes)

    def _versions(self, group: Group, times_us: Sequence[int]) -> Iterator[Version]:
        """Yield what a group holds at times, which ascend and don't come before its first change."""
        columns = [
            (column.name, values(samples, column.running(), times_us))
            for column, samples in zip(self._columns, group.samples, strict=True)
        ]
        changes = group.changes
        for at_us in times_us:
            position = bisect_right(changes, at_us)
            begin_us, end_us = changes[position - 1], changes[position] if position < len(changes) else None
            row: Row = {**group.key_row, self._timestamp: begin_us}
            for name, ascending in columns:
                row[name] = next(ascending)
            yield Version(row, begin_us, end_us)
