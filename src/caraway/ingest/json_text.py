"""JSON text to values, with bounds that are checked before any value is made.

A value of Python takes 8 to 250 bytes, but only 2 or 3 of text (`0,` or `{},`), so the length of a text says little
about the memory that its values need. Their number and depth can be counted in the text itself, without making them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import orjson

from caraway.errors import InvalidInputError, TooLargeError

# Levels of lists and objects in each other. Types that are declared nest a handful deep. The encoder of answers and of
# dead letters gives up at 254 levels, and casts recurse once for each level.
MAX_DEPTH = 64
# Values in one text: 100,000 rows of nine columns. They take about 150 MB and are made in some 150 ms.
MAX_VALUES = 1_000_000
# Lists and objects among them, each of which takes several times as much as a number: 100,000 rows, with a nested value
# or two in each.
MAX_CONTAINERS = 250_000
# What one value, one list or object takes beyond the bytes of its text, at most.
VALUE_BYTES, CONTAINER_BYTES = 64, 200
# A character beyond Latin makes Python keep each character of its string in up to four bytes. It stands in the text as
# such or as an escape.
WIDE = 4

# Texts up to this length have few enough values in any case, so that only their levels are looked at, by the whole in
# some microseconds; longer ones are counted in pieces of PIECE_BYTES, so that no step keeps Python's lock for more than
# a millisecond or two.
SHORT_BYTES = 64 * 1024
PIECE_BYTES = 512 * 1024
# Rounds that take empty brackets out of a short text; each takes one to three levels away, so all of them fewer than
# MAX_DEPTH.
ROUNDS = 8
# A text of so many bytes is made into values in pieces of so many elements, between which other threads can run: as a
# whole, 32 MiB would keep Python's lock for half a second.
PARTED_BYTES = 2 * 1024 * 1024
PART_ELEMENTS = 1_000

# All bytes that say nothing about levels or strings.
_PLAIN = bytes(set(range(256)) - set(b'[]{}"'))
_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1
_QUOTE, _COMMA = 0x22, 0x2C

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw]).decode


@dataclass(frozen=True, slots=True)
class TextShape:
    """What a text holds: how many values at most, how many lists and objects among them, how deep they nest."""

    values: int
    containers: int
    depth: int

    def memory_bytes(self, text: bytes) -> int:
        """Return what the values take at most, in bytes."""
        strings = len(text) * (1 if text.isascii() and b"\\u" not in text else WIDE)
        return strings + self.values * VALUE_BYTES + self.containers * CONTAINER_BYTES


def parse(text: bytes) -> Any:  # noqa: ANN401 (any JSON)
    """Return the value of a JSON text.

    The texts of the errors go on a sentence that names the JSON text.

    Raises:
        InvalidInputError: It isn't JSON, or nests too deep; the text of the error tells where.
        TooLargeError: It has too many values.
    """
    if len(text) > SHORT_BYTES or not _is_surely_flat(text):
        check(text)
    return loads(text)


def loads(text: bytes) -> Any:  # noqa: ANN401 (any JSON)
    """Return the value of a JSON text that was checked.

    Raises:
        InvalidInputError: It isn't JSON; the text of the error tells where.
    """
    if len(text) > PARTED_BYTES:
        try:
            return _parted(msgspec.Raw(text))
        except (msgspec.MsgspecError, orjson.JSONDecodeError):
            # Read again below as a whole, which tells the place of the error.
            pass
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidInputError(f"isn't JSON: {position(error)}") from error


def check(text: bytes) -> TextShape:
    """Check that a JSON text has no more values and levels than it may have; return how many there are at most.

    The text may be none of JSON: then what is counted is that of its beginning, as far as a parser gets.

    Raises:
        InvalidInputError: It nests too deep.
        TooLargeError: It has too many values.
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
    """Return where JSON went wrong, in words."""
    return f"{error.msg.split(':')[0]} at line {error.lineno}, column {error.colno} (character {error.pos})"


def _is_surely_flat(text: bytes) -> bool:
    """Return whether a text surely nests at most MAX_DEPTH levels deep; False may also mean that it is unclear.

    Without backslashes each quote begins or ends a string. Taking out two adjacent quotes leaves every other byte
    inside or outside of strings as it was, so only brackets that are both inside or both outside cancel each other.
    """
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
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
                # A backslash and what it escapes belong together.
                end = min(end + 1, len(text))
                piece = text[start:end]
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        start = end
        yield piece


def _parted(raw: msgspec.Raw) -> Any:  # noqa: ANN401 (any JSON)
    """Return the value of a text, made in parts as far as it is large."""
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
    # Scalars are made ten times as fast as rows.
    return orjson.loads(data)
