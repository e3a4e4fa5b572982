"""The worker of a source: whatever polls and crashes happen, each row of the source is on the topics exactly once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pkgutil import resolve_name
from typing import Any, cast

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.dataplane.ingest.targets import Target
from caraway.dataplane.sources.decoding.json_objects import decode_json
from caraway.dataplane.sources.reader import (
    Items,
    Position,
    Progress,
    SourceBatch,
    SourceReader,
    SourceRecord,
    batch_of,
    is_ahead,
)
from caraway.dataplane.sources.worker import HEADER, SourceWorker
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.dataplane.topics.erased_keys import ErasedKeys, Hides, erasure_of
from caraway.dataplane.topics.producer import TopicItem
from caraway.dtypes.types import DATETIME, INT, STRING
from caraway.errors import UnavailableError
from caraway.expr import col
from caraway.graph.connectors import CONNECTORS, Connector, TableConnector, WebhookConnector
from caraway.graph.plan.model import Column, IngestPlan
from caraway.graph.sources import Cdc, Computed, Ref, SampleSpec, SourceSpec
from caraway.graph.systems import SYSTEMS, TableSystem
from tests.unit.dataplane.ingest.contexts import TOPIC, ingest_of
from tests.unit.dataplane.sources.kept import Kept
from tests.unit.graph.building import dataset
from tests.unit.leased import KilledError

SOURCE = SourceSpec(connector=TOPIC, cdc=Cdc.UPSERT, disorder_us=0)
USERS = dataset("Users", {"user": STRING, "age": INT, "at": DATETIME}, keys=["user"])


def plan_of(source: SourceSpec = SOURCE) -> IngestPlan:
    return ingest_of(USERS, source)


@dataclass
class World(Kept):
    """All that outlives a worker: the source, the topics, the checkpoints and the lease."""

    source: Mapping[str, Sequence[bytes | None]]
    away: bool = False
    broker: Executor | None = None
    opens: "type[Reader]" = field(default_factory=lambda: Reader)
    readers: list["Reader"] = field(default_factory=list)
    acknowledged: list[Position] = field(default_factory=list)

    def write(self, topic: str, items: Sequence[TopicItem]) -> "Future[None]":
        future = super().write(topic, items)
        if self.away:
            future = Future()
            future.set_exception(UnavailableError("Kafka is away"))
        elif self.broker is not None:
            # The write ends in another thread, at some time, as in the real writer.
            return self.broker.submit(lambda: None)
        return future

    def worker(
        self,
        sizes: Callable[[], int] = lambda: 1000,
        plan: IngestPlan | None = None,
        erased: ErasedKeys | None = None,
        is_late: Callable[[], bool] = lambda: False,
    ) -> SourceWorker:
        return self.worker_of(
            "users",
            Target(plan or plan_of()),
            lambda: self.opens(self, sizes),
            erased=erased or ErasedKeys(dict),
            is_late=is_late,
        )

    def read_all(self, worker: SourceWorker) -> None:
        """Run a worker until it has read all."""
        while True:
            self.now += 0.4
            assert worker.step()
            if worker.lag == 0:
                return

    def read_with_crashes(self, data: st.DataObject, plan: IngestPlan | None = None) -> Iterator[None]:
        """Read in polls of any sizes until the process ends or Kafka is away, some times; and then all of it."""

        def worker() -> SourceWorker:
            return self.worker(lambda: data.draw(st.integers(1, 7), label="poll"), plan)

        for _ in range(data.draw(st.integers(0, 4), label="crashes")):
            self.fuse = data.draw(st.integers(0, 20), label="items until the crash")
            self.away = data.draw(st.booleans(), label="Kafka away")
            interrupted = worker()
            with suppress(KilledError, UnavailableError):
                self.read_all(interrupted)
                interrupted.stop()
            yield
        self.fuse, self.away = 10**9, False
        self.read_all(worker())
        yield


class Reader:
    """Reads the source of a world, in polls of invented sizes."""

    def __init__(self, world: World, sizes: Callable[[], int]) -> None:
        self._world = world
        self._sizes = sizes
        self._positions: dict[str, int] = {}
        self._idle: float | None = None
        self.closed = False
        world.readers.append(self)

    def seek(self, position: Position, items: Items) -> Position:
        self._positions = {name: position.get(name, 0) for name in self._world.source}
        # The items are as old as the position.
        assert items == {f"{name}-{n}": b"" for name, n in self._positions.items() if n}
        return position

    def poll(self, *, rows: int, size: int, timeout_s: float) -> SourceBatch | None:
        assert size > 0
        assert timeout_s > 0
        found: list[SourceRecord] = []
        items: dict[str, bytes | None] = {}
        for name, values in self._world.source.items():
            count = min(self._sizes(), rows - len(found))
            begin = self._positions[name]
            read = [SourceRecord(name, begin + n, value) for n, value in enumerate(values[begin : begin + count])]
            self._positions[name] = begin + len(read)
            if read:
                items |= {f"{name}-{begin}": None, f"{name}-{begin + len(read)}": b""}
            found += read
        if not found:
            self._idle = self._world.now
            return None
        self._idle = None
        return replace(batch_of(found, decode_json, dict(self._positions)), items=items)

    def is_ahead(self, mark: str) -> bool:
        return is_ahead(mark, self._positions)

    def acknowledge(self, position: Position) -> None:
        self._world.acknowledged.append(position)

    def lag(self) -> int:
        return sum(len(values) - self._positions[name] for name, values in self._world.source.items())

    def idle_at(self) -> float | None:
        return self._idle

    def progress(self) -> Progress | None:
        total = sum(map(len, self._world.source.values()))
        return Progress(done=total - self.lag(), total=total, unit="records")

    def peek(self, rows: int) -> SourceBatch:
        raise NotImplementedError(rows)

    def close(self) -> None:
        self.closed = True


def test_a_worker_reads_nothing_while_what_depends_on_it_is_behind() -> None:
    late = ["the index of Users"]
    world = World({"0": [record("a"), record("b")]})
    worker = world.worker(is_late=lambda: bool(late))
    for _ in range(200):
        assert worker.step()
    assert (worker.waits, worker.owned, worker.position, world.topics) == (True, True, {}, {})
    late.clear()
    world.read_all(worker)
    assert (worker.waits, len(world.topics[topic_of(plan_of())])) == (False, 2)


def record(user: object, age: object = 1, at: int = 1_700_000_000, **more: object) -> bytes:
    return orjson.dumps({"user": user, "age": age, "at": at, **more})


def topic_of(plan: IngestPlan) -> str:
    return plan.topic.name


def rows(world: World, plan: IngestPlan | None = None) -> list[tuple[int, list[object]]]:
    """Return the operation and the row of each record on the dataset's topic."""
    values = [msgspec.msgpack.decode(item[1]) for item in world.topics.get(topic_of(plan or plan_of()), [])]
    return [(value[2], value[7]) for value in values]


