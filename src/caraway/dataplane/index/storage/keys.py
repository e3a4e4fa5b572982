"""The keys of the index: bytes in the order in which entries are read (docs/inside/rocksdb_index.md)."""

import struct

ASSET_BYTES = 8
TIME_BYTES = 8
# The entries of a Kafka key begin with the asset, the length of the Kafka key in this many bytes, and the Kafka key.
LENGTH_BYTES = 2

# The kinds of entries of a Kafka key. RocksDB sorts by them: the root tile lies just before the raw aggregate inputs,
# so a read of a key with few aggregate inputs finds all that it needs in neighbouring entries.
VERSION = b"\x01"
ROOT = b"\x0e"
RAW = b"\x10"
ENDED = b"\x11"
NEVER = b"\x12"
SESSION = b"\x13"
# The entries of a group in an index that emits rows to a topic for jobs: the times at which the group's row changes,
# and the rows that were emitted for these times.
CHANGE_POINT = b"\x14"
SENT = b"\x15"
TILE = 0x20

# In entries of the whole asset one of these stands in place of a key's length, which is at most 0xFFF9. The entries are
# the locations of identities and the times of aggregate inputs. In an index that emits rows they are also the change
# points of all groups in order of time, the dirty intervals of groups, and the records that wait to be sent.
LOCATIONS = b"\xff\xff"
TIMES = b"\xff\xfe"
CHANGE_POINTS = b"\xff\xfd"
DIRTY = b"\xff\xfc"
OUTBOX = b"\xff\xfb"
# The erased keys, each with a byte that says whether the key's entries have been removed from the index already.
ERASED = b"\xff\xfa"

# The prefix of entries of the database itself, such as offsets. No asset has this prefix: an asset is the first eight
# bytes of a hash, which aren't all zeros in practice.
META = bytes(ASSET_BYTES)

# Adding this number to a signed 64-bit time makes it unsigned, so that the big-endian bytes sort in the order of the
# times.
SIGN = 1 << 63
FIRST_TIME_US, LAST_TIME_US = -SIGN, SIGN - 1
_MAX = (1 << 64) - 1

_U16 = struct.Struct(">H").pack
pack_u64 = struct.Struct(">Q").pack
unpack_u64 = struct.Struct(">Q").unpack_from


def key_prefix(asset: bytes, key: bytes) -> bytes:
    """Return the prefix of the entries of `key`. No prefix begins another, since the length comes first."""
    return asset + _U16(len(key)) + key


def prefix_of(entry: bytes) -> bytes:
    """Return the prefix of a key's entries from the key of one of them."""
    behind = ASSET_BYTES + LENGTH_BYTES
    return entry[: behind + int.from_bytes(entry[ASSET_BYTES:behind])]


def key_of(prefix: bytes) -> bytes:
    """Return the key whose entries have a prefix."""
    return prefix[ASSET_BYTES + LENGTH_BYTES :]


def timed_key(entries: bytes, time_us: int, order: bytes) -> bytes:
    """Return the key of an aggregate input among `entries`: in order of time, and of rank among equal times."""
    return entries + pack_u64(time_us + SIGN) + order


def time_of(key: bytes, entries: int) -> int:
    """Return the time in the key of an aggregate input; `entries` is the length of the part before it."""
    time_us: int = unpack_u64(key, entries)[0] - SIGN
    return time_us


def from_time(entries: bytes, time_us: int) -> bytes:
    """Return the least key of entries at or after a time; if there is no such time, the key behind the last entry."""
    if time_us > LAST_TIME_US:
        return entries + b"\xff" * (TIME_BYTES + 1)
    return entries + pack_u64(max(time_us, FIRST_TIME_US) + SIGN)


def version_key(prefix: bytes, time_us: int, record_id: bytes) -> bytes:
    """Return the key of a version: newest first, and of equal times the greatest identity first."""
    return prefix + VERSION + pack_u64(_MAX - (time_us + SIGN)) + inverted(record_id)


def version_seek(prefix: bytes, time_us: int) -> bytes:
    """Return the least key of versions at or before `time_us`."""
    return prefix + VERSION + pack_u64(_MAX - (time_us + SIGN))


def tile_key(prefix: bytes, level: int, number: int) -> bytes:
    """Return the key of a tile, in order of time within its level."""
    return b"%b%c%b" % (prefix, TILE + level, pack_u64(number))


def location_key(asset: bytes, record_id: bytes) -> bytes:
    """Return the key of the location of an identity."""
    return asset + LOCATIONS + record_id


def times_key(asset: bytes, time_us: int, record_id: bytes) -> bytes:
    """Return the key of the entry that says that an aggregate input reaches a time."""
    return asset + TIMES + pack_u64(time_us + SIGN) + record_id


def max_event_time_key(asset: bytes) -> bytes:
    """Return the key of the max event time of an asset."""
    return META + b"frontier" + asset


def clock_key(asset: bytes) -> bytes:
    """Return the key of the clock time of an asset whose discrete windows close by the clock as well."""
    return META + b"clock---" + asset


def emission_key(asset: bytes) -> bytes:
    """Return the key of the progress of an asset's emission."""
    return META + b"emitted-" + asset


def newest_input_key(asset: bytes) -> bytes:
    """Return the key of the greatest ingestion time of the records by which an asset that emits rows has changed."""
    return META + b"newest--" + asset


def offset_key(asset: bytes, partition: int) -> bytes:
    """Return the key of the next offset of a partition of an asset's topic."""
    return META + b"offset" + asset + partition.to_bytes(4)


def left_out_key(asset: bytes) -> bytes:
    """Return the key of the number of records that an asset left out, because it couldn't take them."""
    return META + b"leftout-" + asset


def inverted(data: bytes) -> bytes:
    """Return the bitwise complement, which has the opposite order for equal lengths."""
    length = len(data)
    return (((1 << 8 * length) - 1) ^ int.from_bytes(data)).to_bytes(length)


def after(prefix: bytes) -> bytes:
    """Return the least key greater than all that begin with `prefix`."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1])
