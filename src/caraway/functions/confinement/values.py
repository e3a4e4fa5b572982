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
import pandas as pd

from caraway.errors import InvalidInputError

# The numbers of the extensions.
_INT, _DECIMAL, _DATE, _TIMESTAMP = 1, 2, 3, 4
# The bounds of MessagePack's ints, which have 64 bits with or without a sign.
_LEAST_INT, _GREATEST_INT = -(2**63), 2**64 - 1
_PLAIN = frozenset({type(None), bool, int, float, str, bytes})

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

    Raises `EOFError` if the bytes are no message, so their sender can't be trusted any more.
    """
    try:
        return _decode(content)
    except (msgspec.MsgspecError, RecursionError, ValueError, ArithmeticError) as error:
        raise EOFError(f"an unreadable message: {error}") from error


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


def _with_great_ints(value: Any) -> Any:
    match value:
        case bool():
            return value
        case int():
            fits = _LEAST_INT <= value <= _GREATEST_INT
            return value if fits else msgspec.msgpack.Ext(_INT, hex(value).encode())
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
