"""The reader of PubSub over Google's library: each message makes one row, however often it is delivered."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, cast

import grpc
import msgspec
import orjson
import pytest
from google.pubsub_v1 import PublisherClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caraway.dataplane.sources.pubsub import connection
from caraway.dataplane.sources.pubsub import reader as module
from caraway.dataplane.sources.pubsub.reader import PubSubReader, forget
from caraway.dataplane.sources.pubsub.remembered import LONGEST_US, Remembered
from caraway.dataplane.sources.reader import SourceBatch
from caraway.dataplane.sources.worker import SourceWorker
from caraway.errors import UnavailableError
from caraway.graph.connectors import PubSubConnector
from caraway.graph.sources import Cdc
from caraway.graph.systems import PubSubSystem
from tests.effort import examples
from tests.integration.sources.contexts import Saved, context_of
from tests.integration.sources.pubsub_emulator import running_emulator
from tests.integration.sources.pubsub_server import PubSubServer, running
from tests.timeouts import deadline_in
from tests.unit.dataplane.sources.test_sources import SOURCE, World, plan_of, topic_of
from tests.unit.leased import KilledError

SYSTEM = PubSubSystem(name="ps", project_id="bees", service_account_key="{}")
CONNECTOR = PubSubConnector(system=SYSTEM, topic="raw")
TOPIC = "projects/bees/topics/raw"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUIET_S", 0.03)
    monkeypatch.setattr(module, "GATHERING_S", 0.0)


def reader_of(address: str) -> PubSubReader:
    return PubSubReader(CONNECTOR, context_of(CONNECTOR, endpoints={"ps": address}, name="numbers.v1.5f"))


def kill(reader: PubSubReader) -> None:
    """End a reader as a crash does: nothing is acknowledged or given back any more."""
    reader._extending.stop(0)
    reader._connection.close()
    reader._closed = True
    for pool in (reader._pull_pool, reader._ack_pool):
        pool.shutdown(wait=True, cancel_futures=True)


def numbers(batch: SourceBatch) -> list[int]:
    return [batch.rows.row(n)["n"] for n in range(len(batch.rows))]  # type: ignore[index]


def poll(reader: PubSubReader, rows: int = 10_000) -> SourceBatch | None:
    return reader.poll(rows=rows, size=1 << 22, timeout_s=0.05)


def some(reader: PubSubReader, rows: int = 10_000) -> SourceBatch:
    """Poll until messages come, which takes as long as the machine takes."""
    deadline = deadline_in(30)
    while (batch := poll(reader, rows)) is None or not len(batch.rows):
        assert time.monotonic() < deadline
    return batch


def read(reader: PubSubReader, saved: Saved, count: int) -> list[int]:
    """Read so many messages, and acknowledge them."""
    found: list[int] = []
    deadline = deadline_in(30)
    while len(found) < count:
        assert time.monotonic() < deadline
        batch = poll(reader)
        if batch is not None:
            found += numbers(batch)
            saved.save(batch)
            reader.acknowledge(batch.position)
    return found


def rest(reader: PubSubReader, saved: Saved, server: PubSubServer | None = None) -> list[int]:
    """Read until nothing comes, all acknowledgements are confirmed and forgotten, and the server has no message left.

    A server delivers messages when it likes, so that none has come for a moment doesn't tell that none will. Messages
    that the server sent to a reader at the moment at which it was killed come after their deadline only.
    """
    found: list[int] = []
    deadline = deadline_in(30)
    while (
        (batch := poll(reader)) is not None
        or reader.lag() != 0
        or reader._acks
        or (server is not None and (server.left() or saved.items))
    ):
        assert time.monotonic() < deadline
        if batch is None and reader.lag() == 0 and not reader._acks and server is not None and server.left():
            server.expire()
        if batch is not None:
            found += numbers(batch)
            saved.save(batch)
            reader.acknowledge(batch.position)
    return found


@contextmanager
def subscribed(**more: Any) -> Iterator[tuple[PubSubServer, PubSubReader, Saved]]:
    """Yield a server with a topic, and a reader that has made its subscription."""
    with running(PubSubServer(topics={TOPIC}, **more)) as server:
        reader, saved = reader_of(server.address), Saved()
        reader.seek({}, {})
        rest(reader, saved)
        yield server, reader, saved


def publish(server: PubSubServer, count: int) -> None:
    """Publish messages, which are then delivered together."""
    with server.at_once():
        for n in range(count):
            server.publish(TOPIC, orjson.dumps({"n": n}))


def test_messages_are_read_acknowledged_and_forgotten() -> None:
    with running(PubSubServer(topics={TOPIC})) as server:
        reader, saved = reader_of(server.address), Saved()
        saved.position = reader.seek({}, {})
        # The name is saved before the subscription is made, so that no crash leaves one that nobody knows.
        assert server.subscriptions == {}
        assert rest(reader, saved) == []
        (name,) = server.subscriptions
        assert name == f"projects/bees/subscriptions/{saved.position['subscription']}"
        assert "caraway-numbers.v1.5f-" in name
        made = server.subscriptions[name]
        assert made.enable_message_ordering
        assert made.enable_exactly_once_delivery
        assert dict(made.labels) == {"made-by": "caraway", "dataset": "numbers"}
        with server.at_once():
            for n in range(23):
                server.publish(TOPIC, orjson.dumps({"n": n}))
            server.publish(TOPIC, b"{")
        batch = some(reader, 3)
        assert numbers(batch) == [0, 1, 2]
        assert batch.origin(0)["offset"] == batch.mark(0)
        # Nothing is acknowledged before the worker says that it is durable.
        assert "Acknowledge" not in server.asked
        assert reader.lag() is None
        saved.save(batch)
        reader.acknowledge(batch.position)
        found: list[int] = []
        faults: list[str] = []
        while len(found) + len(faults) < 21:
            batch = some(reader)
            found += [batch.rows.row(n)["n"] for n in range(len(batch.rows)) if n not in batch.rows.faults]  # type: ignore[index]
            faults += batch.rows.faults.values()
            saved.save(batch)
            reader.acknowledge(batch.position)
        assert found == list(range(3, 23))
        assert "isn't JSON" in faults[0]
        assert rest(reader, saved, server) == []
        assert (server.left(), saved.items, reader.lag()) == (0, {}, 0)
        assert reader.idle_at() is None  # Messages of a process that crashed may still come.
        reader.close()
        reader.close()


def test_messages_that_come_again_make_no_rows() -> None:
    with subscribed(page=100) as (server, reader, saved):
        publish(server, 10)
        batch = some(reader)
        assert numbers(batch) == list(range(10))
        # The deadline passes before the batch is durable: the acknowledgement fails, and the messages come again.
        server.expire()
        saved.save(batch)
        reader.acknowledge(batch.position)
        assert rest(reader, saved, server) == []
        assert server.left() == 0
        assert saved.items == {}
        reader.close()


def test_messages_of_a_crash_between_checkpoint_and_acknowledgement_make_no_rows() -> None:
    with subscribed(page=100) as (server, reader, saved):
        with server.at_once():
            for n in range(10):
                server.publish(TOPIC, orjson.dumps({"n": n}), message_id=f"no number {n}")
        batch = some(reader)
        saved.save(batch)
        kill(reader)
        again = reader_of(server.address)
        assert again.seek(saved.position, saved.items) == saved.position
        assert not any(again.is_ahead(batch.mark(n)) for n in range(10))
        server.expire()
        server.publish(TOPIC, orjson.dumps({"n": 10}))
        assert rest(again, saved, server) == [10]
        assert server.left() == 0
        assert saved.items == {}
        again.close()


def test_marks_that_a_crash_left_are_remembered_instead_of_waited_for() -> None:
    with subscribed(page=100) as (server, reader, saved):
        server.publish(TOPIC, orjson.dumps({"n": 1}))
        batch = some(reader)
        mark = batch.mark(0)
        kill(reader)
        again = reader_of(server.address)
        again.seek(saved.position, saved.items)
        assert again.is_ahead(mark)
        found = poll(again)
        assert found is not None
        assert len(found.rows) == 0
        saved.save(found)
        assert not again.is_ahead(mark)
        assert any(mark in value.decode(errors="replace") for value in saved.items.values())
        kill(again)
        server.expire()
        last = reader_of(server.address)
        last.seek(saved.position, saved.items)
        assert rest(last, saved, server) == []
        assert (server.left(), saved.items) == (0, {})
        last.close()


def test_held_messages_are_given_back_when_a_reader_closes() -> None:
    with subscribed(page=100) as (server, reader, saved):
        publish(server, 10)
        batch = some(reader, 4)
        saved.save(batch)
        reader.acknowledge(batch.position)
        reader.close()
        again = reader_of(server.address)
        again.seek(saved.position, saved.items)
        # No deadline has passed.
        assert rest(again, saved) == list(range(4, 10))
        again.close()


def test_deadlines_of_messages_are_extended_while_they_wait() -> None:
    with subscribed() as (server, reader, saved):
        server.publish(TOPIC, orjson.dumps({"n": 1}))
        batch = some(reader)
        for _ in range(5):
            server.now += 50
            reader._extend()
        reader.acknowledge(batch.position)
        saved.save(batch)
        assert rest(reader, saved, server) == []
        assert server.left() == 0
        reader.close()


def test_what_is_missing_says_what_to_do() -> None:
    with running(PubSubServer()) as server:
        reader = reader_of(server.address)
        with pytest.raises(UnavailableError, match=r"PubSub ps: topic raw of project bees.*is the topic there"):
            reader.peek(1)
        server.topics.add(TOPIC)
        assert len(reader.peek(1).rows) == 0
        assert server.subscriptions == {}
        saved = Saved()
        reader.seek({}, {})
        server.refused = {"CreateSubscription": grpc.StatusCode.PERMISSION_DENIED}
        with pytest.raises(UnavailableError, match=r"gcloud pubsub subscriptions create caraway-numbers.v1.5f-\w+ "):
            poll(reader)
        server.refused = {}
        rest(reader, saved)
        server.refused = {"Pull": grpc.StatusCode.UNAUTHENTICATED}
        with pytest.raises(UnavailableError, match="service account key"):
            [poll(reader) for _ in range(9)]
        server.refused = {}
        reader.close()
        # A subscription that was deleted isn't made again, because messages are lost.
        server.subscriptions.clear()
        again = reader_of(server.address)
        again.seek(saved.position, {})
        with pytest.raises(UnavailableError, match="was deleted"):
            poll(again)
        again.close()


def test_a_key_that_is_none_is_an_error_without_the_key() -> None:
    context = context_of(CONNECTOR, resolve=lambda _: '{"private_key": "hidden", "client_email": "a"}')
    with pytest.raises(UnavailableError, match="service account key isn't the JSON of a key") as caught:
        PubSubReader(CONNECTOR, context)
    assert "hidden" not in str(caught.value)


def test_an_answer_that_is_cut_off_is_an_error_and_its_messages_come_again() -> None:
    saved = Saved()
    kept: PubSubServer
    with running(PubSubServer(topics={TOPIC})) as kept:
        reader = reader_of(kept.address)
        reader.seek({}, {})
        rest(reader, saved)
        kept.publish(TOPIC, orjson.dumps({"n": 1}))
        reader._pull_if_room()
    # The server is gone before the reader has looked at the answer; then it comes back.
    with pytest.raises(UnavailableError, match="PubSub ps"):  # noqa: PT012 (the first polls may not see it)
        while (batch := poll(reader)) is None or not len(batch.rows) or poll(reader) is None:
            pass
    reader.close()
    with running(kept):
        kept.expire()
        again = reader_of(kept.address)
        again.seek(saved.position, saved.items)
        assert rest(again, saved) == [1]
        again.close()


def test_a_source_that_is_gone_has_no_subscription() -> None:
    with subscribed() as (server, reader, saved):
        reader.close()
        for _ in range(2):
            forget(CONNECTOR, context_of(CONNECTOR, endpoints={"ps": server.address}), saved.position)
        assert server.subscriptions == {}
        forget(CONNECTOR, context_of(CONNECTOR, endpoints={"ps": server.address}), {})


@given(lengths=st.lists(st.integers(1, 200_000), max_size=20), count=st.integers(0, 2_500))
def test_acknowledgements_fit_requests(lengths: list[int], count: int) -> None:
    ids = [*("a" * length for length in lengths), *map(str, range(count))]
    requests = list(connection.requests_of(ids))
    assert list(chain(*requests)) == ids
    assert all(0 < len(each) <= connection.IDS for each in requests)
    assert all(sum(map(len, each)) <= connection.ID_CHARACTERS for each in requests)


@dataclass(frozen=True)
class Step:
    """Messages are published, the worker runs once, and then the clock of PubSub or a message jumps."""

    published: int
    seconds: float
    then: str
    number: int


@dataclass(frozen=True)
class Life:
    """The life of a server that reads: it is killed at its n-th write, or after its steps."""

    writes: int
    steps: list[Step]
    stops: bool


STEPS = st.builds(
    Step,
    st.integers(0, 6),
    st.sampled_from([0.1, 1.1]),
    st.sampled_from(["", "", "expire", "repeat"]),
    st.integers(0, 99),
)
LIVES = st.builds(Life, st.integers(0, 12), st.lists(STEPS, min_size=1, max_size=6), st.booleans())


@pytest.mark.parametrize("exactly_once", [True, False])
@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lives=st.lists(LIVES, max_size=3), repeated=st.lists(st.integers(0, 99), max_size=2))
def test_any_crashes_and_redeliveries_make_one_row_of_each_message(
    exactly_once: bool, lives: list[Life], repeated: list[int]
) -> None:
    """A real worker with topics and checkpoints in memory is killed at any write, and messages come again any time."""
    plan = plan_of(replace(SOURCE, connector=CONNECTOR, cdc=Cdc.UPSERT))
    readers: list[PubSubReader] = []
    published = 0
    with running(PubSubServer(exactly_once=exactly_once, topics={TOPIC})) as server:

        def opened(*_: object) -> PubSubReader:
            readers.append(reader_of(server.address))
            return readers[-1]

        world = World({}, opens=cast("Any", opened))

        def publish(count: int) -> None:
            nonlocal published
            for _ in range(count):
                user = f"u{published % 3}"
                server.publish(TOPIC, orjson.dumps({"user": user, "age": published, "at": 1_700_000_000}), user)
                published += 1

        def read_all(worker: SourceWorker) -> None:
            deadline = deadline_in(30)
            while server.left() or worker.lag != 0 or readers[-1]._acks:
                world.now += 0.4
                # A reader that was killed may have got messages just then, which come again after their deadline.
                server.now += 5
                assert worker.step()
                assert time.monotonic() < deadline

        for life in lives:
            world.fuse = life.writes
            worker = world.worker(plan=plan)
            with suppress(KilledError, UnavailableError):
                for step in life.steps:
                    publish(step.published)
                    world.now += step.seconds
                    assert worker.step()
                    if step.then == "expire":
                        server.expire()
                    elif step.then == "repeat":
                        server.repeat(step.number)
                if life.stops:
                    worker.stop()
            for reader in readers:
                kill(reader)
        server.expire()
        world.fuse = 10**9
        worker = world.worker(plan=plan)
        assert worker.step()
        publish(2)
        read_all(worker)
        for number in repeated:
            server.repeat(number)
        read_all(worker)
        worker.stop()
        # Messages before the subscription was made aren't read.
        received = [orjson.loads(stored.message.data)["age"] for stored in chain(*server.messages.values())]
    records = [msgspec.msgpack.decode(item[1]) for item in world.topics.get(topic_of(plan), [])]
    ages = [value[7][1] for value in records]
    assert Counter(ages) == Counter(received)
    # Messages with the same ordering key stay in order.
    for user in range(3):
        of_user = [age for age in ages if age % 3 == user]
        assert of_user == sorted(of_user)


@given(
    counts=st.lists(st.integers(1, 5), max_size=8),
    most=st.integers(0, 20),
    data=st.data(),
)
def test_what_may_come_again_is_remembered_and_the_rest_is_forgotten(
    counts: list[int], most: int, data: st.DataObject
) -> None:
    now = 0.0
    remembered = Remembered(lingers=True, most=most, clock=lambda: now)
    saved: dict[str, bytes] = {}
    marks = [[f"{block}-{n}" for n in range(count)] for block, count in enumerate(counts)]
    confirmed: dict[str, float] = {}
    for block, names in enumerate(marks):
        saved[str(block)] = remembered.add(str(block), names, published_us=block + 1)
        some = data.draw(st.lists(st.sampled_from(list(chain(*marks[: block + 1]))), unique=True))
        remembered.confirm(some)
        confirmed |= {mark: now for mark in some if mark not in confirmed}
        for item in remembered.pruned():
            del saved[item]
        now += data.draw(st.sampled_from([0.0, 400.0]))
        again = Remembered(lingers=True)
        again.load(saved)
        for written in marks[: block + 1]:
            is_open = any(mark not in confirmed for mark in written)
            for mark in written:
                assert (mark in again) == (mark in remembered)
                assert mark in remembered or not is_open
    # Even what was never confirmed is forgotten when PubSub has deleted the messages.
    remembered.add("last", ["last"], published_us=LONGEST_US + 100)
    remembered.pruned()
    assert all(mark in confirmed or mark not in remembered for mark in chain(*marks))
    assert "last" in remembered


@pytest.fixture(scope="module")
def emulator() -> Iterator[str]:
    with running_emulator() as address:
        yield address


def test_google_s_emulator_delivers_to_the_reader(emulator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Messages of a reader that was killed come again after ten seconds, which is the least that is possible.
    monkeypatch.setattr(connection, "DEADLINE_S", 10)
    publisher = PublisherClient(transport=PublisherGrpcTransport(channel=grpc.insecure_channel(emulator)))
    publisher.create_topic(request={"name": TOPIC})
    reader, saved = reader_of(emulator), Saved()
    reader.peek(1)
    reader.seek({}, {})
    rest(reader, saved)
    for begin in range(0, 2000, 500):
        messages = [{"data": orjson.dumps({"n": n}), "ordering_key": str(n % 7)} for n in range(begin, begin + 500)]
        publisher.publish(request={"topic": TOPIC, "messages": messages})
    found = read(reader, saved, 700)
    deadline = deadline_in(30)
    # A batch without rows only confirms acknowledgements.
    while (batch := poll(reader, 50)) is None or not len(batch.rows):
        assert time.monotonic() < deadline
    kill(reader)
    again = reader_of(emulator)
    again.seek(saved.position, saved.items)
    found += read(again, saved, 2000 - len(found))
    assert Counter(found) == Counter(range(2000))
    for key in range(7):
        of_key = [n for n in found if n % 7 == key]
        assert of_key == sorted(of_key)
    again.close()
    publisher.transport.close()
