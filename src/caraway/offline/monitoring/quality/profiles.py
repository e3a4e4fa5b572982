"""The profiles of datasets in Postgres, by field and hour of event time, and the drift that was found last."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from caraway.compute.profiles.columns import ColumnProfile
from caraway.compute.profiles.kinds import Kind
from caraway.offline.monitoring.quality.profiling import FieldHour
from caraway.state.database import Store
from caraway.state.drift import Reference
from caraway.state.merged_profiles import merge_profiles, merged
from caraway.state.tables import quality_drift, quality_profiles


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundInField:
    """A distance of a field of a dataset from what it was before, as it was found last."""

    field: str
    distance: str
    value: float
    drifted: bool


def add_profiles(
    connection: sa.Connection, check_id: str, profiles: Mapping[FieldHour, ColumnProfile], kept_s: float
) -> None:
    """Merge the profiles of a pass with those that are there, and remove those of old hours.

    Args:
        connection: A transaction, in which the row of the check's positions is locked.
        check_id: The name of the check.
        profiles: The profiles.
        kept_s: The seconds before the newest hour beyond which an hour has no profiles.
    """
    table = quality_profiles
    own = table.c.check_id == check_id
    newest = max(key.hour for key in profiles)
    known = connection.execute(sa.select(sa.func.max(table.c.hour)).where(own)).scalar()
    newest = newest if known is None else max(newest, known.astimezone(UTC))
    since = None if math.isinf(kept_s) else newest - timedelta(seconds=kept_s)
    columns = {
        (check_id, key.field, key.hour): profile
        for key, profile in profiles.items()
        if since is None or key.hour >= since
    }
    merge_profiles(connection, table, columns)
    if since is not None:
        connection.execute(sa.delete(table).where(own, table.c.hour < since))


class DatasetProfiles(Store):
    """Reads the profiles of datasets. Thread safe.

    All methods raise `UnavailableError` if Postgres doesn't answer.
    """

    def newest(self, check_id: str) -> datetime | None:
        """Return the newest hour of a check that has profiles; None if there is none."""
        query = sa.select(sa.func.max(quality_profiles.c.hour)).where(quality_profiles.c.check_id == check_id)
        found = self._in_transaction(lambda c: c.execute(query).scalar(), "read the newest profiles")
        return None if found is None else found.astimezone(UTC)

    def window(
        self, check_id: str, since: datetime, until: datetime, fields: Collection[str]
    ) -> dict[tuple[str, Kind], ColumnProfile]:
        """Return the profiles of the rows of a check from one hour of event time up to, not including, another one."""
        table = quality_profiles
        query = sa.select(table.c.field, table.c.profile).where(
            table.c.check_id == check_id, table.c.field.in_(fields), table.c.hour >= since, table.c.hour < until
        )
        return self._in_transaction(lambda connection: merged(connection, query), "read profiles of a dataset")

    def references(self, check_id: str, fields: Collection[str]) -> dict[str, Reference]:  # noqa: ARG002
        """Return nothing: a dataset is compared with its own earlier rows."""
        return {}

    def record(self, check_id: str, found: Sequence[FoundInField]) -> None:
        """Record the distances of a check in place of those that were found before."""
        table = quality_drift
        rows = [
            {"check_id": check_id} | {name: getattr(one, name) for name in FoundInField.__dataclass_fields__}
            for one in found
        ]

        def write(connection: sa.Connection) -> None:
            connection.execute(sa.delete(table).where(table.c.check_id == check_id))
            if rows:
                connection.execute(sa.insert(table), rows)

        self._in_transaction(write, "record drift of a dataset")

    def found(self, check_ids: Collection[str]) -> dict[str, list[FoundInField]]:
        """Return the distances of checks as they were found last, those of fields that have drifted first."""
        table = quality_drift
        query = (
            sa.select(table)
            .where(table.c.check_id.in_(check_ids))
            .order_by(table.c.drifted.desc(), table.c.field, table.c.distance)
        )
        rows = self._in_transaction(lambda c: c.execute(query).mappings().all(), "read drift of datasets")
        found: dict[str, list[FoundInField]] = {}
        for row in rows:
            one = FoundInField(**{name: row[name] for name in FoundInField.__dataclass_fields__})
            found.setdefault(row["check_id"], []).append(one)
        return found
