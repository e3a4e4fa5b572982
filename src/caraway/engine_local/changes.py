"""Changes of a source dataset: how they come in, and the table that they make."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from caraway.engine_local.tables import Event, Relation, Row, Table, Version, upserted
from caraway.errors import InvalidInputError
from caraway.graph.specs import DatasetSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceChange:
    """An insert or a delete at an event time.

    `row` is in stored form (docs/records.md). An insert has all columns; `time_us` stands for its time stamp, which
    isn't read. A delete needs the keys only; if it has the time stamp of the row that it takes back, then it doesn't
    happen before that.
    """

    time_us: int
    row: Mapping[str, object]
    delete: bool = False


def insertions(spec: DatasetSpec, rows: Sequence[Mapping[str, object]]) -> list[Event]:
    """Read rows as inserts at their time stamps.

    Raises:
        InvalidInputError: A column is missing.
    """
    return [Event(row, _instant(spec, row), delete=False) for row in (_complete(spec, row) for row in rows)]


def events(spec: DatasetSpec, changes: Sequence[SourceChange]) -> list[Event]:
    """Read changes.

    Raises:
        InvalidInputError: A column is missing, or a row of a keyless dataset is to be deleted.
    """
    return [_deletion(spec, c) if c.delete else _insertion(spec, c) for c in changes]


def arrive(before: Sequence[Event], new: Sequence[Event]) -> list[Event]:
    """Put events in their places: by time, and those of equal times in the order of arrival."""
    return sorted([*before, *new], key=lambda event: event.time_us)


def table_of(spec: DatasetSpec, arrived: Sequence[Event]) -> Table:
    """Make the content of a dataset of all its events, which are in order."""
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
