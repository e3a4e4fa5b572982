"""The values of many messages of pgoutput, column by column.

The places of a column's values in all messages are found together, as arrays, and Arrow makes numbers and texts of
them. For a row of five columns that takes a fifth of the time in which Python takes the messages apart one by one.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from caraway.dataplane.sources.cdc.postgres.pgoutput import HEAD, Loader
from caraway.dataplane.sources.cdc.postgres.values import loaded

# The loaders that Arrow can replace, each with the type of Arrow whose cast gives the same values.
_KINDS: dict[Loader | None, Any] = {None: pa.string(), int: pa.int64(), float: pa.float64()}
_TEXT, _NULL = ord("t"), ord("n")


def columns_of(messages: Sequence[bytes], width: int) -> list[Any] | None:
    """Return the texts of each column of messages, as arrays of Arrow; None if the log doesn't have all of them.

    Args:
        messages: The messages, which begin with `caraway.dataplane.sources.cdc.postgres.pgoutput.heads`.
        width: How many columns they have.
    """
    joined = b"".join(messages)
    data = np.frombuffer(joined, np.uint8)
    # The place in the joined messages up to which each message has been read.
    places = np.cumsum([0, *map(len, messages[:-1])], dtype=np.int64) + HEAD
    found: list[Any] = []
    for _ in range(width):
        kinds = data[places]
        is_text = kinds == _TEXT
        if is_text.all():
            begins = places + 5
            ends = begins + _lengths(data, places + 1)
            found.append(_texts(joined, begins, ends, None))
            places = ends
            continue
        is_null = kinds == _NULL
        if not (is_text | is_null).all():
            return None
        begins = places + 1
        ends = begins.copy()
        begins[is_text] += 4
        ends[is_text] = begins[is_text] + _lengths(data, places[is_text] + 1)
        found.append(_texts(joined, begins, ends, is_null))
        places = ends
    return found


def values_of(texts: Any, load: Loader | None) -> list[Any]:
    """Return the values of a column of texts.

    Args:
        texts: The texts, an array of Arrow.
        load: Returns the value of a text; None if the value is the text.
    """
    if (kind := _KINDS.get(load)) is not None:
        try:
            values = texts.cast(pa.string()).cast(kind)
        except pa.ArrowInvalid:
            # Arrow can't convert one of the texts. The loader may know it, and if not, it raises its own error.
            return loaded(texts.to_pylist(), load)
        if values.null_count == 0:
            return list(values.to_numpy(zero_copy_only=False).tolist())
        return list(values.to_pylist())
    return loaded(texts.to_pylist(), load)


def _lengths(data: Any, at: Any) -> Any:
    """Return the numbers of four bytes, the highest first, at some places."""
    lengths = data[at].astype(np.int64)
    for number in range(1, 4):
        lengths = (lengths << 8) | data[at + number]
    return lengths


def _texts(joined: bytes, begins: Any, ends: Any, is_null: Any) -> Any:
    """Return an array of the texts at some places, which are in order."""
    offsets = np.empty(2 * len(begins), np.int64)
    offsets[0::2], offsets[1::2] = begins, ends
    pieces = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(joined)]
    )
    # Every second piece is a text; the others are the bytes between two texts, which are left out.
    return pieces.take(pa.array(np.arange(0, len(offsets), 2), mask=is_null))
