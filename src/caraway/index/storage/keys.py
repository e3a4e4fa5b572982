"""The keys of the index: bytes whose order is the order of what they stand for (docs/index_layout.md)."""

import struct

ASSET_BYTES = 8
TIME_BYTES = 8

# What an entry of a key is. The order matters: the root lies before the raw aggregate inputs, so that a read of a key
# with few of them is one seek.
VERSION = b"\x01"
ROOT = b"\x0e"
RAW = b"\x10"
ENDED = b"\x11"
NEVER = b"\x12"
SESSION = b"\x13"
# Of an index that emits rows: the times at which the group changes, and what was emitted for them.
CHANGE_POINT = b"\x14"
SENT = b"\x15"
TILE = 0x20

# The length of a key is two bytes (`caraway.topics.keys`); the greatest mark entries of the whole asset: the locations
# of the identities, the times of aggregate inputs; and of an index that emits rows: the change points of all groups in
# order of time, the intervals of time for which groups are to be looked at, the records to be written.
LOCATIONS = b"\xff\xff"
TIMES = b"\xff\xfe"
CHANGE_POINTS = b"\xff\xfd"
DIRTY = b"\xff\xfc"
OUTBOX = b"\xff\xfb"
# Keys that were erased, and whether their entries are removed already.
ERASED = b"\xff\xfa"

# Entries of the database itself lie behind no asset: an asset is the head of a hash, all of whose bytes are never zero.
META = bytes(ASSET_BYTES)

# Turns signed 64-bit times into unsigned ones of the same order.
SIGN = 1 << 63
FIRST_TIME_US, LAST_TIME_US = -SIGN, SIGN - 1
_MAX = (1 << 64) - 1

_U16 = struct.Struct(">H").pack
pack_u64 = struct.Struct(">Q").pack
unpack_u64 = struct.Struct(">Q").unpack_from


def key_prefix(asset: bytes, key: bytes) -> bytes:
    """Return what the entries of `key` begin with. No prefix begins another: the length comes first."""
    return asset + _U16(len(key)) + key


def timed_key(entries: bytes, time_us: int, order: bytes) -> bytes:
    """Return the key of an aggregate input among `entries`, in order of a time and of its rank among equal times."""
    return entries + pack_u64(time_us + SIGN) + order


def time_of(key: bytes, entries: int) -> int:
    """Return the time in the key of an aggregate input whose entries begin with so many bytes."""
    time_us: int = unpack_u64(key, entries)[0] - SIGN
    return time_us


def from_time(entries: bytes, time_us: int) -> bytes:
    """Return the key before all entries at or after a time; behind the last one if there is no such time."""
    if time_us > LAST_TIME_US:
        return entries + b"\xff" * (TIME_BYTES + 1)
    return entries + pack_u64(max(time_us, FIRST_TIME_US) + SIGN)


def version_key(prefix: bytes, time_us: int, record_id: bytes) -> bytes:
    """Return the key of a version: the newest comes first, of equal times the one with the greatest identity."""
    return prefix + VERSION + pack_u64(_MAX - (time_us + SIGN)) + inverted(record_id)


def version_seek(prefix: bytes, time_us: int) -> bytes:
    """Return the key before all versions at or before `time_us`."""
    return prefix + VERSION + pack_u64(_MAX - (time_us + SIGN))


def tile_key(prefix: bytes, level: int, number: int) -> bytes:
    """Return the key of a tile, in order of time within its level."""
    return b"%b%c%b" % (prefix, TILE + level, pack_u64(number))


def location_key(asset: bytes, record_id: bytes) -> bytes:
    """Return the key under which the location of an identity is kept."""
    return asset + LOCATIONS + record_id


def times_key(asset: bytes, time_us: int, record_id: bytes) -> bytes:
    """Return where it is noted that an aggregate input reaches a time."""
    return asset + TIMES + pack_u64(time_us + SIGN) + record_id


def max_event_time_key(asset: bytes) -> bytes:
    """Return where the greatest time of an asset is kept."""
    return META + b"frontier" + asset


def emission_key(asset: bytes) -> bytes:
    """Return where it is kept how far an asset has emitted."""
    return META + b"emitted-" + asset


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
