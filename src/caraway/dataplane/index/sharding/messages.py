"""The messages between servers about a divided index: MessagePack, with keys and values as the index stores them."""

from typing import Any

import msgspec

from caraway.errors import UnavailableError

# The most seconds that a server waits for the answer of another one. A query whose read takes longer fails, and its
# client can try again.
TIMEOUT_S = 2.0


class MovingError(UnavailableError):
    """A shard of the index has no owner now, or another one than this server has read; the query can be tried again."""

    code = "index_moving"


class Ask(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A read of one index in one shard, addressed to the owner that has this fencing token.

    `asset` is the index, `at_us` one time for all keys or one for each key.
    """

    shard: int
    token: int
    asset: bytes
    keys: list[bytes]
    at_us: int | list[int]
    columns: list[str]


class Found(msgspec.Struct, frozen=True, array_like=True, tag="found"):
    """The answer to a read; see `IndexReader.read`."""

    columns: list[list[Any]]
    found: list[bool]


class Moved(msgspec.Struct, frozen=True, array_like=True, tag="moved"):
    """The called server doesn't own the shard, or not yet; the caller reads the owners again."""

    reason: str


class Refused(msgspec.Struct, frozen=True, array_like=True, tag="refused"):
    """The owner can't read; `invalid` is true for a read that no owner could answer."""

    reason: str
    invalid: bool = False


Answer = Found | Moved | Refused

encode = msgspec.msgpack.Encoder().encode
decode_asks = msgspec.msgpack.Decoder(list[Ask]).decode
decode_answers = msgspec.msgpack.Decoder(list[Answer]).decode