def letters(world: World) -> list[dict[str, Any]]:
    return [orjson.loads(item[1]) for item in world.topics.get(DEAD_LETTERS, [])]


RECORDS = st.one_of(
    st.builds(record, st.sampled_from("abc"), st.integers(0, 9)),
    st.just(b"no json"),
    st.just(b"[1]"),
    st.just(record("a", "old")),
    st.none(),
)
BROKER = ThreadPoolExecutor(1)
SOURCES = st.dictionaries(st.sampled_from("012"), st.lists(RECORDS, max_size=30), min_size=1)


@given(source=SOURCES, data=st.data())
def test_any_polls_and_crashes_take_each_record_once(
    source: Mapping[str, Sequence[bytes | None]], data: st.DataObject
) -> None:
    expected = World(source)
    expected.read_all(expected.worker())
    world = World(source, broker=BROKER if data.draw(st.booleans(), label="writes take time") else None)
    for _ in world.read_with_crashes(data):
        pass

    # Records of one key come from one partition of a source, as Kafka promises, and stay in order.
    def by_partition(of: World, topic: str) -> dict[str, list[tuple[str, bytes | None]]]:
        found: dict[str, list[tuple[str, bytes | None]]] = {}
        for key, _, headers in of.topics.get(topic, []):
            mark = dict(headers or {})[HEADER].decode()
            found.setdefault(mark.partition("/")[0], []).append((mark, key))
        return found

    for topic in (topic_of(plan_of()), DEAD_LETTERS):
        assert by_partition(world, topic) == by_partition(expected, topic)


