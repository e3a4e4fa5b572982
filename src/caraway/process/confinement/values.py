"""The values of users' functions as MessagePack, whose reading runs no code, whatever the bytes are.

Plain values (None, bool, int, float, str, bytes, lists, and dicts with text keys) are encoded as they are, floats to
the bit. The other values that users pass as keys of lookups (times, days, decimals, great ints) are extensions, and so
is a long list of numbers or texts of one type.
"""

from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from caraway.errors import InvalidInputError

# The numbers of MessagePack's extensions by which values of these types are sent.
_INT, _DECIMAL, _DATE, _TIMESTAMP = 1, 2, 3, 4
# The bounds of MessagePack's ints, which have 64 bits with or without a sign.
_LEAST_INT, _GREATEST_INT = -(2**63), 2**64 - 1
_PLAIN = frozenset({type(None), bool, int, float, str, bytes})

# The most memory in bytes that the values of a message may take, as `memory_bytes` estimates it. Some ten million
# numbers fit.
MOST_BYTES = 4 << 30
# Messages of fewer bytes than this take at most some 100 MiB of memory. Their values aren't counted, since counting
# takes time.
_UNCOUNTED_BYTES = 1 << 20
# `memory_bytes` counts this many bytes at once.
_PIECE = 1 << 14
# The most levels of nested lists and dicts. The decoder accepts about as many.
_MOST_LEVELS = 1_000

# A list with this many items or more, all of one type, is sent as an extension. `check_keys` steps over an extension as
# a whole, so it needn't look at each item.
_LONG = 32
# For a long list, by the type of its items: the number of its extension, and by that number its decoder.
_LISTS: Mapping[type, int] = {int: 101, float: 102, str: 103}
_LIST_DECODERS: Mapping[int, Callable[[memoryview], list[Any]]] = {
    101: msgspec.msgpack.Decoder(list[int | None]).decode,
    102: msgspec.msgpack.Decoder(list[float | None]).decode,
    103: msgspec.msgpack.Decoder(list[str | None]).decode,
}

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


def _sizes_of_heads() -> list[int]:
    """Return for each first byte of a value how many bytes it has, with those of the items of no list or dict.

    It is 0 for lists and dicts, and less than 0 for values whose length follows: the number of the length's bytes, and
    of those that an extension has besides (from 16 on).
    """
    sizes = [1] * 256
    sizes[0x80:0xA0] = [0] * 32
    sizes[0xA0:0xC0] = range(1, 33)
    sizes[0xC4:0xCA] = (-1, -2, -4, -17, -18, -20)
    sizes[0xCA:0xD9] = (5, 9, 2, 3, 5, 9, 2, 3, 5, 9, 3, 4, 6, 10, 18)
    sizes[0xD9:0xE0] = (-1, -2, -4, 0, 0, 0, 0)
    return sizes


_SIZES = _sizes_of_heads()
_IS_TEXT = [0xA0 <= head < 0xC0 or 0xD9 <= head <= 0xDB for head in range(256)]

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
            # The encoder refuses ints of more than 64 bits. Such ints are rare, so the values are searched for them
            # only after it has refused one.
            return _encode(_with_great_ints(sendable))
    except (UnicodeEncodeError, RecursionError) as error:
        raise InvalidInputError(f"a value can't be sent: {error}") from error


def unpacked(content: bytes) -> Any:
    """Return the message that some bytes encode.

    Raises `EOFError` if the bytes are no message, one of more than `MOST_BYTES`, or one with keys that aren't texts, so
    their sender can't be trusted any more.
    """
    # An empty list takes one byte in a message and 64 in memory, so the memory is estimated before the values are made.
    if len(content) > _UNCOUNTED_BYTES and memory_bytes(content) > MOST_BYTES:
        raise EOFError("a message of too many values")
    check_keys(content)
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


def check_keys(content: bytes) -> None:
    """Raise `EOFError` if a message has a dict of more than 15 items whose keys aren't all texts.

    Texts have hashes that nobody can foretell. Many numbers, and lists of numbers, that have the same hash are easily
    found, and a dict of some ten thousand such keys keeps the whole process busy for seconds.
    """
    # A dict of more than 15 items begins with one of these bytes. Most messages haven't got them, apart from long lists
    # of numbers.
    if b"\xde" not in content and b"\xdf" not in content:
        return
    # The number of items that are left in the current list or dict (two for each key of a dict), and in those around
    # it.
    left, is_dict, around = 1, False, list[tuple[int, bool]]()
    at = 0
    try:
        while True:
            while not left:
                if not around:
                    return
                left, is_dict = around.pop()
            head = content[at]
            if is_dict and not left & 1 and not _IS_TEXT[head]:
                raise EOFError("a dict with keys that aren't texts")
            left -= 1
            size = _SIZES[head]
            if size > 0:
                at += size
            elif size < 0:
                extra, digits = divmod(-size, 16)
                at += 1 + digits + extra + int.from_bytes(content[at + 1 : at + 1 + digits])
            else:
                around.append((left, is_dict))
                if len(around) > _MOST_LEVELS:
                    raise EOFError("a message of too many levels")
                at, left, is_dict = _begun(content, at)
    except IndexError:
        # The message ends too early. No error is raised here, since its decoder raises one.
        return


def _begun(content: bytes, at: int) -> tuple[int, int, bool]:
    """Return where the items of a list or dict begin, how many there are, and whether it is a dict."""
    head = content[at]
    if head < 0xA0:
        return at + 1, (head & 15) * (1 if head >= 0x90 else 2), head < 0x90
    digits = 2 if head in (0xDC, 0xDE) else 4
    count = int.from_bytes(content[at + 1 : at + 1 + digits])
    return at + 1 + digits, count * (1 if head < 0xDE else 2), head >= 0xDE


def as_extension(values: list[object] | tuple[object, ...], kinds: set[type]) -> msgspec.msgpack.Ext | None:
    """Return a long list of one type of values as it is sent, given their types; None if it isn't one."""
    others = kinds - {type(None)}
    code = _LISTS.get(next(iter(others))) if len(others) == 1 else None
    if code is None or len(values) < _LONG:
        return None
    try:
        return msgspec.msgpack.Ext(code, _encode(values))
    except (OverflowError, UnicodeEncodeError):
        # An int has more than 64 bits, or UTF-8 can't encode a text. So the list is sent as an ordinary one, and
        # `packed` handles such values.
        return None


def list_of_extension(code: int, content: memoryview) -> list[Any] | None:
    """Return the list that `as_extension` has sent; None if the number is that of another extension."""
    decode = _LIST_DECODERS.get(code)
    return None if decode is None else decode(content)


def memory_bytes(content: bytes) -> int:
    """Return the most memory that the values of a message can take: as if each of its bytes began a value."""
    # NumPy makes 8 bytes of each byte that it counts, so a message is counted piece by piece.
    pieces = (np.frombuffer(content[at : at + _PIECE], np.uint8) for at in range(0, len(content), _PIECE))
    return sum(int(np.bincount(piece, minlength=256) @ _MEMORY) for piece in pieces)


def _sendable(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is list or kind is tuple:
        # Most lists are long columns of numbers or text, which need no conversion of their items.
        kinds = set(map(type, value))
        return as_extension(value, kinds) or (value if kinds <= _PLAIN else [_sendable(item) for item in value])
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
    if (values := list_of_extension(code, content)) is not None:
        return values
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
