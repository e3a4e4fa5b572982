"""The explanation of a value as plain data, with values and times as JSON has them.

Times are ISO texts in UTC. Values are those of `caraway.dtypes.values.to_json`, which loses no bit.
"""

from typing import Any

import msgspec
from msgspec import Struct

from caraway.compute.why.showing import as_html, text
from caraway.dtypes.types import DATETIME
from caraway.dtypes.values import from_json, to_json

# An answer lists at most MAX_LISTED parts of a lookup, and LISTED unless the caller asks for another number. A part is
# a record that counts in the lookup's value, or nearly does.
MAX_LISTED, LISTED = 1_000, 100

_SHOWN, _READ = to_json(DATETIME), from_json(DATETIME)

Values = dict[str, Any]


def shown_time(time_us: int) -> str:
    """Return an instant in microseconds as explanations have it."""
    return str(_SHOWN(time_us))


def time_of(text: str) -> int:
    """Return an instant of an explanation in microseconds."""
    found = _READ(text)
    if not isinstance(found, int):
        raise TypeError(f"{text!r} is no instant")
    return found


class Position(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The place of a record on a topic.

    Attributes:
        topic: The topic.
        partition: The partition.
        offset: The offset of the message.
        number: The number of the record in its message, from 0 on.
    """

    topic: str
    partition: int
    offset: int
    number: int = 0


class Met(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The version that a join met for a row, if there was one.

    Attributes:
        dataset: The right side of the join.
        key: The key that was looked for.
        at: The time as of which the version holds.
        row: The version; None if there was none, or if it is hidden.
        since: The time from which it holds.
        until: The time from which the next version holds; None if there is none.
        why: Why there is no version, or which one was met.
        hidden: Why the version isn't shown.
    """

    dataset: str
    key: Values
    at: str
    row: Values | None = None
    since: str | None = None
    until: str | None = None
    why: str = ""
    hidden: str | None = None


class Source(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of a source from which a part was made.

    Attributes:
        dataset: The dataset of the source; empty if it isn't known.
        row: Its row.
        event_time: Its event time.
        ingested: The time at which the server accepted it; None if that isn't known.
        position: Its place on the topic of its dataset.
        mark: The text that the reader of the source wrote beside it, such as the place in the source's own log.
        steps: The steps of the pipelines on its way.
        joins: The versions that it met on its way.
        hidden: Why the row isn't shown.
        note: Why the way isn't known to its begin.
    """

    dataset: str = ""
    row: Values | None = None
    event_time: str | None = None
    ingested: str | None = None
    position: Position | None = None
    mark: str | None = None
    steps: tuple[str, ...] = ()
    joins: tuple[Met, ...] = ()
    hidden: str | None = None
    note: str | None = None


class Listed(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record that counts in a value, or that nearly does.

    Attributes:
        event_time: Its event time; with `along`, that of the column.
        row: Its columns; None if it is hidden.
        ends: The time at which the next version of its key, or a delete, ends it.
        ingested: The time at which the server accepted it, or the source record from which it was made.
        position: Its place on the topic of its dataset.
        within: The aggregates in whose windows it lies.
        why: Why it counts or doesn't.
        source: The record of a source from which it was made; None if it is such a record itself.
        deleted: True if it deletes the key.
    """

    event_time: str
    row: Values | None = None
    ends: str | None = None
    ingested: str | None = None
    position: Position | None = None
    within: tuple[str, ...] = ()
    why: str = ""
    source: Source | None = None
    deleted: bool = False


class Page(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Some of the parts of a lookup, in the order of event time.

    Attributes:
        total: How many parts there are.
        offset: How many parts come before the listed ones.
        items: The listed ones.
        sampled: True if they are a sample, evenly spread over all parts.
    """

    total: int
    offset: int = 0
    items: tuple[Listed, ...] = ()
    sampled: bool = False


class Window(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An aggregate of a lookup.

    Attributes:
        aggregate: The column.
        text: The function, its column and its window, as a definition has them.
        value: The value of the column.
        begin: The earliest event time that counts; None if the window has no begin.
        end: The event time before which rows count.
        count: How many rows are in the window; None if the rows are hidden.
        values: How many of them aren't null in the column that is read; None if they are hidden.
        first: The event time of the first one.
        last: The event time of the last one.
        least: The least value among them, if they can be ordered.
        greatest: The greatest one.
        left: The row that left the window last, with the reason.
        next: The row that comes next, with the reason.
    """

    aggregate: str
    text: str
    value: Any = None
    begin: str | None = None
    end: str | None = None
    count: int | None = None
    values: int | None = None
    first: str | None = None
    last: str | None = None
    least: Any = None
    greatest: Any = None
    left: Listed | None = None
    next: Listed | None = None


class Lookup(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The read of a row of a dataset.

    Attributes:
        dataset: The dataset.
        key: Its key.
        at: The time as of which it is read.
        found: True if there is a row.
        values: The fields that are read.
        why: A sentence about the row that was found, or why none was.
        met: The version that was met, if the dataset has versions.
        before: The version before it.
        after: The next version.
        windows: The aggregates that are read, if the dataset is an aggregation.
        parts: The rows in any of the windows.
        max_event_time: The greatest event time of the dataset, up to which discrete windows are closed.
        hidden: Why no records are shown.
    """

    dataset: str
    key: Values
    at: str
    found: bool
    values: Values
    why: str = ""
    met: Listed | None = None
    before: Listed | None = None
    after: Listed | None = None
    windows: tuple[Window, ...] = ()
    parts: Page | None = None
    max_event_time: str | None = None
    hidden: str | None = None


class Step(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An extractor, or several that are computed together.

    Attributes:
        number: Its number, from 1 on.
        kind: "lookup", "alias", "expressions" or "extractor".
        title: Its title, for people.
        details: How its features are computed.
        given: The values that it was given.
        made: The features that it computed.
        lookups: The rows that it read.
    """

    number: int
    kind: str
    title: str
    details: tuple[str, ...] = ()
    given: Values = {}
    made: Values = {}
    lookups: tuple[Lookup, ...] = ()


class Check(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The comparison of the value with what the parts give when it is computed from them once more.

    Attributes:
        same: True if the two have the same bits; None if it can't be told.
        why: The reason.
    """

    same: bool | None
    why: str = ""


class Why(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a feature has its value.

    Attributes:
        feature: The feature.
        value: Its value.
        at: The time as of which it is computed.
        inputs: The values that the caller gave.
        steps: The steps by which it is computed, in order.
        check: The comparison of the value with the sum of its parts.
        as_known: True if only records count that had been ingested by `at`.
        branch: The branch.
        commit: The commit whose definitions count; empty for a mock client.
    """

    feature: str
    value: Any
    at: str
    inputs: Values
    steps: tuple[Step, ...]
    check: Check
    as_known: bool = False
    branch: str = ""
    commit: str = ""

    def __str__(self) -> str:
        """Return the explanation as a tree of lines."""
        return text(self)

    def _repr_html_(self) -> str:
        """Return the explanation as HTML, for notebooks."""
        return as_html(self)


_DECODE = msgspec.json.Decoder(Why).decode


def why_from_json(answer: Any) -> Why:
    """Return the explanation in the JSON objects of an answer.

    Raises:
        msgspec.ValidationError: They aren't an explanation.
    """
    # `_DECODE` was made at import. `msgspec.convert` would collect the facts about the classes at its first call, and
    # other threads could use them before they are complete.
    return _DECODE(msgspec.json.encode(answer))
