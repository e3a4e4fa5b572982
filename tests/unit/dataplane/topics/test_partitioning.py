"""The partition of a key is the one that Java's default partitioner chooses."""

import pytest

from caraway.dataplane.topics.partitioning import murmur2, partition_of

# These are the examples of Kafka's own tests (org.apache.kafka.common.utils.UtilsTest).
HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "expected"), HASHES.items())
def test_hashes_are_those_of_java(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected % 2**32
    assert partition_of(key, 7) == (expected & 0x7FFFFFFF) % 7
