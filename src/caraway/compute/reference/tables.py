"""Datasets as functions of time, which all operators take and return.

A keyless dataset is a list of events, in order of event time and then of arrival. A keyed one is a list of versions,
each with the interval in which it holds, in the same order; versions of one key never overlap. Both are rows with a
begin and an end, so that operators work on both.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

Row = dict[str, object]
Key = tuple[object, ...]

# The value that stands for every NaN in comparisons, since Python's NaN isn't equal to itself.
_NAN = ("nan",)


class Version(NamedTuple):
    """A row that holds from `begin_us`, its time stamp, to `end_us`, exclusive; None means for ever, as for events."""

    row: Row
    begin_us: int
    end_us: int | None


class Event(NamedTuple):
    """An insert or delete of a row at a time."""

    row: Row
    time_us: int
    delete: bool


class Table(Protocol):
    """The content of a dataset, or the output of an operator."""

    @property
    def empty(self) -> bool:
        """Return whether the table never has a row."""

    @property
    def versions(self) -> Sequence[Version]:
        """Return all rows ever, in order of time and then of arrival."""

    @property
    def by_key(self) -> Mapping[Key, Sequence[Version]]:
        """Return the versions of each key."""

    def find_all(self, asked: Sequence[tuple[Key, int]]) -> list[Version | None]:
        """Return for each key and time the version that holds then."""

    def keyed_by(self, keys: Sequence[str]) -> "Table":
        """Return the same table with another order of key columns, which `by_key` and `find_all` use."""


class Relation:
    """A table whose versions are all known; those of an aggregation are computed when they are read."""

    def __init__(self, keys: Sequence[str], versions: Sequence[Version]) -> None:
        """Hold `versions`, which are in order and must not change any more."""
        self.keys = keys
        self.versions = versions

    @property
    def empty(self) -> bool:
        """See `Table`."""
        return not self.versions

    @cached_property
    def by_key(self) -> Mapping[Key, Sequence[Version]]:
        """See `Table`."""
        groups: dict[Key, list[Version]] = {}
        for version in self.versions:
            groups.setdefault(key_of(version.row, self.keys), []).append(version)
        return groups

    def find_all(self, asked: Sequence[tuple[Key, int]]) -> list[Version | None]:
        """See `Table`."""
        return [holding(self.by_key.get(key, ()), at_us) for key, at_us in asked]

    def keyed_by(self, keys: Sequence[str]) -> "Relation":
        """See `Table`."""
        return self if tuple(keys) == tuple(self.keys) else Relation(keys, self.versions)


def holding(versions: Sequence[Version], at_us: int) -> Version | None:
    """Return the version of a key that holds at a time: the newest one by then, unless it has ended."""
    position = bisect_right(versions, at_us, key=begin_of)
    if not position:
        return None
    version = versions[position - 1]
    return version if version.end_us is None or at_us < version.end_us else None


def upserted(keys: Sequence[str], events: Sequence[Event]) -> Relation:
    """Return the table in which each event replaces the previous one of its key.

    Args:
        keys: Names of the key columns.
        events: The events in order of time and then of arrival. Among those of one key and time only the last counts.
    """
    next_us: dict[Key, int] = {}
    versions = []
    for row, time_us, delete in reversed(events):
        key = key_of(row, keys)
        end_us = next_us.get(key)
        if end_us != time_us:
            next_us[key] = time_us
            if not delete:
                versions.append(Version(row, time_us, end_us))
    versions.reverse()
    return Relation(keys, versions)


def ordered(versions: Iterable[Version]) -> list[Version]:
    """Return versions in order of time; versions of equal times keep their order."""
    return sorted(versions, key=begin_of)


def begin_of(version: Version) -> int:
    """Return the begin of a version."""
    return version.begin_us


def key_of(row: Mapping[str, object], columns: Iterable[str]) -> Key:
    """Return the key of a row in these columns, which can be hashed."""
    return tuple([identity(row[name]) for name in columns])


def identity(value: Any) -> object:
    """Return a hashable object that is equal for two stored values of one type exactly if the values are equal."""
    kind = type(value)
    if kind is float:
        return value if value == value else _NAN  # noqa: PLR0124 (NaN only)
    if kind is list:
        return tuple([identity(item) for item in value])
    if kind is dict:
        # Stored maps are sorted by key, so equal maps have their items in the same order.
        return tuple([(key, identity(item)) for key, item in value.items()])
    return value
