"""Keys that all have the same hash in CPython, whose hashes of numbers and tuples of numbers have no seed."""

import msgspec

_WORD = (1 << 64) - 1
# The primes of xxHash, by which CPython hashes tuples (Objects/tupleobject.c).
_FIRST, _SECOND, _FIFTH = 11400714785074694791, 14029467366897019727, 2870177450012600261
_TARGET = 12345
# The hash of an int is its remainder by this.
MODULUS = (1 << 61) - 1


def colliding(count: int) -> list[tuple[int, int]]:
    """Return different pairs with the same hash: the second number of each undoes what the first one does to it."""
    found: list[tuple[int, int]] = []
    first = 0
    # The state before the last multiplication and rotation, which must be the same for all pairs.
    wanted = _TARGET * pow(_FIRST, -1, 1 << 64) & _WORD
    wanted = ((wanted >> 31) | (wanted << 33)) & _WORD
    while len(found) < count:
        first += 1
        state = (_FIFTH + first * _SECOND) & _WORD
        state = (((state << 31) | (state >> 33)) & _WORD) * _FIRST & _WORD
        second = (wanted - state) * pow(_SECOND, -1, 1 << 64) & _WORD
        if second < MODULUS:
            found.append((first, second))
    assert len({hash(pair) for pair in found}) == 1
    return found


def flood(count: int) -> bytes:
    """Return an answer with a dict of so many keys of the same hash; 20,000 keep a decoder busy for seconds."""
    pairs = b"".join(msgspec.msgpack.encode(pair) + b"\xc0" for pair in colliding(count))
    return b"\x92\xa6answer\xdf" + count.to_bytes(4) + pairs
