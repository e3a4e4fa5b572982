"""The limit for the length of a key, the same for rows that are ingested, rows that jobs make, and reads."""

from collections.abc import Sequence

from caraway.errors import InvalidInputError
from caraway.plan.model import Column

# The index stores the length of a key in two bytes, and the seven greatest numbers mark entries of a whole dataset.
MAX_INDEXED_BYTES = 0xFFF9
# The most bytes of a row's key columns as MessagePack. The remainder up to MAX_INDEXED_BYTES is for the window that an
# aggregate adds to the key of a group, some 20 bytes, so every accepted row can also be indexed after aggregations.
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
