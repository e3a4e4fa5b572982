"""The messages of a topic out of its table, in the order of their offsets.

A topic may be shorter than its history, since records that are archived may be removed from it
(`caraway.dataplane.archive.trimming`). A reader that needs older ones gets them here, and goes on with the topic at the
offset behind them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Self

import polars as pl

from caraway.dataplane.archive.store.columns import TableColumns, columns_of
from caraway.dataplane.archive.store.frames import control_types, frame_of
from caraway.dataplane.archive.store.tables import ArchiveTable
from caraway.dataplane.topics.blocks import block_of
from caraway.dataplane.topics.codec import RecordCodec
from caraway.dataplane.topics.identity import position_id
from caraway.dataplane.topics.reader import Message
from caraway.expr.polars.values import from_polars, polars_type
from caraway.graph.plan.model import RecordSchema

# Only this many records are encoded at a time, since their values take several times the memory of the columns.
ENCODED_AT_ONCE = 5_000

# The first offset of a span, and the offset behind its last one, by partition.
Spans = Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class ArchivedMessages:
    """The archived messages of a topic.

    Attributes:
        table: The table of the topic.
        schema: The schema of the topic's records.
        positions: The offset of the next message to archive, by partition.
        records: The number of archived records.
    """

    table: ArchiveTable
    schema: RecordSchema
    positions: Mapping[int, int]
    records: int

    @classmethod
    def opened(cls, objects_url: str, path: str, schema: RecordSchema, partitions: Sequence[int]) -> Self | None:
        """Open the table at a path of an object store (`store.model.table_path`); None if there is none.

        Raises `UnavailableError` if the object store doesn't answer.
        """
        table = ArchiveTable.existing(objects_url, path)
        if table is None:
            return None
        return cls(table, schema, table.positions(partitions), table.size().rows)

    @property
    def records_per_message(self) -> float:
        """The average number of records in a message, at least 1."""
        return max(1.0, self.records / max(1, sum(self.positions.values())))

    def next_spans(self, positions: Mapping[int, int], most_records: int) -> dict[int, tuple[int, int]]:
        """Return the spans of offsets to read next from these positions on; a partition without any is left out.

        Args:
            positions: The next offset to read of each partition.
            most_records: The number of records that they have together, more or less.
        """
        left = {p: self.positions[p] - first for p, first in positions.items() if first < self.positions.get(p, 0)}
        if not left:
            return {}
        # An equal share of the remaining messages is read from each partition, so that all partitions end at about the
        # same time, as if they were read from the topic.
        share = min(1.0, most_records / self.records_per_message / sum(left.values()))
        return {p: (positions[p], positions[p] + max(1, int(count * share))) for p, count in left.items()}

    def read(self, spans: Spans) -> list[Message]:
        """Return the messages of some spans of offsets, those of each partition in order.

        Erased rows are missing, and so are messages without a row.

        Raises `UnavailableError` if the object store doesn't answer.
        """
        columns = columns_of(self.schema)
        least, behind = min(first for first, _ in spans.values()), max(end for _, end in spans.values())
        files = self.table.files_within(columns.offset, least, behind - 1)
        if not files:
            return []
        types = _types(self.schema, columns)
        kept = pl.any_horizontal(
            (pl.col(columns.partition) == partition) & pl.col(columns.offset).is_between(first, end, closed="left")
            for partition, (first, end) in spans.items()
        )
        rows = frame_of(files, self.table.options(), list(types), kept).cast(pl.Schema(types))
        rows = rows.sort(columns.partition, columns.offset, columns.number)
        return list(_as_sent(self.schema, columns, rows))


def encoded(schema: RecordSchema, columns: TableColumns, rows: pl.DataFrame) -> Iterator[Message]:
    """Yield each archived record as a message of its own, with its identity in it.

    Args:
        schema: The schema of the topic's records.
        columns: The columns of the topic's table.
        rows: Records in all control columns and some of the row's; the row's other columns become null.
    """
    codec = RecordCodec(schema)
    for part in rows.iter_slices(ENCODED_AT_ONCE):
        yield from _encoded(codec, columns, part, [False] * part.height)


def _as_sent(schema: RecordSchema, columns: TableColumns, rows: pl.DataFrame) -> Iterator[Message]:
    """Yield the messages from which records were archived, in the order of the records."""
    message = [columns.partition, columns.offset]
    # A record without a stored identity is identified by its place in its block. If some records of the block were
    # erased, the places of the others have changed. So the others are encoded with the identities that they had.
    whole = pl.len().over(message) == pl.col(columns.number).max().over(message) + 1
    places = rows.select(whole).to_series()
    codec = RecordCodec(schema)
    records = (
        message
        for first in range(0, rows.height, ENCODED_AT_ONCE)
        for message in _encoded(
            codec, columns, rows.slice(first, ENCODED_AT_ONCE), places.slice(first, ENCODED_AT_ONCE).to_list()
        )
    )
    for (partition, offset), found in groupby(records, itemgetter(2, 3)):
        parts = list(found)
        # A message that had several records was a block. Only messages without a key are blocks, so the key is None.
        yield parts[0] if len(parts) == 1 else (None, block_of([part[1] or b"" for part in parts]), partition, offset)


def _encoded(
    codec: RecordCodec, columns: TableColumns, rows: pl.DataFrame, placed: Sequence[bool]
) -> Iterator[Message]:
    """Yield each record as a message; if `placed` is true of it, its position may be its identity."""
    schema = codec.schema
    nothing = [None] * rows.height
    values = {
        column.name: from_polars(rows[column.name], column.dtype) if column.name in rows.columns else nothing
        for column in schema.columns
    }
    keys: Sequence[bytes | None] = nothing
    if schema.keys:
        parts = zip(*(values[key.name] for key in schema.keys), strict=True)
        keys = [codec.encode_key(part) for part in parts]
    times, ingested = (rows[name].to_physical().to_list() for name in (columns.time, columns.ingested))
    control = (columns.op, columns.partition, columns.offset, columns.number, columns.id, columns.rev)
    others = (rows[name].to_list() for name in control)
    for key, time_us, ingested_us, in_place, op, partition, offset, number, record_id, rev, *row in zip(
        keys, times, ingested, placed, *others, *values.values(), strict=True
    ):
        value = codec.encode_value(
            op=op,
            time_us=time_us,
            ingested_us=ingested_us,
            row=row,
            record_id=record_id or (None if in_place else position_id(offset, partition, number)),
            rev=rev,
        )
        yield key, value, partition, offset


def _types(schema: RecordSchema, columns: TableColumns) -> dict[str, pl.DataType]:
    return {column.name: polars_type(column.dtype) for column in schema.columns} | control_types(columns)
