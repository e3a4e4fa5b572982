"""The digests of rows, and the chunks of a statement cut into batches."""

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from caraway.ingest.sources.tables.database import Row
from caraway.ingest.sources.tables.window import DIGEST_BYTES, IDENTITY_BYTES

_ENCODER = msgspec.msgpack.Encoder(enc_hook=str)


def _encoded(row: Row) -> bytes:
    try:
        return _ENCODER.encode(row)
    except OverflowError:
        # A number has more than 64 bits.
        return repr(row).encode()


class Digests:
    """Makes the digests of rows."""

    def __init__(self, *, keys: int, digested: int, columns: int, has_key: bool) -> None:
        """Prepare.

        Args:
            keys: How many of the first columns are the cursor and the primary key.
            digested: How many of the first columns a digest is made of.
            columns: How many columns a row has.
            has_key: True if the table has a primary key.
        """
        self._keys = keys
        self._digested = None if digested == columns else digested
        self._has_key = has_key

    def of(self, rows: Sequence[Row]) -> tuple[list[bytes], list[int]]:
        """Return the digests of rows, and about how many bytes each row has."""
        encode = _ENCODER.encode
        try:
            texts = [encode(row) for row in rows]
            return self._of(texts, rows, encode), [len(text) for text in texts]
        except OverflowError:
            # A number has more than 64 bits.
            texts = [_encoded(row) for row in rows]
            return self._of(texts, rows, _encoded), [len(text) for text in texts]

    def _of(self, texts: list[bytes], rows: Sequence[Row], encode: Callable[[Row], bytes]) -> list[bytes]:
        digested, keys = self._digested, self._keys
        if digested is not None:
            texts = [encode(row[:digested]) for row in rows]
        if not self._has_key:
            return [blake2b(text, digest_size=DIGEST_BYTES).digest() for text in texts]
        rest = DIGEST_BYTES - IDENTITY_BYTES
        return [
            blake2b(encode(row[:keys]), digest_size=IDENTITY_BYTES).digest() + blake2b(text, digest_size=rest).digest()
            for text, row in zip(texts, rows, strict=True)
        ]


class Rows:
    """The rows that a statement returns, to be taken batch by batch."""

    def __init__(self, chunks: Iterator[Sequence[Row]], digests: Digests, value: Any = None) -> None:
        """Read from chunks; `value` is the value of the cursor, if all rows have the same."""
        self._chunks = chunks
        self._digests = digests
        # The rows of the last chunk that aren't taken, with their digests and their bytes.
        self._chunk: Sequence[Row] = ()
        self._of_chunk: tuple[list[bytes], list[int]] = ([], [])
        self.value = value

    def take(self, rows: int, size: int) -> tuple[list[Row], list[bytes], int, bool]:
        """Return the next rows, their digests and their bytes, and whether these were the last rows.

        Args:
            rows: The most rows.
            size: The bytes behind which no further row is added.
        """
        taken: list[Row] = []
        digests: list[bytes] = []
        total = 0
        while len(taken) < rows and total < size:
            if not self._chunk:
                chunk = next(self._chunks, None)
                if chunk is None:
                    return taken, digests, total, True
                self._chunk, self._of_chunk = chunk, self._digests.of(chunk)
            found, sizes = self._of_chunk
            count = 0
            for count, length in enumerate(sizes[: rows - len(taken)], 1):  # noqa: B007 (it is the number of rows)
                total += length
                if total >= size:
                    break
            taken += self._chunk[:count]
            digests += found[:count]
            self._chunk, self._of_chunk = self._chunk[count:], (found[count:], sizes[count:])
        return taken, digests, total, False

    def close(self) -> None:
        """End the statement."""
        if (close := getattr(self._chunks, "close", None)) is not None:
            close()
