"""The partition of a key on a topic: the rule of Java's default partitioner, which Spark and Caraway both use."""

import struct

SEED = 0x9747B28C
FACTOR = 0x5BD1E995
MASK = 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key on a topic that has `partitions` of them."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Return the 32 bits of Austin Appleby's MurmurHash2, with Kafka's seed."""
    length = len(data)
    whole = length & ~3
    h = SEED ^ length
    for (k,) in struct.iter_unpack("<I", data[:whole]):
        k = k * FACTOR & MASK  # noqa: PLW2901 (as it is published)
        h = (h * FACTOR & MASK) ^ ((k ^ k >> 24) * FACTOR & MASK)
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * FACTOR & MASK
    h = (h ^ h >> 13) * FACTOR & MASK
    return h ^ h >> 15
