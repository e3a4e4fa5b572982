"""What servers say to each other about an index that is divided: MessagePack, keys and values as the index has them."""

from typing import Any

import msgspec

from caraway.errors import UnavailableError

# A read that isn't answered after this time is refused: whoever asks tries again.
TIMEOUT_S = 2.0


class MovingError(UnavailableError):
    """A part of the index has no owner for a moment, or another one than was thought; trying again helps."""

    code = "index_moving"


class Ask(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A read of one index in one shard, of the owner that has this token.

    `asset` is the index, `at_us` one time for all keys or one for each.
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
    """Whoever was asked isn't the owner, or not yet: look again."""

    reason: str


class Refused(msgspec.Struct, frozen=True, array_like=True, tag="refused"):
    """The owner can't read; `invalid`: nobody could."""

    reason: str
    invalid: bool = False


Answer = Found | Moved | Refused

encode = msgspec.msgpack.Encoder().encode
decode_asks = msgspec.msgpack.Decoder(list[Ask]).decode
decode_answers = msgspec.msgpack.Decoder(list[Answer]).decode
