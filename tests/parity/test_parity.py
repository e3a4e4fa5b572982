"""The streaming engine answers as the in-process engine does: random graphs, random traces, bit for bit."""

from dataclasses import replace

import pytest

from tests.parity.checking import check_seeds
from tests.parity.comparing import differences
from tests.parity.graphs import case_of
from tests.parity.seeds import FIXED, batches
from tests.parity.streaming import Machinery, Run


@pytest.mark.parametrize("seeds", batches(), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_both_engines_give_the_same_answers(engines: Machinery, seeds: list[int]) -> None:
    found = check_seeds(engines, seeds, print)
    assert not found, "\n\n".join(found.values())


def test_a_record_that_one_engine_lacks_is_seen(engines: Machinery) -> None:
    run = Run(engines, [case_of(FIXED[0])], "lacking")
    try:
        run.go()
        part = run.parts[0]
        assert differences(run) == []
        for name, arrived in part.case.traces.items():
            for lost in ({arrival.number for arrival in arrived[:5]}, {arrival.number for arrival in arrived[-5:]}):
                left = tuple(arrival for arrival in arrived if arrival.number not in lost)
                run.parts[0] = replace(part, case=replace(part.case, traces={**part.case.traces, name: left}))
                assert differences(run), (name, lost)
    finally:
        run.stop()
