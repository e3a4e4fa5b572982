"""Reads of another server's shards, over gRPC."""

import time
from collections.abc import Iterator

import pytest

from caraway.errors import UnavailableError
from caraway.server.partitions.callers import Callers
from caraway.server.partitions.door import Door
from caraway.server.partitions.messages import Answer, Ask, Found, Moved, Refused

PASS, OTHER = b"pass", b"other"
ASK = Ask(1, 2, b"asset--1", [b"key", b"\xff\x00"], [3, -4], ["a", "b"])
# All that a value can be in stored form.
VALUES = [None, True, -(2**63), 2**63 - 1, 0.1, float("inf"), "ü", b"\xff", [1, [None]], {"k": {"v": 1.0}}]


def answer(ask: Ask) -> Answer:
    match ask.shard:
        case 1:
            return Found([VALUES, [ask.token, ask.asset, ask.keys, ask.at_us, ask.columns]], [True, False])
        case 2:
            return Moved("it has another owner")
        case _:
            return Refused("nobody knows this column", invalid=True)


@pytest.fixture
def door() -> Iterator[Door]:
    found = Door(lambda: [PASS], "127.0.0.1", 0)
    found.start(answer)
    yield found
    found.stop()


def test_answers_come_as_they_were_given(door: Door) -> None:
    callers = Callers(lambda: PASS)
    asks = [ASK, Ask(2, 0, b"", [], 5, []), Ask(3, 0, b"", [], 5, [])]
    for _ in range(2):
        assert callers.call(f"127.0.0.1:{door.port}", asks).result(20) == [answer(ask) for ask in asks]
    callers.close()


def test_who_is_of_no_deployment_is_refused(door: Door) -> None:
    callers = Callers(lambda: OTHER)
    with pytest.raises(UnavailableError, match="unauthenticated"):
        callers.call(f"127.0.0.1:{door.port}", [ASK]).result(20)
    callers.close()


def test_a_server_that_is_gone_is_told_and_found_again() -> None:
    first = Door(lambda: [PASS], "127.0.0.1", 0)
    first.start(answer)
    callers = Callers(lambda: PASS, timeout_s=20)
    address = f"127.0.0.1:{first.port}"
    assert callers.call(address, [ASK]).result(20)
    first.stop()
    with pytest.raises(UnavailableError, match=address):
        callers.call(address, [ASK]).result(20)
    again = Door(lambda: [PASS], "127.0.0.1", first.port)
    again.start(answer)
    # gRPC tries an address again after a while only, whatever channel asks for it.
    deadline = time.monotonic() + 60
    while (error := callers.call(address, [ASK]).exception(20)) is not None:
        assert isinstance(error, UnavailableError)
        assert time.monotonic() < deadline, error
        time.sleep(0.02)
    assert callers.call(address, [ASK]).result(20) == [answer(ASK)]
    callers.close()
    again.stop()


def test_an_address_that_is_taken_is_told(door: Door) -> None:
    with pytest.raises(UnavailableError, match=str(door.port)):
        Door(lambda: [PASS], "127.0.0.1", door.port)
