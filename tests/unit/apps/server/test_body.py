"""Bodies: limits and encodings."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Mapping

import pytest

from caraway.apps.server.http import body as body_module
from caraway.apps.server.http.body import Body
from caraway.apps.server.http.budget import Budget, Hold
from caraway.errors import InvalidInputError, TooLargeError


class Headers(dict[str, str]):
    pass


class Exchange:
    def __init__(self, body: bytes) -> None:
        self.body = body
        self.chunks_read = 0

    async def __call__(self) -> bytes:
        return self.body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self.body), 10):
            self.chunks_read += 1
            yield self.body[start : start + 10]

    def response_bytes(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        raise NotImplementedError


def read(body: bytes, headers: Mapping[str, str], exchange: Exchange | None = None) -> bytes:
    return asyncio.run(Body(Headers(headers), exchange or Exchange(body)).read(Hold(Budget())))  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_module, "MAX_BODY_BYTES", 100)


def test_a_body_with_and_without_length() -> None:
    assert read(b"x" * 100, {"content-length": "100"}) == b"x" * 100
    assert read(b"x" * 100, {"transfer-encoding": "chunked"}) == b"x" * 100
    assert read(b"", {}) == b""


@pytest.mark.parametrize("encoded", [gzip.compress(b"x" * 100, mtime=0), zlib.compress(b"x" * 100)])
def test_compressed_bodies(encoded: bytes) -> None:
    for encoding in ("gzip", "deflate", "X-GZIP"):
        headers = {"content-length": str(len(encoded)), "content-encoding": encoding}
        assert read(encoded, headers) == b"x" * 100


def test_too_large_bodies_are_not_read_to_the_end() -> None:
    exchange = Exchange(b"x" * 10_000)
    with pytest.raises(TooLargeError, match="10,000 bytes"):
        read(b"", {"content-length": "10000"}, exchange)
    with pytest.raises(TooLargeError):
        read(b"", {"transfer-encoding": "chunked"}, exchange)
    assert exchange.chunks_read == 11
    bomb = gzip.compress(b"x" * 10_000)
    assert len(bomb) < 100
    with pytest.raises(TooLargeError, match="decompressed"):
        read(bomb, {"content-length": str(len(bomb)), "content-encoding": "gzip"})


@pytest.mark.parametrize(
    "encoded",
    [
        b"plain",
        gzip.compress(b"cut", mtime=0)[:-3],
        gzip.compress(b"a", mtime=0) + b"more",
        gzip.compress(b"a", mtime=0) * 2,
    ],
)
def test_what_is_not_compressed_as_it_says_is_refused(encoded: bytes) -> None:
    with pytest.raises(InvalidInputError, match="Content-Encoding"):
        read(encoded, {"content-length": str(len(encoded)), "content-encoding": "gzip"})


def test_an_unknown_encoding_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="'br' isn't known"):
        read(b"x", {"content-length": "1", "content-encoding": "br"})


def test_a_form_has_a_limit_of_its_own_and_comes_as_it_is() -> None:
    def form(body: bytes, hold: Hold, **headers: str) -> bytes:
        given = Headers({name.replace("_", "-"): value for name, value in headers.items()})
        return asyncio.run(Body(given, Exchange(body)).read(hold, 50))  # type: ignore[arg-type]

    assert form(b"x" * 50, Hold(Budget()), content_length="50") == b"x" * 50
    for headers in ({"content_length": "51"}, {"transfer_encoding": "chunked"}):
        with pytest.raises(TooLargeError, match="may have 50 bytes"):
            form(b"x" * 51, Hold(Budget()), **headers)
    packed = gzip.compress(b"x")
    with pytest.raises(InvalidInputError, match="without Content-Encoding"):
        form(packed, Hold(Budget()), content_length=str(len(packed)), content_encoding="gzip")


def test_a_form_that_has_not_come_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_module, "TINY_BYTES", 5)
    held: list[int] = []

    class Slow(Exchange):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            held.append(budget.used)
            async for chunk in super().__aiter__():
                yield chunk

    budget = Budget()
    asyncio.run(Body(Headers({"content-length": "50"}), Slow(b"x" * 50)).read(Hold(budget), 50))  # type: ignore[arg-type]
    assert (held, budget.used) == ([0], 50)


@pytest.mark.parametrize(
    ("announced", "sent", "complete"),
    [
        ({"content-length": "50"}, 50, True),
        ({"transfer-encoding": "chunked"}, 50, True),
        ({"content-length": "51"}, 51, False),
        ({"transfer-encoding": "chunked"}, 51, False),
        ({"content-length": "0"}, 0, True),
        ({}, 0, True),
    ],
)
def test_a_small_body_that_is_not_needed_is_skipped(
    monkeypatch: pytest.MonkeyPatch, announced: dict[str, str], sent: int, complete: bool
) -> None:
    monkeypatch.setattr(body_module, "SKIPPED_BYTES", 50)
    body = Body(Headers(announced), Exchange(b"x" * sent))  # type: ignore[arg-type]
    assert asyncio.run(body.skip()) is body.complete is complete


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Exchange):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            await asyncio.Event().wait()
            yield b""

    monkeypatch.setattr(body_module, "SKIPPED_S", 0.01)
    body = Body(Headers({"content-length": "5"}), Silent(b""))  # type: ignore[arg-type]
    assert not asyncio.run(body.skip())
