"""Tests of the counts of extractions."""

from caraway.dataplane.archive.served_metrics import MAX_COMBINATIONS, MAX_WORKFLOWS, Extractions


def counts(of: Extractions) -> dict[tuple[str, str, str], float]:
    _, family = of.collect()
    return {(s.labels["featureset"], s.labels["feature"], s.labels["workflow"]): s.value for s in family.samples}


def test_queries_count_for_each_of_their_features() -> None:
    counted = Extractions()
    counted.count(("A.x", "A.y"), "default", 3, 0.002)
    counted.count(("A.y",), "risk", 2, 0.002)
    counted.count(("A.y",), "default", 1, 0.002)
    assert counts(counted) == {("A", "x", "default"): 3, ("A", "y", "default"): 4, ("A", "y", "risk"): 2}


def test_neither_workflows_nor_combinations_fill_the_memory() -> None:
    counted = Extractions()
    names = {counted.workflow(f"w{number}") for number in range(2 * MAX_WORKFLOWS)}
    assert len(names) == MAX_WORKFLOWS + 1
    assert counted.workflow(None) == "default"
    for number in range(MAX_COMBINATIONS + 10):
        counted.count(("A.x",) * (number + 1), "default", 1, 0.002)
    assert len(counted._rows) <= MAX_COMBINATIONS
    assert counts(counted) == {("A", "x", "default"): sum(range(1, MAX_COMBINATIONS + 11))}
