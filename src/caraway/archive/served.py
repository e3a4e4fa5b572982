"""The log of served features as a table of the archive: its records, and the removal of rows of erased keys."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa
import structlog

from caraway.archive.store.tables import ArchiveTable
from caraway.erasure.keys import HidesRecord
from caraway.erasure.requests import ErasureLog
from caraway.erasure.served_rows import ErasedRows
from caraway.plan.model import RecordSchema, TopicKind, TopicPlan
from caraway.served.log import SERVED
from caraway.served.table import (
    COMMIT,
    INPUTS,
    NAME,
    OFFSET,
    OUTPUTS,
    PARTITION,
    POSITION,
    SCHEMA,
    TIME,
    rows_of,
    table_of,
)
from caraway.topics.reader import Message

LOG = structlog.get_logger(__name__)

# The name of the table among the places that have removed a key.
PLACE = "served features"
# The topic as the archive follows it. Its records are JSON, so they have no schema of a dataset.
SERVED_PLAN = TopicPlan(
    dataset=NAME,
    name=SERVED,
    kind=TopicKind.EVENTS,
    schema=RecordSchema(keys=(), columns=(), timestamp=TIME, fingerprint=0),
    disorder_us=0,
)
# The position of a row: partition, offset, number.
Position = tuple[int, int, int]
# The most unreadable records for each of which a warning is logged.
LOGGED_REFUSALS = 5


@dataclass(frozen=True, slots=True)
class ServedColumns:
    """The schema of the table, its column of times, and the columns of which its log has least and greatest values."""

    arrow: pa.Schema = SCHEMA
    time: str = TIME
    statistics: tuple[str, ...] = ("served_at", TIME, PARTITION, OFFSET)


class ServedEncoder:
    """Makes Arrow tables of the records of served features, without the rows of erased keys."""

    def __init__(self, erased: ErasedRows) -> None:
        """Leave out the rows that `erased` hides."""
        self.columns = ServedColumns()
        self._erased = erased
        self._refused = 0

    def table(self, messages: Sequence[Message], hides: HidesRecord | None = None) -> pa.Table:
        """Return the rows of messages; unreadable ones are left out, with a log.

        `hides` isn't called, since records of the log have no Kafka key.

        Raises `UnavailableError` if the graph of a row's commit can't be read now.
        """
        del hides
        rows = []
        for _, value, partition, offset in messages:
            try:
                found = list(rows_of(value or b"", partition, offset))
            except ValueError as error:
                self._refused += 1
                if self._refused <= LOGGED_REFUSALS:
                    LOG.warning("skipped a record of served features", offset=offset, reason=str(error))
                continue
            rows += [row for row in found if not self._erased.hides_row(row)]
        return table_of(rows)


class ServedErasures:
    """The erased keys of which the table may still have rows. Not thread safe."""

    def __init__(self, log: ErasureLog, rows: ErasedRows, forget: Callable[[Sequence[Position]], object]) -> None:
        """Remove the rows that `rows` hides.

        Args:
            log: The requests to erase. The keys themselves are added to `ErasedKeys` by `TableErasures`.
            rows: Finds the rows of erased keys.
            forget: Called with the positions of rows before they are removed, so that others who keep something of
                these rows remove it, too.
        """
        self._log = log
        self._rows = rows
        self._forget = forget
        self._number = 0
        self._pending: set[int] = set()

    def refresh(self) -> None:
        """Read the keys that were erased since the last call. Raises `UnavailableError` if Postgres doesn't answer."""
        found = []
        while records := self._log.since(self._number):
            for record in records:
                self._rows.watch(record.key.dataset, record.key.topic)
            found += records
            self._number = records[-1].id
        if found:
            self._pending |= {record.id for record in found} & set(self._log.undone(PLACE))

    @property
    def number(self) -> int:
        """The number of the newest erasure that is known."""
        return self._number

    @property
    def pending(self) -> Collection[int]:
        """The numbers of the erasures that the table may still have rows of."""
        return self._pending

    def remove(self, table: ArchiveTable) -> int:
        """Remove the rows of erased keys, and return how many.

        Raises:
            UnavailableError: The object store or Postgres doesn't answer.
            ReplacedError: Another writer has changed the table; nothing was removed.
        """
        return table.remove_rows(POSITION, (COMMIT, INPUTS, OUTPUTS), self._hidden, self._forget_rows)

    def done(self) -> None:
        """Note that the table has no rows of the pending erasures any more."""
        self._log.done(self._pending, PLACE)
        self._pending = set()

    def _forget_rows(self, positions: pa.Table) -> None:
        self._forget(list(zip(*(positions[name].to_pylist() for name in POSITION), strict=True)))

    def _hidden(self, batch: pa.RecordBatch) -> list[bool]:
        columns = (batch[name].to_pylist() for name in (COMMIT, INPUTS, OUTPUTS))
        return [self._rows.hides(*row) for row in zip(*columns, strict=True)]
