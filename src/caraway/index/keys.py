"""The keys of the index: bytes whose order is the order of what they stand for (docs/records.md, section 2)."""

import struct

from caraway.errors import InvalidInputError

ASSET_BYTES = 8
TIME_BYTES = 8

# What an entry of a key is. The order matters: the root lies before the raw contributions, so that a read of a key with
# few of them is one seek.
VERSION = b"\x01"
ROOT = b"\x0e"
RAW = b"\x10"
ENDED = b"\x11"
TILE = 0x20

# The length of a key is two bytes; the greatest one marks the places of the ids.
PLACES = b"\xff\xff"
MAX_KEY_BYTES = 0xFFFE

# Entries of the database itself lie behind no asset: an asset is the head of a hash, all of whose bytes are never zero.
META = bytes(ASSET_BYTES)

# Turns signed 64-bit times into unsigned ones of the same order.
SIGN = 1 << 63
_MAX = (1 << 64) - 1

_U16 = struct.Struct(">H").pack
pack_u64 = struct.Struct(">Q").pack
unpack_u64 = struct.Struct(">Q").unpack_from


def check_key(key: bytes) -> None:
    """Raise `InvalidInputError` for a key that is too long to be indexed."""
    if len(key) > MAX_KEY_BYTES:
        raise InvalidInputError(f"a key of {len(key)} bytes is too long, at most {MAX_KEY_BYTES} can be indexed")


def key_prefix(asset: bytes, key: bytes) -> bytes:
    """Return what the entries of `key` begin with. No prefix begins another: the length comes first."""
    return asset + _U16(len(key)) + key


def raw_key(prefix: bytes, time_us: int, record_id: bytes) -> bytes:
    """Return the place of a contribution, in order of time and id."""
    return prefix + RAW + pack_u64(time_us + SIGN) + record_id


def ended_key(prefix: bytes, end_us: int, record_id: bytes) -> bytes:
    """Return the place of a contribution that was taken back at `end_us`, in order of that time."""
    return prefix + ENDED + pack_u64(end_us + SIGN) + record_id


def version_key(prefix: bytes, time_us: int, record_id: bytes) -> bytes:
    """Return the place of a version: the newest comes first, of equal times the one with the greatest id."""
    return prefix + VERSION + pack_u64(_MAX - (time_us + SIGN)) + inverted(record_id)


def version_seek(prefix: bytes, time_us: int) -> bytes:
    """Return the place before all versions at or before `time_us`."""
    return prefix + VERSION + pack_u64(_MAX - (time_us + SIGN))


def tile_key(prefix: bytes, level: int, number: int) -> bytes:
    """Return the place of a tile, in order of time within its level."""
    return b"%b%c%b" % (prefix, TILE + level, pack_u64(number))


def place_key(asset: bytes, record_id: bytes) -> bytes:
    """Return where the place of an id is kept."""
    return asset + PLACES + record_id


def offset_key(asset: bytes, partition: int) -> bytes:
    """Return where the next offset of an asset's topic is kept."""
    return META + b"offset" + asset + partition.to_bytes(4)


def inverted(data: bytes) -> bytes:
    """Return the bitwise complement, of the opposite order for equal lengths."""
    length = len(data)
    return (((1 << 8 * length) - 1) ^ int.from_bytes(data)).to_bytes(length)


def after(prefix: bytes) -> bytes:
    """Return the least key greater than all that begin with `prefix`."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1])
