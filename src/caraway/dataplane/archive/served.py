"""The log of served features as a table of the archive: its records, and the removal of rows of erased keys."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import orjson
import pyarrow as pa
import structlog

from caraway.dataplane.archive.served_log import RECORD_FORMAT, SERVED
from caraway.dataplane.archive.served_rows import ErasedRows
from caraway.dataplane.archive.served_table import (
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
from caraway.dataplane.archive.store.tables import ArchiveTable
from caraway.dataplane.archive.trimming import remove_before
from caraway.dataplane.topics.erased_keys import HidesRecord
from caraway.dataplane.topics.erasure_places import SERVED_PLACE
from caraway.dataplane.topics.positions import Offsets, is_behind
from caraway.dataplane.topics.reader import Message
from caraway.dataplane.topics.segments import begin_files_with
from caraway.graph.plan.model import RecordSchema, TopicKind, TopicPlan
from caraway.state.erasures import ErasureLog

LOG = structlog.get_logger(__name__)

# A record without rows, which is written to begin a new file of the topic, so that the older files can be removed.
NO_ROWS = orjson.dumps(
    {
        "format": RECORD_FORMAT,
        "query": "",
        "served_us": 0,
        "branch": "",
        "commit": "",
        "workflow": "",
        "rows": [],
        "at_us": 0,
        "inputs": {},
        "outputs": {},
    }
)
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
# A warning is logged for at most this many unreadable records.
LOGGED_REFUSALS = 5


@dataclass(frozen=True, slots=True)
class ServedColumns:
    """The schema of the table, its column of times, and the columns of which its log has least and greatest values."""

    arrow: pa.Schema = SCHEMA
    time: str = TIME
    partition: str = PARTITION
    offset: str = OFFSET
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


class ServedTables(Protocol):
    """The tables of topics (`caraway.dataplane.archive.follower.Follower`)."""

    def remove(self, topic: str, remove: Callable[[ArchiveTable], int]) -> bool:
        """Call `remove` with the table of a topic, to remove rows of erased keys; return whether that was done."""

    def archived(self) -> Offsets:
        """Return the offset of the next message to archive of each partition, by topic."""

    def vacuum(self, topic: str, hours: int) -> bool:
        """Remove files of a table that were replaced `hours` ago; return whether that was possible."""


class ServedErasures:
    """Erases the rows of erased keys from the table of served features, until neither it nor its topic has any.

    Not thread safe.
    """

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
            self._pending |= {record.id for record in found} & set(self._log.undone(SERVED_PLACE))

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

    def done(self, numbers: Collection[int]) -> None:
        """Note that table and topic have no rows of these erasures any more."""
        self._log.done(numbers, SERVED_PLACE)
        self._pending -= set(numbers)

    def _forget_rows(self, positions: pa.Table) -> None:
        self._forget(list(zip(*(positions[name].to_pylist() for name in POSITION), strict=True)))

    def _hidden(self, batch: pa.RecordBatch) -> list[bool]:
        columns = (batch[name].to_pylist() for name in (COMMIT, INPUTS, OUTPUTS))
        return [self._rows.hides(*row) for row in zip(*columns, strict=True)]


class ServedRemoval:
    """Removes the rows of erased keys from the table and from the topic. Not thread safe."""

    def __init__(self, erasures: ServedErasures, bootstrap_servers: str, *, replaced_hours: int) -> None:
        """Remove rows of `erasures`, which the caller refreshes.

        Args:
            erasures: The erased keys.
            bootstrap_servers: The broker, "host:port".
            replaced_hours: Hours for which the table keeps files that were replaced.
        """
        self._erasures = erasures
        self._bootstrap_servers = bootstrap_servers
        self._hours = replaced_hours
        # The erasures whose rows are gone from the table, and the offsets before which the topic may still have them.
        self._cutting: set[int] = set()
        self._cut: dict[int, int] = {}

    def refresh(self) -> None:
        """Read the keys that were erased since the last call. Raises `UnavailableError` if Postgres doesn't answer."""
        self._erasures.refresh()

    def step(self, tables: ServedTables) -> None:
        """Remove rows of erased keys from the table, and then all archived records from the topic.

        Nobody but the archive reads the topic.

        Raises `UnavailableError` if Postgres, the broker or the object store doesn't answer.
        """
        pending = set(self._erasures.pending)
        if not pending <= self._cutting and tables.remove(SERVED, self._erasures.remove):
            self._cut = begin_files_with(self._bootstrap_servers, SERVED, [(b"", NO_ROWS)])
            self._cutting = pending
        if self._cutting and is_behind(tables.archived().get(SERVED, {}), self._cut):
            remove_before(self._bootstrap_servers, {SERVED: self._cut})
            tables.vacuum(SERVED, self._hours)
            self._erasures.done(self._cutting)
            self._cutting = set()
