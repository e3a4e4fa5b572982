"""The index against a dictionary, through kills between any two writes, damage, loss, snapshots and restores.

A topic grows and the index follows it in batches. Whatever happens to its files, it is at some offset afterwards, and
every read equals that of a dictionary of the records up to that offset; from there the index catches up again.
"""

import logging
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.storage.database import TRANSLATED
from caraway.dataplane.index.storage.repair import FORMAT_KEY
from caraway.dataplane.index.storage.snapshots import FILES, Snapshots
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.dataplane.topics.codec import DELETE, PUT, RETRACT
from caraway.dataplane.topics.identity import position_id
from caraway.errors import UnavailableError
from caraway.graph.plan.model import IndexKind, IndexPlan
from tests.effort import examples
from tests.unit.dataplane.index.naive import ALL_AGGREGATES, CODEC, SECOND, SMALL, NaiveIndex, Sent, index_plan
from tests.unit.dataplane.index.test_index import COLUMNS, KEYS, ROW_COLUMNS, revisions, rows, same, times

pytestmark = pytest.mark.slow

# The most starts until the index is sound: damage found at a start and damage found by reads each cost one start.
MOST_STARTS = 6
# How many snapshots are kept; each of them may have the damage.
KEPT = 2


@dataclass(frozen=True)
class Harm:
    """Damage to a file at a share of its length: it is cut there, or a byte changes.

    The number and length of files differ between runs, so the drawn values can't depend on them.
    """

    position: float
    change: int

    def do(self, path: Path) -> None:
        content = bytearray(path.read_bytes())
        at = int(self.position * len(content))
        if self.change and content:
            content[at] ^= self.change
        path.write_bytes(content if self.change else content[:at])


harms = st.builds(Harm, st.floats(0, 1, exclude_max=True), st.just(0) | st.integers(1, 255))


