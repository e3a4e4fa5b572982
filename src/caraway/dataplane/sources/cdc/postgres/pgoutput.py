"""Messages of pgoutput, protocol version 1.

See "Logical Replication Message Formats" in Postgres's manual. Values are sent as text, by the output functions of
their types.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct

# Postgres counts microseconds from 2000-01-01, in UTC.
EPOCH_US = 946_684_800_000_000

_BEGIN = Struct(">QqI")
_COMMIT = Struct(">BQQq")
_MESSAGE = Struct(">BQ")
_U32 = Struct(">I")
_U16 = Struct(">H")

# The number of bytes before the values in a message with one row: the kind, the table, "N" and the number of columns.
HEAD = 8

Loader = Callable[[bytes], object]
# The value of a column that an update didn't change, and that is so large that Postgres stores it outside of the row.
# The log doesn't have it.
UNCHANGED = object()


@dataclass(frozen=True, slots=True)
class Relation:
    """A table, as the following messages have it.

    Attributes:
        name: The schema and the table.
        columns: The names of its columns.
        types: The OIDs of their types.
        loaders: The functions that make values of texts; None for those that stay text.
    """

    name: tuple[str, str]
    columns: tuple[str, ...]
    types: tuple[int, ...]
    loaders: tuple[Loader | None, ...]


@dataclass(frozen=True, slots=True)
class Tuple:
    """The columns of a row: their values, and their texts as Postgres sent them."""

    row: dict[str, object]
    texts: dict[str, bytes | None]


def begin(data: bytes) -> tuple[int, int, int]:
    """Return the LSN of the commit, its time in microseconds since the epoch, and the xid, of a message `B`."""
    lsn, at, xid = _BEGIN.unpack_from(data, 1)
    return lsn, at + EPOCH_US, xid


def commit_end(data: bytes) -> int:
    """Return the LSN behind the transaction, of a message `C`."""
    _, _, end, _ = _COMMIT.unpack_from(data, 1)
    return int(end)


def logical_message(data: bytes) -> tuple[bytes, bytes]:
    """Return the prefix and the content of a message `M`, which a program wrote into the log."""
    start = 1 + _MESSAGE.size
    end = data.index(0, start)
    (length,) = _U32.unpack_from(data, end + 1)
    return data[start:end], data[end + 5 : end + 5 + length]


def relation(data: bytes, loader_of: Callable[[str, int], Loader | None]) -> tuple[int, Relation]:
    """Return the id and the description of a table, of a message `R`."""
    (number,) = _U32.unpack_from(data, 1)
    schema, position = _text(data, 5)
    table, position = _text(data, position)
    (count,) = _U16.unpack_from(data, position + 1)
    position += 3
    names, types = [], []
    for _ in range(count):
        name, position = _text(data, position + 1)
        (oid,) = _U32.unpack_from(data, position)
        position += 8
        names.append(name)
        types.append(oid)
    loaders = tuple(loader_of(name, oid) for name, oid in zip(names, types, strict=True))
    # The schema pg_catalog is sent as an empty text.
    return number, Relation((schema or "pg_catalog", table), tuple(names), tuple(types), loaders)


def truncated(data: bytes) -> Sequence[int]:
    """Return the ids of the tables that a message `T` empties."""
    (count,) = _U32.unpack_from(data, 1)
    return [_U32.unpack_from(data, 6 + 4 * number)[0] for number in range(count)]


def fields(data: bytes, position: int, found: Relation) -> tuple[dict[str, bytes | object | None], int]:
    """Return the texts of a row by column, `UNCHANGED` where the log has none, and the position behind them."""
    unpack = _U32.unpack_from
    position += 2
    texts: dict[str, bytes | object | None] = {}
    for name in found.columns:
        kind = data[position]
        position += 1
        if kind == 0x74:  # t: a text follows
            (length,) = unpack(data, position)
            position += 4
            texts[name] = data[position : position + length]
            position += length
        elif kind == 0x6E:  # n: null
            texts[name] = None
        else:  # u: an unchanged value
            texts[name] = UNCHANGED
    return texts, position


def inserted(data: bytes, position: int, found: Relation) -> list[bytes | None] | None:
    """Return the texts of a row in the order of the columns; None if the log doesn't have all of them."""
    unpack = _U32.unpack_from
    position += 2
    texts: list[bytes | None] = []
    for _ in found.columns:
        if data[position] == 0x74:  # t: a text follows
            (length,) = unpack(data, position + 1)
            start = position + 5
            position = start + length
            texts.append(data[start:position])
        elif data[position] == 0x6E:  # n: null
            texts.append(None)
            position += 1
        else:
            return None
    return texts


def heads(number: int, found: Relation) -> dict[bytes, str]:
    """Return the heads of the messages that have a new row of a table and no old one, and their operations."""
    end = _U32.pack(number) + b"N" + _U16.pack(len(found.columns))
    return {b"I" + end: "c", b"U" + end: "u"}


def row_of(texts: Sequence[bytes | None], found: Relation) -> dict[str, object]:
    """Return the values of a row, all of whose texts are known."""
    return {
        name: None if text is None else text.decode() if load is None else load(text)
        for name, load, text in zip(found.columns, found.loaders, texts, strict=True)
    }


def loaded(texts: dict[str, bytes | object | None], found: Relation) -> dict[str, object]:
    """Return the values of a row. Values that the log doesn't have stay `UNCHANGED`."""
    row: dict[str, object] = {}
    for (name, text), load in zip(texts.items(), found.loaders, strict=True):
        if text is None or text is UNCHANGED:
            row[name] = text
        elif load is None:
            row[name] = text.decode()  # type: ignore[attr-defined]
        else:
            row[name] = load(text)  # type: ignore[arg-type]
    return row


def _text(data: bytes, start: int) -> tuple[str, int]:
    end = data.index(0, start)
    return data[start:end].decode(), end + 1
