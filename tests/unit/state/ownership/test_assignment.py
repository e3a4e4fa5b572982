"""The assignment of jobs to engines, and of shards to servers."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from caraway.state.ownership.assignment import balanced, rendezvous
from tests.effort import examples

jobs = st.sets(st.integers(0, 30).map("job {}".format))
members = st.sets(st.sampled_from("abcde"), min_size=1)
owners = st.dictionaries(st.integers(0, 40).map("job {}".format), st.sampled_from("abcdexyz"))


def spread(found: Counter[str]) -> int:
    return max(found.values()) - min(found.values())


@given(jobs, members, owners)
def test_all_have_as_many_and_no_more_is_moved_than_must_be(
    jobs: set[str], members: set[str], owners: dict[str, str]
) -> None:
    found = balanced(jobs, members, owners)
    assert found.keys() == jobs
    counts = Counter({member: sum(engine == member for engine in found.values()) for member in members})
    assert counts.total() == len(jobs)
    assert spread(counts) <= 1
    # At best each engine keeps its jobs up to its number, and as many engines as possible keep one more.
    least, more = divmod(len(jobs), len(members))
    had = [sum(owners.get(job) == member for job in jobs) for member in members]
    stays = sum(min(n, least) for n in had) + min(more, sum(n > least for n in had))
    assert sum(owners.get(job) == engine for job, engine in found.items()) == stays


@given(jobs, members, owners)
def test_what_is_shared_out_stays_as_it_is(jobs: set[str], members: set[str], owners: dict[str, str]) -> None:
    once = balanced(jobs, members, owners)
    assert balanced(jobs, members, once) == once


@given(jobs, members, owners, st.data())
def test_the_engines_that_stay_keep_their_jobs(
    jobs: set[str], members: set[str], owners: dict[str, str], data: st.DataObject
) -> None:
    before = balanced(jobs, members, owners)
    gone = data.draw(st.sampled_from(sorted(members)))
    after = balanced(jobs, members - {gone}, before)
    assert all(after[job] == engine for job, engine in before.items() if engine != gone and after)


def test_without_engines_no_job_is_balanced() -> None:
    assert balanced({"a"}, (), {"a": "x"}) == {}


names = st.sets(st.text("abcdef", min_size=1, max_size=3), min_size=1, max_size=6)


@settings(max_examples=examples(100))
@given(st.integers(1, 24), names)
def test_every_shard_has_one_owner_and_none_has_more_than_its_share(shards: int, servers: set[str]) -> None:
    owners = rendezvous(shards, servers)
    assert owners.keys() == set(range(shards))
    assert set(owners.values()) <= servers
    assert max(Counter(owners.values()).values()) <= -(-shards // len(servers))
    # The assignment doesn't depend on the order of the servers.
    assert owners == rendezvous(shards, sorted(servers))


def test_without_servers_there_are_no_owners() -> None:
    assert rendezvous(4, set()) == {}


def test_a_server_that_comes_moves_little() -> None:
    for count in range(2, 10):
        servers = [f"host-{n}:/data" for n in range(count)]
        before, after = rendezvous(64, servers), rendezvous(64, [*servers, "new:/data"])
        moved = sum(before[shard] != after[shard] for shard in range(64))
        # The bound is the new server's part, and the moves that the others' shares cause.
        assert 64 // (count + 1) <= moved + 1
        assert moved <= 2 * 64 / (count + 1)
