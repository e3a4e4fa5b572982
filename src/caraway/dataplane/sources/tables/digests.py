"""The digests of rows, and the chunks of a statement cut into batches of columns.

A digest is made by XXH3 with a secret seed, which is kept with the position, since the marks of rows are on topics and
their digests in the window. Without the seed nobody can write rows whose digests are the same. XXH3's digests are the
same in all versions and on all machines, by its specification (https://github.com/Cyan4973/xxHash).

The rows of a chunk become parts of columns before the next chunk is fetched. Rows that were all kept until the batch is
full would make Python's garbage collector look at them again and again, and would have left the processor's caches.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import add
from typing import Any

import msgspec
from xxhash import xxh3_64_digest, xxh3_128_digest

from caraway.dataplane.sources.row_digests import SEED_BITS
from caraway.dataplane.sources.tables.database import Row

_ENCODER = msgspec.msgpack.Encoder(enc_hook=str)


def _encoded(row: Row) -> bytes:
    try:
        return _ENCODER.encode(row)
    except OverflowError:
        # MessagePack has no integers of more than 64 bits, so Python's text of the row is used.
        return repr(row).encode()


class Digests:
    """Makes the digests of rows."""

    def __init__(self, seed: int, *, keys: int, digested: int, columns: int, has_key: bool) -> None:
        """Prepare.

        Args:
            seed: The seed, which has `SEED_BITS`.
            keys: How many of the first columns are the cursor and the primary key.
            digested: How many of the first columns a digest is made of.
            columns: How many columns a row has.
            has_key: True if the table has a primary key.
        """
        self.columns = columns
        """How many columns a row has."""
        # The two halves of a digest have different seeds. With one seed they would be equal if the key has all columns
        # that are digested.
        self._seed, self._other = seed, seed ^ ((1 << SEED_BITS) - 1)
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
            # Some number has more than 64 bits, so each row is encoded by itself.
            texts = [_encoded(row) for row in rows]
            return self._of(texts, rows, _encoded), [len(text) for text in texts]

    def _of(self, texts: list[bytes], rows: Sequence[Row], encode: Callable[[Row], bytes]) -> list[bytes]:
        digested, keys = self._digested, self._keys
        if digested is not None:
            texts = [encode(row[:digested]) for row in rows]
        seed, other = self._seed, self._other
        if not self._has_key:
            return [xxh3_128_digest(text, seed) for text in texts]
        of_keys = [xxh3_64_digest(encode(row[:keys]), seed) for row in rows]
        return list(map(add, of_keys, [xxh3_64_digest(text, other) for text in texts]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Rows that were taken of a statement.

    Attributes:
        columns: The values of each column that was asked for.
        digests: The digests of the rows.
        size: About how many bytes were read.
        is_all: True if the statement has no rows behind these.
    """

    columns: Sequence[list[Any]]
    digests: list[bytes]
    size: int
    is_all: bool

    def __len__(self) -> int:
        return len(self.digests)

    def first(self, rows: int) -> "Taken":
        """Return the first rows alone, behind which the statement has further ones."""
        columns = [column[:rows] for column in self.columns]
        return Taken(columns=columns, digests=self.digests[:rows], size=self.size, is_all=False)


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

    def take(self, rows: int, size: int) -> Taken:
        """Return the next rows.

        Args:
            rows: The most rows.
            size: The bytes behind which no further row is added.
        """
        columns: list[list[Any]] = [[] for _ in range(self._digests.columns)]
        digests: list[bytes] = []
        total = 0
        is_all = False
        while len(digests) < rows and total < size:
            if not self._chunk:
                chunk = next(self._chunks, None)
                if chunk is None:
                    is_all = True
                    break
                if not chunk:
                    continue
                self._chunk, self._of_chunk = chunk, self._digests.of(chunk)
            found, sizes = self._of_chunk
            count = _fitting(sizes, rows - len(digests), size - total)
            for column, values in zip(columns, zip(*self._chunk[:count], strict=True), strict=True):
                column.extend(values)
            digests += found[:count]
            total += sum(sizes[:count])
            self._chunk, self._of_chunk = self._chunk[count:], (found[count:], sizes[count:])
        return Taken(columns=columns, digests=digests, size=total, is_all=is_all)

    def close(self) -> None:
        """End the statement."""
        if (close := getattr(self._chunks, "close", None)) is not None:
            close()


def _fitting(sizes: Sequence[int], rows: int, size: int) -> int:
    """Return how many of the rows of these sizes are taken: at most `rows`, up to the one that reaches `size`."""
    count = min(len(sizes), rows)
    if sum(sizes[:count]) < size:
        return count
    total = 0
    for count, length in enumerate(sizes[:rows], 1):  # noqa: B007 (it is the number of rows)
        total += length
        if total >= size:
            break
    return count
