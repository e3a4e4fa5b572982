"""The tables of the archive in Postgres, as their writers report them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from caraway.dataplane.archive.store.model import TableReport, TableSize
from caraway.state.database import in_transaction
from caraway.state.tables import archive_tables

TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedTable:
    """A table, as its last report describes it.

    Attributes:
        report: The report.
        written_at: The time of the report.
    """

    report: TableReport
    written_at: datetime


class ArchiveReports:
    """Writes and reads the reports. Its methods raise `UnavailableError` if Postgres doesn't answer."""

    def __init__(self, engine: sa.Engine) -> None:
        """Use the database (`caraway.state.database.connect`)."""
        self._engine = engine

    def write(self, report: TableReport) -> None:
        """Write the report of a table instead of its former one."""
        size = report.size
        values = {
            "dataset": report.dataset,
            "url": report.url,
            "positions": {str(partition): offset for partition, offset in report.positions.items()},
            "rows": size.rows,
            "files": size.files,
            "bytes": size.bytes,
            "written_at": sa.func.clock_timestamp(),
        }
        newest = insert(archive_tables).values(topic=report.topic, **values)
        newest = newest.on_conflict_do_update(index_elements=[archive_tables.c.topic], set_=values)
        self._do(newest, "report on the archive")

    def forget(self, topic: str) -> None:
        """Remove the report of a table that is removed."""
        self._do(sa.delete(archive_tables).where(archive_tables.c.topic == topic), "forget a table of the archive")

    def all(self) -> Mapping[str, ArchivedTable]:
        """Return the tables by their topics."""
        rows = in_transaction(
            self._engine,
            lambda connection: connection.execute(sa.select(archive_tables)).all(),
            what="read the reports on the archive",
            timeout_seconds=TIMEOUT_SECONDS,
        )
        return {
            row.topic: ArchivedTable(
                report=TableReport(
                    topic=row.topic,
                    dataset=row.dataset,
                    url=row.url,
                    positions={int(partition): offset for partition, offset in row.positions.items()},
                    size=TableSize(rows=row.rows, files=row.files, bytes=row.bytes),
                ),
                written_at=row.written_at,
            )
            for row in rows
        }

    def _do(self, statement: sa.Insert | sa.Delete, what: str) -> None:
        in_transaction(
            self._engine,
            lambda connection: connection.execute(statement),
            what=what,
            timeout_seconds=TIMEOUT_SECONDS,
        )
