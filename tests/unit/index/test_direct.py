"""Indexes that compute their pipelines themselves: the same entries as with a job, and the in-process engine's rows."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from caraway.dtypes.types import FLOAT, INT, STRING, optional
from caraway.engine_local.changes import SourceChange
from caraway.engine_local.engine import LocalEngine
from caraway.erasure.keys import ErasedKeys, encode_erasure, erasure_of
from caraway.errors import UnavailableError
from caraway.expr.nodes import Binary, BinaryOp, FillNull, IsNull, Literal, Node, Ref
from caraway.graph import operators as ops
from caraway.graph.aggregates import AggregateFunction
from caraway.graph.specs import DatasetSpec, Graph, IndexSpec
from caraway.graph.windows import ContinuousWindow
from caraway.index.feeding.writer import IndexWriter, singles_of
from caraway.index.reader import IndexReader
from caraway.index.storage.keys import META
from caraway.index.storage.store import IndexStore
from caraway.plan.model import IndexPlan
from caraway.plan.planner import plan_graph
from caraway.topics.blocks import block_of
from caraway.topics.codec import PUT, RecordCodec
from caraway.topics.dead_letters import DEAD_LETTERS
from caraway.topics.keys import MAX_KEY_BYTES
from caraway.topics.reader import Message
from tests.unit.engine_local.building import EVENTS, S, derived, events, spec_of
from tests.unit.index.oracle import Case, Job, random_change
from tests.unit.index.test_against_engine import CASES, EXACT

KEYLESS = [found for found in CASES if not found.keyed]
SUM = spec_of(AggregateFunction.SUM, "x", ContinuousWindow(length_us=None), "total", EVENTS)
COUNT = spec_of(AggregateFunction.COUNT, None, ContinuousWindow(length_us=5 * S), "n", EVENTS)


def compare(op: BinaryOp, left: Node, right: Node) -> Node:
    return Binary(op=op, left=left, right=right)


X, Y = Ref(name="x"), Ref(name="y")
SMALL = compare(BinaryOp.LT, X, Literal(value=3, dtype=INT))
FILLED = FillNull(operand=Y, fill=Literal(value=0.5, dtype=FLOAT))
ASSIGNED = ops.Assign(
    of=events,
    columns=(
        # All expressions see the row before the step.
        ops.AssignedColumn(name="x", dtype=FLOAT, expr=FILLED),
        ops.AssignedColumn(name="was", dtype=FLOAT, expr=X),
        ops.AssignedColumn(name="late", dtype=optional(FLOAT), expr=Y),
    ),
)
CHAINS: dict[str, ops.Operator] = {
    "all": events,
    "filter": ops.Filter(of=events, predicate=SMALL),
    "filter nulls too": ops.Filter(of=events, predicate=compare(BinaryOp.LT, FILLED, Literal(value=1.0, dtype=FLOAT))),
    "assign": ASSIGNED,
    "rename": ops.Rename(of=events, pairs=(("x", "z"), ("t", "at"), ("y", "x"))),
    "rename and compute": ops.Filter(
        of=ops.Rename(of=ASSIGNED, pairs=(("x", "z"), ("was", "x"), ("t", "at"))),
        predicate=compare(BinaryOp.GT, Ref(name="x"), Ref(name="z")),
    ),
    "drop and assign again": ops.Assign(
        of=ops.Drop(of=events, columns=("x",)),
        columns=(ops.AssignedColumn(name="x", dtype=INT, expr=Literal(value=7, dtype=INT)),),
    ),
    "null": ops.DropNull(of=events, columns=("y",)),
    "is null": ops.Filter(of=ops.Select(of=events, columns=("k", "y")), predicate=IsNull(operand=Y)),
}


def planned(spec: DatasetSpec, source: DatasetSpec = EVENTS) -> IndexPlan:
    (plan,) = plan_graph(Graph(datasets=(source, indexed(spec)))).indexes
    return plan


def indexed(spec: DatasetSpec) -> DatasetSpec:
    return replace(spec, index=IndexSpec(online=True, offline=False))


class Source:
    """A source's topic with one partition."""

    def __init__(self, plan: IndexPlan) -> None:
        assert plan.direct is not None
        self._codec = RecordCodec(plan.direct.source)
        self.offset = 0

    def log(self, change: SourceChange) -> Message:
        row = [change.row[column.name] for column in self._codec.schema.columns]
        value = self._codec.encode_value(op=PUT, time_us=change.time_us, ingested_us=1, row=row)
        return self._message(value)

    def log_all(self, changes: Sequence[SourceChange], rng: random.Random) -> list[Message]:
        """Return messages of one or more records."""
        values = [self.log(change)[1] or b"" for change in changes]
        messages: list[Message] = []
        while values:
            some, values = values[: (count := rng.choice([1, 2, 5]))], values[count:]
            messages.append(self._message(block_of(some) if len(some) > 1 or rng.random() < 0.5 else some[0]))
        return messages

    def _message(self, value: bytes) -> Message:
        self.offset += 1
        return None, value, 0, self.offset - 1


