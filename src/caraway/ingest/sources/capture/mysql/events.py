"""Packets of a binary log, brought into the form that mysql-replication reads.

See "Binary Log Events" in the manuals of MySQL and MariaDB. MariaDB's compressed events (`log_bin_compress`) become
the plain ones that they stand for. The variables of a statement's session are left out: nothing here needs them, and
each version of the servers has further ones.
"""

import zlib
from struct import Struct

# The header: time, type, server, size, position of the next event, flags.
HEADER = Struct("<IBIIIH")
QUERY, ROTATE, FORMAT, HEARTBEAT = 2, 4, 15, 27
QUERY_COMPRESSED = 165
# The plain types of MariaDB's compressed ones, and the sizes of the parts before their bitmaps.
_ROWS_COMPRESSED = {166: 23, 167: 24, 168: 25, 169: 30, 170: 31, 171: 32}
_V2, _UPDATES = frozenset({169, 170, 171}), frozenset({167, 170})
CHECKSUM = 4
# The flag of events that the server makes for a reader, which aren't in the log.
ARTIFICIAL = 0x20
# No event is larger than the largest packet of the protocol, 1 GiB.
MOST = 1 << 30


def has_checksums(event: bytes) -> bool:
    """Return whether the events of a file have checksums, by the one that describes its format."""
    return event[-CHECKSUM - 1] == 1


def plain(event: bytes, *, has_checksum: bool, wants_checksum: bool) -> bytes:
    """Return an event with its header as the plain one.

    Args:
        event: The event.
        has_checksum: True if it has a checksum.
        wants_checksum: True if the result has the bytes of one. They aren't looked at.

    Raises:
        ValueError: It isn't compressed in a known way.
    """
    kind = event[4]
    is_special = kind in _ROWS_COMPRESSED or kind in {QUERY, QUERY_COMPRESSED}
    if not is_special and has_checksum == wants_checksum:
        return event
    body = event[HEADER.size : len(event) - CHECKSUM if has_checksum else len(event)]
    checksum = bytes(CHECKSUM) if wants_checksum else b""
    if not is_special:
        pass
    elif kind in _ROWS_COMPRESSED:
        start = _rows_start(kind, body)
        kind, body = _ROWS_COMPRESSED[kind], body[:start] + _inflated(body[start:])
    else:
        (schema_size, variables) = body[8], int.from_bytes(body[11:13], "little")
        names = body[13 + variables : 13 + variables + schema_size + 1]
        statement = body[13 + variables + schema_size + 1 :]
        text = _inflated(statement) if kind == QUERY_COMPRESSED else statement
        kind, body = QUERY, body[:11] + b"\0\0" + names + text
    time, _, server, _, position, flags = HEADER.unpack_from(event)
    header = HEADER.pack(time, kind, server, HEADER.size + len(body) + len(checksum), position, flags)
    return header + body + checksum


def _rows_start(kind: int, body: bytes) -> int:
    """Return where the rows of an event begin: behind the bitmaps of the columns that it has."""
    at = 8
    if kind in _V2:
        at += int.from_bytes(body[8:10], "little")
    first = body[at]
    size = {252: 3, 253: 4, 254: 9}.get(first, 1)
    columns = first if size == 1 else int.from_bytes(body[at + 1 : at + size], "little")
    return at + size + (columns + 7) // 8 * (2 if kind in _UPDATES else 1)


def _inflated(data: bytes) -> bytes:
    """Return data that MariaDB compressed: a byte with the method and the size's size, the size, a stream of zlib."""
    if not data:
        return data
    if data[0] & 0xF0 != 0x80:
        raise ValueError("it is compressed by an unknown method")
    start = 1 + (data[0] & 7)
    size = int.from_bytes(data[1:start], "big")
    if size > MOST:
        raise ValueError("it is too large")
    inflater = zlib.decompressobj()
    found = inflater.decompress(data[start:], size + 1)
    if len(found) != size:
        raise ValueError("its compressed part is damaged")
    return found
