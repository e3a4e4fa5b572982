"""The fuzzer tells a server that keeps its callers waiting from a machine that runs other programs."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.fuzz.healthy import queue, ready
from tests.fuzz.run import Findings
from tests.unit.process.children.waiting import eventually

QUERY = (100.0, 0.4)


@pytest.mark.parametrize(
    ("noise", "waiting", "faults"),
    [
        ([], [], 1),
        ([(100.0, 0.01)], [(100.02, 0.01), (100.3, 0.02)], 1),
        ([(100.1, 0.2)], [], 0),
        ([], [(100.1, 0.1), (100.2, 0.1)], 0),
        ([(99.0, 0.3)], [(99.9, 0.3), (100.41, 0.3)], 1),
    ],
    ids=["quiet", "a-little-noise", "machine-was-busy", "server-did-not-run", "at-another-time"],
)
def test_waits_for_the_machine_are_no_faults(
    noise: list[tuple[float, float]], waiting: list[tuple[float, float]], faults: int
) -> None:
    found = Findings(waits=[QUERY], noise=noise, queue=waiting)
    assert len(found.faults(waits=True)) == faults


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how long a thread was ready")
def test_a_thread_that_shares_a_core_is_ready_and_does_not_run() -> None:
    core = {min(os.sched_getaffinity(0))}
    with busy(core) as one, busy(core) as other:
        waited = queue(one)
        total = 0.0

        def is_seen() -> bool:
            nonlocal total
            total += waited()
            return total > 0.1

        eventually(is_seen)
        assert ready(other)


@contextmanager
def busy(core: set[int]) -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        os.sched_setaffinity(process.pid, core)
        yield process.pid
    finally:
        process.kill()
        process.wait()
