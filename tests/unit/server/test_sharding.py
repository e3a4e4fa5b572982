"""Which server is to own which shard."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from caraway.server.partitions.sharding import assigned
from tests.effort import examples

names = st.sets(st.text("abcdef", min_size=1, max_size=3), min_size=1, max_size=6)


@settings(max_examples=examples(100))
@given(st.integers(1, 24), names)
def test_every_shard_has_one_owner_and_none_has_more_than_its_share(shards: int, servers: set[str]) -> None:
    owners = assigned(shards, servers)
    assert owners.keys() == set(range(shards))
    assert set(owners.values()) <= servers
    assert max(Counter(owners.values()).values()) <= -(-shards // len(servers))
    # Whoever knows the same servers, in whatever order, comes to the same.
    assert owners == assigned(shards, sorted(servers))


def test_without_servers_there_are_no_owners() -> None:
    assert assigned(4, set()) == {}


def test_a_server_that_comes_moves_little() -> None:
    for count in range(2, 10):
        servers = [f"host-{n}:/data" for n in range(count)]
        before, after = assigned(64, servers), assigned(64, [*servers, "new:/data"])
        moved = sum(before[shard] != after[shard] for shard in range(64))
        # Its own part, and what the others' shares make move beyond.
        assert 64 // (count + 1) <= moved + 1
        assert moved <= 2 * 64 / (count + 1)
