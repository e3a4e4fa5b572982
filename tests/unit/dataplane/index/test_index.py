"""The index against a dictionary, over traces that Hypothesis makes."""

import math
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.codec import DELETE, PUT, RETRACT
from caraway.dataplane.topics.identity import position_id
from caraway.graph.plan.model import IndexKind, IndexPlan
from tests.effort import examples
from tests.unit.dataplane.index.naive import ALL_AGGREGATES, CODEC, SECOND, SMALL, NaiveIndex, Sent, index_plan

KEYS = ("a", "b")
COLUMNS = ["k", *(spec.into for spec in ALL_AGGREGATES), "t"]
ROW_COLUMNS = ["x", "k", "t", "n", "d"]

# Quarters of a second and the instants a microsecond beside them, so that times coincide with edges of windows and
# tiles, and with each other.
times = st.builds(
    lambda quarters, rest: quarters * SECOND // 4 + rest, st.integers(-30, 90), st.sampled_from([0, 0, 0, 1, -1])
)
rows = st.tuples(
    st.none() | st.integers(-3, 3) | st.sampled_from([2**62, -(2**63)]),
    st.none() | st.floats(-4, 4, width=16) | st.sampled_from([1e16, -1e16, 0.1, 5e-324, 1e300, math.inf, math.nan]),
    st.none() | st.sampled_from(["0.00", "1.25", "-0.01", "99999.99"]),
)
revisions = st.integers(0, 3).map(lambda n: bytes([n]) if n else b"")


def same(left: object, right: object) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return type(left) is type(right) and left == right


