"""Which shard a key is in, and which server is to own which shard."""

from collections.abc import Callable, Collection, Mapping
from hashlib import blake2b

from caraway.plan.model import Column, IndexPlan, RecordSchema
from caraway.topics import RecordCodec
from caraway.topics.partitioning import partition_of

# The Kafka key of what is read under a key.
ToKafka = Callable[[bytes], bytes]


def is_divided(plan: IndexPlan) -> bool:
    """Tell whether an index is divided, or whole at the one server that writes its rows for jobs."""
    return plan.emits is None


def shard_of(key: bytes, partitions: int, shards: int) -> int:
    """Return the shard of a Kafka key on a topic with so many partitions.

    Partition p of every topic belongs to shard p modulo the number of shards.
    """
    return partition_of(key, partitions) % shards


def kafka_key(plan: IndexPlan) -> ToKafka:
    """Return what gives the Kafka key of a record from the key of a read, which may end with a window."""
    if plan.window is None:
        return lambda key: key
    decode = _codec(plan.keys).decode_key
    encode, columns = _codec(plan.schema.keys).encode_key, len(plan.schema.keys)
    return lambda key: encode(decode(key)[:columns]) or b""


def assigned(shards: int, servers: Collection[str]) -> Mapping[int, str]:
    """Return which server is to own which shard: by rendezvous hashing, and none has more than its share, rounded up.

    The pair of a shard and a server with the greatest hash comes first. So a server that comes or goes moves few shards
    beyond its own. Whoever knows the same servers comes to the same result.
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
