"""Group commit of small log requests: which records leave together, when, and what each request learns."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future

import pytest

from caraway.dataplane.ingest.gathering import MAX_BYTES, GatheringWriter
from caraway.dataplane.ingest.requests import HEADER
from caraway.dataplane.topics.blocks import MAX_RECORDS, block_of, split
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.dataplane.topics.producer import TopicItem
from caraway.errors import UnavailableError

TOPIC = "events"
# Longer than any test may take: a record that waits for that time fails its test.
NEVER_S = 600.0


class Broker:
    """A writer whose messages are durable when the test says so."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, Sequence[TopicItem]]] = []
        self.futures: list[Future[None]] = []
        self.came = asyncio.Event()

    def write(self, topic: str, items: Sequence[TopicItem]) -> "Future[None]":
        self.messages.append((topic, items))
        self.futures.append(Future())
        self.came.set()
        return self.futures[-1]

    async def sent(self) -> tuple[str, Sequence[TopicItem]]:
        """Wait for the next message."""
        await self.came.wait()
        self.came.clear()
        return self.messages[-1]


def record(number: int, size: int = 1) -> bytes:
    """Return a record: an array of one text, as short as MessagePack has it."""
    return b"\x91" + (bytes([0xA1, 48 + number % 10]) if size == 1 else b"\xda" + size.to_bytes(2) + b"x" * size)


def item(number: int, key: str | None = None) -> TopicItem:
    return None, record(number), None if key is None else {HEADER: f"0:Events:{key}".encode()}


def run(test: Callable[[Broker, GatheringWriter], Awaitable[None]], longest_s: float = NEVER_S) -> None:
    async def inside() -> None:
        broker = Broker()
        await test(broker, GatheringWriter(broker, longest_s))

    asyncio.run(asyncio.wait_for(inside(), 60.0))


def on_a_loop(longest_s: float = NEVER_S) -> Callable[[Callable[..., Awaitable[None]]], Callable[[], None]]:
    """Make a test of what runs on a loop, with a broker and a writer."""
    return lambda test: lambda: run(test, longest_s)


@on_a_loop()
async def test_a_record_leaves_at_once_and_those_that_come_meanwhile_leave_together(
    broker: Broker, writer: GatheringWriter
) -> None:
    first = writer.write(TOPIC, [item(0)])
    assert await broker.sent() == (TOPIC, [item(0)])
    later = [writer.write(TOPIC, [item(number)]) for number in (1, 2, 3)]
    elsewhere = writer.write("other", [item(4)])
    assert await broker.sent() == ("other", [item(4)])
    broker.futures[0].set_result(None)
    await first
    assert not any(future.done() for future in later)
    topic, [(key, value, headers)] = await broker.sent()
    assert (topic, key, headers) == (TOPIC, None, None)
    assert split(value) == [record(number) for number in (1, 2, 3)]
    broker.futures[2].set_result(None)
    await asyncio.gather(*later)
    broker.futures[1].set_result(None)
    await elsewhere
    # Nothing is under way any more, so the next record doesn't wait.
    last = writer.write(TOPIC, [item(5)])
    assert await broker.sent() == (TOPIC, [item(5)])
    broker.futures[3].set_result(None)
    await last


@on_a_loop()
async def test_records_that_come_in_one_turn_leave_together(broker: Broker, writer: GatheringWriter) -> None:
    futures = [writer.write(TOPIC, [item(number)]) for number in range(2)]
    _, [(_, value, _)] = await broker.sent()
    assert split(value) == [record(0), record(1)]
    broker.futures[0].set_result(None)
    await asyncio.gather(*futures)


