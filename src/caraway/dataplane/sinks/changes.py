"""The changes of a dataset's rows, as a sink gets them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum


class Op(StrEnum):
    """The kinds of changes, by the letters that Debezium has for them."""

    CREATE = "c"
    UPDATE = "u"
    DELETE = "d"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a dataset.

    Attributes:
        time_us: Its event time in microseconds since the epoch.
        values: Its columns in stored form (docs/inside/records.md), in the order of the topic's schema.
    """

    time_us: int
    values: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one row, made by one record of the dataset's topic.

    Attributes:
        key: The key of the row as bytes; of a dataset without keys, the identity of the row.
        before: The row before the change; None if there was none.
        after: The row after the change; None if there is none.
        time_us: The event time of the change, in microseconds since the epoch.
        partition: The partition of the record on the topic.
        offset: The offset of the record; of a dataset without keys, 65,536 times the offset of its message plus its
            number in this message. No two changes have the same partition and offset.
    """

    key: bytes
    before: Row | None
    after: Row | None
    time_us: int
    partition: int
    offset: int

    @property
    def op(self) -> Op:
        """The kind of the change."""
        if self.before is None:
            return Op.CREATE
        return Op.DELETE if self.after is None else Op.UPDATE

    @property
    def row(self) -> Row:
        """The row after the change, or the one that it deletes."""
        found = self.after or self.before
        assert found is not None  # noqa: S101 (a change has a row before or after it)
        return found


def merged(changes: Iterable[Change]) -> list[Change]:
    """Return the changes of a micro-batch.

    If a row is deleted and then made anew, the two changes become one update, with the position of the later one, or
    none if the row is as before. The changes of a key keep their order.
    """
    found: list[Change | None] = []
    deletions: dict[bytes, int] = {}
    for change in changes:
        place = deletions.pop(change.key, None)
        if place is not None and change.before is None and (deletion := found[place]) is not None:
            found[place] = None
            change = replace(change, before=deletion.before)  # noqa: PLW2901 (it stands for both)
            if change.before == change.after:
                continue
        if change.after is None:
            deletions[change.key] = len(found)
        found.append(change)
    return [change for change in found if change is not None]


def last_of_each_key(changes: Iterable[Change]) -> list[Change]:
    """Return one change for each key, from the row before the first change to the row after the last one.

    A row that is made and deleted again within the changes is left out.
    """
    first: dict[bytes, Change] = {}
    last: dict[bytes, Change] = {}
    for change in changes:
        first.setdefault(change.key, change)
        last[change.key] = change
    found = (replace(change, before=first[key].before) for key, change in last.items())
    return [change for change in found if change.before is not None or change.after is not None]
