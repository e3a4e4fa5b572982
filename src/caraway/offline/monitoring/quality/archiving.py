"""The counts of expectations as a Delta table of the archive, by hours, which keeps those that Postgres doesn't.

The table is made like Postgres: hours that it lacks are added, and hours that differ are replaced. So nothing is in it
twice, whenever a writer dies, and hours that rows came late to are corrected.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from caraway.compute.expectations.counts import NONE, Counts
from caraway.compute.expectations.suite import checks_of
from caraway.dataplane.archive.store.model import FOLDER
from caraway.dataplane.archive.store.tables import ArchiveTable, ReplacedError
from caraway.errors import UnavailableError
from caraway.graph.plan.model import CheckPlan
from caraway.offline.monitoring.quality.store import QualityStore, Windows

LOG = structlog.get_logger(__name__)

PATH = f"{FOLDER}/caraway.compute.expectations/counts"
NAME = "expectations"
SCHEMA = pa.schema(
    [
        pa.field("check", pa.string(), nullable=False),
        pa.field("dataset", pa.string(), nullable=False),
        pa.field("expectation", pa.string(), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("mostly", pa.float64(), nullable=False),
        pa.field("start", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("evaluated", pa.int64(), nullable=False),
        pa.field("failed", pa.int64(), nullable=False),
    ]
)
KEY = ("check", "expectation", "start")
# More hours than any history has, so that all counts in Postgres are written: `Retention` removes counts there only
# after they are in the table.
ALL_HOURS = 24.0 * 366 * 200
# The number of rows that are written at once. A check of ten expectations has some 7,000 rows for a month, one for each
# hour and expectation.
WRITTEN_ROWS = 50_000
# A table of this many files or more is compacted, since each write adds a file.
FILES = 24

# Counts by the name of an expectation and the start of an hour.
Hours = Mapping[tuple[str, datetime], Counts]
_Row = tuple[str, str, str, int, float, datetime, int, int]


class CountsTable:
    """Writes the counts. Not thread safe."""

    def __init__(self, objects_url: str, store: QualityStore) -> None:
        """Prepare; the table is created with its first row.

        Args:
            objects_url: The setting `objects`: a folder, or the address of a bucket.
            store: The counts in Postgres.
        """
        self._objects_url = objects_url
        self._store = store

    def write(self, plans: Mapping[str, CheckPlan]) -> int:
        """Write the counts of checks, and return how many hours were added or replaced.

        Raises:
            UnavailableError: Postgres or the object store doesn't answer.
            ReplacedError: Another process has written meanwhile; the next call writes what is missing then.
        """
        table: ArchiveTable | None = None
        waiting: list[_Row] = []
        written = 0
        for check_id, plan in plans.items():
            hours = hours_of(plan, self._store.windows([check_id], ALL_HOURS).get(check_id, {}))
            if not hours:
                continue
            table = table or self._opened()
            waiting += _rows(plan, _changed(table, check_id, hours))
            if len(waiting) >= WRITTEN_ROWS:
                written += _upserted(table, waiting)
                waiting = []
        if table is not None:
            written += _upserted(table, waiting)
        if table is not None and written and table.size().files >= FILES:
            table.compact()
            table.vacuum()
        return written

    def _opened(self) -> ArchiveTable:
        return ArchiveTable.opened(self._objects_url, PATH, SCHEMA, dataset=NAME)


class Retention:
    """Removes old counts from Postgres, once they are in the table. Not thread safe."""

    def __init__(self, store: QualityStore, table: CountsTable | None, kept: timedelta) -> None:
        """Prepare.

        Args:
            store: The counts in Postgres.
            table: The table; None if there is to be none, so that old counts are gone for good.
            kept: How long before its newest window the windows of a check are kept.
        """
        self._store = store
        self._table = table
        self._kept = kept
        self._checks: Mapping[str, CheckPlan] = {}
        # The checks whose counts may not be in the table yet. A check that no branch needs any more stays here until
        # its last counts are in the table.
        self._unwritten: dict[str, CheckPlan] = {}
        self._problem = ""

    def follow(self, checks: Mapping[str, CheckPlan]) -> None:
        """Keep the counts of these checks from now on, which are named by `CheckPlan.check_id`."""
        self._checks = dict(checks)
        self._unwritten |= self._checks

    def prune(self) -> bool:
        """Write the table, remove old counts and those of other checks, and return whether that was done.

        Raises `UnavailableError` if Postgres doesn't answer.
        """
        if not self.archive():
            return False
        self._store.prune(self._kept, self._checks)
        return True

    def archive(self) -> bool:
        """Write the table, if there is to be one, and return whether it has all counts.

        If the object store is away, nothing is removed meanwhile, and rows are counted all the same.
        """
        if self._table is None:
            return True
        try:
            self._table.write(self._unwritten)
        except (UnavailableError, ReplacedError) as error:
            if str(error) != self._problem:
                LOG.warning("the table of the counts of expectations can't be written for now", reason=str(error))
            self._problem = str(error)
            return False
        self._unwritten, self._problem = dict(self._checks), ""
        return True

    def finish(self) -> None:
        """Write the table at the end of the process, if it may lack counts of checks that no branch needs any more."""
        # The next process knows only the checks that are left, and would remove these counts from Postgres.
        if self._unwritten.keys() - self._checks.keys():
            self.archive()


def hours_of(plan: CheckPlan, windows: Windows) -> dict[tuple[str, datetime], Counts]:
    """Return the counts of a check's windows by the name of the expectation and the start of the hour."""
    names = [check.name for check in checks_of(plan.suite)]
    found: dict[tuple[str, datetime], Counts] = {}
    for (number, start), counts in windows.items():
        key = names[number], start.astimezone(UTC).replace(minute=0)
        found[key] = found.get(key, NONE) + counts
    return found


def _changed(table: ArchiveTable, check_id: str, hours: Hours) -> dict[tuple[str, datetime], Counts]:
    """Return the hours that the table lacks, or has with other counts."""
    least, greatest = min(start for _, start in hours), max(start for _, start in hours)
    start, kind = pc.field("start"), SCHEMA.field("start").type
    within = (start >= pa.scalar(least, kind)) & (start <= pa.scalar(greatest, kind))
    # The table's library writes texts as string views, which pyarrow doesn't compare with a text as they are.
    of_check = pc.field("check").cast(pa.string()) == check_id
    known = table.read(["expectation", "start", "evaluated", "failed"], within & of_check)
    columns = (known[name].to_pylist() for name in known.column_names)
    there = {(name, at): Counts(evaluated, failed) for name, at, evaluated, failed in zip(*columns, strict=True)}
    return {key: counts for key, counts in hours.items() if there.get(key) != counts}


def _rows(plan: CheckPlan, hours: Hours) -> list[_Row]:
    mostly = {check.name: check.mostly for check in checks_of(plan.suite)}
    fixed = plan.check_id, plan.dataset.name
    version = plan.suite.version
    return [
        (*fixed, name, version, mostly[name], start, counts.evaluated, counts.failed)
        for (name, start), counts in sorted(hours.items(), key=lambda one: one[0])
    ]


def _upserted(table: ArchiveTable, rows: list[_Row]) -> int:
    if rows:
        columns = zip(*rows, strict=True)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
        table.upsert(pa.Table.from_arrays(arrays, schema=SCHEMA), KEY)
    return len(rows)
