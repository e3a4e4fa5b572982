"""The rows that an index emits are the engine's, whatever the order of inputs and wherever it is killed."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from caraway.compute.reference.changes import SourceChange
from caraway.compute.reference.engine import LocalEngine
from caraway.dataplane.index.feeding.emission import Emission
from caraway.dataplane.index.feeding.ingestion_order import by_ingestion
from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.codec import PUT, RETRACT, RecordCodec
from caraway.dataplane.topics.identity import position_id
from caraway.dataplane.topics.reader import Message
from caraway.graph.aggregates import AggregateFunction
from caraway.graph.operators import Input
from caraway.graph.plan.model import TopicPlan
from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import Graph
from caraway.graph.windows import SessionWindow
from tests.effort import examples
from tests.unit.compute.reference.building import derived
from tests.unit.dataplane.index.oracle import SECOND, Case, Job, case, random_change
from tests.unit.dataplane.index.test_against_engine import (
    CONTINUOUS,
    DISCRETE,
    EXACT,
    FOREVER_HOPPING,
    HOPPING,
    LATE,
    TUMBLING,
)
from tests.unit.dataplane.index.test_against_engine import same as equal

pytestmark = pytest.mark.filterwarnings("ignore:aggregate")

SESSION = SessionWindow(gap_us=2 * SECOND)


def few(found: Case, seed: int = 1) -> Case:
    """Return a case with some of its aggregates; all of them would take a second for a few rows."""
    specs = [a for a in found.operator.aggregates if a.function is not AggregateFunction.EXP_DECAY_SUM]
    chosen = random.Random(seed).sample(specs, min(6, len(specs)))
    return Case(found.name, replace(found.operator, aggregates=tuple(chosen)), found.keyed)


CASES = [
    few(case("events, discrete", DISCRETE)),
    few(case("events, with a lookback", LATE)),
    few(case("events along a column", DISCRETE, along=True)),
    few(case("a table, forever", (FOREVER_HOPPING,), keyed=True)),
    few(case("a table along a column", LATE, keyed=True, along=True)),
    few(case("events, final", CONTINUOUS)),
    few(case("a table, final", CONTINUOUS, keyed=True)),
    few(case("tumbling windows as keys", (None,), groupby=TUMBLING)),
    few(case("hopping windows as keys", (None,), groupby=HOPPING)),
    few(case("windows as keys, with a lookback", (None,), groupby=LATE[1])),
    case("windows alone", (), groupby=HOPPING, bare=True),
    few(case("sessions", (None,), groupby=SESSION)),
    case("sessions alone", (), groupby=SESSION, bare=True),
]
FICKLE = [found for found in CASES if not found.keyed]


def some(cases: Sequence[Case], first: int) -> list[Any]:
    """Return all cases, most of them marked for the slow tier."""
    return [
        pytest.param(found, id=found.name, marks=[] if n % 4 == first else [pytest.mark.slow])
        for n, found in enumerate(cases)
    ]


class KilledError(Exception):
    """An exception that stands for the end of the process."""


@dataclass
class Topic:
    """The records that arrived on the topic of the rows. Now and then the process is killed before or after a send."""

    plan: TopicPlan
    rng: random.Random
    records: list[tuple[bytes, bytes]] = field(default_factory=list)
    kills: float = 0.3

    def send(self, name: str, records: Sequence[tuple[bytes, bytes]]) -> None:
        assert name == self.plan.name
        if self.rng.random() < self.kills:
            raise KilledError
        self.records += records
        if self.rng.random() < self.kills:
            raise KilledError

    def rows(self) -> list[dict[str, object]]:
        """Return the rows that hold: of each id the greatest revision. Records of equal revisions must be identical."""
        codec = RecordCodec(self.plan.schema)
        newest: dict[bytes, tuple[bytes, bytes, bytes]] = {}
        for key, value in self.records:
            record = codec.decode_value(value)
            assert record.id is not None
            assert record.rev is not None
            known = newest.get(record.id)
            if known is None or record.rev > known[0]:
                newest[record.id] = record.rev, key, value
            elif record.rev == known[0]:
                assert (key, value) == known[1:]
        rows = []
        for _, key, value in newest.values():
            record = codec.decode_value(value)
            assert record.row is not None
            keys = len(self.plan.schema.keys)
            assert codec.decode_key(key) == record.row[:keys]
            if record.op == PUT:
                names = [column.name for column in self.plan.schema.columns]
                rows.append({**dict(zip(names, record.row, strict=True)), self.plan.schema.timestamp: record.time})
        return rows


class Process:
    """A writer of an index together with its emission, started again after each kill."""

    def __init__(self, found: Case, topic: TopicPlan, store: IndexStore, arrived: Topic) -> None:
        self.plan = replace(found.plan, emits=topic)
        self._topic = topic
        self._store = store
        self.arrived = arrived
        self._start()

    def apply(self, messages: Sequence[Message]) -> None:
        assert not self._writer.apply(self.plan, messages).refused
        if self.arrived.rng.random() < 0.1:
            # The process is killed before it compared the changed rows.
            self._start()
            return
        try:
            self._emission.run(self.arrived.send, {})
        except KilledError:
            self._start()

    def read(self, part: Sequence[Message], *, last: bool) -> None:
        """Apply records of one ingestion time as a tail does, which sends what is left after it was killed."""
        while True:
            assert not self._writer.apply(self.plan, part).refused
            if self.arrived.rng.random() < 0.2:
                self._start()
            try:
                self._emission.run(self.arrived.send if last else None, {})
            except KilledError:
                self._start()
            else:
                return

    def settle(self) -> None:
        self.arrived.kills = 0.0
        self._start()
        self._emission.run(self.arrived.send, {})
        sent = len(self.arrived.records)
        self._emission.run(self.arrived.send, {})
        assert len(self.arrived.records) == sent

    def _start(self) -> None:
        self._writer = IndexWriter(self._store, cached_tiles=8)
        self._emission = Emission(self.plan, self._topic, self._store)


def rows_of(found: Case) -> TopicPlan:
    """Return the topic of a case's rows."""
    reader = derived(Input(dataset=found.out.name), "Reader", sources=(found.source, found.out))
    plan = plan_graph(Graph(datasets=(found.source, found.out, reader)))
    (emitting,) = [index for index in plan.indexes if index.emits is not None]
    assert emitting.emits is not None
    assert emitting.asset != found.plan.asset
    assert emitting.emits in plan.topics
    return emitting.emits


