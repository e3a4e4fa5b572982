"""Reading the body of a request within limits: no request may fill the memory, or block the event loop."""

import asyncio
import zlib
from contextlib import suppress

import pyarrow as pa
from granian._granian import RSGIProtocolClosed

from caraway.apps.server.http.budget import SMALL_BYTES, Hold
from caraway.apps.server.http.messages import ANY_HEADER, DECODERS, MAX_BODY_BYTES, Exchange, Headers
from caraway.errors import InvalidInputError, TooLargeError

# A step of decompression yields at most this many bytes, which takes about a millisecond. A body that yields fewer is
# decompressed in the event loop; the rest of a larger body is decompressed in a thread.
STEP_BYTES = 256 * 1024
# A request may be refused before its body has come. The server reads and discards a body of up to SKIPPED_BYTES that
# comes within SKIPPED_S seconds, so that the client can use the connection again.
SKIPPED_BYTES, SKIPPED_S = SMALL_BYTES, 1.0
# Bodies of up to this many bytes aren't counted in the memory of requests. A token may have 1,000 requests under way
# (the default of server.concurrency_per_token), so small bodies take some 4 MiB for each token.
TINY_BYTES = 4 * 1024


class Body:
    """The body of a request, which is read once, or skipped."""

    def __init__(self, headers: Headers, exchange: Exchange) -> None:
        """Prepare to read.

        Args:
            headers: The headers of the request.
            exchange: The connection from which the body is read.
        """
        self._headers = headers
        self._exchange = exchange
        # hyper, on which granian is built, has checked that the header is a number, and passes on no more bytes than
        # that. So `int` doesn't fail, and a body isn't larger than `_size`.
        length = headers.get("content-length")
        self._size = None if length is None else int(length)
        # No part has been read yet; and there is no part left to read.
        self._unread = True
        self.complete = not self._size if length is not None else headers.get("transfer-encoding") is None

    async def read(self, hold: Hold, form_bytes: int | None = None) -> bytes:
        """Return the body, decompressed.

        Args:
            hold: Counts the memory that the body needs, while it arrives.
            form_bytes: The most bytes of a form, which isn't compressed; None if the body is no form.

        Raises:
            TooLargeError: The body is larger than the limit, compressed or not.
            BusyError: All requests together take too much memory.
            InvalidInputError: The body isn't in the encoding of `Content-Encoding`, or is a form and has one.
        """
        most = MAX_BODY_BYTES if form_bytes is None else form_bytes
        encoding = (self._headers.get("content-encoding") or "identity").strip().lower()
        size = self._size
        if size is not None and size > most:
            raise too_large(f"{size:,} bytes", most)
        if form_bytes is not None and encoding != "identity":
            raise InvalidInputError("a form is sent as it is, without Content-Encoding")
        if self.complete:
            return b""
        # Anybody may announce a form that never arrives, so only the bytes of a form that have arrived are counted.
        if size is None or size > (SMALL_BYTES if form_bytes is None else TINY_BYTES):
            body = await self._read_chunks(hold, most)
        else:
            if size > TINY_BYTES:
                hold.grow(size)
            self._unread = False
            body = await self._exchange()
        self.complete = True
        match encoding:
            case "identity":
                return body
            case "gzip" | "x-gzip" | "deflate":
                return await _decompress(_Zlib(body, encoding), hold)
            case "zstd":
                return await _decompress(_Zstd(body), hold)
            case _:
                raise InvalidInputError(
                    f"Content-Encoding {encoding[:40]!r} isn't known; gzip, deflate, zstd or none is expected"
                )

    async def skip(self) -> bool:
        """Read and discard a body that isn't needed, if it is small and comes soon; return whether it is complete."""
        if not self._unread or (self._size is not None and self._size > SKIPPED_BYTES):
            return self.complete
        self._unread = False
        left = SKIPPED_BYTES
        # A server that ends cancels its requests. This one is answered at once then.
        with suppress(TimeoutError, asyncio.CancelledError, RSGIProtocolClosed):
            async with asyncio.timeout(SKIPPED_S):
                async for chunk in self._exchange:
                    left -= len(chunk)
                    if left < 0:
                        return False
            self.complete = True
        return self.complete

    async def _read_chunks(self, hold: Hold, most: int) -> bytes:
        self._unread = False
        body = bytearray()
        async for chunk in self._exchange:
            hold.grow(len(chunk))
            body += chunk
            if len(body) > most:
                raise too_large("more", most)
        # The copy of the body exists beside the original only until the return.
        return bytes(body)


class _Zlib:
    """Decompresses gzip or deflate in steps."""

    def __init__(self, body: bytes, encoding: str) -> None:
        self._rest = body
        self._encoding = encoding
        self._decompressor = zlib.decompressobj(ANY_HEADER)

    def step(self) -> bytes:
        """Return the next bytes, none at the end. Raises `InvalidInputError` if the body is damaged."""
        found = b""
        try:
            # Some input, such as the header of gzip or the end of a block, yields no bytes. An empty result would mean
            # the end of the body, so the step goes on until there are bytes.
            while not found and not self._decompressor.eof and self._rest:
                found = self._decompressor.decompress(self._rest, STEP_BYTES)
                self._rest = self._decompressor.unconsumed_tail
            # If the last step yielded STEP_BYTES exactly, the decompressor may have read all input and still hold
            # output.
            if not found and not self._decompressor.eof:
                found = self._decompressor.decompress(b"", STEP_BYTES)
        except zlib.error as error:
            raise self._wrong(str(error)) from error
        if not found and (not self._decompressor.eof or self._decompressor.unused_data):
            raise self._wrong("it ends too soon or is followed by something else")
        return found

    def _wrong(self, reason: str) -> InvalidInputError:
        return InvalidInputError(f"the body isn't {self._encoding}, as Content-Encoding says: {reason}")


class _Zstd:
    """Decompresses zstd in steps."""

    def __init__(self, body: bytes) -> None:
        try:
            self._stream = pa.CompressedInputStream(pa.BufferReader(body), "zstd")
        except OSError as error:
            raise _not_zstd(error) from error

    def step(self) -> bytes:
        """Return the next bytes, none at the end. Raises `InvalidInputError` if the body is damaged."""
        try:
            found: bytes = self._stream.read(STEP_BYTES)
        except OSError as error:
            raise _not_zstd(error) from error
        return found


def _not_zstd(error: OSError) -> InvalidInputError:
    return InvalidInputError(f"the body isn't zstd, as Content-Encoding says: {str(error)[:200]}")


async def _decompress(stream: _Zlib | _Zstd, hold: Hold) -> bytes:
    """Return the decompressed bytes of a stream; a large body is decompressed in a thread."""
    plain = bytearray()
    while len(plain) < STEP_BYTES:
        found = stream.step()
        if not found:
            return bytes(plain)
        _add(plain, found, hold)
    loop = asyncio.get_running_loop()
    while found := await loop.run_in_executor(DECODERS, stream.step):
        _add(plain, found, hold)
    return bytes(plain)


def _add(plain: bytearray, found: bytes, hold: Hold) -> None:
    hold.grow(len(found))
    plain += found
    if len(plain) > MAX_BODY_BYTES:
        raise too_large("more once decompressed")


def too_large(found: str, most: int | None = None) -> TooLargeError:
    """Return the error for a body of a size, of which at most `most` bytes are possible (`MAX_BODY_BYTES`)."""
    most = MAX_BODY_BYTES if most is None else most
    remedy = "send the rows in several requests" if most == MAX_BODY_BYTES else "larger ones are sent through the API"
    return TooLargeError(f"the body may have {most:,} bytes, this one has {found}; {remedy}")
