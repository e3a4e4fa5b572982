"""The hash functions of the digests by which rows of tables are recognised.

A source keeps its hash function for good, because the marks of its rows are on topics and its digests in the window.
"""

from collections.abc import Sequence
from typing import Protocol

from xxhash import xxh3_64_digest, xxh3_128_digest

from caraway.ingest.sources.row_digests import SEED_BITS, blake
from caraway.ingest.sources.tables.window import DIGEST_BYTES, IDENTITY_BYTES

_whole = blake(DIGEST_BYTES)
_identity = blake(IDENTITY_BYTES)
_rest = blake(DIGEST_BYTES - IDENTITY_BYTES)


class Hashes(Protocol):
    """A hash function, and how digests are made by it.

    Each function takes texts, and returns the digest of each: of `DIGEST_BYTES` for rows without a key, otherwise of
    `IDENTITY_BYTES` for the keys and of what is left of `DIGEST_BYTES` for the rows.
    """

    def whole(self, texts: Sequence[bytes]) -> list[bytes]:
        """Return the digests of rows of a table without a key."""
        ...

    def keys(self, texts: Sequence[bytes]) -> list[bytes]:
        """Return the digests of the cursors and keys of rows."""
        ...

    def rows(self, texts: Sequence[bytes]) -> list[bytes]:
        """Return the digests of all columns that count, of rows of a table with a key."""
        ...


class Blake:
    """BLAKE2b, for the sources that began to be read by it. It takes three times as long as XXH3 for a row."""

    def whole(self, texts: Sequence[bytes]) -> list[bytes]:
        """Return the digests of rows of a table without a key."""
        return _whole(texts)

    def keys(self, texts: Sequence[bytes]) -> list[bytes]:
        """Return the digests of the cursors and keys of rows."""
        return _identity(texts)

    def rows(self, texts: Sequence[bytes]) -> list[bytes]:
        """Return the digests of all columns that count, of rows of a table with a key."""
        return _rest(texts)


class Xxh3:
    """XXH3 with a secret seed, which is kept with the position.

    Without the seed nobody can write rows whose digests are the same. Its digests are the same in all versions and on
    all machines, by its specification (https://github.com/Cyan4973/xxHash).
    """

    def __init__(self, seed: int) -> None:
        """Make digests with a seed of `SEED_BITS`."""
        # Rows whose key has all of their columns have two halves that aren't alike.
        self._seed, self._other = seed, seed ^ ((1 << SEED_BITS) - 1)

    def whole(self, texts: Sequence[bytes]) -> list[bytes]:
        """Return the digests of rows of a table without a key."""
        seed = self._seed
        return [xxh3_128_digest(text, seed) for text in texts]

    def keys(self, texts: Sequence[bytes]) -> list[bytes]:
        """Return the digests of the cursors and keys of rows."""
        seed = self._seed
        return [xxh3_64_digest(text, seed) for text in texts]

    def rows(self, texts: Sequence[bytes]) -> list[bytes]:
        """Return the digests of all columns that count, of rows of a table with a key."""
        seed = self._other
        return [xxh3_64_digest(text, seed) for text in texts]
