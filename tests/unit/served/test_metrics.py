"""Tests of the counts of extractions."""

from caraway.served.metrics import MAX_COMBINATIONS, MAX_WORKFLOWS, FeatureCounts


def counts(of: FeatureCounts) -> dict[tuple[str, str, str], float]:
    (family,) = of.collect()
    return {(s.labels["featureset"], s.labels["feature"], s.labels["workflow"]): s.value for s in family.samples}


def test_queries_count_for_each_of_their_features() -> None:
    counted = FeatureCounts()
    counted.add(("A.x", "A.y"), "default", 3)
    counted.add(("A.y",), "risk", 2)
    counted.add(("A.y",), "default", 1)
    assert counts(counted) == {("A", "x", "default"): 3, ("A", "y", "default"): 4, ("A", "y", "risk"): 2}


def test_neither_workflows_nor_combinations_fill_the_memory() -> None:
    counted = FeatureCounts()
    names = {counted.workflow(f"w{number}") for number in range(2 * MAX_WORKFLOWS)}
    assert len(names) == MAX_WORKFLOWS + 1
    assert counted.workflow(None) == "default"
    for number in range(MAX_COMBINATIONS + 10):
        counted.add(("A.x",) * (number + 1), "default", 1)
    assert len(counted._rows) <= MAX_COMBINATIONS
    assert counts(counted) == {("A", "x", "default"): sum(range(1, MAX_COMBINATIONS + 11))}