def test_a_row_that_does_not_fit_becomes_a_dead_letter_with_its_position() -> None:
    world = World({"0": [record("a"), record("a", "old"), b"{", None, b"7", record("b")]})
    worker = world.worker()
    assert (worker.read_at, worker.dead_letters, worker.position) == (None, 0, {})
    world.read_all(worker)
    assert worker.read_at is not None
    assert (worker.dead_letters, worker.position) == (3, {"0": 6})
    assert rows(world) == [(1, ["a", 1]), (1, ["b", 1])]
    found = [(letter["offset"], letter["row"], letter["reason"][0]["field"]) for letter in letters(world)]
    assert found == [(1, orjson.loads(record("a", "old")), "age"), (2, "{", ""), (4, 7, "")]
    assert letters(world)[0]["source"] == "[Kafka: k](topic=t, format=json)"
    assert "isn't JSON" in letters(world)[1]["reason"][0]["message"]


def test_rows_are_made_chosen_and_sampled() -> None:
    source = replace(
        SOURCE,
        preproc=(
            ("user", Ref(path=("who", "name"))),
            ("age", Computed(by=(col("years") + 1).node, schema=(("years", INT),))),
        ),
        where=Computed(by=(col("age") > 10).node),
        since_us=1_700_000_000_000_000,
        sample=SampleSpec(rate=1.0, using=()),
    )
    payloads = [
        {"who": {"name": "a"}, "years": 20, "at": 1_700_000_000},
        {"who": {"name": "young"}, "years": 9, "at": 1_700_000_000},
        {"who": {"name": "early"}, "years": 20, "at": 1_600_000_000},
        {"who": {"name": "b"}, "years": "x", "at": 1_700_000_000},
    ]
    source = replace(source, sample=None)
    plan = plan_of(source)
    world = World({"0": [orjson.dumps(payload) for payload in payloads]})
    world.read_all(world.worker(plan=plan))
    assert rows(world, plan) == [(1, ["a", 21])]
    assert [letter["offset"] for letter in letters(world)] == [3]


def test_a_change_of_a_key_makes_two_records_of_one() -> None:
    before, after = ({"user": user, "age": 1, "at": 1_700_000_000} for user in ("a", "b"))
    envelopes = [
        {"op": "c", "before": None, "after": before, "ts_ms": 1_700_000_000_000},
        {"op": "u", "before": before, "after": after, "ts_ms": 1_700_000_001_000},
        {"op": "d", "before": {"user": "b"}, "after": None, "ts_ms": 1_700_000_002_000},
    ]
    plan = plan_of(replace(SOURCE, cdc=Cdc.DEBEZIUM))
    for kill_after in range(6):
        world = World({"0": [orjson.dumps(envelope) for envelope in envelopes]}, fuse=kill_after)
        with suppress(KilledError):
            world.read_all(world.worker(plan=plan))
        world.fuse = 10**9
        world.read_all(world.worker(plan=plan))
        assert rows(world, plan) == [(1, ["a", 1]), (-1, ["a", 1]), (1, ["b", 1]), (-1, ["b", None])]


def test_rows_of_erased_keys_are_never_written() -> None:
    plan, erased = plan_of(), ErasedKeys(lambda: {"k": b"m" * 32})
    erased.add(topic_of(plan), [erasure_of(topic_of(plan), plan.topic.schema.keys, ["gone"], "k", b"m" * 32)])
    world = World({"0": [record("gone"), record("here"), record("gone", "old")]})
    world.read_all(world.worker(erased=erased))
    assert rows(world) == [(1, ["here", 1])]
    assert letters(world) == []


def test_a_worker_without_the_right_reads_nothing_and_an_overtaken_one_stops() -> None:
    world = World({"0": [record("a")] * 3}, taken_over=True)
    worker = world.worker(lambda: 1)
    assert not worker.step()
    world.taken_over = False
    assert worker.step()
    world.taken_over, world.now = True, world.now + 10
    assert not worker.step()
    assert len(rows(world)) == 1


