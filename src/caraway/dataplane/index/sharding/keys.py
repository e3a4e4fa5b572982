"""Assignment of keys to shards."""

from caraway.dataplane.topics.partitioning import partition_of
from caraway.graph.plan.model import IndexPlan


def is_divided(plan: IndexPlan) -> bool:
    """Return whether an index is divided. One server has the whole of an index whose rows it emits to a topic."""
    return plan.emits is None


def shard_of(key: bytes, partitions: int, shards: int) -> int:
    """Return the shard of a Kafka key on a topic with `partitions` partitions.

    Partition p of every topic belongs to shard p modulo the number of shards.
    """
    return partition_of(key, partitions) % shards
