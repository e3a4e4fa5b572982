"""Parsing of JSON text, with bounds that are checked before any value is made.

A value of Python takes 8 to 250 bytes, while its text may have only 2 or 3 (`0,` or `{},`), so the length of a text
says little about the memory that its values need. The number of values and their depth can be counted in the text
itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import orjson

from caraway.errors import InvalidInputError, TooLargeError

# The most levels of nested lists and objects. Declared types have a handful; orjson, which encodes answers and dead
# letters, fails at 254 levels, and casts of nested types call themselves once for each level.
MAX_DEPTH = 64
# The most values in one text, where a list or object counts as one too: enough for nearly 100,000 rows of nine columns.
# A text with that many takes about 150 MB and some 150 ms to parse.
MAX_VALUES = 1_000_000
# The most lists and objects in one text: enough for 100,000 rows with a nested value in each. Lists and objects have a
# limit of their own because one takes several times as much memory as a number.
MAX_CONTAINERS = 250_000
# The most bytes that a value takes in memory beyond the length of its text, and the bytes that a list or object takes
# in addition.
VALUE_BYTES, CONTAINER_BYTES = 64, 200
# Bytes of memory for each byte of a text that isn't plain ASCII. One character beyond Latin-1, even an escaped one,
# makes Python store each character of its string in up to four bytes.
WIDE = 4

# A text of at most SHORT_BYTES can't exceed the limits of values and containers, so only its depth is checked, which
# takes some microseconds. In longer texts the values are counted in pieces of PIECE_BYTES, so that no step holds
# Python's global lock for more than a millisecond or two.
SHORT_BYTES = 64 * 1024
PIECE_BYTES = 512 * 1024
# The number of passes that remove empty brackets from a short text. A pass removes at most one level of braces and one
# of brackets, so a text that is empty after this many passes nests at most 16 levels deep, which is allowed.
ROUNDS = 8
# Texts of more bytes than this are parsed in pieces of PART_ELEMENTS elements, so that other threads can run in
# between: parsing 32 MiB at once would hold Python's global lock for half a second.
PARTED_BYTES = 2 * 1024 * 1024
PART_ELEMENTS = 1_000

# All bytes except brackets and quotes. `_is_surely_flat` removes them from texts without backslashes. In such texts
# these bytes affect neither the depth nor where strings begin and end.
_PLAIN = bytes(set(range(256)) - set(b'[]{}"'))
_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1
_QUOTE, _COMMA = 0x22, 0x2C

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw]).decode


@dataclass(frozen=True, slots=True)
class TextShape:
    """Upper bounds for a text: the number of values, the number of lists and objects, and the depth of nesting."""

    values: int
    containers: int
    depth: int

    def memory_bytes(self, text: bytes) -> int:
        """Return the most memory that the values of `text` can take, in bytes."""
        strings = len(text) * (1 if text.isascii() and b"\\u" not in text else WIDE)
        return strings + self.values * VALUE_BYTES + self.containers * CONTAINER_BYTES


def parse(text: bytes) -> Any:
    """Return the value of a JSON text.

    The texts of the errors are predicates: the caller puts them behind words for the JSON text.

    Raises:
        InvalidInputError: The text isn't JSON or nests too deep; the error says at which position.
        TooLargeError: The text has too many values.
    """
    if len(text) > SHORT_BYTES or not _is_surely_flat(text):
        check(text)
    return loads(text)


def is_simple(text: bytes) -> bool:
    """Return whether a JSON text is so short, and has so few brackets, that it can be parsed without further checks."""
    return len(text) <= SHORT_BYTES and text.count(b"[") + text.count(b"{") <= MAX_DEPTH


def loads(text: bytes) -> Any:
    """Return the value of a JSON text that was checked.

    Raises:
        InvalidInputError: The text isn't JSON; the error says at which position.
    """
    if len(text) > PARTED_BYTES:
        try:
            return _parted(msgspec.Raw(text))
        except (msgspec.MsgspecError, orjson.JSONDecodeError):
            # The text is parsed again below as a whole, since the error of that parse has the position.
            pass
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidInputError(f"isn't JSON: {position(error)}") from error


def check(text: bytes) -> TextShape:
    """Check that a JSON text has no more values and levels than allowed, and return upper bounds of their numbers.

    The text may be invalid JSON; the bounds then hold for as much of it as a parser would read.

    Raises:
        InvalidInputError: The text nests too deep.
        TooLargeError: The text has too many values.
    """
    values, containers, depth = 1, 0, 0
    for found in _shapes(text):
        values, containers, depth = values + found.values, containers + found.containers, max(depth, found.depth)
        if depth > MAX_DEPTH:
            raise InvalidInputError(f"has lists and objects more than {MAX_DEPTH} levels deep")
        if containers > MAX_CONTAINERS:
            raise TooLargeError(
                f"a request may have {MAX_CONTAINERS:,} lists and objects, this one has more; "
                "send the rows in several requests"
            )
        if values > MAX_VALUES:
            raise TooLargeError(
                f"a request may have {MAX_VALUES:,} values, this one has more; send the rows in several requests"
            )
    return TextShape(values, containers, depth)


def position(error: orjson.JSONDecodeError) -> str:
    """Return a phrase with the reason and the position of a JSON error."""
    return f"{error.msg.split(':')[0]} at line {error.lineno}, column {error.colno} (character {error.pos})"


def _is_surely_flat(text: bytes) -> bool:
    """Return whether a text surely nests at most MAX_DEPTH levels deep; False may also mean that it is unclear.

    Without backslashes each quote begins or ends a string. Taking out two adjacent quotes leaves every other byte
    inside or outside of strings as it was, so only brackets that are both inside or both outside cancel each other.
    """
    if is_simple(text):
        return True
    if b"\\" in text:
        return False
    left = text.translate(None, _PLAIN)
    for _ in range(ROUNDS):
        left = left.replace(b'""', b"").replace(b"{}", b"").replace(b"[]", b"")
        if not left:
            return True
    return False


def _shapes(text: bytes) -> Iterator[TextShape]:
    """Yield what each piece of a text adds: values, lists and objects, and how deep the text nests in it."""
    depth, inside = 0, False
    for piece in _pieces(text):
        data = np.frombuffer(piece, np.uint8)
        if not len(data):
            continue
        strings = np.bitwise_xor.accumulate(data == _QUOTE) ^ inside
        inside = bool(strings[-1])
        steps = _STEPS[data]
        steps[strings] = 0
        opened = int(np.count_nonzero(steps == 1))
        commas = int(np.count_nonzero((data == _COMMA) & ~strings))
        if opened:
            levels = np.cumsum(steps, dtype=np.int32)
            deepest, depth = depth + int(levels.max()), depth + int(levels[-1])
        else:
            deepest, depth = depth, depth + int(steps.sum(dtype=np.int64))
        yield TextShape(opened + commas, opened, deepest)


def _pieces(text: bytes) -> Iterator[bytes]:
    """Yield a text in pieces, without escaped backslashes and quotes."""
    start = 0
    while start < len(text):
        end = min(start + PIECE_BYTES, len(text))
        piece = text[start:end]
        if b"\\" in piece:
            if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
                # A backslash must stay in one piece with the character that it escapes.
                end = min(end + 1, len(text))
                piece = text[start:end]
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        start = end
        yield piece


def _parted(raw: msgspec.Raw) -> Any:
    """Return the value of a text; a large text is parsed in pieces."""
    data = memoryview(raw)
    if len(data) <= PARTED_BYTES:
        return orjson.loads(data)
    head = bytes(data[:100]).lstrip()
    if head[:1] == b"{":
        return {name: _parted(member) for name, member in _MEMBERS(raw).items()}
    if head[:1] == b"[" and head[1:].lstrip()[:1] in {b"{", b"["}:
        elements = _ELEMENTS(raw)
        made: list[Any] = []
        for start in range(0, len(elements), PART_ELEMENTS):
            made += orjson.loads(b"[%b]" % b",".join(elements[start : start + PART_ELEMENTS]))
        return made
    # A long list of scalars is parsed as a whole. Scalars are parsed ten times as fast as rows, so even a long list
    # doesn't hold Python's global lock for long.
    return orjson.loads(data)
