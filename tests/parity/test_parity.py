"""The streaming engine answers as the in-process engine does: random graphs, random traces, bit for bit."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

import pytest

from tests.parity.checking import check_seeds, run_together
from tests.parity.comparing import differences
from tests.parity.graphs import Case, case_of
from tests.parity.keeping import FIXED, found, seeds_of_ci
from tests.parity.streaming import Machinery, Run
from tests.parity.telling import told

# Small cases have a job or two.
TOGETHER = 12
#: Cases that still differ, and why.
OPEN: dict[str, str] = {}
#: The case in which the engines have ties in different orders.
TIED = "ties_of_a_join_of_tables"


@pytest.mark.full(reason="cases that differed once; each has a test of its own where the fault was")
def test_what_differed_once_is_the_same_now(engines: Machinery) -> None:
    cases = found()
    names = {id(case): name for name, case in cases.items()}
    differing: dict[str, str] = {}
    undefined: dict[int, int] = {}
    for together in batched(cases.values(), TOGETHER):
        outcome = run_together(engines, together)
        differing |= {names[id(d.part.case)]: told(d) for d in outcome.differing}
        undefined |= outcome.undefined
    unknown = [text for name, text in differing.items() if name not in OPEN]
    assert not unknown, "\n\n".join(unknown)
    if differing:
        pytest.xfail("; ".join(OPEN[name] for name in differing))
    # In the one case the engines answer differently, and each is right; in the others no order is needed.
    assert set(undefined) == {cases[TIED].seed}


def test_random_graphs_give_the_same_answers(engines: Machinery) -> None:
    differing = check_seeds(engines, seeds_of_ci(), print).differing
    assert not differing, "\n\n".join(map(told, differing.values()))


@pytest.mark.full(reason="a test of this test: that it can fail")
def test_a_record_that_one_engine_lacks_is_seen(engines: Machinery) -> None:
    run = Run(engines, [case_of(FIXED[0])], "lacking")
    try:
        run.go()
        part = run.parts[0]
        assert differences(run) == []
        seen = []
        for name in {name for spec in part.case.derived for name in spec.pipelines[0].inputs}:
            if arrived := part.case.traces.get(name):
                left = arrived[: len(arrived) // 2]
                run.parts[0] = replace(part, case=replace(part.case, traces={**part.case.traces, name: left}))
                seen += differences(run)
        assert seen
    finally:
        run.stop()


def batched(cases: Iterable[Case], size: int) -> Iterator[list[Case]]:
    left = iter(cases)
    while batch := list(islice(left, size)):
        yield batch
