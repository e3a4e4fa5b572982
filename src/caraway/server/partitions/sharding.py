"""Assignment of keys to shards, and of shards to servers."""

from collections.abc import Callable, Collection, Mapping
from hashlib import blake2b

from caraway.plan.model import Column, IndexPlan, RecordSchema
from caraway.topics import RecordCodec
from caraway.topics.partitioning import partition_of

# A function from the key of a read to the Kafka key of its records.
ToKafka = Callable[[bytes], bytes]


def is_divided(plan: IndexPlan) -> bool:
    """Return whether an index is divided, and not whole on the one server that writes its rows for jobs."""
    return plan.emits is None


def shard_of(key: bytes, partitions: int, shards: int) -> int:
    """Return the shard of a Kafka key on a topic with `partitions` partitions.

    Partition p of every topic belongs to shard p modulo the number of shards.
    """
    return partition_of(key, partitions) % shards


def kafka_key(plan: IndexPlan) -> ToKafka:
    """Return the function that makes a record's Kafka key from the key of a read, which may end with a window."""
    if plan.window is None:
        return lambda key: key
    decode = _codec(plan.keys).decode_key
    encode, columns = _codec(plan.schema.keys).encode_key, len(plan.schema.keys)
    return lambda key: encode(decode(key)[:columns]) or b""


def assigned(shards: int, servers: Collection[str]) -> Mapping[int, str]:
    """Return the server for each shard by rendezvous hashing; none gets more than its share, rounded up.

    Pairs of a shard and a server are taken by decreasing hash. So a server that comes or goes moves few shards beyond
    its own, and all callers that know the same servers get the same result.
    """
    if not servers:
        return {}
    share = -(-shards // len(servers))
    pairs = sorted(
        ((_hash(shard, server), shard, server) for shard in range(shards) for server in servers), reverse=True
    )
    owners: dict[int, str] = {}
    taken = dict.fromkeys(servers, 0)
    for _, shard, server in pairs:
        if shard not in owners and taken[server] < share:
            owners[shard] = server
            taken[server] += 1
    return owners


def _hash(shard: int, server: str) -> bytes:
    return blake2b(f"{shard} {server}".encode(), digest_size=8).digest()


def _codec(columns: Collection[Column]) -> RecordCodec:
    return RecordCodec(RecordSchema(keys=tuple(columns), columns=tuple(columns), timestamp="", fingerprint=0))