def check_rows(found: Case, arrived: Topic, engine: LocalEngine) -> None:
    def order(row: dict[str, object]) -> tuple[str, str]:
        return str(row["t"]).zfill(20), str([row[key] for key in found.out.keys])

    expected = sorted(engine.rows(found.out.name), key=order)
    got = sorted(arrived.rows(), key=order)
    assert [order(row) for row in got] == [order(row) for row in expected]
    for row, wanted in zip(got, expected, strict=True):
        assert all(equal(row[name], wanted[name]) for name in wanted), (row, wanted)


def check(found: Case, seed: int, tmp_path: Path, rows: int) -> None:
    rng = random.Random(f"{found.name} {seed}")
    job, topic = Job(found), rows_of(found)
    with IndexStore(tmp_path / "index", geometry=EXACT, cache_bytes=1 << 20) as store:
        process = Process(found, topic, store, Topic(topic, rng))
        waiting = [message for _ in range(rows) for message in job.log(random_change(found, rng))]
        deliver(process, waiting, rng)
        process.settle()
        check_rows(found, process.arrived, job.engine)


def deliver(process: Process, waiting: list[Message], rng: random.Random) -> None:
    rng.shuffle(waiting)
    size = rng.choice([1, 3, 20])
    for start in range(0, len(waiting), size):
        process.apply(waiting[start : start + size])
        if rng.random() < 0.2:
            process.apply(rng.sample(waiting, min(5, len(waiting))))


@dataclass
class Fickle:
    """Events that are retracted and moved, as by a join in front of an aggregate."""

    found: Case
    events: dict[int, SourceChange | None] = field(default_factory=dict)
    rev: int = 0

    def change(self, rng: random.Random) -> Message:
        known = self.events and rng.random() < 0.5
        number = rng.choice(list(self.events)) if known else len(self.events)
        change = None if known and rng.random() < 0.5 else random_change(self.found, rng)
        old, self.events[number] = self.events.get(number), change
        self.rev += 1
        shown = change or old or random_change(self.found, rng)
        due = shown.row["due"]
        along = self.found.operator.along is not None and isinstance(due, int)
        values = {**shown.row, "t": shown.time_us}
        codec = RecordCodec(self.found.plan.schema)
        value = codec.encode_value(
            op=RETRACT if change is None else PUT,
            time_us=due if along and isinstance(due, int) else shown.time_us,
            ingested_us=1,
            record_id=position_id(number, 0),
            rev=self.rev.to_bytes(4),
            row=[values[column.name] for column in self.found.plan.schema.columns],
        )
        return codec.encode_key([shown.row["g"]]), value, 0, self.rev

    def engine(self) -> LocalEngine:
        engine = self.found.engine()
        for number in sorted(self.events):
            change = self.events[number]
            if change is not None:
                engine.apply_changes(self.found.source.name, [change])
        return engine


