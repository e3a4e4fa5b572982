"""The protocol of a source's reader, which is all that a further system has to implement.

A reader turns what a system sends into batches of rows, each with the *position* behind it: a JSON document of the
reader's own, from which it can go on. The worker (`caraway.dataplane.sources.worker`) makes the rows durable, and saves
positions. Each row has a *mark*, which is the same whenever the row is read, and which no other row of the source has.
After a crash the rows that were already written are recognised by their marks, so that none is written twice.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, runtime_checkable

from caraway.dataplane.ingest.marks import run_of
from caraway.dataplane.ingest.table import RowTable, Table
from caraway.errors import UnavailableError
from caraway.graph.sources import SourceSpec
from caraway.graph.specs import DatasetSpec
from caraway.graph.systems import Secretish

# How far a source is read: a small JSON object, whose content only its reader understands. It is empty before the first
# read.
Position = Mapping[str, Any]
# The things besides the position that a reader must remember, by name, such as the files that were read. There are too
# many to write all of them with each position, so only their changes are saved with it. Names that begin with "$"
# belong to the server.
Items = Mapping[str, bytes]

# The name of the item with the definition of a source, which the worker saves (`caraway.dataplane.sources.removal`).
# Readers don't see it.
DEFINITION = "$definition"

Resolve = Callable[[Secretish], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRow:
    """A row that a dataset has now: its keys, as values of Python, and its event time in microseconds."""

    key: Mapping[str, object]
    at_us: int


# A function that derives the current rows of a dataset from its records. While it reads, it yields None now and then,
# so that the caller can renew its leases.
LiveRows = Callable[[], Iterable[LiveRow | None]]


def no_live_rows() -> Iterable[LiveRow | None]:
    """Raise `UnavailableError`: the records of the dataset aren't known here."""
    raise UnavailableError("the records of the dataset can't be read here")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceContext:
    """All that a reader knows besides its connector.

    Attributes:
        name: The identity of the source: letters, digits, dots, hyphens and underscores. It stays the same as long as
            the position is valid.
        source: The definition of the source.
        dataset: The dataset that gets the rows.
        columns: The columns of the payload that count, so that no others need be read; None if all may count.
        resolve: Returns the value of a setting, or of the secret that it refers to. Raises `UnknownEntityError` if the
            secret doesn't exist, and `UnavailableError` if it can't be looked up.
        endpoints: Addresses of systems in this deployment, by the systems' names, for those that aren't at the address
            of their cloud (`sources.endpoints` in the settings).
        local_folders: The folders of the server's machine that sources may read (`sources.local_folders`).
        live_rows: Reads the rows that the dataset has now, as far as they are durable.
        integer_overlap: How many numbers before the last one are read again of a table whose cursor is a number
            (`sources.integer_overlap`).
        ca_file: A file in PEM with the certificate authorities by which brokers and registries are verified; empty for
            those of the system (`sources.ca_file`).
    """

    name: str
    source: SourceSpec
    dataset: DatasetSpec
    columns: frozenset[str] | None
    resolve: Resolve
    endpoints: Mapping[str, str] = field(default_factory=dict)
    local_folders: Sequence[str] = ()
    live_rows: LiveRows = no_live_rows
    integer_overlap: int = 0
    ca_file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceBatch:
    """Rows of a source, in the order in which they take effect.

    Attributes:
        rows: The rows. With cdc "debezium" and "native", they are envelopes as Debezium makes them: `op`, `before`,
            `after`, and `source.ts_ms` or `ts_ms`. `rows.faults` has the reasons why some aren't rows.
        mark: Returns the mark of a row by its number. It has no colon, comma, dot or tilde.
        run: Returns a text for the marks of the rows from one number up to another one
            (`caraway.dataplane.ingest.marks`), if
            the reader has short ones.
        origin: Returns the part of a dead letter that tells where a row came from, such as its file and line.
        position: The position behind these rows.
        items: The items that the reader remembers from now on, None for those to be forgotten.
        size: How many bytes were read.
        is_fence: True if the position must be saved before anything behind these rows is read, since what follows
            depends on the records that are on the topic by then.
        is_activity: True if rows came to the source by another way, so that it isn't idle although the batch has none.
    """

    rows: Table
    mark: Callable[[int], str]
    origin: Callable[[int], Mapping[str, object]]
    position: Position
    items: Mapping[str, bytes | None] = field(default_factory=dict)
    size: int = 0
    is_fence: bool = False
    is_activity: bool = False
    run: Callable[[int, int], str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a load of known size has come, such as the first one of a table.

    Attributes:
        done: How many units are read.
        total: How many there are.
        unit: The unit, in the plural: "rows", "bytes", "files".
    """

    done: int
    total: int
    unit: str


class SourceReader(Protocol):
    """Reads one source, from a given position on. It is used by one thread.

    A class whose attribute `reads_ahead` is true is polled once more while the rows of the last poll are written. So
    the position that it is told to acknowledge may be one before the last that it returned.

    Its class is called with the connector and a `SourceContext`, and connects at the first use. All methods raise
    `UnavailableError` if the system doesn't answer or refuses; the text says where, and what to do about it. The worker
    then closes the reader, and after some seconds opens a new one at the last position.
    """

    def seek(self, position: Position, items: Items) -> Position:
        """Go on from a position, and return it; the first time, `position` is empty.

        A reader whose beginning depends on the time of the first read, such as one that makes a replication slot,
        returns the position of this beginning, which is saved before any row is read.
        """
        ...

    def poll(self, *, rows: int, size: int, timeout_s: float) -> SourceBatch | None:
        """Return the next rows: at once if there are any, else after waiting; None if none came.

        A batch without rows moves the position, for instance at the end of a round.

        Args:
            rows: The most rows.
            size: The bytes behind which no further row is added.
            timeout_s: The longest wait for the first row, in seconds. A single request to the system may take longer.
        """
        ...

    def is_ahead(self, mark: str) -> bool:
        """Return whether a row with this mark may still be read. It is asked after crashes, for rows written before."""
        ...

    def acknowledge(self, position: Position) -> None:
        """Note in the system that everything before this position is durable, if the system can keep that."""
        ...

    def lag(self) -> int | None:
        """Return how many rows are there beyond those that were read; None if that isn't known."""
        ...

    def idle_at(self) -> float | None:
        """Return when the reader last began to look and found nothing more to read, by `time.monotonic`.

        It is None if the reader hasn't looked since it found the last row. Bounded sources end by it.
        """
        ...

    def progress(self) -> Progress | None:
        """Return how far the current load is; None if there is none, or its size isn't known."""
        ...

    def peek(self, rows: int) -> SourceBatch:
        """Return some rows for `caraway source test`, and check what reading will need, such as permissions.

        It changes nothing in the system, needs no `seek`, and the batch's position isn't used.
        """
        ...

    def close(self) -> None:
        """End the connection. It may be called twice, and never raises."""
        ...


@runtime_checkable
class TakesMarks(Protocol):
    """A reader that is asked about many marks at a time, since each question takes a while."""

    def ahead(self, marks: Iterable[str]) -> frozenset[str]:
        """Return those of some marks whose rows may still be read."""
        ...


def ahead_of(reader: SourceReader, marks: Iterable[str]) -> frozenset[str]:
    """Return those of some marks whose rows a reader may still read (`SourceReader.is_ahead`)."""
    if isinstance(reader, TakesMarks):
        return reader.ahead(marks)
    return frozenset(mark for mark in marks if reader.is_ahead(mark))


# A function that removes what the reader of a source has made in its system, such as a subscription, when the source is
# gone for good. The function gets the connector and the last saved position, may be called again, and raises
# `UnavailableError`.
Forget = Callable[[Any, SourceContext, Position], None]

# Opens a source.
OpenReader = Callable[[Any, SourceContext], SourceReader]


class SourceRecord(NamedTuple):
    """A record of a source that numbers its records, such as Kafka.

    `partition` and `offset` are its position, which is the same whenever it is read; `partition` has no colon, comma,
    dot or slash. `value` is None for a tombstone, which has no row.
    """

    partition: str
    offset: int
    value: bytes | None


def batch_of(
    records: Sequence[SourceRecord],
    decode: Callable[[Sequence[bytes]], tuple[list[object], dict[int, str]]],
    position: Position,
) -> SourceBatch:
    """Return a batch of records that are numbered by partition and offset.

    Args:
        records: The records, in the order of each partition.
        decode: Returns the row in each value, and by its number the reason why a value has none
            (`caraway.dataplane.sources.decoding`).
        position: The position behind the records.
    """
    values = [record.value for record in records if record.value is not None]
    of_rows = _Rows(records if len(values) == len(records) else [r for r in records if r.value is not None])
    rows, faults = decode(values)
    return SourceBatch(
        rows=RowTable(rows, faults),
        mark=of_rows.mark,
        origin=of_rows.origin,
        position=position,
        size=sum(map(len, values)),
        run=of_rows.run,
    )


class _Rows:
    """The origins of the rows of a batch."""

    def __init__(self, records: Sequence[SourceRecord]) -> None:
        self._records = records

    def mark(self, row: int) -> str:
        partition, offset, _ = self._records[row]
        return f"{partition}/{offset}"

    def origin(self, row: int) -> Mapping[str, object]:
        partition, offset, _ = self._records[row]
        return {"partition": partition, "offset": offset}

    def run(self, start: int, stop: int) -> str:
        """Return the marks of some rows: those whose offsets follow one another in a partition are one text."""
        cuts = [start, *self._starts[bisect_right(self._starts, start) : bisect_right(self._starts, stop - 1)], stop]
        return ",".join(
            run_of(self._records[first].partition, self._records[first].offset, self._records[behind - 1].offset)
            for first, behind in pairwise(cuts)
        )

    @cached_property
    def _starts(self) -> list[int]:
        """The rows whose offsets don't follow those of the rows before them."""
        return [
            row
            for row, (before, record) in enumerate(pairwise(self._records), 1)
            if record.offset - before.offset != 1 or record.partition != before.partition
        ]


def is_ahead(mark: str, offsets: Mapping[str, int]) -> bool:
    """Return whether a mark of `batch_of` belongs to a record at or behind the next offset of its partition."""
    partition, _, offset = mark.partition("/")
    return int(offset) >= offsets.get(partition, 0)
