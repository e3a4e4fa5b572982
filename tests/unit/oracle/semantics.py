"""The oracle: what a dataset holds at a time, computed as naively as possible from all rows that were ever logged.

It follows the specification alone (shared/spec, docs/inside/records.md, docs/guides/offline.md) and imports nothing of
the product, so that a misreading which all engines of the product share is found. Nothing is fast here: each read
computes the whole graph again, by loops over all rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, assert_never

from tests.unit.oracle import plain
from tests.unit.oracle.functions import value_of
from tests.unit.oracle.plain import SECOND, Described, Fact, Feature, Hopping, Key, Logged, Row, Session, Step
from tests.unit.oracle.windows import (
    Entry,
    bucket_ends,
    changes_of,
    continues_a_group,
    continues_duplicates,
    counts_at,
    is_in_bucket,
    sessions_of,
)

# Functions whose default a lookup returns for a key that never had a row.
WITH_DEFAULT = frozenset({"average", "min", "max", "stddev", "variance", "quantile"})


@dataclass(frozen=True)
class Answer:
    """The row of a key at a time, and its timestamp; both are None where there is none."""

    row: Row | None
    time: int | None


NOTHING = Answer(None, None)


class Oracle:
    """All that was logged to a graph's sources, in the order in which it was accepted."""

    def __init__(self, graph: Described, logged: Sequence[Logged]) -> None:
        """Keep the graph and the rows; reads compute."""
        self.graph = graph
        self.logged = list(logged)
        self._computed: dict[str, list[Fact]] = {}
        self._seen: dict[int, tuple[list[Entry], int]] = {}

    def as_known_at(self, at: int) -> "Oracle":
        """Return an oracle that knows only what had been accepted by a time."""
        return Oracle(self.graph, [logged for logged in self.logged if logged.ingested <= at])

    def read(self, dataset: str, key: Key, at: int) -> Answer:
        """Return a keyed dataset's row of a key as of a time."""
        step = self.graph.derived.get(dataset)
        if isinstance(step, plain.Aggregate):
            return self._aggregated(step, key, at)
        return valid(self.facts_of(dataset), key, at)

    def unseen(self, dataset: str) -> Row:
        """Return the values that a lookup gives for a key without a row."""
        step = self.graph.derived.get(dataset)
        if not isinstance(step, plain.Aggregate):
            return {}
        return {column.name: column.default for column in step.columns if column.function in WITH_DEFAULT}

    def features(self, features: Sequence[Feature], given: Row, at: int, *, timestamp: str = "at") -> Row:
        """Return features as of a time, by those that are given; `timestamp` is the name of all timestamps."""
        found = dict(given)
        for feature in features:
            if feature.compute is not None:
                found[feature.name] = feature.compute(found)
                continue
            answer = self.read(feature.dataset, tuple(found[name] for name in feature.keys), at)
            row = self.unseen(feature.dataset) if answer.row is None else {**answer.row, timestamp: answer.time}
            value = row.get(feature.column)
            found[feature.name] = feature.default if value is None else value
        return {feature.name: found[feature.name] for feature in features}

    def facts_of(self, dataset: str) -> list[Fact]:
        """Return the events or versions of a dataset."""
        if dataset not in self._computed:
            step = self.graph.derived.get(dataset)
            self._computed[dataset] = self._logged(dataset) if step is None else self.facts(step)
        return self._computed[dataset]

    def _logged(self, source: str) -> list[Fact]:
        keys = self.graph.sources[source]
        return [
            Fact(row.time, (number,), row.row, tuple(row.row[key] for key in keys), row.deleted)
            for number, row in enumerate(self.logged)
            if row.source == source
        ]

    def facts(self, step: Step) -> list[Fact]:
        """Return the events or versions that a step gives."""
        match step:
            case plain.Read():
                return self.facts_of(step.dataset)
            case plain.Filter():
                return kept(self.facts(step.of), step.keep)
            case plain.DropNull():
                return kept(self.facts(step.of), lambda row: all(row[name] is not None for name in step.columns))
            case plain.Change():
                return [
                    fact if fact.deleted else replace(fact, row=step.change(fact.row)) for fact in self.facts(step.of)
                ]
            case plain.Explode():
                return [found for fact in self.facts(step.of) for found in exploded(fact, step.columns)]
            case plain.Union():
                return [
                    replace(fact, order=(side, *fact.order))
                    for side, of in enumerate((step.left, step.right))
                    for fact in self.facts(of)
                ]
            case plain.Dedup():
                return deduplicated(self.facts(step.of), step)
            case plain.Latest():
                return [keyed(fact, step.keys) for fact in self.facts(step.of)]
            case plain.First():
                facts = [keyed(fact, step.keys) for fact in self.facts(step.of)]
                return [fact for fact in facts if not any(comes_before(other, fact) for other in facts)]
            case plain.Changelog():
                return changelog(self.facts(step.of), step)
            case plain.Join():
                left, right = self.facts(step.left), self.facts(step.right)
                if any(fact.key for fact in left):
                    return joined_tables(left, right, step)
                return joined_events(left, right, step)
            case plain.Aggregate():
                return self._versions(step)
            case _:
                assert_never(step)

    # Aggregates ------------------------------------------------------------------------------------------------------

    def placed(self, step: plain.Aggregate) -> list[Entry]:
        """Return all rows of an aggregation's input, placed in time, and also the versions that never held."""
        facts = self.facts(step.of)
        found = []
        for fact in facts:
            if fact.deleted:
                continue
            end = end_of(fact, facts) if fact.key else None
            if step.along is None:
                found.append(Entry(fact.time, end, fact.order, fact))
            else:
                found.append(Entry(fact.row[step.along], end, (fact.time, *fact.order), fact))
        return found

    def entries(self, step: plain.Aggregate) -> tuple[list[Entry], int]:
        """Return all rows that an aggregation sees, and the greatest time among them."""
        if id(step) not in self._seen:
            self._seen[id(step)] = self._entries(step)
        return self._seen[id(step)]

    def _entries(self, step: plain.Aggregate) -> tuple[list[Entry], int]:
        # A version that is replaced or deleted at its own begin never holds, so that nothing sees it: it isn't counted,
        # and its time doesn't close windows.
        entries = [entry for entry in self.placed(step) if entry.end is None or entry.fact.time < entry.end]
        times = [entry.time for entry in entries]
        if step.along is None:
            times += [entry.end for entry in entries if entry.end is not None]
        return entries, max(times, default=-(2**63))

    def _aggregated(self, step: plain.Aggregate, key: Key, at: int) -> Answer:
        entries, max_event_time = self.entries(step)
        group = [
            entry for entry in entries if tuple(entry.fact.row[name] for name in step.keys) == key[: len(step.keys)]
        ]
        if step.window is not None:
            return in_a_window(step, group, bucket=key[-1], entries=entries, max_event_time=max_event_time, at=at)
        times: set[int] = set()
        row = dict(zip(step.keys, key, strict=True))
        for column in step.columns:
            if isinstance(column.window, Hopping):
                ends = [end for end in bucket_ends(column.window, entries, max_event_time) if end <= at]
                times |= turns(group, column.window, ends)
                window = column.window
                counted = [entry for entry in group if ends and is_in_bucket(entry, window, ends[-1])]
            else:
                assert column.window is not None
                times |= {time for entry in group for time in changes_of(entry, column.window) if time <= at}
                counted = [entry for entry in group if counts_at(entry, column.window, at)]
            row[column.name] = aggregate(column, counted, at)
        return Answer(row, max(times)) if times else NOTHING

    def _versions(self, step: plain.Aggregate) -> list[Fact]:
        """Return the rows of an aggregation over discrete windows as versions."""
        entries, max_event_time = self.entries(step)
        keys: list[Key] = []
        for entry in entries:
            key = tuple(entry.fact.row[name] for name in step.keys)
            if key not in keys:
                keys.append(key)
        times: set[int] = set()
        for column in step.columns:
            assert isinstance(column.window, Hopping)
            times |= set(bucket_ends(column.window, entries, max_event_time))
        found = []
        for key in keys:
            for time in sorted(times):
                answer = self._aggregated(step, key, time)
                if answer.row is not None and answer.time == time:
                    found.append(Fact(time, (), answer.row, key))
        return found


