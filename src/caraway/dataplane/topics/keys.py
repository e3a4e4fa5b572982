"""The limit for the length of a key, the same for rows that are ingested, rows that jobs make, and reads."""

from collections.abc import Sequence

from caraway.errors import InvalidInputError
from caraway.graph.plan.model import Column

# The most bytes of a key in the index. An entry has the length of its key as a number of two bytes, and the six
# greatest numbers mark entries that belong to a whole dataset instead of a key.
MAX_INDEXED_BYTES = 0xFFF9
# The most bytes of a row's key columns as MessagePack. The key of an aggregate may be longer by a window, which takes
# some 20 bytes. The difference to MAX_INDEXED_BYTES leaves room for it, so the aggregates of every accepted row can be
# indexed too.
MAX_KEY_BYTES = 65_000
MOST = f"at most {MAX_KEY_BYTES:,} can be indexed, so use a hash of a long text as the key"


def too_long(key: bytes, columns: Sequence[Column], values: Sequence[object]) -> tuple[str, str]:
    """Return which field makes the key of a row too long ("" if no single one does), and a message about it.

    Args:
        key: The key, encoded as on the topic.
        columns: The key columns.
        values: Their values in stored form.
    """
    sizes = [
        (len(value), column.name)
        for column, value in zip(columns, values, strict=False)
        if isinstance(value, (str, bytes, list, dict))
    ]
    field = max(sizes)[1] if sizes else ""
    return field, f"the key takes {len(key):,} bytes; {MOST}"


def check_read(key: bytes) -> None:
    """Check that a key, including the window if it is part of the key, isn't longer than any that the index can have.

    Raises `InvalidInputError` if the key is too long.
    """
    if len(key) > MAX_INDEXED_BYTES:
        raise InvalidInputError(f"a key takes {len(key):,} bytes; {MOST}")
