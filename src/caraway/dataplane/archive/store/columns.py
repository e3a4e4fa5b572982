"""The columns of a topic's table, and the records of messages as such columns.

A table has a column for each column of the records, one for the event time, and the rest of each record in columns
whose names begin with an underscore.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from caraway.dataplane.topics.blocks import parts_of
from caraway.dataplane.topics.codec import Record, RecordCodec
from caraway.dataplane.topics.erased_keys import HidesRecord
from caraway.dataplane.topics.identity import position_id
from caraway.dataplane.topics.left_out import LeftOut, log_left_out
from caraway.dataplane.topics.reader import Message
from caraway.dtypes.frames import arrow_array
from caraway.dtypes.types import (
    BoolType,
    BytesType,
    DataType,
    DatetimeType,
    DateType,
    DecimalType,
    FloatType,
    IntType,
    StringType,
    base_type,
)
from caraway.dtypes.values import arrow_type
from caraway.errors import InvalidInputError
from caraway.graph.plan.model import RecordSchema

# The first byte of the Kafka keys of records without a row: markers, arrivals and erasures (docs/inside/records.md).
CONTROL = b"\xc1"

TIME_TYPE = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumns:
    """The names and types of the columns of a topic's table.

    Attributes:
        schema: The schema of the topic's records.
        time: The column of the event time: that of the dataset's timestamp, or one of its own if the rows contain the
            timestamp besides (`along`).
        op: The column of the operation: 1 put, -1 delete, 0 retraction.
        ingested: The column of the ingestion time.
        partition: The column of the message's partition.
        offset: The column of the message's offset.
        number: The column of the record's number in its message, 0 for a message that is one record.
        id: The column of the identity, null if the position (offset, number, partition) is the identity.
        rev: The column of the revision, null for the least one.
        arrow: The schema of the table.
    """

    schema: RecordSchema
    time: str
    op: str
    ingested: str
    partition: str
    offset: str
    number: str
    id: str
    rev: str
    arrow: pa.Schema

    @property
    def statistics(self) -> tuple[str, ...]:
        """The columns by whose least and greatest values files are chosen; none of them identifies anybody."""
        return self.time, self.ingested, self.partition, self.offset


def columns_of(schema: RecordSchema) -> TableColumns:
    """Return the columns of the table for records of a schema."""
    taken = {column.name for column in schema.columns} | {schema.timestamp}
    prefix = "_"
    # If the dataset has a field with one of these names, all of the names get one more underscore.
    names = ("time", "op", "ingested", "partition", "offset", "number", "id", "rev")
    while any(prefix + name in taken for name in names):
        prefix += "_"
    own = {name: prefix + name for name in names}
    if all(column.name != schema.timestamp for column in schema.columns):
        own["time"] = schema.timestamp
    arrow = pa.schema(
        [
            *((column.name, _stored_type(column.dtype)) for column in schema.columns),
            (own["time"], TIME_TYPE),
            (own["op"], pa.int8()),
            (own["ingested"], TIME_TYPE),
            (own["partition"], pa.int32()),
            (own["offset"], pa.int64()),
            (own["number"], pa.int32()),
            (own["id"], pa.binary()),
            (own["rev"], pa.binary()),
        ]
    )
    return TableColumns(schema=schema, arrow=arrow, **own)


def _stored_type(dtype: DataType) -> pa.DataType:
    """Return the Arrow type in which a table keeps a column: Delta has no lists of fixed length."""
    return _variable(arrow_type(dtype))


def _variable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_variable(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _variable(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(child.name, _variable(child.type)) for child in kind])
    return kind


class Encoder:
    """Makes Arrow tables of the messages of a topic."""

    def __init__(
        self, topic: str, columns: TableColumns, leave_out: Callable[[Sequence[LeftOut]], object] | None = None
    ) -> None:
        """Encode messages of `topic` in the columns of its table.

        `leave_out` is called with records that can't be read; without it they are only logged.
        """
        self._leave_out = leave_out or partial(log_left_out, "", topic)
        self.columns = columns
        self._codec = RecordCodec(columns.schema)
        self._arrays = [_array(column.dtype) for column in columns.schema.columns]
        names = [column.name for column in columns.schema.columns]
        self._key_positions = [names.index(key.name) for key in columns.schema.keys]
        self._puts_only = True
        # The unreadable records of one call of `table`, which passes all of them to `leave_out` together.
        self._left_out: list[LeftOut] = []

    def table(self, messages: Sequence[Message], hides: HidesRecord | None = None) -> pa.Table:
        """Return the records of messages, without those that `hides` is true of.

        Messages without a row are left out; so are unreadable ones, which are told first.
        """
        by_key = None if hides is None else hides.key
        kept = [
            message
            for message in messages
            if message[0] is None or not (message[0][:1] == CONTROL or (by_key is not None and by_key(message[0])))
        ]
        self._left_out = []
        decoded = self._decoded(kept)
        if self._left_out:
            self._leave_out(self._left_out)
        table = self._encoded(kept, decoded)
        if hides is not None and hides.row is not None:
            rows = [record.row for record in chain.from_iterable(decoded)]
            table = table.filter(pa.array([row is None or not hides.row(row) for row in rows], pa.bool_()))
        return table

    def _decoded(self, messages: Sequence[Message]) -> list[list[Record]]:
        """Return the records of each message, all of which have a row."""
        decode = self._codec.decode_message
        decoded = []
        for message in messages:
            if not self._puts_only:
                decoded.append(list(self._one_by_one(message)))
                continue
            try:
                decoded.append(decode(message[1] or b""))
            except InvalidInputError:
                # The message has a record that isn't a put, such as a retraction, or bytes that can't be read.
                decoded.append(records := list(self._one_by_one(message)))
                # A topic that has one retraction usually has many. So from now on the records of each message are
                # decoded one by one at once, without an attempt to decode them together as puts.
                self._puts_only = not records
        return decoded

    def _one_by_one(self, message: Message) -> Iterator[Record]:
        key, value, partition, offset = message[0], message[1] or b"", message[2], message[3]
        for number, part in enumerate(parts_of(value)):
            try:
                record = self._codec.decode_value(part)
                yield record if record.row is not None else self._with_key(record, key)
            except InvalidInputError as error:
                self._left_out.append(LeftOut(position_id(offset, partition, number), str(error)))

    def _with_key(self, record: Record, key: bytes | None) -> Record:
        """Return a retraction without a row with one that has the columns of its Kafka key."""
        row: list[object] = [None] * len(self.columns.schema.columns)
        if self._key_positions:
            for position, value in zip(self._key_positions, self._codec.decode_key(key or b""), strict=True):
                row[position] = value
        return msgspec.structs.replace(record, row=row)

    def _encoded(self, messages: Sequence[Message], decoded: Sequence[Sequence[Record]]) -> pa.Table:
        records = list(chain.from_iterable(decoded))
        counts = np.fromiter(map(len, decoded), np.int64, len(decoded))
        partitions = np.fromiter((message[2] for message in messages), np.int32, len(messages))
        offsets = np.fromiter((message[3] for message in messages), np.int64, len(messages))
        # A record's number in its message is its index among all records, minus the index of the message's first
        # record.
        numbers = np.arange(len(records)) - np.repeat(np.cumsum(counts) - counts, counts)
        rows: list[Any] = [record.row for record in records]
        values: Sequence[Sequence[object]] = list(zip(*rows, strict=True)) or [()] * len(self._arrays)
        arrays = [
            *(make(column) for make, column in zip(self._arrays, values, strict=True)),
            _instants([record.time for record in records]),
            pa.array([record.op for record in records], pa.int8()),
            _instants([record.ingested for record in records]),
            pa.array(np.repeat(partitions, counts)),
            pa.array(np.repeat(offsets, counts)),
            pa.array(numbers, pa.int32()),
            pa.array([record.id for record in records], pa.binary()),
            pa.array([record.rev for record in records], pa.binary()),
        ]
        return pa.Table.from_arrays(arrays, schema=self.columns.arrow)


def _instants(values: Sequence[object]) -> pa.Array:
    return pa.array(values, pa.int64()).cast(TIME_TYPE)


def _days(values: Sequence[object]) -> pa.Array:
    return pa.array(values, pa.int32()).cast(pa.date32())


def _array(dtype: DataType) -> Callable[[Sequence[Any]], pa.Array]:
    """Return the function that makes a column of stored values; columns of plain types aren't converted one by one."""
    kind = _stored_type(dtype)
    match base_type(dtype):
        case IntType() | FloatType() | BoolType() | StringType() | BytesType():
            return lambda values: pa.array(values, kind)
        case DatetimeType():
            return _instants
        case DateType():
            return _days
        case _:
            return lambda values: arrow_array(values, dtype).cast(kind)


