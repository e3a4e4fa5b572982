"""The streaming engine answers as the in-process engine does: random graphs, random traces, bit for bit."""

from dataclasses import replace

from tests.parity.checking import check_seeds, run_together
from tests.parity.comparing import differences
from tests.parity.graphs import case_of
from tests.parity.keeping import FIXED, found, seeds_of_ci
from tests.parity.streaming import Machinery, Run
from tests.parity.telling import told

# Small cases have a job or two.
TOGETHER = 12


def test_what_differed_once_is_the_same_now(engines: Machinery) -> None:
    cases = list(found().values())
    for start in range(0, len(cases), TOGETHER):
        differing = run_together(engines, cases[start : start + TOGETHER])
        assert not differing, "\n\n".join(map(told, differing))


def test_random_graphs_give_the_same_answers(engines: Machinery) -> None:
    differing = check_seeds(engines, seeds_of_ci(), print)
    assert not differing, "\n\n".join(map(told, differing.values()))


def test_a_record_that_one_engine_lacks_is_seen(engines: Machinery) -> None:
    run = Run(engines, [case_of(FIXED[0])], "lacking")
    try:
        run.go()
        part = run.parts[0]
        assert differences(run) == []
        for name in {name for spec in part.case.derived for name in spec.pipelines[0].inputs}:
            if arrived := part.case.traces.get(name):
                left = arrived[: len(arrived) // 2]
                run.parts[0] = replace(part, case=replace(part.case, traces={**part.case.traces, name: left}))
                assert differences(run), name
    finally:
        run.stop()
