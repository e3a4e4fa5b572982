"""Assignment of keys to shards, and of shards to servers."""

from collections.abc import Collection, Mapping
from hashlib import blake2b

from caraway.plan.model import IndexPlan
from caraway.topics.partitioning import partition_of


def is_divided(plan: IndexPlan) -> bool:
    """Return whether an index is divided, and not whole on the one server that writes its rows for jobs."""
    return plan.emits is None


def shard_of(key: bytes, partitions: int, shards: int) -> int:
    """Return the shard of a Kafka key on a topic with `partitions` partitions.

    Partition p of every topic belongs to shard p modulo the number of shards.
    """
    return partition_of(key, partitions) % shards


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
