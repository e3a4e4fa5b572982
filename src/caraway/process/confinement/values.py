"""The values of users' functions as MessagePack, whose reading runs no code, whatever the bytes are.

Plain values (None, bool, int, float, str, bytes, lists, and dicts with text keys) are encoded as they are, floats to
the bit. The other values that users pass as keys of lookups (times, days, decimals, great ints) are extensions.
"""

from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from caraway.errors import InvalidInputError

# The numbers of the extensions.
_INT, _DECIMAL, _DATE, _TIMESTAMP = 1, 2, 3, 4
# The bounds of MessagePack's ints, which have 64 bits with or without a sign.
_LEAST_INT, _GREATEST_INT = -(2**63), 2**64 - 1
_PLAIN = frozenset({type(None), bool, int, float, str, bytes})

# The most memory that the values of a message may take once it is read, which some ten million numbers are sure to fit.
MOST_BYTES = 4 << 30
# Messages of fewer bytes than this take some 100 MiB at most, and aren't counted, since that takes a while.
_UNCOUNTED_BYTES = 1 << 20
# The bytes that are counted at once.
_PIECE = 1 << 14


_MAP, _LIST, _TEXT, _NUMBER, _EXTENSION = 240, 72, 80, 40, 256


def _memory_of_heads() -> "npt.NDArray[np.int64]":
    """Return for each byte the most memory of the value that it may begin, without that of the value's other bytes.

    The numbers are those of CPython's objects, with 8 bytes for the pointer to each. Small ints and empty texts take
    less. A byte that begins no value is in a text, of which each takes 4 bytes at most.
    """
    memory = np.full(256, 8, np.int64)
    for first, last, size in (
        (0x80, 0x8F, _MAP),
        (0x90, 0x9F, _LIST),
        (0xA0, 0xBF, _TEXT),
        (0xC4, 0xC6, _TEXT),
        (0xC7, 0xC9, _EXTENSION),
        (0xCA, 0xD3, _NUMBER),
        (0xD4, 0xD8, _EXTENSION),
        (0xD9, 0xDB, _TEXT),
        (0xDC, 0xDD, _LIST),
        (0xDE, 0xDF, _MAP),
        (0xE0, 0xFF, _NUMBER),
    ):
        memory[first : last + 1] = size
    return memory


_MEMORY = _memory_of_heads()

_encode = msgspec.msgpack.Encoder().encode


def packed(message: object) -> bytes:
    """Return the bytes of a message.

    Raises `InvalidInputError` if the message has a value of a type that can't be sent.
    """
    try:
        sendable = _sendable(message)
        try:
            return _encode(sendable)
        except OverflowError:
            # The encoder refuses ints of more than 64 bits. They are rare, so the values are searched for them only
            # now.
            return _encode(_with_great_ints(sendable))
    except (UnicodeEncodeError, RecursionError) as error:
        raise InvalidInputError(f"a value can't be sent: {error}") from error


def unpacked(content: bytes) -> Any:
    """Return the message that some bytes encode.

    Raises `EOFError` if the bytes are no message, or one of more than `MOST_BYTES`, so their sender can't be trusted
    any more.
    """
    # An empty list takes one byte in a message and 64 in memory, so the memory is estimated before the values are made.
    if len(content) > _UNCOUNTED_BYTES and memory_bytes(content) > MOST_BYTES:
        raise EOFError("a message of too many values")
    try:
        return _decode(content)
    except (msgspec.MsgspecError, RecursionError, ValueError, ArithmeticError) as error:
        raise EOFError(f"an unreadable message: {error}") from error


def unpacked_flat(content: bytes) -> Any:
    """Return a message of its kind and bytes, or text if the kind isn't "answer"; see `unpacked`.

    Such a message takes as much memory as its bytes, so it needs no estimate.
    """
    try:
        kind, part = _decode_parts(content)
        return [kind, _decode_bytes(part) if kind == "answer" else _decode_text(part)]
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise EOFError(f"an unreadable message: {error}") from error


def memory_bytes(content: bytes) -> int:
    """Return the most memory that the values of a message can take: as if each of its bytes began a value."""
    # The counting takes 8 bytes for each byte that is counted at once.
    pieces = (np.frombuffer(content[at : at + _PIECE], np.uint8) for at in range(0, len(content), _PIECE))
    return sum(int(np.bincount(piece, minlength=256) @ _MEMORY) for piece in pieces)


def _sendable(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is list or kind is tuple:
        # Most lists are long columns of numbers or text, which need no conversion of their items.
        return value if _PLAIN.issuperset(map(type, value)) else [_sendable(item) for item in value]
    if kind is dict or isinstance(value, Mapping):
        return {_name(name): _sendable(member) for name, member in value.items()}
    match value:
        case np.generic():
            return _sendable(value.item())
        case datetime():
            return msgspec.msgpack.Ext(_TIMESTAMP, pd.Timestamp(value).isoformat().encode())
        case date():
            return msgspec.msgpack.Ext(_DATE, value.isoformat().encode())
        case Decimal():
            return msgspec.msgpack.Ext(_DECIMAL, str(value).encode())
        case str():
            return str.__str__(value)
        case _:
            raise InvalidInputError(f"a value of {kind.__name__} can't be sent")


def fits_message(value: int) -> bool:
    """Return whether MessagePack has an int as a number."""
    return _LEAST_INT <= value <= _GREATEST_INT


def _with_great_ints(value: Any) -> Any:
    match value:
        case bool():
            return value
        case int():
            return value if fits_message(value) else msgspec.msgpack.Ext(_INT, hex(value).encode())
        case list() | tuple():
            return [_with_great_ints(item) for item in value]
        case dict():
            return {name: _with_great_ints(member) for name, member in value.items()}
        case _:
            return value


def _name(name: object) -> str:
    if type(name) is not str:
        raise InvalidInputError(f"a dict with a key of {type(name).__name__} can't be sent")
    return name


def _extension(code: int, content: memoryview) -> object:
    text = bytes(content).decode()
    match code:
        case 1:
            return int(text, 16)
        case 2:
            return Decimal(text)
        case 3:
            return date.fromisoformat(text)
        case 4:
            return pd.Timestamp(text)
        case _:
            raise ValueError(f"there is no extension {code}")


_decode = msgspec.msgpack.Decoder(ext_hook=_extension).decode
_decode_parts = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw]).decode
_decode_bytes, _decode_text = msgspec.msgpack.Decoder(bytes).decode, msgspec.msgpack.Decoder(str | None).decode
