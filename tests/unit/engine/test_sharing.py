"""The assignment of jobs to engines."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from caraway.engine.sharing import assigned

jobs = st.sets(st.integers(0, 30).map("job {}".format))
members = st.sets(st.sampled_from("abcde"), min_size=1)
owners = st.dictionaries(st.integers(0, 40).map("job {}".format), st.sampled_from("abcdexyz"))


def spread(found: Counter[str]) -> int:
    return max(found.values()) - min(found.values())


@given(jobs, members, owners)
def test_all_have_as_many_and_no_more_is_moved_than_must_be(
    jobs: set[str], members: set[str], owners: dict[str, str]
) -> None:
    found = assigned(jobs, members, owners)
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
    once = assigned(jobs, members, owners)
    assert assigned(jobs, members, once) == once


@given(jobs, members, owners, st.data())
def test_the_engines_that_stay_keep_their_jobs(
    jobs: set[str], members: set[str], owners: dict[str, str], data: st.DataObject
) -> None:
    before = assigned(jobs, members, owners)
    gone = data.draw(st.sampled_from(sorted(members)))
    after = assigned(jobs, members - {gone}, before)
    assert all(after[job] == engine for job, engine in before.items() if engine != gone and after)


def test_without_engines_no_job_is_assigned() -> None:
    assert assigned({"a"}, (), {"a": "x"}) == {}