class IndexMachine(RuleBasedStateMachine):
    """Batches of records in any order, some delivered again; between them the database is closed and opened."""

    plan: IndexPlan
    columns: list[str]

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.naive = NaiveIndex(self.plan)
        self.history: list[Sent] = []
        self.pending: list[Sent] = []
        self.offset = 0
        self.next_id = 0
        self._open()

    def _open(self) -> None:
        self.store = IndexStore(Path(self.folder.name) / "db", geometry=SMALL, cache_bytes=1 << 20)
        # The cache has few tiles, so most are read from the database again.
        self.writer = IndexWriter(self.store, cached_tiles=8)
        self.reader = IndexReader(self.store)

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    def new_id(self) -> bytes:
        self.next_id += 1
        return position_id(self.next_id, 1)

    def send(self, sent: Sent) -> None:
        self.pending.append(sent)

    @rule(key=st.sampled_from(KEYS), time=times, row=rows)
    def put(self, key: str, time: int, row: tuple[Any, ...]) -> None:
        self.send(Sent(key, self.new_id(), b"", PUT, time, row))

    @rule(key=st.sampled_from(KEYS), start=times, step=st.sampled_from([0, 1, 997, SECOND // 3]), row=rows)
    def burst(self, key: str, start: int, step: int, row: tuple[Any, ...]) -> None:
        for position in range(6):
            self.send(Sent(key, self.new_id(), b"", PUT, start + position * step, row))

    @precondition(lambda self: self.history)
    @rule(data=st.data())
    def deliver_again(self, data: st.DataObject) -> None:
        self.send(data.draw(st.sampled_from(self.history)))

    @precondition(lambda self: self.pending)
    @rule(order=st.randoms(use_true_random=False))
    def write(self, order: random.Random) -> None:
        order.shuffle(self.pending)
        messages = [sent.message(self.offset + position) for position, sent in enumerate(self.pending)]
        applied = self.writer.apply(self.plan, messages)
        assert applied.refused == 0
        assert applied.written + applied.unchanged == len(messages)
        for sent in self.pending:
            self.naive.apply(sent)
        self.history += self.pending
        self.pending = []
        self.offset += len(messages)
        assert self.store.offsets(self.plan.asset) == {0: self.offset}

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self._open()

    @rule(ats=st.lists(times, min_size=1, max_size=5))
    def read(self, ats: list[int]) -> None:
        self.compare([*ats, *(t + 9 * SECOND for t in ats)])

    @invariant()
    def read_now(self) -> None:
        self.compare([100 * SECOND])

    def compare(self, ats: list[int]) -> None:
        keys = [key for key in (*KEYS, "never") for _ in ats]
        asked = [CODEC.encode_key([key]) or b"" for key in keys]
        at_us = ats * (len(KEYS) + 1)
        columns, found = self.reader.read(self.plan, asked, at_us, self.columns)
        for position, (key, at) in enumerate(zip(keys, at_us, strict=True)):
            expected, there = self.naive.read(key, at, self.columns)
            got = [column[position] for column in columns]
            assert there == found[position]
            assert same(got, expected), (key, at, dict(zip(self.columns, zip(got, expected, strict=True), strict=True)))


class RevisedMachine(IndexMachine):
    """The same with revisions: other rows, times and keys for an id, retractions, ends and changed ends."""

    @precondition(lambda self: self.next_id)
    @rule(data=st.data(), rev=revisions, position=st.tuples(st.sampled_from(KEYS), times), row=st.none() | rows)
    def revise(self, data: st.DataObject, rev: bytes, position: tuple[str, int], row: tuple[Any, ...] | None) -> None:
        """Send another revision of an id; its content is a function of id and revision, as an operator's output is."""
        record_id, op = position_id(data.draw(st.integers(1, self.next_id)), 1), RETRACT if row is None else PUT
        for sent in (*self.history, *self.pending):
            if (sent.record_id, sent.rev) == (record_id, rev) and sent.op == op:
                self.send(sent)
                return
        self.send(Sent(position[0], record_id, rev, op, position[1], row))


class VersionMachine(IndexMachine):
    plan = index_plan(IndexKind.VERSIONS, revised=False)
    columns = ROW_COLUMNS

    @rule(key=st.sampled_from(KEYS), time=times, row=rows)
    def delete(self, key: str, time: int, row: tuple[Any, ...]) -> None:
        self.send(Sent(key, self.new_id(), b"", DELETE, time, row))


class RevisedVersionMachine(RevisedMachine):
    plan = index_plan(IndexKind.VERSIONS, revised=True)
    columns = ROW_COLUMNS

    @rule(key=st.sampled_from(KEYS), time=times, row=rows)
    def delete(self, key: str, time: int, row: tuple[Any, ...]) -> None:
        self.send(Sent(key, self.new_id(), b"", DELETE, time, row))


class AggregateMachine(IndexMachine):
    plan = index_plan(IndexKind.AGGREGATE, revised=False, aggregates=ALL_AGGREGATES)
    columns = COLUMNS


class RevisedAggregateMachine(RevisedMachine):
    plan = index_plan(IndexKind.AGGREGATE, revised=True, aggregates=ALL_AGGREGATES)
    columns = COLUMNS

    @initialize()
    def no_versions(self) -> None:
        self.versions: dict[bytes, tuple[str, int, tuple[Any, ...]]] = {}

    @rule(key=st.sampled_from(KEYS), time=times, row=rows)
    def changelog_put(self, key: str, time: int, row: tuple[Any, ...]) -> None:
        record_id = self.new_id()
        self.versions[record_id] = key, time, row
        self.send(Sent(key, record_id + b"\x00", b"", PUT, time, row))

    @precondition(lambda self: self.versions)
    @rule(data=st.data(), lifetime=st.integers(0, 12 * SECOND), op=st.sampled_from([DELETE, DELETE, RETRACT]))
    def changelog_end(self, data: st.DataObject, lifetime: int, op: int) -> None:
        record_id = data.draw(st.sampled_from(sorted(self.versions)))
        key, time, row = self.versions[record_id]
        revs = [s.rev for s in (*self.history, *self.pending) if s.record_id == record_id + b"\x01"]
        rev = bytes([len(revs) + 1])
        self.send(Sent(key, record_id + b"\x01", rev, op, time + lifetime, row))


MACHINES = [
    pytest.param(VersionMachine, marks=pytest.mark.slow),
    RevisedVersionMachine,
    pytest.param(AggregateMachine, marks=pytest.mark.slow),
    RevisedAggregateMachine,
]


def check(machine: type[IndexMachine], number: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=number, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@pytest.mark.parametrize("machine", MACHINES)
def test_the_index_answers_as_a_dictionary_does(machine: type[IndexMachine]) -> None:
    check(machine, examples(12))