def aggregate(column: plain.Aggregated, counted: list[Entry], at: int) -> Any:
    """Return an aggregate of rows."""
    counted = sorted(counted, key=lambda entry: (entry.time, entry.order))
    values = [(entry.time, None if column.of is None else entry.fact.row[column.of]) for entry in counted]
    return value_of(column, values, at)


def turns(group: list[Entry], window: Hopping, ends: list[int]) -> set[int]:
    """Return the ends of the buckets that count other rows than the bucket before them."""
    found: set[int] = set()
    before: list[Entry] = []
    for end in ends:
        counted = [entry for entry in group if is_in_bucket(entry, window, end)]
        if counted != before:
            found.add(end)
        before = counted
    return found


def in_a_window(
    step: plain.Aggregate,
    group: list[Entry],
    *,
    bucket: tuple[int, int],
    entries: list[Entry],
    max_event_time: int,
    at: int,
) -> Answer:
    """Return the row of a bucket or session that is a part of the key."""
    begin, end = bucket
    counted: list[Entry] | None = None
    match step.window:
        case Session():
            for session in sessions_of(group, continues_a_group(step.window)):
                first, last = session[0].time // SECOND * SECOND, session[-1].time // SECOND * SECOND
                if (first, last + 1) == (begin, end):
                    counted = session
        case Hopping():
            window = step.window
            if end - begin == window.length and end in bucket_ends(window, entries, max_event_time):
                counted = [entry for entry in group if is_in_bucket(entry, window, end)]
                before = [entry for entry in group if is_in_bucket(entry, window, end - window.stride)]
                if not counted and not (before and step.columns):
                    counted = None
    if counted is None or at < end:
        return NOTHING
    row = {column.name: aggregate(column, counted, at) for column in step.columns}
    return Answer(row, end)


