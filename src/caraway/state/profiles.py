"""Profiles of columns by the hour in Postgres, the references of columns, and the drift that was found last.

A column is a feature that a branch served, or a field of a dataset's rows. Both are in the same tables.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from caraway.compute.profiles.columns import ColumnProfile
from caraway.compute.profiles.kinds import Kind
from caraway.compute.profiles.tables import Profile
from caraway.state.database import Store
from caraway.state.tables import drift_findings, drift_profiles, drift_references
from caraway.state.watched import NOW

# The number of profiles that one statement reads or writes: some MB.
AT_ONCE = 500
# The number of columns whose profiles one transaction reads.
COLUMNS_AT_ONCE = 50

T = TypeVar("T")


class Subject(StrEnum):
    """The things whose columns are profiled: features that a branch served, or datasets, by the name of their check."""

    FEATURES = "features"
    DATASETS = "datasets"


@dataclass(frozen=True, slots=True, kw_only=True)
class HourKey:
    """The values that are profiled together: those of a column of a branch or of a check, within an hour."""

    scope: str
    column: str
    kind: Kind
    hour: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The profile with which a column is compared, and when and by whom it was set."""

    profile: ColumnProfile
    set_at: datetime
    set_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A distance of a column of a branch or of a check from its reference, as it was found last."""

    scope: str
    column: str
    distance: str
    value: float
    drifted: bool


class ProfileStore(Store):
    """Reads profiles; reads and writes references and findings. Thread safe.

    All methods raise `UnavailableError` if Postgres doesn't answer.
    """

    def __init__(self, engine: sa.Engine, subject: Subject) -> None:
        """Work through `engine` (`caraway.state.database.connect`) on what is known of one subject."""
        super().__init__(engine)
        self._subject = subject

    def newest(self, scope: str) -> datetime | None:
        """Return the newest hour of a scope that has profiles; None if there is none."""
        return self._in_transaction(lambda c: newest_hour(c, self._subject, scope), "read the newest profiles")

    def window(
        self, scope: str, since: datetime, until: datetime, columns: Collection[str]
    ) -> dict[tuple[str, Kind], ColumnProfile]:
        """Return the profiles of columns from one hour up to, not including, another one.

        Profiles of hours are merged one by one, so there are never many in memory.
        """
        table = drift_profiles
        made: dict[tuple[str, Kind], ColumnProfile] = {}
        for names in _groups(sorted(columns), COLUMNS_AT_ONCE):
            query = sa.select(table.c.column, table.c.profile).where(
                *_within(table, self._subject, scope),
                table.c.column.in_(names),
                table.c.hour >= since,
                table.c.hour < until,
            )
            made |= self._in_transaction(partial(_merged, query=query), "read profiles")
        return made

    def set_references(self, scope: str, columns: Mapping[str, ColumnProfile], by: str) -> None:
        """Set the references of columns, in place of those that they have."""
        table = drift_references
        keys = list(table.primary_key.columns)
        rows = [
            {"subject": self._subject, "scope": scope, "column": name, "profile": _bytes(name, profile), "set_by": by}
            for name, profile in columns.items()
        ]

        def write(connection: sa.Connection) -> None:
            for some in _groups(rows):
                statement = insert(table).values([{**row, "set_at": NOW} for row in some])
                new = statement.excluded
                values = {"profile": new.profile, "set_at": new.set_at, "set_by": new.set_by}
                connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=values))

        self._in_transaction(write, "set references of drift")

    def references(self, scope: str, columns: Collection[str]) -> dict[str, Reference]:
        """Return the references of those of the columns that have one."""
        table = drift_references
        query = sa.select(table).where(*_within(table, self._subject, scope), table.c.column.in_(columns))
        rows = self._in_transaction(lambda c: c.execute(query).mappings().all(), "read references of drift")
        return {
            row["column"]: Reference(
                profile=Profile.from_bytes(row["profile"]).columns[row["column"]],
                set_at=row["set_at"],
                set_by=row["set_by"],
            )
            for row in rows
        }

    def record(self, scope: str, found: Sequence[Found]) -> None:
        """Record the distances of a scope in place of those that were found before."""
        table = drift_findings
        rows = [{name: getattr(one, name) for name in Found.__dataclass_fields__} for one in found]

        def write(connection: sa.Connection) -> None:
            connection.execute(sa.delete(table).where(*_within(table, self._subject, scope)))
            if rows:
                connection.execute(sa.insert(table), [{"subject": self._subject, **row} for row in rows])

        self._in_transaction(write, "record drift")

    def found(self, scopes: Collection[str] | None = None, limit: int | None = None) -> list[Found]:
        """Return the distances that were found last, those of columns that have drifted first.

        Args:
            scopes: The branches or checks; None: all.
            limit: The most distances that are returned; None: all of them.
        """
        table = drift_findings
        order = table.c.drifted.desc(), table.c.scope, table.c.column, table.c.distance
        query = sa.select(table).where(table.c.subject == self._subject).order_by(*order).limit(limit)
        if scopes is not None:
            query = query.where(table.c.scope.in_(scopes))
        rows = self._in_transaction(lambda c: c.execute(query).mappings().all(), "read drift")
        return [Found(**{name: row[name] for name in Found.__dataclass_fields__}) for row in rows]


def merge_profiles(connection: sa.Connection, subject: Subject, columns: Mapping[HourKey, ColumnProfile]) -> None:
    """Merge profiles with those that are there. The caller keeps other writers of the same profiles out."""
    for keys in _groups(columns):
        _merge(connection, subject, {key: columns[key] for key in keys})


def newest_hour(connection: sa.Connection, subject: Subject, scope: str) -> datetime | None:
    """Return the newest hour of a scope that has profiles; None if there is none."""
    table = drift_profiles
    found = connection.execute(sa.select(sa.func.max(table.c.hour)).where(*_within(table, subject, scope))).scalar()
    return None if found is None else found.astimezone(UTC)


def remove_old_profiles(
    connection: sa.Connection, subject: Subject, before: datetime, scope: str | None = None
) -> None:
    """Remove the profiles of hours before a time, those of one scope or of all."""
    table = drift_profiles
    which = (table.c.subject == subject,) if scope is None else _within(table, subject, scope)
    connection.execute(sa.delete(table).where(*which, table.c.hour < before))


def remove_other_scopes(connection: sa.Connection, subject: Subject, scopes: Collection[str]) -> None:
    """Remove all that is known of other branches or checks than these."""
    for table in (drift_profiles, drift_references, drift_findings):
        connection.execute(sa.delete(table).where(table.c.subject == subject, table.c.scope.not_in(scopes)))


def _within(table: sa.Table, subject: Subject, scope: str) -> tuple[sa.ColumnElement[bool], ...]:
    return table.c.subject == subject, table.c.scope == scope


def _bytes(name: str, profile: ColumnProfile) -> bytes:
    return Profile({name: profile}).to_bytes()


def _merge(connection: sa.Connection, subject: Subject, columns: Mapping[HourKey, ColumnProfile]) -> None:
    table = drift_profiles
    names = list(table.primary_key.columns)
    keys = {(subject.value, key.scope, key.column, key.kind.value, key.hour): key for key in columns}
    query = sa.select(*names, table.c.profile).where(sa.tuple_(*names).in_(list(keys)))
    there = {tuple(row[:-1]): row[-1] for row in connection.execute(query)}
    rows = []
    for values, key in keys.items():
        profile = Profile({key.column: columns[key]})
        if values in there:
            profile = Profile.from_bytes(there[values])
            profile.merge(Profile({key.column: columns[key]}))
        row = {name.name: value for name, value in zip(names, values, strict=True)}
        rows.append({**row, "profile": profile.to_bytes()})
    statement = insert(table).values(rows)
    connection.execute(
        statement.on_conflict_do_update(index_elements=names, set_={"profile": statement.excluded.profile})
    )


def _merged(connection: sa.Connection, query: sa.Select[Any]) -> dict[tuple[str, Kind], ColumnProfile]:
    """Return the profiles that a query finds, merged by the name of the column and its kind.

    They are read one by one, so there are never many in memory.
    """
    found: dict[tuple[str, Kind], ColumnProfile] = {}
    for name, data in connection.execution_options(yield_per=AT_ONCE).execute(query):
        for column in Profile.from_bytes(data).columns.values():
            key = name, column.kind
            if key in found:
                found[key].merge(column)
            else:
                found[key] = column
    return found


def _groups(items: Iterable[T], size: int = AT_ONCE) -> Iterator[list[T]]:
    """Yield the items in lists of at most `size`."""
    iterator = iter(items)
    while group := list(islice(iterator, size)):
        yield group