@on_a_loop()
async def test_marks_of_several_requests_stand_beside_each_other(broker: Broker, writer: GatheringWriter) -> None:
    futures = [writer.write(TOPIC, [item(number, key)]) for number, key in enumerate(("a", None, "b"))]
    _, [(_, value, headers)] = await broker.sent()
    assert split(value) == [record(number) for number in range(3)]
    assert headers == [(HEADER, b"0:Events:a"), (HEADER, b"0:Events:b")]
    broker.futures[0].set_result(None)
    await asyncio.gather(*futures)


@on_a_loop(0.001)
async def test_a_broker_that_is_silent_holds_up_no_further_record(broker: Broker, writer: GatheringWriter) -> None:
    writer.write(TOPIC, [item(0)])
    await broker.sent()
    late = writer.write(TOPIC, [item(1)])
    assert await broker.sent() == (TOPIC, [item(1)])
    broker.futures[1].set_result(None)
    await late


@on_a_loop()
async def test_all_requests_of_a_message_that_fails_learn_why(broker: Broker, writer: GatheringWriter) -> None:
    futures = [writer.write(TOPIC, [item(number)]) for number in range(3)]
    await broker.sent()
    futures[1].cancel()
    broker.futures[0].set_exception(UnavailableError("Kafka is away"))
    for future in (futures[0], futures[2]):
        with pytest.raises(UnavailableError, match="Kafka is away"):
            await future
    # The failure is that of its own message only.
    after = writer.write(TOPIC, [item(3)])
    await broker.sent()
    broker.futures[1].set_result(None)
    await after


def test_a_write_may_outlive_the_loop_of_a_server_that_ends(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()

    async def ending() -> None:
        GatheringWriter(broker).write(TOPIC, [item(0)])
        await broker.sent()

    asyncio.run(ending())
    broker.futures[0].set_result(None)
    assert not caplog.records


def test_a_write_leaves_nothing_to_the_garbage_collector() -> None:
    async def test(broker: Broker, writer: GatheringWriter) -> None:
        future = writer.write(TOPIC, [item(0)])
        await broker.sent()
        kept = weakref.ref(broker.futures[0])
        broker.futures.pop().set_result(None)
        await future
        assert kept() is None

    gc.collect()
    gc.disable()
    try:
        run(test)
    finally:
        gc.enable()


@on_a_loop()
async def test_a_message_has_bounds(broker: Broker, writer: GatheringWriter) -> None:
    writer.write(TOPIC, [item(0)])
    await broker.sent()
    for number in range(MAX_RECORDS + 1):
        writer.write(TOPIC, [item(number)])
    assert [len(split(value)) for _, [(_, value, _)] in broker.messages[1:]] == [MAX_RECORDS]
    half = MAX_BYTES // 2
    writer.write(TOPIC, [(None, record(0, half), None)])
    writer.write(TOPIC, [(None, record(0, half), None)])
    assert [len(split(value)) for _, [(_, value, _)] in broker.messages[2:]] == [2]
    large = (None, record(0, MAX_BYTES), None)
    writer.write(TOPIC, [large])
    assert broker.messages[3:] == [(TOPIC, [large])]


@pytest.mark.parametrize(
    ("topic", "items"),
    [
        (TOPIC, [(b"key", record(0), None)]),
        (TOPIC, [item(0), item(1)]),
        (TOPIC, [(None, block_of([record(0), record(1)]), None)]),
        (TOPIC, [(None, record(0), {"traceparent": b"00-1-2-01"})]),
        (DEAD_LETTERS, [(None, b"{}", None)]),
    ],
    ids=["key", "several", "block", "traced", "dead letter"],
)
def test_what_cant_share_a_message_is_passed_on(topic: str, items: list[TopicItem]) -> None:
    async def test(broker: Broker, writer: GatheringWriter) -> None:
        writer.write(TOPIC, [item(9)])
        await broker.sent()
        futures = [writer.write(topic, items) for _ in range(2)]
        assert broker.messages[1:] == [(topic, items)] * 2
        for future in broker.futures[1:]:
            future.set_result(None)
        await asyncio.gather(*futures)

    run(test)
