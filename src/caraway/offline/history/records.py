"""All records of an index in columns, each identity once, in its newest revision."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from caraway.dataplane.archive.store.columns import TableColumns
from caraway.dataplane.archive.store.reading import ArchivedRecords
from caraway.dataplane.topics.codec import RETRACT
from caraway.dataplane.topics.identity import ID_BYTES
from caraway.dtypes.types import DATETIME
from caraway.expr.polars.values import polars_type
from caraway.graph.plan.model import IndexPlan, TopicPlan

# The names of the columns that are added to those of the rows. Names of a dataset's fields contain no space, so no
# field has one of these names.
TIME, OP, INGESTED = "record time", "record op", "record ingested"
ORDER = "record order"
# The column with the time, in microseconds, from which a row no longer counts in an aggregate, because a later record
# has replaced or deleted it.
END = "record end"
REV = "record rev"
INT64_BITS = 63


class TopicRecords(Protocol):
    """The records of topics."""

    def records(self, topic: TopicPlan, wanted: Sequence[str]) -> ArchivedRecords:
        """Return the records of a topic in some columns; see `ArchivedTopics.records`."""
        ...

    def pieces(self, topic: TopicPlan, wanted: Sequence[str]) -> Iterable[ArchivedRecords]:
        """Yield the records of a topic as `records` returns them, some at a time."""
        ...

    def rows(self, topic: TopicPlan) -> int:
        """Return how many records a topic has, about."""
        ...


def columns_needed(plan: IndexPlan, wanted: Sequence[str]) -> list[str]:
    """Return the columns of a topic's rows that are needed to read columns of an index's records."""
    names = {*wanted, *(key.name for key in plan.schema.keys)}
    if plan.along:
        names.add(plan.schema.timestamp)
    return [column.name for column in plan.schema.columns if column.name in names]


@dataclass(frozen=True, slots=True)
class IndexRecords:
    """The records of an index.

    Attributes:
        frame: The keys, the wanted columns, TIME, OP, INGESTED and ORDER. TIME and INGESTED are in microseconds.
            Records of one time follow each other in the order of ORDER: the identity, or a number of the same order if
            the identities are positions. Values are those of `caraway.expr.polars.values.polars_type`.
        revised: True if some records are left out, because others replace or retract them.
    """

    frame: pl.DataFrame
    revised: bool


def read_records(source: TopicRecords, plan: IndexPlan, topic: TopicPlan, wanted: Sequence[str]) -> IndexRecords:
    """Return the records of an index, each identity once.

    Raises `UnavailableError` if the broker or the object store doesn't answer.
    """
    frame = index_frame(plan, source.records(topic, columns_needed(plan, wanted)))
    found = settled(frame)
    return IndexRecords(found, revised=found.height < frame.height)


def settled(frame: pl.DataFrame) -> pl.DataFrame:
    """Return each identity once: by its greatest revision, a put before a retraction; and no retractions."""
    if REV in frame.columns:
        repeated = frame[ORDER].is_duplicated()
        if repeated.any():
            by = [ORDER, REV, pl.col(OP) != RETRACT]
            once = frame.filter(repeated).sort(by).unique(ORDER, keep="last", maintain_order=True)
            frame = pl.concat([frame.filter(~repeated), once])
        frame = frame.drop(REV)
    retracted = frame[OP] == RETRACT
    return frame.filter(~retracted) if retracted.any() else frame


def index_frame(
    plan: IndexPlan, read: ArchivedRecords, along: Sequence[str] = (), *, numbers: bool = True
) -> pl.DataFrame:
    """Return all records of an index that come from records of its topic, with further columns that go `along`.

    With `numbers`, ORDER may be a number that can be compared only with others of the same frame.
    """
    columns, rows = read.columns, read.rows
    control = _control(columns, rows, numbers=numbers)
    names, timestamp = {column.name for column in plan.schema.columns}, plan.schema.timestamp
    frame = rows.select([name for name in rows.columns if name in names or name in along]).with_columns(control)
    if timestamp not in names:
        frame = frame.with_columns(pl.col(TIME).cast(polars_type(DATETIME)).alias(timestamp))
    return frame


def _control(columns: TableColumns, rows: pl.DataFrame, *, numbers: bool) -> list[pl.Series]:
    found = [
        rows[columns.time].to_physical().alias(TIME),
        rows[columns.op].alias(OP),
        rows[columns.ingested].to_physical().alias(INGESTED),
    ]
    identity = rows[columns.id]
    positions = [rows[name].to_numpy() for name in (columns.offset, columns.number, columns.partition)]
    if identity.null_count() == len(identity):
        # Records without identities are told apart by their positions. Each position occurs once, so there are no
        # revisions, and there is no column REV.
        order = _position_numbers(*positions) if numbers else None
        return [*found, (_position_ids(*positions) if order is None else order).alias(ORDER)]
    named = identity.zip_with(identity.is_not_null(), _position_ids(*positions))
    return [*found, rows[columns.rev].fill_null(b"").alias(REV), named.alias(ORDER)]


def _position_numbers(
    offsets: npt.NDArray[np.int64], numbers: npt.NDArray[np.int32], partitions: npt.NDArray[np.int32]
) -> pl.Series | None:
    """Return numbers in the order of the identities of positions; None if they don't fit into 64 bits."""
    greatest = [int(part.max(initial=0)).bit_length() for part in (offsets, numbers, partitions)]
    if sum(greatest) >= INT64_BITS:
        return None
    if not greatest[1] and not greatest[2]:
        return pl.Series(offsets)
    return pl.Series(((offsets << greatest[1]) | numbers) << greatest[2] | partitions, dtype=pl.Int64)


def _position_ids(
    offsets: npt.NDArray[np.int64], numbers: npt.NDArray[np.int32], partitions: npt.NDArray[np.int32]
) -> pl.Series:
    """Return the identities of positions; see `caraway.dataplane.topics.identity.position_id`."""
    parts = np.empty(len(offsets), np.dtype([("offset", ">u8"), ("place", ">u4")]))
    parts["offset"] = offsets
    parts["place"] = numbers.astype(np.uint32) << np.uint32(16) | partitions.astype(np.uint32)
    fixed = pa.Array.from_buffers(pa.binary(ID_BYTES), len(parts), [None, pa.py_buffer(parts)])
    return pl.Series(pl.from_arrow(fixed.cast(pa.binary())))
