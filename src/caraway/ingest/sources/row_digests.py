"""Digests of many texts at once, for the sources that recognise rows by digests."""

from collections.abc import Callable, Iterable
from hashlib import blake2b

# The bits of a seed of XXH3.
SEED_BITS = 64


def blake(size: int) -> Callable[[Iterable[bytes]], list[bytes]]:
    """Return a function that returns the BLAKE2b digest of each text; `size` is the bytes of a digest."""
    # A copy of a digest that has read nothing takes a third of the time in which Python makes one of a given length.
    new = blake2b(digest_size=size).copy

    def digests(texts: Iterable[bytes]) -> list[bytes]:
        found: list[bytes] = []
        for text in texts:
            digest = new()
            digest.update(text)
            found.append(digest.digest())
        return found

    return digests
