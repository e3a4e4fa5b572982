"""The output of an aggregation, which is a function of time and computed when it is read."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from caraway.engine_local.aggregates.functions import Compute, Sample
from caraway.engine_local.aggregates.windows import Life
from caraway.engine_local.tables import Key, Relation, Row, Version, key_of, ordered

# Encodes keys as on topics, where their bytes decide the order of rows of one time (docs/records.md).
_ENCODE = msgspec.msgpack.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class AggregateColumn:
    """An aggregate, with its output column and the function that computes it."""

    name: str
    compute: Compute


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
    """A table of groups; see `caraway.engine_local.tables.Table`."""

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
        """Return all values that the groups ever have, also future ones, after rows will have left their windows."""
        return self._relation.versions

    @property
    def by_key(self) -> Mapping[Key, Sequence[Version]]:
        """Return the versions of each group."""
        return self._relation.by_key

    def find(self, key: Key, at_us: int) -> Version | None:
        """Compute the row of a group at a time; its time stamp is that of the last change."""
        group = self._groups.get(key)
        if group is None:
            return None
        changes = group.changes
        position = bisect_right(changes, at_us)
        if not position:
            return None
        begin_us, end_us = changes[position - 1], changes[position] if position < len(changes) else None
        return Version(self._row(group, begin_us, at_us), begin_us, end_us)

    def keyed_by(self, keys: Sequence[str]) -> "Aggregated":
        """Return the same table with its keys in another order; see `caraway.engine_local.tables.Table`."""
        if tuple(keys) == tuple(self._keys):
            return self
        groups = {key_of(group.key_row, keys): group for group in self._groups.values()}
        return Aggregated(keys, self._timestamp, self._columns, groups)

    def _history(self) -> Iterator[Version]:
        for group in self._in_order():
            changes = group.changes
            for begin_us, end_us in zip(changes, [*changes[1:], None], strict=True):
                yield Version(self._row(group, begin_us, begin_us), begin_us, end_us)

    def _row(self, group: Group, begin_us: int, at_us: int) -> Row:
        row: Row = {**group.key_row, self._timestamp: begin_us}
        for column, samples in zip(self._columns, group.samples, strict=True):
            row[column.name] = column.compute([sample for life, sample in samples if life.holds(at_us)], at_us)
        return row
