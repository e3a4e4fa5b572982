"""The profiles of served features in Postgres, by the hour, the references of branches, and what was found last.

The profiles of a pass are merged with those that are there, in the same transaction that moves the positions up to
which served features were looked at. So a row is in a profile once, whenever the process is killed.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import islice

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from caraway.compute.profiles.columns import ColumnProfile
from caraway.compute.profiles.kinds import Kind
from caraway.compute.profiles.tables import Profile
from caraway.state.findings import Found
from caraway.state.merged_profiles import groups, merge_profiles, merged
from caraway.state.tables import drift_findings, drift_profiles, drift_references
from caraway.state.watched import NOW, WatchedStore


@dataclass(frozen=True, slots=True, kw_only=True)
class HourKey:
    """The values that are profiled together: those of a feature that a branch served within an hour."""

    branch: str
    feature: str
    kind: Kind
    hour: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """The profiles of a pass.

    Attributes:
        topic_id: The id of the topic of served features.
        since: The positions from which the pass began, by partition, as they were recorded.
        until: The positions up to which it has looked.
        columns: The profiles of the rows between them.
    """

    topic_id: str
    since: Mapping[int, int]
    until: Mapping[int, int]
    columns: Mapping[HourKey, ColumnProfile]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The profile with which a feature is compared, and when and by whom it was set."""

    profile: ColumnProfile
    set_at: datetime
    set_by: str


class DriftStore(WatchedStore):
    """Writes and reads profiles, references and findings. Thread safe.

    All methods raise `UnavailableError` if Postgres doesn't answer.
    """

    def __init__(self, engine: sa.Engine) -> None:
        """Work through `engine` (`caraway.state.database.connect`)."""
        super().__init__(engine, "drift", found="profiled")

    def add(self, found: Profiled, allowed: Callable[[sa.Connection], bool] = lambda _: True) -> bool:
        """Add the profiles of a pass, and return whether they count now.

        They don't count, and nothing is written, if another pass has gone on from the same positions meanwhile, or if
        `allowed` returns False in the same transaction.
        """

        def write(connection: sa.Connection) -> None:
            columns = {(key.branch, key.feature, key.kind.value, key.hour): one for key, one in found.columns.items()}
            merge_profiles(connection, drift_profiles, columns)

        return self._record(found.topic_id, found.since, found.until, write, allowed)

    def window(
        self, branch: str, since: datetime, until: datetime, features: Collection[str]
    ) -> dict[tuple[str, Kind], ColumnProfile]:
        """Return the profiles of what a branch served from one hour up to, not including, another one.

        Profiles of hours are merged one by one, so there are never many in memory.
        """
        table = drift_profiles
        made: dict[tuple[str, Kind], ColumnProfile] = {}
        for names in groups(sorted(features), 50):
            query = sa.select(table.c.feature, table.c.profile).where(
                table.c.branch == branch, table.c.feature.in_(names), table.c.hour >= since, table.c.hour < until
            )
            made |= self._in_transaction(partial(merged, query=query), "read profiles of served features")
        return made

    def set_references(self, branch: str, columns: Mapping[str, ColumnProfile], by: str) -> None:
        """Set the references of features of a branch, in place of those that they have."""
        table = drift_references
        rows = [
            {"branch": branch, "feature": name, "profile": Profile({name: column}).to_bytes(), "set_by": by}
            for name, column in columns.items()
        ]

        def write(connection: sa.Connection) -> None:
            for some in groups(rows):
                statement = insert(table).values([{**row, "set_at": NOW} for row in some])
                new = statement.excluded
                values = {"profile": new.profile, "set_at": new.set_at, "set_by": new.set_by}
                connection.execute(statement.on_conflict_do_update(index_elements=["branch", "feature"], set_=values))

        self._in_transaction(write, "set references of drift")

    def references(self, branch: str, features: Collection[str]) -> dict[str, Reference]:
        """Return the references of those of the features that have one."""
        table = drift_references
        query = sa.select(table).where(table.c.branch == branch, table.c.feature.in_(features))
        rows = self._in_transaction(
            lambda connection: connection.execute(query).mappings().all(), "read references of drift"
        )
        return {
            row["feature"]: Reference(
                profile=Profile.from_bytes(row["profile"]).columns[row["feature"]],
                set_at=row["set_at"],
                set_by=row["set_by"],
            )
            for row in rows
        }

    def record(self, branch: str, found: Sequence[Found]) -> None:
        """Record the distances of a branch in place of those that were found before."""
        table = drift_findings

        def write(connection: sa.Connection) -> None:
            connection.execute(sa.delete(table).where(table.c.branch == branch))
            if found:
                rows = [{name: getattr(item, name) for name in Found.__dataclass_fields__} for item in found]
                connection.execute(sa.insert(table), rows)

        self._in_transaction(write, "record drift")

    def found_of(self, branch: str, features: Collection[str] | None, limit: int) -> list[Found]:
        """Return the distances of a branch as they were found last, those of features that have drifted first.

        Args:
            branch: The branch.
            features: The features that count; None: all.
            limit: The most distances that are returned.
        """
        table = drift_findings
        query = (
            sa.select(table)
            .where(table.c.branch == branch)
            .order_by(table.c.drifted.desc(), table.c.feature, table.c.distance)
        )
        if features is None:
            query = query.limit(limit)

        def read(connection: sa.Connection) -> list[Found]:
            rows = connection.execute(query)
            found = (row for row in rows if features is None or row.feature in features)
            return [Found(**row._mapping) for row in islice(found, limit)]  # noqa: SLF001 (SQLAlchemy's public name)

        return self._in_transaction(read, "read drift")

    def found(self) -> list[Found]:
        """Return the distances of all branches, as they were found last."""
        rows = self._in_transaction(
            lambda connection: connection.execute(sa.select(drift_findings)).mappings().all(), "read drift"
        )
        return [Found(**{name: row[name] for name in Found.__dataclass_fields__}) for row in rows]

    def prune(self, before: datetime, branches: Collection[str]) -> None:
        """Remove the profiles of hours before a time, and all of other branches than these."""

        def remove(connection: sa.Connection) -> None:
            connection.execute(sa.delete(drift_profiles).where(drift_profiles.c.hour < before))
            for table in (drift_profiles, drift_references, drift_findings):
                connection.execute(sa.delete(table).where(table.c.branch.not_in(branches)))

        self._in_transaction(remove, "remove old profiles of served features")
