"""Reading the body of a request, with limits: none may fill the memory."""

import zlib

import pyarrow as pa

from caraway.errors import InvalidInputError
from caraway.server.http.errors import TooLargeError
from caraway.server.http.messages import ANY_HEADER, MAX_BODY_BYTES, Exchange, Headers


async def read_body(headers: Headers, exchange: Exchange) -> bytes:
    """Read and decompress the body of a request.

    Raises:
        TooLargeError: It is larger than the limit, compressed or not.
        InvalidInputError: It isn't what `Content-Encoding` says.
    """
    length = headers.get("content-length")
    # hyper has made sure that the header is a number and that no more bytes come.
    if length is not None:
        if int(length) > MAX_BODY_BYTES:
            raise too_large(f"{int(length):,} bytes")
        body = await exchange() if length != "0" else b""
    elif headers.get("transfer-encoding") is None:
        return b""
    else:
        body = await _read_chunks(exchange)
    encoding = (headers.get("content-encoding") or "identity").strip().lower()
    match encoding:
        case "identity":
            return body
        case "gzip" | "x-gzip" | "deflate":
            return _decompress(body, encoding)
        case "zstd":
            return _decompress_zstd(body)
        case _:
            raise InvalidInputError(
                f"Content-Encoding {encoding[:40]!r} isn't known; gzip, deflate, zstd or none is expected"
            )


async def _read_chunks(exchange: Exchange) -> bytes:
    body = bytearray()
    async for chunk in exchange:
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise too_large("more")
    return bytes(body)


def _decompress(body: bytes, encoding: str) -> bytes:
    decompressor = zlib.decompressobj(ANY_HEADER)
    try:
        plain = decompressor.decompress(body, MAX_BODY_BYTES + 1)
    except zlib.error as error:
        raise InvalidInputError(f"the body isn't {encoding}, as Content-Encoding says: {error}") from error
    if len(plain) > MAX_BODY_BYTES:
        raise too_large("more once decompressed")
    if not decompressor.eof or decompressor.unused_data:
        raise InvalidInputError(
            f"the body isn't {encoding}, as Content-Encoding says: it ends too soon or is followed by something else"
        )
    return plain


def _decompress_zstd(body: bytes) -> bytes:
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as stream:
            plain: bytes = stream.read(MAX_BODY_BYTES + 1)
    except OSError as error:
        raise InvalidInputError(f"the body isn't zstd, as Content-Encoding says: {error}") from error
    if len(plain) > MAX_BODY_BYTES:
        raise too_large("more once decompressed")
    return plain


def too_large(found: str) -> TooLargeError:
    """Make the error for a body of a size."""
    return TooLargeError(
        f"the body may have {MAX_BODY_BYTES:,} bytes, this one has {found}; send the rows in several requests"
    )
