"""Blocks of an index's records: the same entries as with a message for each record."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from caraway.dataplane.index.feeding.writer import IndexWriter, singles_of
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.storage.keys import META
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.blocks import block_of
from caraway.dataplane.topics.codec import RecordCodec
from caraway.dataplane.topics.erased_keys import ErasedKeys, erasure_of
from caraway.dataplane.topics.reader import Message
from caraway.graph.aggregates import AggregateFunction
from caraway.graph.windows import ContinuousWindow
from tests.unit.compute.reference.building import EVENTS, S, spec_of
from tests.unit.dataplane.index.oracle import Case, Job, random_change
from tests.unit.dataplane.index.test_against_engine import CASES, EXACT

COUNT = spec_of(AggregateFunction.COUNT, None, ContinuousWindow(length_us=5 * S), "n", EVENTS)
KEYLESS = [found for found in CASES if not found.keyed]
PLAIN = next(found for found in KEYLESS if found.name == "events, continuous")


def records(found: Case, rng: random.Random, count: int) -> list[Message]:
    """Return the messages of a job, one for each record."""
    job = Job(found)
    return [message for _ in range(count) for message in job.log(random_change(found, rng))]


def in_blocks(messages: Sequence[Message], rng: random.Random) -> list[Message]:
    """Return the same records in messages of one or more records, under offsets of their own."""
    values = [value or b"" for _, value, _, _ in messages]
    keys = [key for key, _, _, _ in messages]
    made: list[Message] = []
    at = 0
    while at < len(values):
        count = rng.choice([1, 2, 5])
        some = values[at : at + count]
        is_single = len(some) == 1 and rng.random() < 0.5
        made.append((keys[at], some[0], 0, len(made)) if is_single else (None, block_of(some), 0, len(made)))
        at += count
    return made


def entries(store: IndexStore) -> dict[bytes, bytes]:
    return {key: value for key, value in store.scan(b"", b"\xff" * 8) if not key.startswith(META)}


@pytest.mark.filterwarnings("ignore:aggregate")
@pytest.mark.parametrize("found", KEYLESS, ids=lambda c: c.name)
def test_blocks_give_the_entries_of_single_records(found: Case, tmp_path: Path) -> None:
    rng = random.Random(found.name)
    singles = records(found, rng, 60)
    with (
        IndexStore(tmp_path / "one", geometry=EXACT) as one,
        IndexStore(tmp_path / "two", geometry=EXACT) as two,
    ):
        writers = IndexWriter(one, cached_tiles=8), IndexWriter(two, cached_tiles=8)
        # The tiles of an index depend on which records are applied together.
        for start in range(0, len(singles), 20):
            some = singles[start : start + 20]
            blocks = in_blocks(some, rng)
            for writer, batch in zip(writers, (some, blocks), strict=True):
                applied = writer.apply(found.plan, batch)
                assert (applied.written, applied.refused) == (len(some), 0)
            # Delivered again, nothing is added.
            assert not writers[1].apply(found.plan, blocks[len(blocks) // 2 :]).written
        assert entries(one) == entries(two)
        assert entries(one)


def test_records_of_blocks_are_applied_alone_as_they_are_together(tmp_path: Path) -> None:
    plan, rng = replace(PLAIN.plan, aggregates=(COUNT,)), random.Random(3)
    blocks = in_blocks(records(PLAIN, rng, 60), rng)
    with (
        IndexStore(tmp_path / "one", geometry=EXACT) as one,
        IndexStore(tmp_path / "two", geometry=EXACT) as two,
    ):
        together, alone = IndexWriter(one), IndexWriter(two)
        together.apply(plan, blocks)
        for single in (single for message in blocks for single in singles_of(message)):
            alone.apply_single(plan, single)
        assert two.offsets(plan.asset) == {}
        for message in blocks:
            alone.skip(plan, message)
        assert two.offsets(plan.asset) == one.offsets(plan.asset) == {0: len(blocks)}
        assert entries(one) == entries(two)
        assert entries(one)


def test_a_damaged_block_is_refused_and_the_others_are_taken(tmp_path: Path) -> None:
    values = [value or b"" for _, value, _, _ in records(PLAIN, random.Random(1), 4)]
    # The third record of the second block is of another schema.
    blocks = [block_of(values)[:-1], block_of([*values[:2], values[2].replace(values[2][2:7], b"\xce\0\0\0\1")])]
    with IndexStore(tmp_path / "index") as store:
        messages: list[Message] = [(None, block, 0, offset) for offset, block in enumerate(blocks)]
        applied = IndexWriter(store).apply(PLAIN.plan, messages)
        assert (applied.written, applied.refused) == (2, 2)
        assert store.offsets(PLAIN.plan.asset) == {0: 2}


def test_rows_of_erased_keys_are_left_out_of_blocks(tmp_path: Path) -> None:
    plan, rng = PLAIN.plan, random.Random(1)
    blocks = in_blocks(records(PLAIN, rng, 40), rng)
    erased = ErasedKeys(lambda: {"one": b"k" * 32})
    erased.add(plan.topic, [erasure_of(plan.topic, plan.schema.keys, ["a"], "one", b"k" * 32)])
    encode = RecordCodec.of_keys(plan.schema.keys).encode_key
    with IndexStore(tmp_path / "index") as store:
        assert not IndexWriter(store, erased=erased).apply(plan, blocks).refused
        column = plan.aggregates[0].into
        _, found = IndexReader(store).read(plan, [encode(["a"]) or b"", encode(["b"]) or b""], 10**9, [column])
        assert found == [False, True]
