"""Erased keys: reads equal those of the in-process engine, and nothing of the keys is left in the database."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from caraway.dataplane.index.feeding.worker import IndexWorker
from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.records.removal import compact, known_erasures, mark_removed, remove
from caraway.dataplane.index.storage import store as store_module
from caraway.dataplane.index.storage.keys import ERASED, LOCATIONS, META
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.codec import DELETE, PUT, RecordCodec
from caraway.dataplane.topics.erased_keys import ErasedKeys, encode_erasure, erasure_of
from caraway.dataplane.topics.identity import position_id
from caraway.errors import UnavailableError
from caraway.graph.erase_keys import Erasure
from caraway.graph.plan.model import Column, IndexKind, IndexPlan, RecordSchema, TopicKind, TopicPlan
from tests.unit.dataplane.index.oracle import Case, Job, fresh_random, random_change
from tests.unit.dataplane.index.test_against_engine import CASES, EXACT, compare, times

MAC_KEYS = {"one": b"k" * 32}


def erasure(plan: IndexPlan, value: str) -> tuple[Erasure, tuple[bytes, bytes, int, int]]:
    """Return the erasure of a group of an aggregate, and its record as Kafka delivers it."""
    made = erasure_of(plan.topic, plan.schema.keys, [value], "one", MAC_KEYS["one"])
    key, record = encode_erasure(made)
    return made, (key, record, 0, 10**6)


def left_of(store: IndexStore, asset: bytes, text: bytes) -> list[bytes]:
    """Return the entries of an asset that contain a text."""
    found = []
    iterator = store.iterator()
    iterator.seek(b"")
    while iterator.valid():
        key, value = iterator.key(), iterator.value()
        if key.startswith(asset) and not key.startswith(META) and (text in key or text in value):
            found.append(key)
        iterator.next()
    return found


def removed_all(store: IndexStore, writer: IndexWriter, plan: IndexPlan, erased: ErasedKeys, *, slices_of: int) -> int:
    """Remove the entries of erased keys as the worker does, in slices; return how many were removed."""
    hides = erased.hides(plan.topic, plan.schema.keys)
    assert hides is not None
    pending = known_erasures(store, plan.asset, pending=True)
    removed, start = 0, b""
    while True:
        done = remove(store, plan.asset, hides, start, slices_of)
        writer.take_over()
        removed += done.removed
        if done.next is None:
            break
        start = done.next
    mark_removed(store, plan.asset, pending)
    assert known_erasures(store, plan.asset, pending=True) == []
    return removed


# A case takes half a second, so the fast tier takes every eighth.
@pytest.mark.filterwarnings("ignore:aggregate")
@pytest.mark.parametrize(
    "found", [pytest.param(c, id=c.name, marks=[pytest.mark.slow] * (n % 8 > 0)) for n, c in enumerate(CASES)]
)
def test_an_erased_group_looks_as_if_it_had_never_been(found: Case, tmp_path: Path) -> None:
    rng = fresh_random()
    job, erased = Job(found), ErasedKeys(lambda: MAC_KEYS)
    with IndexStore(tmp_path / "index", geometry=EXACT, cache_bytes=1 << 20) as store:
        writer = IndexWriter(store, cached_tiles=8, erased=erased)
        reader = IndexReader(store, erased)

        def log(rows: int) -> None:
            waiting: list[Any] = []
            for _ in range(rows):
                waiting += job.log(random_change(found, rng))
            for start in range(0, len(waiting), 7):
                assert not writer.apply(found.plan, waiting[start : start + 7]).refused

        def agree() -> None:
            compare(found, job, reader, times(job, rng)[:4], exact=True)

        log(15)
        agree()
        job.engine.erase(found.out.name, [{"g": "a"}])
        _, record = erasure(found.plan, "a")
        assert not writer.apply(found.plan, [record]).refused
        agree()
        log(6)
        agree()
        removed_all(store, writer, found.plan, erased, slices_of=3)
        agree()
        group = (RecordCodec(found.plan.schema).encode_key(["a"]) or b"")[1:]
        entries = [k for k in left_of(store, found.plan.asset, group) if not k.startswith(found.plan.asset + ERASED)]
        assert not [key for key in entries if group in key or key.startswith(found.plan.asset + LOCATIONS)]
        log(6)
        agree()


KEY = Column(name="k", dtype=CASES[0].plan.schema.keys[0].dtype)
SCHEMA = RecordSchema(keys=(KEY,), columns=(KEY, Column(name="v", dtype=KEY.dtype)), timestamp="t", fingerprint=7)


def version_plan(*, revised: bool) -> IndexPlan:
    return IndexPlan(
        dataset="Versions",
        asset=b"versions",
        kind=IndexKind.VERSIONS,
        topic="caraway.Versions.1",
        schema=SCHEMA,
        revised=revised,
        aggregates=(),
        fields=(*SCHEMA.columns, Column(name="t", dtype=KEY.dtype)),
    )


class Trace:
    """Records of versions, as they come from a topic."""

    def __init__(self) -> None:
        self.codec = RecordCodec(SCHEMA)
        self.offset = 0

    def version(self, key: str, value: str, time_us: int, *, of: int | None = None, rev: int = 0, op: int = PUT) -> Any:
        record_id = None if of is None else position_id(of, 0)
        data = self.codec.encode_value(
            op=op, time_us=time_us, ingested_us=1, record_id=record_id, rev=rev.to_bytes(4), row=[key, value]
        )
        self.offset += 1
        return self.codec.encode_key([key]), data, 0, self.offset - 1


def read(reader: IndexReader, plan: IndexPlan, *keys: str) -> list[object]:
    codec = RecordCodec(SCHEMA)
    (values,), found = reader.read(plan, [codec.encode_key([key]) or b"" for key in keys], 100, ["v"])
    assert [value is not None for value in values] == found
    return values


@pytest.fixture
def store(tmp_path: Path) -> Iterator[IndexStore]:
    with IndexStore(tmp_path / "index") as made:
        yield made


def test_what_comes_later_is_left_out_and_what_was_there_goes(store: IndexStore) -> None:
    plan, trace, erased = version_plan(revised=False), Trace(), ErasedKeys(lambda: MAC_KEYS)
    writer, reader = IndexWriter(store, erased=erased), IndexReader(store, erased)
    rows = [trace.version(key, f"{key} {n}", n) for n in range(3) for key in ("ann", "bob", "cid")]
    writer.apply(plan, rows)
    erasures = [erasure(plan, name)[1] for name in ("ann", "cid")]
    # One batch has the erasures with rows before and behind them.
    writer.apply(plan, [trace.version("ann", "late", 7), *erasures, trace.version("ann", "later", 8)])
    assert read(reader, plan, "ann", "bob", "cid", "dan") == [None, "bob 2", None, None]
    assert left_of(store, plan.asset, b"ann")
    assert not left_of(store, plan.asset, b"late")
    assert removed_all(store, writer, plan, erased, slices_of=1) == 2
    assert not left_of(store, plan.asset, b"ann") + left_of(store, plan.asset, b"cid")
    # A replay of everything after a restart brings nothing back, since the database itself knows the erasures.
    again = ErasedKeys(lambda: MAC_KEYS)
    anew = IndexWriter(store, erased=again)
    anew.apply(plan, rows)
    assert not left_of(store, plan.asset, b"ann")
    assert read(IndexReader(store, again), plan, "ann", "bob") == [None, "bob 2"]
    assert compact(store, plan.asset, threading.Event())
    assert read(reader, plan, "bob") == ["bob 2"]


def test_what_was_removed_is_off_the_disk_when_nobody_reads_it_any_more(store: IndexStore) -> None:
    plan, trace, erased = version_plan(revised=False), Trace(), ErasedKeys(lambda: MAC_KEYS)
    writer = IndexWriter(store, erased=erased)
    writer.apply(plan, [trace.version("ann", "private", 1), trace.version("bob", "new", 1)])
    store.db.flush()
    held = {path for path in store.path.glob("*.sst") if b"private" in path.read_bytes()}
    assert held
    writer.apply(plan, [erasure(plan, "ann")[1]])
    removed_all(store, writer, plan, erased, slices_of=10)
    # A read that began before keeps the old files.
    reading = store.iterator()
    reading.seek(plan.asset)
    assert not compact(store, plan.asset, threading.Event(), seconds=0.2)
    assert all(path.exists() for path in held)
    del reading
    assert compact(store, plan.asset, threading.Event())
    assert not any(path.exists() for path in held)
    assert not any(b"private" in path.read_bytes() for path in store.path.glob("*.sst"))


@pytest.mark.parametrize("at_once", [1, 8])
@pytest.mark.parametrize("flushed", [(), ("bob",), ("bob", "ann")])
def test_the_erased_key_itself_is_off_the_disk(
    store: IndexStore, flushed: tuple[str, ...], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The mark of a removal has the key in clear, also where no other table has entries that the mark covers.
    monkeypatch.setattr(store_module, "REWRITTEN_AT_ONCE", at_once)
    plan, trace, erased = version_plan(revised=False), Trace(), ErasedKeys(lambda: MAC_KEYS)
    writer = IndexWriter(store, erased=erased)
    writer.apply(plan, [trace.version(key, "value", 1) for key in flushed])
    store.db.flush()
    store.db.compact_range(None, None)
    for key in ("aaa", "ann", "cid"):
        writer.apply(plan, [trace.version(key, "private" if key == "ann" else "value", 2)])
        if flushed:
            store.db.flush()
    writer.apply(plan, [erasure(plan, "ann")[1]])
    removed_all(store, writer, plan, erased, slices_of=10)
    assert compact(store, plan.asset, threading.Event())
    tables = b"".join(path.read_bytes() for path in store.path.glob("*.sst"))
    assert b"cid" in tables
    assert b"ann" not in tables
    assert b"private" not in tables


def test_a_row_that_moves_to_an_erased_key_is_gone_from_the_other(store: IndexStore) -> None:
    plan, trace, erased = version_plan(revised=True), Trace(), ErasedKeys(lambda: MAC_KEYS)
    writer, reader = IndexWriter(store, erased=erased), IndexReader(store, erased)
    writer.apply(plan, [trace.version("bob", "moves", 1, of=0, rev=1), trace.version("ann", "stays", 1, of=1, rev=1)])
    assert read(reader, plan, "ann", "bob") == ["stays", "moves"]
    writer.apply(plan, [erasure(plan, "ann")[1]])
    writer.apply(plan, [trace.version("ann", "moved", 1, of=0, rev=2)])
    assert read(reader, plan, "ann", "bob") == [None, None]
    removed_all(store, writer, plan, erased, slices_of=1)
    assert not left_of(store, plan.asset, b"ann")
    # Old revisions that are delivered again are ignored; a newer one holds.
    writer.apply(plan, [trace.version("bob", "moves", 1, of=0, rev=1), trace.version("bob", "stays", 1, of=1, rev=0)])
    assert read(reader, plan, "bob") == [None]
    writer.apply(
        plan, [trace.version("bob", "back", 1, of=0, rev=3), trace.version("bob", "off", 0, of=1, rev=2, op=DELETE)]
    )
    assert read(reader, plan, "bob") == ["back"]


def test_without_the_keys_file_erased_rows_are_not_shown_and_not_lost(store: IndexStore) -> None:
    plan, trace = version_plan(revised=False), Trace()
    held: dict[str, bytes] = {}
    erased = ErasedKeys(lambda: held)
    writer, reader = IndexWriter(store, erased=erased), IndexReader(store, erased)
    writer.apply(plan, [trace.version("ann", "old", 1), erasure(plan, "ann")[1], trace.version("bob", "new", 1)])
    with pytest.raises(UnavailableError, match="hasn't got"):
        read(reader, plan, "bob")
    worker = IndexWorker("localhost:1", store, erased)
    with pytest.raises(UnavailableError, match="hasn't got"):
        worker.remove_erased(plan, threading.Event())
    held.update(MAC_KEYS)
    assert read(reader, plan, "ann", "bob") == [None, "new"]


def test_the_index_that_feeds_other_jobs_keeps_its_rows(store: IndexStore) -> None:
    topic = TopicPlan(dataset="V", name="v.rows", kind=TopicKind.VERSIONS, schema=SCHEMA, disorder_us=0)
    plan = replace(version_plan(revised=False), emits=topic)
    trace, erased = Trace(), ErasedKeys(lambda: MAC_KEYS)
    writer = IndexWriter(store, erased=erased)
    applied = writer.apply(
        plan, [trace.version("ann", "old", 1), erasure(plan, "ann")[1], trace.version("ann", "b", 2)]
    )
    assert (applied.written, applied.refused) == (2, 0)
    assert known_erasures(store, plan.asset) == []