def check_fickle(found: Case, seed: int, tmp_path: Path, rows: int) -> None:
    rng = random.Random(f"fickle {found.name} {seed}")
    topic = rows_of(found)
    revised = Case(found.name, found.operator, found.keyed)
    revised.plan = replace(found.plan, revised=True)
    fickle = Fickle(revised)
    with IndexStore(tmp_path / "index", geometry=EXACT, cache_bytes=1 << 20) as store:
        process = Process(revised, topic, store, Topic(topic, rng))
        deliver(process, [fickle.change(rng) for _ in range(rows)], rng)
        process.settle()
        check_rows(found, process.arrived, fickle.engine())


# A case takes a third of a second, so the fast tier takes some of them.
@pytest.mark.parametrize("found", some(CASES, 0))
def test_what_is_emitted_are_the_rows_of_the_engine(found: Case, tmp_path: Path) -> None:
    check(found, random.randrange(2**32), tmp_path, rows=8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(examples(12)))
@pytest.mark.parametrize("found", CASES, ids=lambda c: c.name)
def test_many_traces(found: Case, seed: int, tmp_path: Path) -> None:
    check(found, seed, tmp_path, rows=30)


# With these seeds the max event time went back, a kill came before that was noted, and then it advanced again.
@pytest.mark.parametrize("seed", [407, 909])
def test_a_max_event_time_that_goes_back_unnoticed_loses_no_row(seed: int, tmp_path: Path) -> None:
    (found,) = [case for case in FICKLE if case.name == "windows alone"]
    check_fickle(found, seed, tmp_path, rows=8)


@pytest.mark.parametrize("found", some(FICKLE, 2))
def test_retracted_inputs_are_retracted_downstream(found: Case, tmp_path: Path) -> None:
    check_fickle(found, random.randrange(2**32), tmp_path, rows=8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(examples(12)))
@pytest.mark.parametrize("found", FICKLE, ids=lambda c: c.name)
def test_many_fickle_traces(found: Case, seed: int, tmp_path: Path) -> None:
    check_fickle(found, seed, tmp_path, rows=40)


@pytest.mark.parametrize("found", some(CASES, 1))
def test_rows_are_known_from_their_latest_cause(found: Case, tmp_path: Path) -> None:
    rng = random.Random(found.name)
    job, topic = Job(found), rows_of(found)
    codec = RecordCodec(found.plan.schema)
    waiting: list[Message] = []
    known: list[list[str]] = []
    for moment in range(1, examples(40) + 5):
        for key, value, partition, offset in job.log(random_change(found, rng)):
            record = codec.decode_value(value or b"")
            fields = {"op": record.op, "record_id": record.id, "rev": record.rev, "row": record.row}
            dated = codec.encode_value(time_us=record.time, ingested_us=moment, **fields)  # type: ignore[arg-type]
            waiting.append((key, dated, partition, offset))
        known.append(sorted(str(bare(row)) for row in job.engine.rows(found.out.name)))
    arrived = Topic(topic, rng)
    with IndexStore(tmp_path / "index", geometry=EXACT, cache_bytes=1 << 20) as store:
        process = Process(found, topic, store, arrived)
        while waiting:
            size = rng.choice([1, 3, 20])
            parts = by_ingestion(waiting[:size])
            waiting = waiting[size:]
            for part in parts:
                process.read(part, last=part is parts[-1])
    for moment, expected in enumerate(known, start=1):
        rows_codec = RecordCodec(topic.schema)
        then = [one for one in arrived.records if rows_codec.decode_value(one[1]).ingested <= moment]
        assert sorted(str(bare(row)) for row in Topic(topic, rng, then).rows()) == expected, moment


def bare(row: Mapping[str, object]) -> list[tuple[str, object]]:
    """Return a row in a form that can be compared: with the columns in order, and floats as they are printed."""
    return sorted((name, repr(value)) for name, value in row.items())
