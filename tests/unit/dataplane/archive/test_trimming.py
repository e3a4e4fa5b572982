"""Records leave a topic only if they are archived, old enough, and processed by all jobs that read the topic."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from caraway.dataplane.archive.trimming import processed, removable
from caraway.graph.plan.model import JobPlan
from tests.unit.dataplane.streams.plans import job, topic

OFFSETS = st.integers(0, 20)
PARTITIONS = st.dictionaries(st.integers(0, 2), OFFSETS, max_size=3)
TOPICS = st.dictionaries(st.sampled_from("abc"), PARTITIONS, max_size=3)


def reading(*topics: str) -> JobPlan:
    return job("/".join(topics), *map(topic, topics))


@given(archived=TOPICS, old=TOPICS, jobs=st.lists(st.tuples(st.sets(st.sampled_from("abc"), min_size=1), TOPICS)))
def test_no_record_is_removed_that_somebody_needs(
    archived: Mapping[str, Mapping[int, int]],
    old: Mapping[str, Mapping[int, int]],
    jobs: list[tuple[set[str], Mapping[str, Mapping[int, int]]]],
) -> None:
    running = [
        (reading(*sorted(read)), {"positions": {t: {str(p): o for p, o in found.items()} for t, found in at.items()}})
        for read, at in jobs
    ]
    found = removable(archived, old, processed(running))
    assert found.keys() == archived.keys()
    for name, ends in archived.items():
        assert found[name].keys() == ends.keys()
        for partition, offset in found[name].items():
            bounds = [ends[partition], old.get(name, {}).get(partition, 0)]
            bounds += [at.get(name, {}).get(partition, 0) for read, at in jobs if name in read]
            assert offset == min(bounds)


def test_a_job_without_figures_has_processed_nothing() -> None:
    known = (reading("a"), {"positions": {"a": {"0": 9}}})
    assert processed([known]) == {"a": {0: 9}}
    assert processed([known, (reading("a"), {})]) == {"a": {}}
    assert removable({"a": {0: 5}}, {"a": {0: 5}}, processed([known, (reading("a"), {})])) == {"a": {0: 0}}
