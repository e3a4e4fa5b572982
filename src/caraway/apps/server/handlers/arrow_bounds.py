"""Bounds on Arrow IPC streams, checked before any part is decompressed or made into Python's values.

A stream of a megabyte can stand for gigabytes: a dictionary names one long text many times, lists of nulls and columns
of nulls have lengths without any bytes, compressed buffers hold zeros.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from caraway.apps.server.http.body import too_large
from caraway.apps.server.http.messages import MAX_BODY_BYTES
from caraway.errors import InvalidInputError, TooLargeError
from caraway.process.arrow_messages import plain_size
from caraway.process.json_text import MAX_DEPTH, MAX_VALUES

# The most messages (schema, dictionaries and record batches) of a stream. Reading a message takes some 20 us however
# small it is, so this many take 40 ms. Usual streams have far fewer, since a batch has thousands of rows.
MAX_MESSAGES = 2_000
# The most bytes of a message's metadata. For each column, the metadata of a schema takes some 100 bytes, and that of a
# batch 50, so MAX_COLUMNS columns fit.
MAX_METADATA_BYTES = 1024 * 1024
MAX_COLUMNS = 5_000
# pandas stores NaT, its missing time, as this number of nanoseconds.
_NOT_A_TIME = -(2**63)
_TEXT = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)
_FLAT = (
    *_TEXT,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_fixed_size_binary,
    pa.types.is_timestamp,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_duration,
    pa.types.is_null,
)
_LIST = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


@dataclass(slots=True)
class Decoded:
    """The size of columns once they are made into values: the number of values, and the bytes of their texts."""

    values: int = 0
    text_bytes: int = 0

    def add(self, column: pa.Array) -> None:
        """Add the size of a column."""
        dtype = column.type
        self.values += len(column)
        if pa.types.is_dictionary(dtype):
            if _is_one_of(_TEXT, dtype.value_type):
                sizes = pc.take(pc.binary_length(column.dictionary).cast(pa.int64()), column.indices)
                self.text_bytes += pc.sum(sizes).as_py() or 0
        elif _is_one_of(_TEXT, dtype):
            self.text_bytes += pc.sum(pc.binary_length(column).cast(pa.int64())).as_py() or 0
        elif pa.types.is_fixed_size_binary(dtype):
            self.text_bytes += dtype.byte_width * len(column)
        if self.values > MAX_VALUES:
            raise TooLargeError(
                f"a request may have {MAX_VALUES:,} values, this one has more; send the rows in several requests"
            )
        if self.text_bytes > MAX_BODY_BYTES:
            raise too_large("more once decoded")
        for inner in _inner(column):
            self.add(inner)


def check_messages(body: bytes) -> int:
    """Check the messages of a stream before they are read; return how many bytes their buffers take uncompressed."""
    size = 0
    for number, message in enumerate(pa.ipc.MessageReader.open_stream(body), 1):
        if number > MAX_MESSAGES:
            raise TooLargeError(f"a stream may have {MAX_MESSAGES:,} messages; write larger record batches")
        if message.metadata.size > MAX_METADATA_BYTES:
            raise TooLargeError(f"the metadata of a message may have {MAX_METADATA_BYTES:,} bytes; write fewer columns")
        size += plain_size(message)
        if size > MAX_BODY_BYTES:
            raise too_large("more once decompressed")
    return size


def check_schema(schema: pa.Schema) -> None:
    """Check a stream's columns; types are accepted whose values can be counted before they are made."""
    if len(schema) > MAX_COLUMNS:
        raise InvalidInputError(f"the stream has {len(schema):,} columns; at most {MAX_COLUMNS:,} are possible")
    if len(set(schema.names)) < len(schema):
        raise InvalidInputError("two columns have one name")
    for column in schema:
        dtype = column.type
        if pa.types.is_dictionary(dtype):
            dtype = dtype.value_type
        if not _is_taken(dtype):
            raise InvalidInputError(f"column {column.name[:200]!r} is of type {str(dtype)[:200]}, which isn't taken")


def check_times(name: str, column: pa.Array) -> None:
    """Check that no nanosecond time of a column is the least 64-bit number.

    PyArrow makes that number pandas' NaT, which passes for an instant and is none.
    """
    dtype = column.type
    if pa.types.is_dictionary(dtype):
        check_times(name, column.dictionary)
    elif (pa.types.is_timestamp(dtype) or pa.types.is_duration(dtype)) and dtype.unit == "ns":
        if pc.any(pc.equal(column.cast(pa.int64()), _NOT_A_TIME)).as_py():
            raise InvalidInputError(
                f"column {name[:200]!r} of type {str(dtype)[:200]} holds NaT as a value; "
                "send null where there is no time"
            )
    else:
        for inner in _inner(column):
            check_times(name, inner)


def _is_taken(dtype: pa.DataType, depth: int = 0) -> bool:
    if depth > MAX_DEPTH:
        return False
    if pa.types.is_struct(dtype):
        return all(_is_taken(field.type, depth + 1) for field in dtype)
    if pa.types.is_map(dtype):
        return _is_taken(dtype.key_type, depth + 1) and _is_taken(dtype.item_type, depth + 1)
    if _is_one_of(_LIST, dtype):
        return _is_taken(dtype.value_type, depth + 1)
    return _is_one_of(_FLAT, dtype)


def _is_one_of(kinds: Iterable[Callable[[pa.DataType], bool]], dtype: pa.DataType) -> bool:
    return any(is_kind(dtype) for is_kind in kinds)


def _inner(column: pa.Array) -> Iterator[pa.Array]:
    """Yield the child arrays of an array. They are whole: parts that the array doesn't use only raise the count."""
    dtype = column.type
    if pa.types.is_struct(dtype):
        yield from (column.field(position) for position in range(dtype.num_fields))
    elif pa.types.is_map(dtype):
        yield column.keys
        yield column.items
    elif _is_one_of(_LIST, dtype):
        yield column.values
