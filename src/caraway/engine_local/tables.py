"""Datasets as functions of time: what every operator takes and gives.

A keyless dataset is a list of events, in the order of event time and then of arrival. A keyed one is a list of
versions, each with the time in which it holds, in the same order; those of one key never overlap. Both are rows with a
begin and an end, so that one operator serves both.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

Row = dict[str, object]
Key = tuple[object, ...]

# All NaN are one value, as a key and as an element; Python's own isn't equal to itself.
_NAN = ("nan",)


class Version(NamedTuple):
    """A row, from `begin_us` (its time stamp) to `end_us`, exclusive; None: without end, as all events are."""

    row: Row
    begin_us: int
    end_us: int | None


class Event(NamedTuple):
    """An insert or delete of a row at a time."""

    row: Row
    time_us: int
    delete: bool


class Table(Protocol):
    """The content of a dataset, or what an operator makes of it."""

    @property
    def empty(self) -> bool:
        """Tell whether it never has a row."""

    @property
    def versions(self) -> Sequence[Version]:
        """All rows ever, in the order of time and then of arrival."""

    @property
    def by_key(self) -> Mapping[Key, Sequence[Version]]:
        """The versions of each key."""

    def find(self, key: Key, at_us: int) -> Version | None:
        """Return the version of a key that holds at a time."""

    def keyed_by(self, keys: Sequence[str]) -> "Table":
        """Return the same table with its key columns in another order, in which `by_key` and `find` have them."""


class Relation:
    """A table that is a list."""

    def __init__(self, keys: Sequence[str], versions: Sequence[Version]) -> None:
        """Take versions in order; none of them is changed ever after."""
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

    def find(self, key: Key, at_us: int) -> Version | None:
        """See `Table`."""
        return holding(self.by_key.get(key, ()), at_us)

    def keyed_by(self, keys: Sequence[str]) -> "Relation":
        """See `Table`."""
        return self if tuple(keys) == tuple(self.keys) else Relation(keys, self.versions)


def holding(versions: Sequence[Version], at_us: int) -> Version | None:
    """Return which of one key's versions holds at a time: the newest by then, unless it has ended."""
    position = bisect_right(versions, at_us, key=begin_of)
    if not position:
        return None
    version = versions[position - 1]
    return version if version.end_us is None or at_us < version.end_us else None


def upserted(keys: Sequence[str], events: Sequence[Event]) -> Relation:
    """Make the table in which each event replaces the one before of its key.

    Args:
        keys: Names of the key columns.
        events: In the order of time and then of arrival. Of equal times the last arrival counts, and nothing else.
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
    """Put versions into the order of time; equal times keep their order."""
    return sorted(versions, key=begin_of)


def begin_of(version: Version) -> int:
    """Return when a version begins."""
    return version.begin_us


def key_of(row: Mapping[str, object], columns: Iterable[str]) -> Key:
    """Return what tells rows with these columns apart."""
    return tuple([identity(row[name]) for name in columns])


def identity(value: Any) -> object:  # noqa: ANN401 (any stored value)
    """Return what two stored values of one type have in common exactly if they are equal; it can be hashed."""
    kind = type(value)
    if kind is float:
        return value if value == value else _NAN  # noqa: PLR0124 (NaN only)
    if kind is list:
        return tuple([identity(item) for item in value])
    if kind is dict:
        # Stored maps are sorted by key.
        return tuple([(key, identity(item)) for key, item in value.items()])
    return value
