"""The counts of expectations and the profiles of datasets in Postgres.

The counts, samples and profiles of a pass and the positions up to which it has counted are written in one transaction
(`caraway.state.watched`).
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from caraway.compute.expectations.counts import Counts
from caraway.compute.expectations.report import Status
from caraway.compute.profiles.columns import ColumnProfile
from caraway.state.profiles import (
    HourKey,
    Subject,
    merge_profiles,
    newest_hour,
    remove_old_profiles,
    remove_other_scopes,
)
from caraway.state.tables import quality_counts, quality_samples, quality_totals, watch_positions
from caraway.state.watched import WatchedStore

WATCH = "quality"
# Postgres keeps at most this many samples of each expectation, the newest ones.
KEPT_SAMPLES = 20
# Windows that are older than the newest window of their dataset by more than this are added up to hours.
FINE = timedelta(days=2)
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Sample:
    """A row that failed an expectation.

    Attributes:
        number: The number of the expectation among those of the dataset.
        at: The event time.
        key: The Kafka key of the record; None if the dataset has no keys.
        row: The columns in stored form, as MessagePack.
    """

    number: int
    at: datetime
    key: bytes | None
    row: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The findings of a pass about one dataset's expectations.

    Attributes:
        check_id: The name of the check (`CheckPlan.check_id`).
        since: The positions from which it began, by partition, as they were recorded.
        until: The positions up to which it has counted.
        windows: The counts by number of the expectation and start of the window.
        totals: The counts of all rows of the pass by number of the expectation.
        samples: Some of the rows that failed.
        profiles: The profiles of the rows by field and hour.
        profiles_s: The seconds before the newest hour beyond which profiles are removed.
        epochs: Epochs in which the topic had all messages before `until`, by partition, where one is known.
    """

    check_id: str
    since: Mapping[int, int]
    until: Mapping[int, int]
    windows: Mapping[tuple[int, datetime], Counts]
    totals: Mapping[int, Counts]
    samples: Sequence[Sample]
    profiles: Mapping[HourKey, ColumnProfile] = field(default_factory=dict)
    profiles_s: float = math.inf
    epochs: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The counts of all rows of an expectation, and the status that was last found.

    Attributes:
        counts: The counts.
        status: The status; None if none was found yet.
        changed_at: When the status was found first.
        violated_at: When the expectation was found violated last; None if it never was.
        notified_at: When it was told to others; None if it wasn't yet.
    """

    counts: Counts
    status: Status | None
    changed_at: datetime | None
    violated_at: datetime | None
    notified_at: datetime | None

    @property
    def was_told(self) -> bool:
        """True if others may have been told that the expectation is violated."""
        return self.violated_at is not None


# The counts of windows of one check, by number of the expectation and start of the window.
Windows = dict[tuple[int, datetime], Counts]


class QualityStore(WatchedStore):
    """Writes and reads counts. Thread safe.

    All methods raise `UnavailableError` if Postgres doesn't answer.
    """

    def __init__(self, engine: sa.Engine) -> None:
        """Work through `engine` (`caraway.state.database.connect`)."""
        super().__init__(engine, WATCH, found="counted")

    def add(self, found: Findings, allowed: Callable[[sa.Connection], bool] = lambda _: True) -> bool:
        """Add the findings of a pass, and return whether they count now.

        They don't count, and nothing is written, if another pass has gone on from the same positions meanwhile, or if
        `allowed` returns False in the same transaction.
        """

        def write(connection: sa.Connection) -> None:
            if found.windows:
                connection.execute(_counted(quality_counts), _window_rows(found))
            if found.totals:
                connection.execute(_counted(quality_totals), _total_rows(found))
            if found.samples:
                connection.execute(sa.insert(quality_samples), [_sample_row(found, one) for one in found.samples])
                _drop_old_samples(connection, found.check_id, {one.number for one in found.samples})
            if found.profiles:
                _add_profiles(connection, found)

        return self._record(found.check_id, found.since, found.until, write, allowed, epochs=found.epochs)

    def newest(self, check_id: str) -> datetime | None:
        """Return the start of the newest window that has rows; None if there is none."""
        query = sa.select(sa.func.max(quality_counts.c.start)).where(quality_counts.c.check_id == check_id)
        found: datetime | None = self._in_transaction(lambda c: c.execute(query).scalar(), "read the newest counts")
        return found

    def windows(self, check_ids: Collection[str], hours: float) -> dict[str, Windows]:
        """Return the counts of the windows of the last hours before the newest window of each check."""
        table = quality_counts
        newest = (
            sa.select(table.c.check_id, sa.func.max(table.c.start).label("newest"))
            .where(table.c.check_id.in_(check_ids))
            .group_by(table.c.check_id)
            .subquery()
        )
        query = (
            sa.select(table)
            .join(newest, newest.c.check_id == table.c.check_id)
            .where(table.c.start > newest.c.newest - timedelta(hours=hours))
        )
        rows = self._in_transaction(lambda connection: connection.execute(query).all(), "read the counts of rows")
        found: dict[str, Windows] = {}
        for check_id, number, start, evaluated, failed in rows:
            found.setdefault(check_id, {})[number, start.astimezone(UTC)] = Counts(evaluated, failed)
        return found

    def totals(self, check_ids: Collection[str] | None = None) -> dict[tuple[str, int], Total]:
        """Return the counts of all rows by check and number of the expectation; None: those of all checks."""
        table = quality_totals
        query = sa.select(table)
        if check_ids is not None:
            query = query.where(table.c.check_id.in_(check_ids))
        rows = self._in_transaction(lambda connection: connection.execute(query).mappings().all(), "read the counts")
        return {
            (row["check_id"], row["number"]): Total(
                counts=Counts(row["evaluated"], row["failed"]),
                status=None if row["status"] is None else Status(row["status"]),
                changed_at=row["changed_at"],
                violated_at=row["violated_at"],
                notified_at=row["notified_at"],
            )
            for row in rows
        }

    def samples(self, check_ids: Collection[str], limit: int) -> dict[str, list[Sample]]:
        """Return the newest rows that failed, at most `limit` for each expectation of the checks."""
        table = quality_samples
        place = sa.func.row_number().over(partition_by=[table.c.check_id, table.c.number], order_by=table.c.id.desc())
        ranked = sa.select(table, place.label("place")).where(table.c.check_id.in_(check_ids)).subquery()
        query = sa.select(ranked).where(ranked.c.place <= limit).order_by(ranked.c.id.desc())
        rows = self._in_transaction(lambda connection: connection.execute(query).mappings().all(), "read samples")
        found: dict[str, list[Sample]] = {}
        for row in rows:
            sample = Sample(row["number"], row["at"].astimezone(UTC), row["key"], row["row"])
            found.setdefault(row["check_id"], []).append(sample)
        return found

    def forget(self, check_id: str, hides: Callable[[bytes | None, bytes], bool]) -> int:
        """Remove the samples of a check that `hides` is true of, given key and row, and return how many."""
        table = quality_samples
        query = sa.select(table.c.id, table.c.key, table.c.row).where(table.c.check_id == check_id)

        def remove(connection: sa.Connection) -> int:
            gone = [number for number, key, row in connection.execute(query) if hides(key, row)]
            if gone:
                connection.execute(sa.delete(table).where(table.c.id.in_(gone)))
            return len(gone)

        return self._in_transaction(remove, "forget samples of erased keys")

    def change(self, check_id: str, number: int, status: Status, was: Status | None, at: datetime) -> bool:
        """Note a new status, and return whether it was new: another process may have noted it before."""
        table = quality_totals
        update = (
            sa.update(table)
            .where(
                table.c.check_id == check_id,
                table.c.number == number,
                table.c.status.is_(None) if was is None else table.c.status == was.value,
            )
            .values(status=status.value, changed_at=at, notified_at=None)
        )
        if status is Status.VIOLATED:
            update = update.values(violated_at=at)
        return self._in_transaction(lambda c: c.execute(update).rowcount == 1, "note the status of an expectation")

    def notified(self, told: Iterable[tuple[str, int, datetime]], at: datetime) -> None:
        """Note when others were told of statuses, which are named by check, number and the time of their change."""
        table = quality_totals

        def write(connection: sa.Connection) -> None:
            for check_id, number, changed_at in told:
                same = (table.c.check_id == check_id, table.c.number == number, table.c.changed_at == changed_at)
                connection.execute(sa.update(table).where(*same).values(notified_at=at))

        self._in_transaction(write, "note which alerts were sent")

    def prune(self, kept: timedelta, check_ids: Collection[str]) -> None:
        """Remove windows that are older than `kept`, add older ones up to hours, and remove other checks than these.

        The age of a window is the time between it and the newest window of its check; see `horizon`.
        """
        table = quality_counts

        def write(connection: sa.Connection) -> None:
            for gone in (quality_counts, quality_totals, quality_samples):
                connection.execute(sa.delete(gone).where(gone.c.check_id.not_in(check_ids)))
            remove_other_scopes(connection, Subject.DATASETS, check_ids)
            over = watch_positions.c.watch == WATCH, watch_positions.c.key.not_in(check_ids)
            connection.execute(sa.delete(watch_positions).where(*over))
            query = sa.select(table.c.check_id, sa.func.max(table.c.start)).group_by(table.c.check_id)
            for check_id, newest in connection.execute(query).all():
                own = table.c.check_id == check_id
                connection.execute(sa.delete(table).where(own, table.c.start < horizon(newest, kept)))
                _coarsen(connection, check_id, newest - FINE)

        self._in_transaction(write, "remove old counts of expectations")


def horizon(newest: datetime, kept: timedelta) -> datetime:
    """Return the time from which on windows are kept, given the newest one: a whole hour.

    So an hour is kept with all of its windows, and once it is removed, no window of it is added again.
    """
    return (newest.astimezone(UTC) - kept).replace(minute=0, second=0, microsecond=0)


def coarse(start: datetime, newest: datetime) -> datetime:
    """Return the start of the window in which a count is kept: that of its hour, if it is old."""
    return start.replace(minute=0) if start < newest - FINE else start


def _add_profiles(connection: sa.Connection, found: Findings) -> None:
    """Merge the profiles of a pass with those that are there, and remove those of old hours."""
    kept = found.profiles
    if not math.isinf(found.profiles_s):
        known = newest_hour(connection, Subject.DATASETS, found.check_id)
        hours = {key.hour for key in found.profiles}
        since = max(hours if known is None else {*hours, known}) - timedelta(seconds=found.profiles_s)
        remove_old_profiles(connection, Subject.DATASETS, since, found.check_id)
        kept = {key: profile for key, profile in found.profiles.items() if key.hour >= since}
    merge_profiles(connection, Subject.DATASETS, kept)


def _coarsen(connection: sa.Connection, check_id: str, before: datetime) -> None:
    table = quality_counts
    hour = sa.func.date_trunc("hour", table.c.start, "UTC")
    old = (table.c.check_id == check_id, table.c.start < before, table.c.start != hour)
    query = (
        sa.select(table.c.number, hour, sa.func.sum(table.c.evaluated), sa.func.sum(table.c.failed))
        .where(*old)
        .group_by(table.c.number, hour)
    )
    rows = connection.execute(query).all()
    if not rows:
        return
    connection.execute(sa.delete(table).where(*old))
    sums = [
        {"check_id": check_id, "number": number, "start": start, "evaluated": int(evaluated), "failed": int(failed)}
        for number, start, evaluated, failed in rows
    ]
    connection.execute(_counted(table), sums)


def _counted(table: sa.Table) -> Any:
    statement = insert(table)
    more = {name: table.c[name] + statement.excluded[name] for name in ("evaluated", "failed")}
    return statement.on_conflict_do_update(index_elements=list(table.primary_key.columns), set_=more)


def _window_rows(found: Findings) -> list[dict[str, Any]]:
    return [
        {
            "check_id": found.check_id,
            "number": number,
            "start": start,
            "evaluated": counts.evaluated,
            "failed": counts.failed,
        }
        for (number, start), counts in found.windows.items()
    ]


def _total_rows(found: Findings) -> list[dict[str, Any]]:
    return [
        {"check_id": found.check_id, "number": number, "evaluated": counts.evaluated, "failed": counts.failed}
        for number, counts in found.totals.items()
    ]


def _sample_row(found: Findings, sample: Sample) -> dict[str, Any]:
    return {
        "check_id": found.check_id,
        "number": sample.number,
        "at": sample.at,
        "key": sample.key,
        "row": sample.row,
    }


def _drop_old_samples(connection: sa.Connection, check_id: str, numbers: Iterable[int]) -> None:
    table = quality_samples
    for number in numbers:
        alike = sa.and_(table.c.check_id == check_id, table.c.number == number)
        kept = sa.select(table.c.id).where(alike).order_by(table.c.id.desc()).limit(KEPT_SAMPLES)
        connection.execute(sa.delete(table).where(alike, table.c.id.not_in(kept.scalar_subquery())))
