"""Random expectations: what plain Python counts is what the checks of the quality process count, row by row."""

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from caraway.compute.expectations.counts import by_window
from caraway.compute.expectations.suite import CompiledSuite
from caraway.graph.plan.model import CheckPlan
from caraway.graph.plan.planner import plan_graph
from tests.effort import examples
from tests.parity.counting import OnTopic, counted_plainly
from tests.parity.graphs import Case, case_of, oracle
from tests.parity.plain_checks import outcome
from tests.parity.suites import expected_of

pytestmark = pytest.mark.filterwarnings("ignore:aggregate", "ignore:select")

SEEDS = range(1, 1 + examples(40))


def checks_of(case: Case) -> dict[str, CheckPlan]:
    return {check.dataset.name: check for check in plan_graph(expected_of(case).graph).checks}


KINDS: dict[str, Callable[[CheckPlan], bool]] = {
    "rows that repeat": lambda check: check.repeats,
    "rows that don't repeat": lambda check: not check.repeats,
    "rows of an aggregate": lambda check: check.topic.name.endswith(".rows"),
    "a condition": lambda check: any("row_condition" in item.arguments for item in check.suite.expectations),
}


def test_the_graphs_have_all_kinds_of_expectations_and_datasets() -> None:
    missing = {
        "expect_column_values_to_not_be_null",
        "expect_column_values_to_be_between",
        "expect_column_values_to_be_in_set",
        "expect_column_values_to_match_regex",
        "expect_column_pair_values_to_be_equal",
        "expect_column_pair_values_a_to_be_greater_than_b",
    } | set(KINDS)
    # A graph takes a fifth of a second, so that none is drawn when nothing is missing any more.
    for seed in range(1, 60):
        for check in checks_of(case_of(seed)).values():
            missing -= {item.name for item in check.suite.expectations}
            missing -= {kind for kind, has in KINDS.items() if has(check)}
        if not missing:
            return
    pytest.fail(f"no graph has {missing}")


@pytest.mark.parametrize("seed", SEEDS)
def test_plain_python_counts_as_the_checks_do(seed: int) -> None:
    case = case_of(seed)
    engine = oracle(case)
    for name, check in checks_of(case).items():
        rows = engine.rows(name)
        suite = CompiledSuite(check.suite, {field.name: field.dtype for field in check.dataset.fields})
        checked = suite.check({column: [row[column] for row in rows] for column in suite.columns}, len(rows))
        for item, one in zip(check.suite.expectations, checked, strict=True):
            outcomes = [outcome(item.name, json.loads(item.arguments), row) for row in rows]
            assert one.evaluated.tolist() == [each is not None for each in outcomes], item
            assert one.failed.tolist() == [each is False for each in outcomes], item
        assert not rows or by_window(checked, np.zeros(len(rows), np.int64)) is not None


def test_a_record_that_comes_again_counts_once() -> None:
    case, check = next(
        (case, check)
        for case in map(case_of, range(1, 60))
        for check in checks_of(case).values()
        if not check.repeats and check.suite.expectations and not check.topic.schema.keys
    )
    columns = [column.name for column in check.topic.schema.columns]
    arrival = next(iter(case.traces[check.dataset.name]))
    row = [arrival.row[column] for column in columns]
    sent = OnTopic(0, b"one", b"1", arrival.time_us, row)
    item = replace(
        check.suite.expectations[0],
        name="expect_column_values_to_not_be_null",
        arguments=json.dumps({"column": columns[0]}),
    )
    repeating = replace(check, repeats=True, suite=replace(check.suite, expectations=(item,)))

    def counted(*records: OnTopic) -> int:
        return counted_plainly(repeating, records)[0][0]

    later = replace(sent, rev=b"2")
    assert counted(sent, sent) == counted(sent, later) == counted(later, sent) == 1
    # A record without a key may come again on any partition.
    assert counted(sent, replace(sent, partition=1)) == 1
    assert counted(sent, replace(sent, identity=b"two")) == 2
    assert counted(sent, replace(later, time_us=arrival.time_us + 1)) == 2
    assert counted(sent, replace(later, row=None), replace(sent, rev=b"3")) == 2
    assert counted(sent, replace(sent, row=None)) == 1
