"""`kill -9` of each part while events flow: it comes back, nothing is lost and nothing counts twice."""

import os
import signal

import pandas as pd
import pytest

from caraway.client import Client
from tests.e2e.conftest import World

_OTHERS = pytest.mark.full(reason="a minute; what each part keeps over a kill has tests of its own")


@pytest.mark.parametrize(
    ("part", "piece"),
    [
        pytest.param("server", 1, marks=_OTHERS),
        pytest.param("kafka", 2, marks=_OTHERS),
        pytest.param("postgres", 3, marks=_OTHERS),
        ("engine", 4),
    ],
)
def test_values_agree_after_a_kill(world: World, part: str, piece: int) -> None:
    world.ensure(piece - 1)
    before = world.part(part)
    assert before.pid is not None
    pid = before.pid
    slices = 0

    def told(events: int, reached: pd.Timestamp) -> None:
        nonlocal slices
        slices += 1
        if slices == 1:
            os.kill(pid, signal.SIGKILL)

    world.replay(piece, on_slice=told, size=500)
    assert slices > 1, "the part was killed after the last event"
    agreement = world.agree(piece)
    assert agreement.disagreements == ()
    assert agreement.total >= 1000
    world.wait_until_running()
    after = world.part(part)
    assert after.restarts == before.restarts + 1
    assert after.pid != pid


def test_commits_go_on_after_all_that(world: World, client: Client) -> None:
    answer = client.commit("After the kills", world.flights.datasets, world.flights.featuresets, incremental=True)
    assert "job keep" in "".join(answer.json()["summary"])
