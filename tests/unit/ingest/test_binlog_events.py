"""Events of a binary log in their plain form: those that MariaDB compresses, and their checksums."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.ingest.sources.capture.mysql.events import HEADER, plain

CHECKSUM = b"sums"
# The plain type of each compressed one.
ROWS = {166: 23, 167: 24, 168: 25, 169: 30, 170: 31, 171: 32}


def event(kind: int, body: bytes, *, has_checksum: bool) -> bytes:
    tail = CHECKSUM if has_checksum else b""
    return HEADER.pack(7, kind, 1, HEADER.size + len(body) + len(tail), 4711, 0) + body + tail


def compressed(data: bytes, width: int) -> bytes:
    """Return data as MariaDB compresses it, with a size of so many bytes."""
    return bytes([0x80 | width]) + len(data).to_bytes(width, "big") + zlib.compress(data)


def stripped(found: bytes, *, has_checksum: bool) -> tuple[tuple[int, ...], bytes]:
    """Return the header and the body of an event, whose size must be right."""
    header = HEADER.unpack_from(found)
    assert header[3] == len(found)
    return header[:3] + header[4:], found[HEADER.size : len(found) - 4 if has_checksum else len(found)]


@given(
    kind=st.sampled_from(sorted(ROWS)),
    columns=st.sampled_from([1, 8, 9, 250, 251, 300, 4000]),
    extra=st.binary(max_size=9),
    data=st.binary(min_size=1, max_size=3000),
    had=st.booleans(),
    has=st.booleans(),
)
def test_compressed_rows_become_those_that_were_compressed(
    *, kind: int, columns: int, extra: bytes, data: bytes, had: bool, has: bool
) -> None:
    head = b"\1\0\0\0\0\0\1\0"
    if kind >= 169:
        head += (2 + len(extra)).to_bytes(2, "little") + extra
    head += bytes([columns]) if columns < 251 else b"\xfc" + columns.to_bytes(2, "little")
    head += b"\xff" * ((columns + 7) // 8) * (2 if kind in {167, 170} else 1)
    found = plain(event(kind, head + compressed(data, 3), has_checksum=had), has_checksum=had, wants_checksum=has)
    expected = plain(event(ROWS[kind], head + data, has_checksum=had), has_checksum=had, wants_checksum=has)
    assert stripped(found, has_checksum=has) == stripped(expected, has_checksum=has)
    assert stripped(found, has_checksum=has)[1] == head + data


@given(
    statement=st.binary(min_size=1, max_size=500),
    schema=st.binary(max_size=20),
    variables=st.binary(max_size=40),
    width=st.integers(min_value=2, max_value=7),
    is_compressed=st.booleans(),
    had=st.booleans(),
)
def test_statements_lose_the_variables_of_their_session(
    *, statement: bytes, schema: bytes, variables: bytes, width: int, is_compressed: bool, had: bool
) -> None:
    head = bytes(8) + bytes([len(schema)]) + b"\0\0"
    text = compressed(statement, width) if is_compressed else statement
    body = head + len(variables).to_bytes(2, "little") + variables + schema + b"\0" + text
    found = plain(event(165 if is_compressed else 2, body, has_checksum=had), has_checksum=had, wants_checksum=True)
    (_, kind, *_), rest = stripped(found, has_checksum=True)
    assert (kind, rest) == (2, head + b"\0\0" + schema + b"\0" + statement)


@pytest.mark.parametrize(
    "damaged",
    [
        b"\x91\x05" + zlib.compress(b"hello"),
        b"\x81\x06" + zlib.compress(b"hello"),
        b"\x81\x04" + zlib.compress(b"hello"),
        b"\x87" + b"\xff" * 7 + zlib.compress(b"hello"),
    ],
    ids=["another method", "too short", "too long", "too large"],
)
def test_damaged_rows_are_refused(damaged: bytes) -> None:
    body = b"\1\0\0\0\0\0\1\0" + b"\1\xff" + damaged
    with pytest.raises(ValueError, match=r"compressed|large"):
        plain(event(166, body, has_checksum=False), has_checksum=False, wants_checksum=False)
