"""Values of rows as MessagePack that give back the same types, and whose reading runs no code, whatever the bytes are.

Plain values (None, bool, int of 64 bits, float, str, bytes, lists, dicts with text keys) are encoded as they are;
others are extensions. A list with values of one type, such as a column of times, is a single extension, which takes a
fraction of the time. `caraway.process.confinement.values` is for values of functions, which come back as those of
pandas.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import numpy as np

from caraway.compute.rows.column_casts import MISSING, Missing
from caraway.errors import shortened
from caraway.process.confinement.values import (
    MOST_BYTES,
    as_extension,
    check_keys,
    fits_message,
    list_of_extension,
    memory_bytes,
)

_PLAIN = frozenset({type(None), bool, int, float, str, bytes})
_MISSING, _INT, _TEXT, _FOREIGN = 1, 2, 3, 4
# A list whose items all become the same extension is sent as one extension, whose code is that of the items plus this
# number.
_LIST = 32
# A byte of a message can begin a value of at most this many bytes of memory (`memory_bytes`). So short messages can't
# take too much, and aren't counted, because counting takes a while.
_MOST_BYTES_OF_A_BYTE = 256


@dataclass(frozen=True, slots=True)
class Foreign:
    """A value of a type that no dataset has, such as one of a library's own, by the name of its type and its text."""

    kind: str
    text: str

    def __str__(self) -> str:
        """Return its text."""
        return self.text


def _span(text: str) -> timedelta:
    days, seconds, microseconds = map(int, text.split(":"))
    return timedelta(days, seconds, microseconds)


# The types of values that have a text: the number of the extension, and the functions to the text and back.
_TEXTS: Mapping[type, tuple[int, Callable[[Any], str], Callable[[str], object]]] = {
    datetime: (5, datetime.isoformat, datetime.fromisoformat),
    date: (6, date.isoformat, date.fromisoformat),
    time: (7, time.isoformat, time.fromisoformat),
    timedelta: (8, lambda value: f"{value.days}:{value.seconds}:{value.microseconds}", _span),
    Decimal: (9, str, Decimal),
    UUID: (10, str, UUID),
}
_OF_TEXT = {code: of for code, _, of in _TEXTS.values()}

_encode = msgspec.msgpack.Encoder().encode
_decode_texts = msgspec.msgpack.Decoder(list[str | None]).decode


def packed(message: object) -> bytes:
    """Return the bytes of a message."""
    sendable = _sendable(message)
    try:
        return _encode(sendable)
    except (OverflowError, UnicodeEncodeError):
        # Ints of more than 64 bits, and texts that UTF-8 can't encode, are rare. So a message is searched for them only
        # after the encoder has refused it.
        return _encode(_with_rare(sendable))


def unpacked(content: bytes) -> Any:
    """Return the message that some bytes encode.

    Raises `EOFError` if the bytes are no message, one that would take too much memory, or one with keys that aren't
    texts, so their sender can't be trusted any more.
    """
    if len(content) * _MOST_BYTES_OF_A_BYTE > MOST_BYTES and memory_bytes(content) > MOST_BYTES:
        raise EOFError("a message of too many values")
    check_keys(content)
    try:
        return _decode(content)
    except (msgspec.MsgspecError, RecursionError, ValueError, ArithmeticError, TypeError, LookupError) as error:
        raise EOFError(f"an unreadable message: {error}") from error


def _sendable(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is list or kind is tuple:
        return _sendable_list(value)
    if kind is dict:
        if _PLAIN.issuperset(map(type, value.values())) and set(map(type, value)) <= {str}:
            return value
        return {_key(name): _sendable(member) for name, member in value.items()}
    if kind in _TEXTS:
        code, text_of, _ = _TEXTS[kind]
        return msgspec.msgpack.Ext(code, text_of(value).encode())
    return _sendable_other(value)


def _sendable_list(value: Any) -> Any:
    kinds = set(map(type, value))
    if kinds <= _PLAIN:
        return as_extension(value, kinds) or value
    kinds.discard(type(None))
    if len(kinds) == 1 and (only := kinds.pop()) in _TEXTS:
        code, text_of, _ = _TEXTS[only]
        return msgspec.msgpack.Ext(_LIST + code, _encode([None if item is None else text_of(item) for item in value]))
    return [_sendable(item) for item in value]


def _sendable_other(value: Any) -> Any:
    match value:
        case msgspec.Raw():
            # The value was packed before, so it is sent as it is.
            return value
        case Missing():
            return msgspec.msgpack.Ext(_MISSING, b"")
        case np.generic():
            return _sendable(value.item())
        case np.ndarray():
            return _sendable(value.tolist())
        case bytes() | bytearray() | memoryview():
            return bytes(value)
        # Libraries have subclasses of Python's types, such as `tenacity` for the seconds of a pause. The plain value is
        # sent in place of theirs.
        case str():
            return str.__str__(value)
        case int():
            return int(value)
        case float():
            return float(value)
        case datetime() | timedelta() if value != value:  # noqa: PLR0124 (pandas' NaT, which is nothing)
            return None
        case datetime() | date() | time() | timedelta() | Decimal() | UUID():
            code, text_of, _ = next(_TEXTS[kind] for kind in type(value).__mro__ if kind in _TEXTS)
            return msgspec.msgpack.Ext(code, text_of(value).encode())
        case Mapping():
            return {_key(name): _sendable(member) for name, member in value.items()}
        case set() | frozenset() | list() | tuple():
            return [_sendable(item) for item in value]
        case _:
            content = _encode([type(value).__name__, shortened(str(value), 10_000)])
            return msgspec.msgpack.Ext(_FOREIGN, content)


def _key(name: object) -> str:
    return name if type(name) is str else str(name)


def _with_rare(value: Any) -> Any:
    match value:
        case bool():
            return value
        case int():
            return value if fits_message(value) else msgspec.msgpack.Ext(_INT, hex(value).encode())
        case str():
            content = value.encode("utf-8", "surrogatepass")
            is_plain = content.decode("utf-8", "replace") == value
            return value if is_plain else msgspec.msgpack.Ext(_TEXT, content)
        case list() | tuple():
            return [_with_rare(item) for item in value]
        case dict():
            return {name.encode("utf-8", "replace").decode(): _with_rare(member) for name, member in value.items()}
        case _:
            return value


def _extension(code: int, content: memoryview) -> object:
    if (values := list_of_extension(code, content)) is not None:
        return values
    if code >= _LIST:
        of_text = _OF_TEXT[code - _LIST]
        return [None if text is None else of_text(text) for text in _decode_texts(content)]
    text = bytes(content)
    match code:
        case 1:
            return MISSING
        case 2:
            return int(text, 16)
        case 3:
            return text.decode("utf-8", "surrogatepass")
        case 4:
            kind, shown = _decode_texts(text)
            return Foreign(str(kind), str(shown))
        case _:
            return _OF_TEXT[code](text.decode())


_decode = msgspec.msgpack.Decoder(ext_hook=_extension).decode
