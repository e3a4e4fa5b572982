"""Digests of the rows of record batches, by which rows that were only written to another file are recognised.

The values of a row are put one behind another by Arrow, column by column, and XXH3 makes a digest of them. Its seed is
drawn by each process, so nobody can write rows that differ and have the same digest.
"""

import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_128_digest

from caraway.dataplane.sources.row_digests import SEED_BITS

_SEED = secrets.randbits(SEED_BITS)


def digests(batch: Any) -> list[bytes]:
    """Return a digest of each row of a record batch, of 16 bytes.

    Rows of batches of one schema have equal digests if their values are equal: NaN is equal to NaN, and 0.0 isn't equal
    to -0.0. The digests are those of this process; don't store them.
    """
    return [xxh3_128_digest(row, _SEED) for row in _joined(batch).to_pylist()]


def key_digests(batch: Any, keys: Sequence[str]) -> list[bytes]:
    """Return a digest of the key of each row; columns of the key that the batch lacks are null."""
    names = batch.schema.names
    columns = [batch.column(name) if name in names else pa.nulls(batch.num_rows) for name in keys]
    return digests(pa.RecordBatch.from_arrays(columns, list(keys)))


def _joined(batch: Any) -> Any:
    """Return the values of each row, one behind another.

    First come those of a fixed size, and for the others their sizes, and which of all are null; so rows whose values
    differ have different bytes.
    """
    count = batch.num_rows
    fixed: list[Any] = []
    texts: list[Any] = []
    for column in batch.columns:
        if isinstance(column.type, pa.BaseExtensionType):
            column = column.storage  # noqa: PLW2901 (an extension type is a name for another type)
        is_there = np.asarray(column.is_valid())
        fixed.append(is_there.view(np.uint8).reshape(count, 1))
        values = _numbers(column)
        if values is None:
            text = _texts(column)
            texts.append(text)
            values = np.asarray(pc.binary_length(text)).astype(np.int64).view(np.uint8).reshape(count, 8)
        # Arrow may store any bytes for a null. Zeros take their place, so that equal rows have equal digests.
        fixed.append(np.where(is_there[:, None], values, np.uint8(0)))
    head = np.concatenate(fixed, axis=1) if fixed else np.zeros((count, 0), np.uint8)
    offsets = np.arange(count + 1, dtype=np.int64) * head.shape[1]
    first = pa.Array.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(head)])
    return pc.binary_join_element_wise(first, *texts, pa.scalar(b"", pa.large_binary())) if texts else first


def _numbers(column: Any) -> Any:
    """Return the bytes of the values of a fixed size, one row each, in an array of numpy; None for other types."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif not (pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind)):
        return None
    count, width = len(column), column.type.bit_width // 8
    start, stop = column.offset * width, (column.offset + count) * width
    found = np.frombuffer(column.buffers()[1] or b"", np.uint8)[start:stop].reshape(count, width)
    if pa.types.is_floating(kind):
        values = found.view(f"f{width}")
        found = np.where(np.isnan(values), values.dtype.type(np.nan), values).view(np.uint8)
    return found


def _texts(column: Any) -> Any:
    """Return the values of any type as bytes, empty for nulls."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _texts(column.dictionary_decode())
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return column.cast(pa.binary()).cast(pa.large_binary()).fill_null(b"")
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return column.cast(pa.large_binary()).fill_null(b"")
    # Texts of equal values are equal, also those of NaN.
    texts = [b"" if value is None else repr(value).encode(errors="surrogatepass") for value in column.to_pylist()]
    return pa.array(texts, pa.large_binary())
