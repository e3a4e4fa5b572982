"""The assignment of things to members of a group: pure functions of the state that all members read.

All members compute the same assignment from the same state. When they have read different states for a moment, the
owner in the row of each thing in Postgres counts (`caraway.state.ownership.members`).
"""

from collections import Counter
from collections.abc import Collection, Mapping
from hashlib import blake2b


def balanced(things: Collection[str], members: Collection[str], owners: Mapping[str, str]) -> Mapping[str, str]:
    """Return the member for each thing, so that members have equally many, give or take one, and few things move.

    Each member keeps things that it owns up to its equal number; if the things don't divide evenly, the members that
    own most get one more. Engines divide their jobs by this function, since jobs are few and costly to move.

    Args:
        things: All things.
        members: The members that are alive.
        owners: The current owner of each thing that has one; it may be dead.
    """
    if not members:
        return {}
    had = Counter(owners[thing] for thing in things if owners.get(thing) in members)
    least, more = divmod(len(things), len(members))
    ranked = sorted(members, key=lambda member: (-had[member], member))
    left = {member: least + (rank < more) for rank, member in enumerate(ranked)}
    found: dict[str, str] = {}
    for thing in sorted(things):
        owner = owners.get(thing)
        if owner is not None and left.get(owner, 0) > 0:
            found[thing] = owner
            left[owner] -= 1
    free = (member for member in ranked for _ in range(left[member]))
    return found | dict(zip((thing for thing in sorted(things) if thing not in found), free, strict=True))


def chosen(thing: str, members: Collection[str]) -> str | None:
    """Return the member for a thing by rendezvous hashing (Thaler and Ravishankar, 1996); None without members.

    If a member comes or goes, only the things move that it gets or had. Archives divide their topics by this function:
    no topic is costly to move, and nobody has to keep who had it.
    """
    return max(members, key=lambda member: (_hash(thing, member), member), default=None)


def rendezvous(shards: int, nodes: Collection[str]) -> Mapping[int, str]:
    """Return the node for each shard by rendezvous hashing; no node gets more than its equal part, rounded up.

    Pairs of a shard and a node are taken by decreasing hash. So when a node comes or goes, few shards other than its
    own move, and a node that comes back gets the shards whose files it still has. Servers divide the index by this
    function.
    """
    if not nodes:
        return {}
    most = -(-shards // len(nodes))
    pairs = sorted(((_hash(shard, node), shard, node) for shard in range(shards) for node in nodes), reverse=True)
    owners: dict[int, str] = {}
    taken = dict.fromkeys(nodes, 0)
    for _, shard, node in pairs:
        if shard not in owners and taken[node] < most:
            owners[shard] = node
            taken[node] += 1
    return owners


def _hash(thing: int | str, node: str) -> bytes:
    return blake2b(f"{thing} {node}".encode(), digest_size=8).digest()