def column_array(values: Sequence[Any], dtype: DataType) -> pa.Array:
    """Return values in stored form (docs/inside/records.md) as the column that a table has for them."""
    return _array(dtype)(values)


def columns_of_keys(columns: TableColumns) -> TableColumns:
    """Return the columns of a table with no columns of records but the keys."""
    return replace(columns, schema=replace(columns.schema, columns=columns.schema.keys))


def are_erased(rows: pa.Table | pa.RecordBatch, columns: TableColumns, hides: HidesRecord) -> list[bool]:
    """Return whether rows of a table are erased; `rows` have all columns that the topic's records have."""
    schema = columns.schema
    values = {column.name: stored_values(rows[column.name], column.dtype) for column in schema.columns}
    found = [False] * rows.num_rows
    if hides.key is not None and schema.keys:
        encode, parts = RecordCodec.of_keys(schema.keys).encode_key, (values[key.name] for key in schema.keys)
        found = [hides.key(encode(key) or b"") for key in zip(*parts, strict=True)]
    if hides.row is not None and values:
        found = [known or hides.row(row) for known, row in zip(found, zip(*values.values(), strict=True), strict=True)]
    return found


def stored_values(column: pa.ChunkedArray, dtype: DataType) -> list[Any]:
    """Return the values of a table's column in stored form (docs/inside/records.md)."""
    match base_type(dtype):
        case DatetimeType():
            return list(column.cast(pa.int64()).to_pylist())
        case DateType():
            return list(column.cast(pa.int32()).to_pylist())
        case IntType() | FloatType() | BoolType() | StringType() | BytesType():
            return list(column.to_pylist())
        case DecimalType():
            return [None if value is None else f"{value:f}" for value in column.to_pylist()]
        case _:
            # Casts of values would treat NaN in a list as a missing value, so polars converts these columns. The import
            # is late, since most tables have no such columns.
            from caraway.expr.polars.values import from_arrow, from_polars  # noqa: PLC0415

            return from_polars(from_arrow(column, dtype), dtype)
