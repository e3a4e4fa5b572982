"""The demo's connection waits for a server that has too much to do, for a bounded time."""

import pytest

from caraway.demo.http import LONGEST_WAIT_SECONDS, PAUSE_SECONDS, DemoConnection
from caraway.errors import RemoteError
from tests.unit.client.stub import Stub, running

BEHIND = (429, {"err_msg": "the index of Counts is behind", "code": "behind"})


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def connect(stub: Stub, clock: Clock) -> DemoConnection:
    return DemoConnection(stub.url, clock=clock, sleep=clock.sleep)


def test_a_request_is_sent_again_as_the_server_wants() -> None:
    clock = Clock()
    with running() as stub, connect(stub, clock) as connection:
        stub.answers = [BEHIND, (*BEHIND, {"Retry-After": "5"}), (200, {"accepted": 1})]
        assert connection.post("/log", {"data": []}) == {"accepted": 1}
        assert clock.now == PAUSE_SECONDS + 5
        assert [asked.body for asked in stub.asked] == [b'{"data":[]}'] * 3


def test_the_wait_is_bounded_and_other_refusals_end_it() -> None:
    clock = Clock()
    with running() as stub, connect(stub, clock) as connection:
        stub.answers = [(*BEHIND, {"Retry-After": "50"})]
        with pytest.raises(RemoteError, match="429"):
            connection.post("/log", {})
        assert LONGEST_WAIT_SECONDS - 50 < clock.now <= LONGEST_WAIT_SECONDS
        stub.answers, stub.asked = [(404, {})], []
        with pytest.raises(RemoteError, match="404"):
            connection.post("/log", {})
        assert len(stub.asked) == 1