# Streams and tables --------------------------------------------------------------------------------------------------


def comes_before(one: Fact, other: Fact) -> bool:
    """Return whether a fact of the same key comes before another one."""
    return one.key == other.key and (one.time, one.order) < (other.time, other.order)


def end_of(fact: Fact, facts: list[Fact]) -> int | None:
    """Return when the next version of the key begins."""
    after = [other for other in facts if comes_before(fact, other)]
    return min((other.time for other in after), default=None)


def version_at(facts: list[Fact], key: Key, at: int) -> Fact | None:
    """Return the version that holds at a time: the newest one, and the last to come of equally new ones."""
    found: Fact | None = None
    for fact in facts:
        if fact.key == key and fact.time <= at and (found is None or comes_before(found, fact)):
            found = fact
    return None if found is None or found.deleted else found


def valid(facts: list[Fact], key: Key, at: int) -> Answer:
    """Return a table's row of a key as of a time."""
    found = version_at(facts, key, at)
    return NOTHING if found is None else Answer(found.row, found.time)


def kept(facts: list[Fact], keep: Any) -> list[Fact]:
    """Return the rows to keep; where a table's version isn't kept, its key has no row."""
    found = []
    for fact in facts:
        if fact.deleted or keep(fact.row):
            found.append(fact)
        elif fact.key:
            found.append(replace(fact, deleted=True))
    return found


def keyed(fact: Fact, keys: tuple[str, ...]) -> Fact:
    return replace(fact, key=tuple(fact.row[name] for name in keys))


def exploded(fact: Fact, columns: tuple[str, ...]) -> list[Fact]:
    """Return a row for each element of lists, and one with nulls for empty ones."""
    length = len(fact.row[columns[0]])
    if not length:
        return [replace(fact, row=fact.row | dict.fromkeys(columns))]
    return [
        replace(fact, order=(*fact.order, at), row=fact.row | {name: fact.row[name][at] for name in columns})
        for at in range(length)
    ]


def deduplicated(facts: list[Fact], step: plain.Dedup) -> list[Fact]:
    """Return the last row of each group of duplicates."""
    found = []
    for fact in facts:
        alike = [other for other in facts if all(other.row[name] == fact.row[name] for name in step.by)]
        match step.window:
            case None:
                group = [other for other in alike if other.time == fact.time]
            case Hopping():
                size = step.window.stride
                group = [other for other in alike if other.time // size == fact.time // size]
            case Session():
                entries = [Entry(other.time, None, other.order, other) for other in alike]
                sessions = sessions_of(entries, continues_duplicates(step.window))
                (group,) = [
                    [entry.fact for entry in session]
                    for session in sessions
                    if any(entry.fact is fact for entry in session)
                ]
        if not any(comes_before(fact, other) for other in group):
            found.append(fact)
    return found


def changelog(facts: list[Fact], step: plain.Changelog) -> list[Fact]:
    """Return an insert for each version, and a delete where it ends; none for a version that never held."""
    found = []
    for fact in facts:
        end = end_of(fact, facts)
        if fact.deleted or end == fact.time:
            continue
        for time, insert in ((fact.time, True), (end, False)):
            if time is not None:
                row = fact.row | {step.flag: insert == step.inserts}
                found.append(Fact(time, (not insert, fact.time, *fact.order), row))
    return found


def with_right(row: Row, right: Fact | None, step: plain.Join) -> Row:
    return row | {name: None if right is None else right.row[name] for name in step.added}


def joined_events(left: list[Fact], right: list[Fact], step: plain.Join) -> list[Fact]:
    """Return left events, each with the newest right version by the end of its window, if it is young enough."""
    found = []
    for fact in left:
        match = version_at(right, tuple(fact.row[name] for name in step.left_on), fact.time + step.after)
        if match is not None and step.before is not None and match.time < fact.time - step.before:
            match = None
        if match is not None or not step.inner:
            found.append(replace(fact, row=with_right(fact.row, match, step)))
    return found


def joined_tables(left: list[Fact], right: list[Fact], step: plain.Join) -> list[Fact]:
    """Return the versions of a table that is at each time the left table joined with the right one."""
    found = []
    keys: list[Key] = []
    for fact in left:
        if fact.key not in keys:
            keys.append(fact.key)
    for key in keys:
        held: tuple[Fact | None, Fact | None] = (None, None)
        for time in sorted({fact.time for fact in [*left, *right]}):
            here = version_at(left, key, time)
            there = None if here is None else version_at(right, tuple(here.row[name] for name in step.left_on), time)
            if here is held[0] and there is held[1]:
                continue
            held = here, there
            if here is None or (there is None and step.inner):
                found.append(Fact(time, (), {}, key, deleted=True))
            else:
                found.append(Fact(time, (), with_right(here.row, there, step), key))
    return found
