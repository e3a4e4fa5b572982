"""The aggregate operator, which divides rows into groups and into the windows in which they count."""

import time
from collections.abc import Callable, Iterable

from caraway.compute.reference.aggregates.functions import Sample
from caraway.compute.reference.aggregates.running import running
from caraway.compute.reference.aggregates.table import AggregateColumn, Aggregated, Group
from caraway.compute.reference.aggregates.windows import Life, buckets_of, life, next_end, session_window, sessions
from caraway.compute.reference.tables import Key, Table, Version, key_of
from caraway.graph.aggregates import AggregateSpec
from caraway.graph.operators import Aggregate
from caraway.graph.schemas import WINDOW_KEY, Schema
from caraway.graph.windows import ContinuousWindow, HoppingWindow, SessionWindow

Groups = dict[Key, Group]
# A function that returns the current time in microseconds.
Clock = Callable[[], int]


def present_us() -> int:
    """Return the present by the system's clock, in microseconds."""
    return time.time_ns() // 1000


def compile_aggregate(operator: Aggregate, before: Schema, clock: Clock = present_us) -> Callable[[Table], Aggregated]:
    """Return the operator as a function of its input table.

    If its windows close by the clock as well, the output is that of the time of the call, by `clock`.
    """
    columns = [
        AggregateColumn(spec.into, running(spec, before.columns.get(spec.of or ""))) for spec in operator.aggregates
    ]
    keys = operator.keys if operator.window is None else (*operator.keys, WINDOW_KEY)

    def run(table: Table) -> Aggregated:
        present = [clock()] if operator.by_clock else []
        match operator.window:
            case None:
                groups = _by_aggregate(operator, table, before.timestamp, present)
            case HoppingWindow() as window:
                groups = _by_bucket(operator, window, table, present)
            case SessionWindow() as window:
                groups = _by_session(operator, window, table)
        return Aggregated(keys, before.timestamp, columns, groups)

    return run


def next_closing_us(operator: Aggregate, at_us: int) -> int | None:
    """Return when the clock closes the next window after a time; None if windows don't close by the clock."""
    windows = [operator.window, *(spec.window for spec in operator.aggregates)] if operator.by_clock else []
    return min(
        (
            next_end(window, at_us - window.lookback_us) + window.lookback_us
            for window in windows
            if isinstance(window, HoppingWindow)
        ),
        default=None,
    )


def _by_aggregate(operator: Aggregate, table: Table, timestamp: str, present: list[int]) -> Groups:
    """Return groups over all time, in which each aggregate has its own window.

    The times in `present` close windows as those of rows do.
    """
    placed = sorted(_placed(operator.along or timestamp, table), key=lambda item: item[0])
    max_event_time_us = max([*present, *(time_us for time_us, _ in placed)], default=0)
    if operator.along is None:
        ends = [version.end_us for _, version in placed if version.end_us is not None]
        max_event_time_us = max([max_event_time_us, *ends])
    groups: Groups = {}
    for time_us, version in placed:
        lives = [life(_own_window(spec), time_us, version.end_us, max_event_time_us) for spec in operator.aggregates]
        if any(lived is not None for lived in lives):
            group = _group(groups, operator, version)
            for spec, samples, lived in zip(operator.aggregates, group.samples, lives, strict=True):
                if lived is not None:
                    samples.append((lived, _sample(spec, time_us, version)))
    return groups


def _placed(along: str, table: Table) -> Iterable[tuple[int, Version]]:
    """Return the rows with event times from a column."""
    for version in table.versions:
        time_us = version.row[along]
        if not isinstance(time_us, int):
            raise TypeError(f"{along} holds {time_us!r}, which is no instant")
        yield time_us, version


def _by_bucket(operator: Aggregate, window: HoppingWindow, table: Table, present: list[int]) -> Groups:
    """Return a group for each closed bucket with rows, which exists from the bucket's end on.

    The times in `present` close windows as those of rows do.
    """
    length_us = window.length_us
    if length_us is None:
        raise TypeError("buckets without a begin can't be keys")
    max_event_time_us = max([*present, *(version.begin_us for version in table.versions)], default=0)
    groups: Groups = {}
    filled: dict[Key, tuple[Version, set[int]]] = {}
    for version in table.versions:
        for end_us in buckets_of(window, length_us, version.begin_us, max_event_time_us):
            _count(_group(groups, operator, version, (end_us - length_us, end_us)), operator, version)
            filled.setdefault(key_of(version.row, operator.keys), (version, set()))[1].add(end_us)
    if operator.aggregates:
        # An empty bucket follows each run of buckets with rows, so that readers see the end of the run.
        for version, ends in filled.values():
            for end_us in [end_us + window.stride_us for end_us in ends]:
                if end_us <= max_event_time_us - window.lookback_us:
                    _group(groups, operator, version, (end_us - length_us, end_us))
    return groups


def _by_session(operator: Aggregate, window: SessionWindow, table: Table) -> Groups:
    """Return a group for each session, which exists from the session's end on."""
    groups: Groups = {}
    rows_of: dict[Key, list[Version]] = {}
    for version in table.versions:
        rows_of.setdefault(key_of(version.row, operator.keys), []).append(version)
    for versions in rows_of.values():
        for first, behind in sessions([version.begin_us for version in versions], window.gap_us):
            bounds = session_window(versions[first].begin_us, versions[behind - 1].begin_us)
            for version in versions[first:behind]:
                _count(_group(groups, operator, version, bounds), operator, version)
    return groups


def _group(groups: Groups, operator: Aggregate, version: Version, window: tuple[int, int] | None = None) -> Group:
    """Return the group of a row, and of a window if the operator groups by windows."""
    key = key_of(version.row, operator.keys) if window is None else (*key_of(version.row, operator.keys), window)
    group = groups.get(key)
    if group is None:
        key_row = {name: version.row[name] for name in operator.keys}
        if window is not None:
            key_row[WINDOW_KEY] = list(window)
        since_us = () if window is None else (window[1],)
        group = groups[key] = Group(key_row, tuple([] for _ in operator.aggregates), since_us)
    return group


def _count(group: Group, operator: Aggregate, version: Version) -> None:
    """Count a row, which never leaves again, in a group that is a single window."""
    lived = Life(group.since_us[0], None)
    for spec, samples in zip(operator.aggregates, group.samples, strict=True):
        samples.append((lived, _sample(spec, version.begin_us, version)))


def _sample(spec: AggregateSpec, time_us: int, version: Version) -> Sample:
    return Sample(time_us, None if spec.of is None else version.row[spec.of])


def _own_window(spec: AggregateSpec) -> ContinuousWindow | HoppingWindow:
    if spec.window is None:
        raise TypeError(f"{spec.into} has no window, neither its own nor the groupby's")
    return spec.window
