"""Joins with a keyed dataset, either as of the times of events, or at every time."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from caraway.compute.reference.tables import Relation, Row, Table, Version, begin_of, key_of, ordered
from caraway.graph.operators import Join, JoinKind


def join_events(operator: Join, left: Table, right: Table, right_keys: Sequence[str]) -> Table:
    """Return each event joined with the version of the right side that holds `within_high_us` after the event.

    If that version began earlier than `within_low_us` before the event, the event has no match.
    """
    versions = []
    left_on = in_order_of(right_keys, operator)
    asked = [(key_of(row, left_on), time_us + operator.within_high_us) for row, time_us, _ in left.versions]
    for (row, time_us, _), match in zip(left.versions, right.find_all(asked), strict=True):
        low_us = operator.within_low_us
        near = match if match is None or low_us is None or match.begin_us >= time_us - low_us else None
        if near is not None or operator.how is JoinKind.LEFT:
            versions.append(Version(_joined(operator, row, near), time_us, None))
    return Relation((), versions)


def join_tables(
    operator: Join, left: Table, right: Table, *, keys: Sequence[str], right_keys: Sequence[str], timestamp: str
) -> Table:
    """Return two tables joined at every time.

    A version of the output begins where a version of the left or of the right side begins, and ends where one ends.
    """
    versions = []
    left_on = in_order_of(right_keys, operator)
    for version in left.versions:
        for begin_us, end_us, match in pieces(version, right.by_key.get(key_of(version.row, left_on), ())):
            if match is not None or operator.how is JoinKind.LEFT:
                row = {**version.row, timestamp: begin_us}
                versions.append(Version(_joined(operator, row, match), begin_us, end_us))
    return Relation(keys, ordered(versions))


def pieces(left: Version, rights: Sequence[Version]) -> Iterator[tuple[int, int | None, Version | None]]:
    """Yield the parts into which the right versions, which are in order, divide the interval of a left one.

    Each part comes with its right version, or None if there is none.
    """
    done_us = left.begin_us
    first = max(0, bisect_right(rights, left.begin_us, key=begin_of) - 1)
    behind = len(rights) if left.end_us is None else bisect_left(rights, left.end_us, key=begin_of)
    for right in rights[first:behind]:
        begin_us = max(left.begin_us, right.begin_us)
        end_us = _earlier(left.end_us, right.end_us)
        if end_us is not None and end_us <= begin_us:
            continue
        if done_us < begin_us:
            yield done_us, begin_us, None
        yield begin_us, end_us, right
        if end_us is None:
            return
        done_us = end_us
    if left.end_us is None or done_us < left.end_us:
        yield done_us, left.end_us, None


def _earlier(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def in_order_of(right_keys: Sequence[str], operator: Join) -> list[str]:
    """Return the left columns in the order of the right side's keys."""
    left_of = dict(zip(operator.right_on, operator.left_on, strict=True))
    return [left_of[key] for key in right_keys]


def _joined(operator: Join, row: Row, match: Version | None) -> Row:
    return {**row, **{name: None if match is None else match.row[name] for name in operator.fields}}
