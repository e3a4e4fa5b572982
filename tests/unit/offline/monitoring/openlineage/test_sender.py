"""Events come to a real receiver, in order; who has one never waits; and nothing else is asked."""

import time
from collections.abc import Callable, Iterator

import httpx2
import orjson
import pytest
import structlog

from caraway.offline.monitoring.openlineage import sender as module
from caraway.offline.monitoring.openlineage.sender import DROPPED, REFUSED, SENT, EventSender
from tests.services.lineage_receiver import Receiver
from tests.timeouts import deadline_in, scaled


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        yield running


@pytest.fixture
def sender(receiver: Receiver) -> Iterator[EventSender]:
    made = EventSender(receiver.url, "key", retry_s=(0.01, 0.05))
    yield made
    receiver.answering.set()
    made.stop(scaled(10))


def until(holds: Callable[[], bool]) -> None:
    deadline = deadline_in(20)
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def numbers(receiver: Receiver) -> list[int]:
    return [event["number"] for event in receiver.events]


def put(sender: EventSender, *these: int) -> None:
    for number in these:
        sender.put(orjson.dumps({"number": number}))


def test_events_come_in_order_with_the_token(receiver: Receiver, sender: EventSender) -> None:
    before = SENT._value.get()
    sender.start()
    put(sender, *range(20))
    until(lambda: numbers(receiver) == [*range(20)])
    assert {request["path"] for request in receiver.requests} == {"/api/v1/lineage"}
    assert {request["Authorization"] for request in receiver.requests} == {"Bearer key"}
    until(lambda: SENT._value.get() == before + 20)


def test_a_receiver_that_is_away_gets_all_events_later(receiver: Receiver, sender: EventSender) -> None:
    receiver.codes = [503, 500, 429, 408]
    put(sender, 1, 2)
    sender.start()
    until(lambda: numbers(receiver) == [1, 2])
    assert len(receiver.requests) == 6


@pytest.mark.parametrize("code", [400, 404, 422, 302])
def test_an_event_that_is_refused_is_left_out(receiver: Receiver, sender: EventSender, code: int) -> None:
    before = REFUSED._value.get()
    receiver.codes = [code]
    with Receiver() as other:
        receiver.location = other.url
        sender.start()
        put(sender, 1, 2)
        until(lambda: numbers(receiver) == [2])
        # A redirect isn't followed.
        assert other.requests == []
    assert REFUSED._value.get() == before + 1


def test_who_has_an_event_never_waits_and_the_queue_is_bounded(
    receiver: Receiver, sender: EventSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 5)
    before = DROPPED._value.get()
    receiver.answering.clear()
    sender.start()
    put(sender, *range(50))
    assert sender.waiting <= 5
    assert DROPPED._value.get() >= before + 44
    receiver.answering.set()
    until(lambda: sender.waiting == 0)
    assert numbers(receiver)[:1] == [0]
    # Those that have been sent make room again.
    put(sender, 99)
    until(lambda: numbers(receiver)[-1:] == [99])


def test_the_queue_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 100)
    sender = EventSender("http://127.0.0.1:9/lineage")
    for _ in range(4):
        sender.put(b"x" * 40)
    assert sender.waiting == 2


def test_neither_address_nor_token_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError(f"no way to {request.url}")

    sender = EventSender(
        "http://user:hunter2@nowhere/lineage", "hunter3", transport=httpx2.MockTransport(fail), retry_s=(0.01, 0.01)
    )
    with structlog.testing.capture_logs() as logs:
        put(sender, 1)
        sender.start()
        until(lambda: "ConnectError" in caplog.text)
        sender.stop(scaled(10))
    assert "hunter" not in caplog.text
    assert "hunter" not in repr(logs)