def test_nothing_is_written_without_the_right() -> None:
    world = World({"0": [record("a")]})
    worker = world.worker(erased=SlowKeys(world))
    with pytest.raises(UnavailableError, match="another server"):
        worker.step()
    assert rows(world) == []


class SlowKeys(ErasedKeys):
    """Erased keys whose look-up takes so long that another server takes over."""

    def __init__(self, world: World) -> None:
        super().__init__(dict)
        self._world = world

    def hides(self, topic: str, keys: tuple[Column, ...], *, strict: bool = True) -> Hides | None:
        self._world.now += 60
        self._world.taken_over = True
        return super().hides(topic, keys, strict=strict)


def test_a_stop_saves_the_position() -> None:
    world = World({"0": [record("a")], "1": [record("b")]})
    worker = world.worker()
    assert worker.step()
    worker.stop()
    assert world.saved is not None
    assert world.saved.position == {"0": 1, "1": 1}
    assert world.acknowledged[-1] == {"0": 1, "1": 1}


def is_closed(worker: SourceWorker) -> bool:
    return worker.closed


def test_a_bounded_source_is_closed_after_its_idleness_and_stays_closed() -> None:
    plan = plan_of(replace(SOURCE, bounded=True, idleness_us=60_000_000))
    values: list[bytes | None] = [record("a")]
    world = World({"0": values})
    worker = world.worker(plan=plan)
    world.read_all(worker)
    for _ in range(50):
        world.now += 1
        assert worker.step()
    values.append(record("b"))
    for _ in range(55):
        world.now += 1
        assert worker.step()
    # The second row has begun the time of idleness anew.
    assert not is_closed(worker)
    while not is_closed(worker):
        world.now += 1
        assert worker.step()
    assert len(rows(world, plan)) == 2
    assert world.readers[-1].closed
    values.append(record("c"))
    for each in (worker, world.worker(plan=plan)):
        for _ in range(100):
            assert each.step()
        assert each.closed
    assert (len(rows(world, plan)), len(world.readers)) == (2, 1)


def test_a_source_whose_time_of_idleness_began_before_a_restart_is_not_closed_early() -> None:
    plan = plan_of(replace(SOURCE, bounded=True, idleness_us=60_000_000))
    world = World({"0": [record("a")]})
    world.read_all(world.worker(plan=plan))
    # Whatever the clock says, the second worker hasn't seen a minute pass.
    world.now += 1_000_000
    worker = world.worker(plan=plan)
    for _ in range(30):
        world.now += 1
        assert worker.step()
    assert not worker.closed


def test_the_beginning_of_a_source_is_saved_before_any_row_is_read() -> None:
    class Slot(Reader):
        def seek(self, position: Position, items: Items) -> Position:
            super().seek(position, items)
            return position or {"0": 0}

        def poll(self, *, rows: int, size: int, timeout_s: float) -> SourceBatch | None:
            assert self._world.saved is not None
            assert self._world.saved.position
            return super().poll(rows=rows, size=size, timeout_s=timeout_s)

    world = World({"0": [record("a")]}, opens=Slot)
    assert world.worker().step()
    assert len(rows(world)) == 1


def table_of(system: type[TableSystem]) -> TableConnector:
    values = {each.name: None for each in fields(system)}
    return TableConnector(system=system(**cast("Any", values)), table="t", cursor="c")


def name_of(connector: type[Connector] | TableConnector) -> str:
    return connector.kind if isinstance(connector, TableConnector) else connector.__name__


# Each kind of system that has tables has a reader of its own.
TABLE_SYSTEMS = [system for system in SYSTEMS.values() if issubclass(system, TableSystem)]
READABLE = [*(c for c in CONNECTORS.values() if c is not TableConnector), *map(table_of, TABLE_SYSTEMS)]


@pytest.mark.parametrize("connector", READABLE, ids=name_of)
def test_a_connector_whose_formats_the_server_reads_names_a_reader(connector: type[Connector] | TableConnector) -> None:
    assert bool(connector.reader) == (bool(connector.read_formats) and connector is not WebhookConnector)
    if connector.reader:
        reader = resolve_name(connector.reader)
        assert all(hasattr(reader, part) for part in vars(SourceReader) if not part.startswith("_"))