def change(rng: random.Random) -> SourceChange:
    row: dict[str, object] = {"k": rng.choice("ab"), "x": rng.randrange(6), "y": rng.choice([None, 0.0, 0.25, 4.0])}
    return SourceChange(time_us=rng.randrange(20) * S, row=row)


def entries(store: IndexStore) -> dict[bytes, bytes]:
    return {key: value for key, value in store.scan(b"", b"\xff" * 8) if not key.startswith(META)}


@pytest.mark.filterwarnings("ignore:aggregate")
@pytest.mark.parametrize("found", KEYLESS, ids=lambda c: c.name)
def test_an_index_without_a_job_has_the_entries_of_one_with_a_job(found: Case, tmp_path: Path) -> None:
    rng, job = random.Random(), Job(found)
    direct = planned(found.out, found.source)
    with_a_job = replace(found.plan, asset=direct.asset)
    source = Source(direct)
    with (
        IndexStore(tmp_path / "one", geometry=EXACT) as one,
        IndexStore(tmp_path / "two", geometry=EXACT) as two,
    ):
        writers = IndexWriter(one, cached_tiles=8), IndexWriter(two, cached_tiles=8)
        for _ in range(6):
            changes = [random_change(found, rng) for _ in range(rng.choice([1, 9]))]
            batches = [message for made in changes for message in job.log(made)], [source.log(made) for made in changes]
            order = rng.sample(range(len(changes)), len(changes))
            for plan, writer, batch in zip((with_a_job, direct), writers, batches, strict=True):
                assert not writer.apply(plan, [batch[position] for position in order]).refused
                # Records that are delivered again change nothing.
                assert not writer.apply(plan, batch[: len(batch) // 3]).written
        assert entries(one) == entries(two)
        assert entries(one)


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("end", ["latest", "aggregate"])
def test_steps_give_the_rows_of_the_in_process_engine(name: str, end: str, tmp_path: Path) -> None:
    rng, chain = random.Random(f"{name} {end}"), CHAINS[name]
    operator: ops.Operator = ops.Latest(of=chain, keys=("k",))
    if end == "aggregate":
        operator = ops.Aggregate(of=chain, keys=("k",), aggregates=(COUNT,))
    out = derived(operator)
    plan, engine = planned(out), LocalEngine([EVENTS, out])
    source = Source(plan)
    encode = RecordCodec.of_keys(plan.keys).encode_key
    columns = [field.name for field in out.fields]
    with IndexStore(tmp_path / "index", geometry=EXACT) as store:
        writer, reader = IndexWriter(store), IndexReader(store)
        for _ in range(4):
            changes = [change(rng) for _ in range(10)]
            engine.apply_changes("Events", changes)
            applied = writer.apply(plan, source.log_all(changes, rng))
            assert not applied.refused
            assert applied.written + applied.unchanged == len(changes)
            for at_us in (0, 3 * S, 8 * S + 1, 30 * S):
                keys: list[tuple[object, ...]] = [("a",), ("b",), ("never",)]
                got = reader.read(plan, [encode(key) or b"" for key in keys], at_us, columns)
                assert got == engine.lookup("Out", keys, at_us, columns)


@pytest.mark.parametrize("name", CHAINS)
def test_records_of_blocks_are_applied_alone_as_they_are_together(name: str, tmp_path: Path) -> None:
    rng = random.Random(name)
    plan = planned(derived(ops.Aggregate(of=CHAINS[name], keys=("k",), aggregates=(COUNT,))))
    messages = Source(plan).log_all([change(rng) for _ in range(60)], rng)
    with (
        IndexStore(tmp_path / "one", geometry=EXACT) as one,
        IndexStore(tmp_path / "two", geometry=EXACT) as two,
    ):
        together, alone = IndexWriter(one), IndexWriter(two)
        together.apply(plan, messages)
        for single in (single for message in messages for single in singles_of(message)):
            alone.apply_single(plan, single)
        assert two.offsets(plan.asset) == {}
        for message in messages:
            alone.skip(plan, message)
        # Delivered again, nothing is added.
        assert not together.apply(plan, messages[10:]).written
        assert entries(one) == entries(two)
        assert entries(one)
        assert one.offsets(plan.asset) == two.offsets(plan.asset)


def test_a_damaged_block_is_refused_and_the_others_are_taken(tmp_path: Path) -> None:
    plan = planned(derived(ops.Aggregate(of=events, keys=("k",), aggregates=(COUNT,))))
    rng, source = random.Random(1), Source(plan)
    values = [source.log(change(rng))[1] or b"" for _ in range(4)]
    # The third record of the second block is of another schema.
    blocks = [block_of(values)[:-1], block_of([*values[:2], values[2].replace(values[2][2:7], b"\xce\0\0\0\1")])]
    with IndexStore(tmp_path / "index") as store:
        applied = IndexWriter(store).apply(plan, [(None, block, 0, offset) for offset, block in enumerate(blocks)])
        assert (applied.written, applied.refused) == (2, 2)
        assert store.offsets(plan.asset) == {0: 2}


class Broker:
    """A topic of dead letters, which may be away."""

    def __init__(self) -> None:
        self.away = False
        self.letters: list[dict[str, object]] = []

    def send(self, topic: str, records: Sequence[tuple[bytes, bytes]]) -> None:
        if self.away:
            raise UnavailableError("away")
        assert topic == DEAD_LETTERS
        self.letters += [orjson.loads(value) for _, value in records]


def test_a_row_whose_key_is_too_long_becomes_a_dead_letter_before_it_is_passed(tmp_path: Path) -> None:
    plan = planned(derived(ops.Aggregate(of=events, keys=("k",), aggregates=(SUM,))))
    source, broker = Source(plan), Broker()
    rows = [{"k": "a", "x": 1, "y": None}, {"k": "b" * (MAX_KEY_BYTES + 1), "x": 2, "y": None}]
    batch = [source.log(SourceChange(time_us=S, row=row)) for row in rows]
    with IndexStore(tmp_path / "index") as store:
        writer = IndexWriter(store, send=broker.send)
        broker.away = True
        with pytest.raises(UnavailableError):
            writer.apply(plan, batch)
        assert store.offsets(plan.asset) == {}
        broker.away = False
        applied = writer.apply(plan, batch)
        assert (applied.written, applied.refused) == (1, 1)
        assert store.offsets(plan.asset) == {0: 2}
    (letter,) = broker.letters
    assert (letter["dataset"], letter["pipeline"], letter["event_time"]) == ("Out", "made", S)
    assert plan.direct is not None
    assert letter["index"] == plan.direct.label
    reasons = letter["reason"]
    assert isinstance(reasons, list)
    assert [reason["field"] for reason in reasons] == ["k"]
    assert "at most 65,000 can be indexed" in reasons[0]["message"]
    assert isinstance(letter["row"], str)
    assert letter["row"].startswith('{"k":"bbb')


def test_a_part_of_a_divided_index_takes_the_keys_that_it_holds(tmp_path: Path) -> None:
    plan = planned(derived(ops.Aggregate(of=events, keys=("k",), aggregates=(SUM,))))
    encode = RecordCodec.of_keys(plan.keys).encode_key
    rng = random.Random(1)
    source = Source(plan)
    batch = [source.log(change(rng)) for _ in range(20)]
    with IndexStore(tmp_path / "index") as store:
        writer = IndexWriter(store)
        writer.prepare(plan, lambda key: key == encode(["b"]))
        applied = writer.apply(plan, batch)
        assert applied.written + applied.unchanged == 20
        _, found = IndexReader(store).read(plan, [encode(["a"]) or b"", encode(["b"]) or b""], 100 * S, ["total"])
        assert found == [False, True]
        # The offsets are behind all records, so none is read again.
        assert store.offsets(plan.asset) == {0: 20}


def test_a_key_is_erased_from_the_dataset_that_it_was_asked_for(tmp_path: Path) -> None:
    sums = derived(ops.Aggregate(of=events, keys=("k",), aggregates=(SUM,)), "Sums")
    counts = derived(ops.Aggregate(of=events, keys=("k",), aggregates=(COUNT,)), "Counts")
    plans = plan_graph(Graph(datasets=(EVENTS, indexed(sums), indexed(counts)))).indexes
    assert len({plan.topic for plan in plans}) == 1
    erased = ErasedKeys(lambda: {"one": b"k" * 32})
    scope = plans[0].erasure_scope
    made = erasure_of(scope, plans[0].schema.keys, ["a"], "one", b"k" * 32)
    source, rng = Source(plans[0]), random.Random(1)
    batch = [source.log(change(rng)) for _ in range(20)]
    batch.append((*encode_erasure(scope, made), 0, 20))
    encode = RecordCodec.of_keys(plans[0].keys).encode_key
    with IndexStore(tmp_path / "index") as store:
        writer, reader = IndexWriter(store, erased=erased), IndexReader(store, erased=erased)
        for plan in plans:
            assert not writer.apply(plan, batch).refused
        key = encode(["a"]) or b""
        assert reader.read(plans[0], [key], 10 * S, ["total"])[1] == [False]
        assert reader.read(plans[1], [key], 10 * S, ["n"])[1] == [True]


NOT_DIRECT: dict[str, Callable[[], ops.Operator]] = {
    "a step with state": lambda: ops.Dedup(of=events, by=("k",)),
    "several rows of a row": lambda: ops.Union(left=events, right=events),
    "an expression that can fail": lambda: ops.Assign(
        of=events,
        columns=(ops.AssignedColumn(name="z", dtype=optional(INT), expr=compare(BinaryOp.MOD, X, X)),),
    ),
    "a table": lambda: ops.Latest(of=events, keys=("k",)),
}


@pytest.mark.parametrize("name", NOT_DIRECT)
def test_what_keeps_state_or_can_fail_takes_a_job(name: str) -> None:
    operator = ops.Aggregate(of=NOT_DIRECT[name](), keys=("k",), aggregates=(COUNT,))
    plan = plan_graph(Graph(datasets=(EVENTS, indexed(derived(operator)))))
    assert [index.direct for index in plan.indexes] == [None]
    assert [job.dataset for job in plan.jobs] == ["Out"]
    assert plan.indexes[0].topic == plan.jobs[0].output.name


def test_a_table_that_an_index_makes_is_a_step_of_what_reads_it() -> None:
    table = indexed(derived(ops.Latest(of=ops.Filter(of=events, predicate=SMALL), keys=("k",)), "Newest"))
    reading = ops.Aggregate(of=ops.Input(dataset="Newest"), keys=("x",), aggregates=(COUNT,))
    reader = indexed(derived(reading, sources=(EVENTS, table)))
    plan = plan_graph(Graph(datasets=(EVENTS, table, reader)))
    (job,) = plan.jobs
    assert [topic.dataset for topic in job.inputs] == ["Events"]
    assert {topic.dataset for topic in plan.topics} == {"Events", "Out"}
    # A join needs the topic of its right side, and the index of the table stays as it is.
    joined = ops.Join(
        left=ops.Drop(of=events, columns=("y",)),
        right="Newest",
        how=ops.JoinKind.LEFT,
        left_on=("k",),
        right_on=("k",),
        within_low_us=None,
        within_high_us=0,
        fields=("y",),
    )
    right = derived(joined, "Joined", sources=(EVENTS, table))
    more = plan_graph(Graph(datasets=(EVENTS, table, reader, right)))
    assert {job.dataset for job in more.jobs} == {"Newest", "Out", "Joined"}
    assert more.indexes[0] == plan.indexes[0]


def test_types_stay_as_they_are_declared() -> None:
    assert {STRING, INT} <= {column.dtype for column in planned(derived(ops.Latest(of=events, keys=("k",)))).fields}