class CrashMachine(RuleBasedStateMachine):
    """A topic, an index that follows it, and all events that may happen to both."""

    plan: IndexPlan
    columns: list[str]

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "db"
        self.now = 1_700_000_000.0
        self.objects = ObjectFolder(f"{self.folder.name}/objects")
        self.topic: list[Sent] = []
        self.next_id = 0
        self.start()

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    def clock(self) -> float:
        self.now += 1
        return self.now

    def start(self) -> None:
        """Open the index as a server does when it starts."""
        self.snapshots = Snapshots(self.objects, kept=KEPT, clock=self.clock)
        self.store = IndexStore(self.path, geometry=SMALL, cache_bytes=1 << 20, restore=self.snapshots.restore)
        self.writer = IndexWriter(self.store, cached_tiles=8)
        self.reader = IndexReader(self.store)
        self.stand()

    def stand(self) -> None:
        """Move the model to the offset of the index."""
        self.offset = self.store.offsets(self.plan.asset).get(0, 0)
        self.naive = NaiveIndex(self.plan)
        for sent in self.topic[: self.offset]:
            self.naive.apply(sent)

    def new_id(self) -> bytes:
        self.next_id += 1
        return position_id(self.next_id, 1)

    @rule(key=st.sampled_from(KEYS), many=st.lists(st.tuples(times, rows), min_size=1, max_size=4))
    def put(self, key: str, many: list[tuple[int, tuple[Any, ...]]]) -> None:
        self.topic += [Sent(key, self.new_id(), b"", PUT, time, row) for time, row in many]

    @precondition(lambda self: self.plan.kind is IndexKind.VERSIONS)
    @rule(key=st.sampled_from(KEYS), time=times, row=rows)
    def delete(self, key: str, time: int, row: tuple[Any, ...]) -> None:
        self.topic.append(Sent(key, self.new_id(), b"", DELETE, time, row))

    @precondition(lambda self: self.topic)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        self.topic.append(data.draw(st.sampled_from(self.topic)))

    @precondition(lambda self: self.plan.revised and self.next_id)
    @rule(data=st.data(), rev=revisions, key=st.sampled_from(KEYS), time=times, row=st.none() | rows)
    def revise(self, data: st.DataObject, rev: bytes, key: str, time: int, row: tuple[Any, ...] | None) -> None:
        record_id, op = position_id(data.draw(st.integers(1, self.next_id)), 1), RETRACT if row is None else PUT
        known = (sent for sent in self.topic if (sent.record_id, sent.rev, sent.op) == (record_id, rev, op))
        self.topic.append(next(known, Sent(key, record_id, rev, op, time, row)))

    def follow(self, count: int) -> None:
        """Apply the next records of the topic in one write."""
        taken = self.topic[self.offset : self.offset + count]
        self.writer.apply(self.plan, [sent.message(self.offset + position) for position, sent in enumerate(taken)])
        for sent in taken:
            self.naive.apply(sent)
        self.offset += len(taken)

    @rule(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3))
    def tail(self, sizes: list[int]) -> None:
        for size in sizes:
            self.follow(size)

    @rule()
    def flush(self) -> None:
        self.store.db.flush()

    @rule(sizes=st.lists(st.integers(1, 3), max_size=3), torn=st.sampled_from([0, 0, 1, 7, 40, 400]))
    def kill(self, sizes: list[int], torn: int) -> None:
        """End the process after some writes; the last `torn` bytes of the log didn't reach the disk."""
        for size in sizes:
            self.follow(size)
        image = self.path.with_name("image")
        shutil.copytree(self.path, image)
        self.store.close()
        shutil.rmtree(self.path)
        image.rename(self.path)
        logs = [path for path in sorted(self.path.glob("*.log")) if path.stat().st_size]
        for log in logs[-1:]:
            log.write_bytes(log.read_bytes()[: max(0, log.stat().st_size - torn)])
        before = self.offset
        self.start()
        assert self.offset <= before
        assert torn or self.offset == before

    @rule()
    def snapshot(self) -> None:
        self.snapshots.take(self.store)

    @rule(which=st.integers(0, 30), harm=harms)
    def damage_snapshot(self, which: int, harm: Harm) -> None:
        if stored := self.objects.stored(FILES):
            harm.do(Path(self.folder.name) / "objects" / stored[which % len(stored)].name)

    @rule()
    def lose(self) -> None:
        """Start on another server, which has no files of its own."""
        self.store.close()
        shutil.rmtree(self.path)
        self.start()
        self.compare([100 * SECOND])

    @rule(which=st.integers(0, 30), harm=harms)
    def damage(self, which: int, harm: Harm) -> None:
        self.store.db.flush()
        self.store.close()
        victims = [path for path in sorted(self.path.iterdir()) if path.name not in {"LOCK", "LOG"}]
        harm.do(victims[which % len(victims)])
        for _ in range(MOST_STARTS):
            self.start()
            try:
                self.compare([100 * SECOND, 5 * SECOND])
            except UnavailableError:
                assert self.store.damaged
            else:
                try:
                    self.follow(3)
                    with TRANSLATED:
                        self.store.db.compact_range(None, None)
                except UnavailableError as error:
                    # A write met RocksDB's error: the tail would mark the database as damaged then.
                    self.store.mark_damaged(str(error))
                else:
                    break
            self.store.close()
        else:
            pytest.fail("no start leads to a sound index")

    @rule(ats=st.lists(times, min_size=1, max_size=4))
    def read(self, ats: list[int]) -> None:
        self.compare([*ats, *(at + 9 * SECOND for at in ats)])

    @invariant()
    def read_now(self) -> None:
        self.compare([100 * SECOND])

    def compare(self, ats: list[int]) -> None:
        keys = [key for key in (*KEYS, "never") for _ in ats]
        asked = [CODEC.encode_key([key]) or b"" for key in keys]
        columns, found = self.reader.read(self.plan, asked, ats * (len(KEYS) + 1), self.columns)
        for position, (key, at) in enumerate(zip(keys, ats * (len(KEYS) + 1), strict=True)):
            expected, there = self.naive.read(key, at, self.columns)
            assert there == found[position]
            assert same([column[position] for column in columns], expected), (key, at)


class Versions(CrashMachine):
    plan = index_plan(IndexKind.VERSIONS, revised=False)
    columns = ROW_COLUMNS


class RevisedVersions(CrashMachine):
    plan = index_plan(IndexKind.VERSIONS, revised=True)
    columns = ROW_COLUMNS


class Aggregates(CrashMachine):
    plan = index_plan(IndexKind.AGGREGATE, revised=False, aggregates=ALL_AGGREGATES)
    columns = COLUMNS


class RevisedAggregates(CrashMachine):
    plan = index_plan(IndexKind.AGGREGATE, revised=True, aggregates=ALL_AGGREGATES)
    columns = COLUMNS


@pytest.mark.parametrize("machine", [Versions, RevisedVersions, Aggregates, RevisedAggregates])
def test_nothing_that_happens_to_the_files_makes_a_read_wrong(
    machine: type[CrashMachine], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(12),
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_an_index_with_unreadable_offsets_is_built_anew(tmp_path: Path) -> None:
    path, plan = tmp_path / "db", Versions.plan
    sent = Sent("a", position_id(1, 1), b"", PUT, 1, (1, 0.5, "1.00"))
    with IndexStore(path, geometry=SMALL, cache_bytes=1 << 20) as store:
        IndexWriter(store, cached_tiles=8).apply(plan, [sent.message(7)])
        store.db.flush()
        (offsets,) = path.glob("*.sst")
        # This puts the mark of the format into another file.
        store.db.put(FORMAT_KEY, store.format)
        store.db.flush()
    content = bytearray(offsets.read_bytes())
    content[0] ^= 1
    offsets.write_bytes(content)
    with IndexStore(path, geometry=SMALL, cache_bytes=1 << 20) as store:
        assert store.offsets(plan.asset) == {}
