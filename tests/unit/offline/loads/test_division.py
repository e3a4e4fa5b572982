"""A database that was loaded from the tables of divisions answers as one to which the records were written."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.index.reader import DatasetReader, IndexReader
from caraway.dataplane.index.records.removal import known_erasures
from caraway.dataplane.index.storage.keys import after
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.codec import DELETE, PUT, RecordCodec
from caraway.dataplane.topics.erased_keys import ErasedKeys, encode_erasure, erasure_of
from caraway.dataplane.topics.identity import position_id
from caraway.dataplane.topics.reader import Message
from caraway.dtypes.types import FLOAT, INT, STRING, optional
from caraway.errors import InvalidInputError
from caraway.graph.plan.model import Column, IndexKind, IndexPlan, RecordSchema
from caraway.offline.loads.division import division_tables, erasures_table
from caraway.offline.loads.manifest import is_loadable
from caraway.offline.loads.ranges import KeyOrders, bounds_of
from caraway.offline.spark.pieces import RECORDS, divided
from tests.unit.dataplane.index.oracle import SECOND, Job, fresh_random, random_change
from tests.unit.dataplane.index.test_against_engine import CASES, times
from tests.unit.offline.topics import GivenTopics, topic_of

pytestmark = pytest.mark.filterwarnings("ignore:aggregate")

MAC_KEYS = {"one": b"k" * 32}
GROUPS = ["", "a", "b", "ba", "zz", "long" * 20, "\N{LATIN SMALL LETTER E WITH ACUTE}", "c", "d", "e"]
LOADABLE = [case for case in CASES if is_loadable(case.plan)]
CUSTOMER, SHOP = Column(name="customer", dtype=optional(INT)), Column(name="shop", dtype=STRING)
PAID = Column(name="paid", dtype=optional(FLOAT))
COMPOSITE = IndexPlan(
    dataset="Paid",
    asset=b"asset--2",
    kind=IndexKind.VERSIONS,
    topic="paid",
    schema=RecordSchema(keys=(CUSTOMER, SHOP), columns=(CUSTOMER, SHOP, PAID), timestamp="t", fingerprint=7),
    revised=False,
    aggregates=(),
    fields=(CUSTOMER, SHOP, PAID, Column(name="t", dtype=INT)),
)


def erasure_record(plan: IndexPlan, key: Sequence[object], offset: int) -> Message:
    erasure = erasure_of(plan.topic, plan.schema.keys, key, "one", MAC_KEYS["one"])
    return (*encode_erasure(erasure), 0, offset)


def load(plan: IndexPlan, messages: Sequence[Message], store: IndexStore, erased: ErasedKeys) -> int:
    """Build the tables of messages in some divisions, and load them; return how many tables they are."""
    folder, rng = store.path.parent, fresh_random()
    topic = topic_of(plan)
    rows = GivenTopics({plan.topic: messages}).records(topic, [column.name for column in plan.schema.columns]).rows
    orders = KeyOrders(plan.schema.keys, rows)
    divisions = rng.choice([1, 2, 5])
    bounds = bounds_of(rng.sample(orders.sample(), rows.height // 2), divisions)
    assert len(bounds) < divisions
    tables: list[Path] = []
    pieces = list(divided(rows, orders.divisions(bounds), RECORDS))
    for number in {piece.division for piece in pieces}:
        frames = [piece.frame[::-1] for piece in pieces if piece.division == number]
        own = folder / f"division-{number}"
        own.mkdir()
        made = division_tables(
            plan, topic, frames, folder=own, erased=erased, sorted_bytes=4000, table_bytes=rng.choice([1, 3000, 10**9])
        )
        records = 0
        for table in made:
            tables.append(folder / f"{number}-{len(tables)}.sst")
            table.path.rename(tables[-1])
            records += table.records
        assert records == sum(frame.height for frame in frames)
    if erasures_table(plan, erased, folder / "erased.sst"):
        tables.append(folder / "erased.sst")
    target = store.begin_load()
    moved = [path.rename(target / path.name) for path in tables]
    rng.shuffle(moved)
    store.load(plan.asset, moved, {0: max((m[3] for m in messages), default=-1) + 1, 3: 0})
    assert not list(target.glob("[0-9]*.sst"))
    store.end_load()
    return len(tables)


def answers(plan: IndexPlan, store: IndexStore, erased: ErasedKeys, keys: Sequence[Any], ats: Sequence[int]) -> str:
    columns = [field.name for field in plan.fields]
    reader = DatasetReader(IndexReader(store, erased), [plan])
    # Text tells NaN from null, and -0.0 from 0.0.
    return repr([reader.read(plan.dataset, keys, at, columns) for at in ats])


def check(plan: IndexPlan, messages: Sequence[Message], keys: Sequence[Any], ats: Sequence[int], folder: Path) -> None:
    """Compare a database that was loaded up to a cut, and then followed, with one that followed from the beginning."""
    rng, gone = fresh_random(), keys[2]
    known = ErasedKeys(lambda: MAC_KEYS)
    cut = rng.randrange(len(messages) // 2, len(messages))
    erased_at = rng.choice([cut - 1, cut + 1])
    messages = [*messages[:erased_at], erasure_record(plan, gone, 10**6), *messages[erased_at:]]
    messages = [(key, value, 0, offset) for offset, (key, value, _, _) in enumerate(messages)]
    loaded_until = cut + (erased_at < cut)
    erasure = erasure_of(plan.topic, plan.schema.keys, gone, "one", MAC_KEYS["one"])
    if erased_at < cut:
        known.add(plan.topic, [erasure])
    with (
        IndexStore(folder / "written", cache_bytes=1 << 20) as written,
        IndexStore(folder / "loaded", cache_bytes=1 << 20) as loaded,
    ):
        followed = ErasedKeys(lambda: MAC_KEYS)
        writer = IndexWriter(written, erased=followed)
        for start in range(0, len(messages), 17):
            writer.apply(plan, messages[start : start + 17])
        archived = [m for m in messages[:loaded_until] if m[0] != messages[erased_at][0]]
        assert load(plan, archived, loaded, known) > 0
        assert loaded.offsets(plan.asset)[3] == 0
        after_load = ErasedKeys(lambda: MAC_KEYS)
        writer = IndexWriter(loaded, erased=after_load)
        for start in range(loaded_until, len(messages), 17):
            writer.apply(plan, messages[start : start + 17])
        assert known_erasures(loaded, plan.asset, pending=True) == [erasure]
        assert known_erasures(written, plan.asset, pending=True) == [erasure]
        assert loaded.offsets(plan.asset)[0] == written.offsets(plan.asset)[0] == len(messages)
        assert answers(plan, loaded, after_load, keys, ats) == answers(plan, written, followed, keys, ats)


@pytest.mark.parametrize("found", LOADABLE, ids=lambda c: c.name)
def test_aggregates(found: Any, tmp_path: Path) -> None:
    rng = fresh_random()
    job = Job(found)
    messages: list[Message] = []
    for _ in range(250):
        change = random_change(found, rng)
        # One key has half of all records.
        change.row["g"] = rng.choice(GROUPS) if rng.random() < 0.5 else "a"  # type: ignore[index]
        messages += job.log(change)
    # A job that starts again sends some records again, as further messages.
    messages += rng.sample(messages, 40)
    check(found.plan, messages, [(group,) for group in (*GROUPS, "never")], times(job, rng), tmp_path)


def test_versions_by_composite_keys(tmp_path: Path) -> None:
    rng = fresh_random()
    codec = RecordCodec(COMPOSITE.schema)
    keys = [(rng.choice([None, 0, -5, 70000, 2**62, n]), rng.choice(["x", "yy"])) for n in range(30)]
    messages: list[Message] = []
    for offset in range(300):
        key, at = rng.choice(keys), rng.randrange(40) * SECOND
        op = rng.choice([PUT, PUT, DELETE])
        row = [*key, rng.choice([None, 0.0, -0.0, float("nan"), rng.random()])]
        value = codec.encode_value(op=op, time_us=at, ingested_us=1, record_id=position_id(offset, 0), row=row)
        messages.append((codec.encode_key(key), value, 0, offset))
    ats = [*(n * SECOND for n in range(-1, 41, 4)), 10**15]
    check(COMPOSITE, messages, keys, ats, tmp_path)


def test_divisions_follow_each_other_in_the_order_of_entries() -> None:
    rng = fresh_random()
    plan = LOADABLE[0].plan
    codec = RecordCodec(plan.schema)
    groups = [rng.choice(GROUPS) for _ in range(400)]
    job = Job(LOADABLE[0])
    messages = []
    for group in groups:
        change = random_change(LOADABLE[0], rng)
        change.row["g"] = group  # type: ignore[index]
        messages += job.log(change)
    rows = GivenTopics({plan.topic: messages}).records(topic_of(plan), ["g"]).rows
    orders = KeyOrders(plan.schema.keys, rows)
    bounds = bounds_of(orders.sample(), 4)
    found = orders.divisions(bounds)
    assert set(found.tolist()) == set(range(len(bounds) + 1))
    encoded = [codec.encode_key([group]) or b"" for group in rows["g"].to_list()]
    entries = sorted(zip(((len(key), key) for key in encoded), found.tolist(), strict=True))
    assert [division for _, division in entries] == sorted(found.tolist())
    assert bounds_of([], 3) == ()
    assert bounds_of([b"one"] * 9, 3) == ()
    assert np.bincount(found).max() < len(messages)


def test_a_record_that_can_not_be_applied_ends_the_load(tmp_path: Path) -> None:
    plan = LOADABLE[0].plan
    (message,) = Job(LOADABLE[0]).log(random_change(LOADABLE[0], fresh_random()))
    rows = GivenTopics({plan.topic: [message]}).records(topic_of(plan), [c.name for c in plan.schema.columns]).rows
    unfit = rows.with_columns(_op=pl.lit(DELETE, pl.Int8))
    tables = division_tables(plan, topic_of(plan), [unfit], folder=tmp_path, erased=ErasedKeys(dict))
    with pytest.raises(InvalidInputError, match="1 records of"):
        list(tables)


def test_what_an_index_had_is_replaced(tmp_path: Path) -> None:
    found, rng = LOADABLE[0], fresh_random()
    plan, job, erased = found.plan, Job(found), ErasedKeys(dict)
    messages = [message for _ in range(100) for message in job.log(random_change(found, rng))]
    others = [message for _ in range(50) for message in Job(found).log(random_change(found, rng))]
    keys, ats = [("a",), ("b",)], times(job, rng)
    with IndexStore(tmp_path / "index") as store, IndexStore(tmp_path / "written") as written:
        IndexWriter(written).apply(plan, messages)
        IndexWriter(store).apply(plan, others)
        batch = store.batch()
        store.put_offset(batch, b"another!", 0, 3)
        store.write(batch)
        assert store.has_data(plan.asset)
        store.drop(plan.asset)
        assert not store.has_data(plan.asset)
        store.rewrite(plan.asset)
        sequence = store.db.latest_sequence_number()
        load(plan, messages, store, erased)
        # Snapshots see by this number that something is new.
        assert store.db.latest_sequence_number() > sequence
        assert {table["level"] for table in store.db.live_files() if bytes(table["start_key"]) >= plan.asset} == {6}
        assert answers(plan, store, erased, keys, ats) == answers(plan, written, erased, keys, ats)
        assert store.offsets(b"another!") == {0: 3}
    with IndexStore(tmp_path / "index") as store:
        assert store.offsets(plan.asset)[0] == len(messages)
        assert next(store.scan(plan.asset, after(plan.asset)), None) is not None
