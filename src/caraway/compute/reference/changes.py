"""Inserts and deletes of rows of a source dataset, and the table that results from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from caraway.compute.reference.tables import Event, Relation, Row, Table, Version, upserted
from caraway.errors import InvalidInputError
from caraway.graph.specs import DatasetSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceChange:
    """An insert or a delete at an event time.

    `row` is in stored form (docs/inside/records.md). An insert has all columns, but its time is `time_us`, and the time
    stamp in the row is ignored. A delete needs only the keys. If it has the time stamp of the row that it deletes, it
    doesn't take effect before that time.
    """

    time_us: int
    row: Mapping[str, object]
    delete: bool = False


def insertions(spec: DatasetSpec, rows: Sequence[Mapping[str, object]]) -> list[Event]:
    """Return rows as inserts at their time stamps. Raises `InvalidInputError` if a column is missing."""
    return [Event(row, _instant(spec, row), delete=False) for row in (_complete(spec, row) for row in rows)]


def events(spec: DatasetSpec, changes: Sequence[SourceChange]) -> list[Event]:
    """Return changes as events.

    Raises `InvalidInputError` if a column is missing, or a change deletes a row of a keyless dataset.
    """
    return [_deletion(spec, c) if c.delete else _insertion(spec, c) for c in changes]


def arrive(before: Sequence[Event], new: Sequence[Event]) -> list[Event]:
    """Return all events in order of time, and those of equal times in order of arrival."""
    return sorted([*before, *new], key=lambda event: event.time_us)


def table_of(spec: DatasetSpec, arrived: Sequence[Event]) -> Table:
    """Return the content of a dataset, made of all of its events in order."""
    if spec.keys:
        return upserted(spec.keys, arrived)
    return Relation((), [Version(event.row, event.time_us, None) for event in arrived])


def _insertion(spec: DatasetSpec, change: SourceChange) -> Event:
    row = _complete(spec, {**change.row, spec.timestamp: change.time_us})
    return Event(row, change.time_us, delete=False)


def _deletion(spec: DatasetSpec, change: SourceChange) -> Event:
    if not spec.keys:
        raise InvalidInputError(
            f"dataset {spec.name} has no keys, so that its rows can't be deleted or updated; send inserts only"
        )
    own_us = change.row.get(spec.timestamp)
    time_us = max(change.time_us, own_us) if isinstance(own_us, int) else change.time_us
    return Event({name: _value(spec, change.row, name) for name in spec.keys}, time_us, delete=True)


def _complete(spec: DatasetSpec, row: Mapping[str, object]) -> Row:
    return {field.name: _value(spec, row, field.name) for field in spec.fields}


def _value(spec: DatasetSpec, row: Mapping[str, object], name: str) -> object:
    if name in row:
        return row[name]
    raise InvalidInputError(f"dataset {spec.name}: column {name} is missing; the row has {', '.join(row) or 'nothing'}")


def _instant(spec: DatasetSpec, row: Row) -> int:
    instant = row[spec.timestamp]
    if isinstance(instant, int):
        return instant
    raise InvalidInputError(f"dataset {spec.name}: time stamp {spec.timestamp} is {instant!r}, not microseconds")
