"""Operators between keyless and keyed datasets: union, dedup, first, latest, changelog."""

from collections.abc import Sequence

from caraway.compute.reference.tables import Event, Key, Relation, Table, Version, key_of, ordered, upserted
from caraway.graph.windows import HoppingWindow, SessionWindow


def union(left: Table, right: Table) -> Table:
    """Return the rows of both tables, with duplicates; among rows of equal times those of `left` come first."""
    return Relation((), ordered([*left.versions, *right.versions]))


def dedup(table: Table, by: Sequence[str], window: HoppingWindow | SessionWindow | None) -> Table:
    """Return the last row of each group of duplicates.

    Duplicates are equal in `by`, and lie in the same bucket or session; without a window they have the same time.
    """
    last: dict[tuple[Key, int], int] = {}
    previous: dict[Key, tuple[int, int]] = {}
    for position, (row, time_us, _) in enumerate(table.versions):
        key = key_of(row, by)
        match window:
            case None:
                group = time_us
            case HoppingWindow():
                group = time_us // window.stride_us
            case SessionWindow():
                session, before_us = previous.get(key, (0, time_us))
                # Unlike in a groupby, a distance of exactly the gap begins a new session, and times aren't cut to
                # seconds.
                group = session + 1 if time_us - before_us >= window.gap_us else session
                previous[key] = (group, time_us)
        last[key, group] = position
    return Relation((), [table.versions[position] for position in sorted(last.values())])


def first(table: Table, keys: Sequence[str]) -> Table:
    """Return the table of the oldest row of each group, which holds from its time on, for ever."""
    oldest: dict[Key, Version] = {}
    for version in table.versions:
        oldest.setdefault(key_of(version.row, keys), version)
    return Relation(keys, list(oldest.values()))


def latest(table: Table, keys: Sequence[str]) -> Table:
    """Return the table in which each row of a group holds until the next."""
    return upserted(keys, [Event(row, time_us, delete=False) for row, time_us, _ in table.versions])


def changelog(table: Table, timestamp: str, column: str, *, marks_inserts: bool) -> Table:
    """Return the changes of a table as events: an insert at each begin, and a delete with the old values at each end.

    Inserts come before deletes of the same instant.
    """
    inserts = [Version({**row, column: marks_inserts}, begin_us, None) for row, begin_us, _ in table.versions]
    deletes = [
        Version({**row, timestamp: end_us, column: not marks_inserts}, end_us, None)
        for row, _, end_us in table.versions
        if end_us is not None
    ]
    return Relation((), ordered([*inserts, *deletes]))
