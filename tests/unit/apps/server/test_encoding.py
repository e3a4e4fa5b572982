"""Compression of answers."""

import gzip

import pyarrow as pa
import pytest

from caraway.apps.server.http.encoding import MIN_BYTES, choose, encoded
from caraway.apps.server.http.messages import HttpResponse

LARGE = HttpResponse(200, [("content-type", "text/plain")], b"ab" * MIN_BYTES)


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        ("gzip", "gzip"),
        ("gzip, zstd", "zstd"),
        ("gzip;q=1.0, zstd;q=0.5", "gzip"),
        ("*", "zstd"),
        ("*;q=0.5, zstd;q=0", "gzip"),
        ("br", None),
        ("identity", None),
        ("gzip;q=0", None),
        ("gzip;q=many", None),
        ("", None),
    ],
)
def test_the_client_chooses(accepted: str, chosen: str | None) -> None:
    assert choose(accepted) == chosen


def test_large_bodies_are_compressed() -> None:
    assert gzip.decompress(encoded(LARGE, "gzip").body) == LARGE.body
    zstd = encoded(LARGE, "zstd")
    assert pa.CompressedInputStream(pa.BufferReader(zstd.body), "zstd").read() == LARGE.body
    assert ("content-encoding", "zstd") in zstd.headers
    assert len(zstd.body) < len(LARGE.body) / 10


def test_small_bodies_and_other_clients_get_them_as_they_are() -> None:
    small = HttpResponse(200, [], b"x")
    assert encoded(small, "gzip") is small
    assert encoded(LARGE, None) is LARGE
    assert encoded(LARGE, "br") is LARGE
