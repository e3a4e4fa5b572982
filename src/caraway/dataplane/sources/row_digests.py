"""Digests of many texts at once, for the sources that recognise rows by digests."""

from collections.abc import Sequence

from xxhash import xxh3_128_hexdigest

# The bits of a seed of XXH3.
SEED_BITS = 64


def seeded_digests(texts: Sequence[bytes], seed: int) -> list[str]:
    """Return 128 bits of XXH3 of each text, in hexadecimal.

    Without the seed, nobody can write rows whose digests are the same.
    """
    return [xxh3_128_hexdigest(text, seed) for text in texts]
