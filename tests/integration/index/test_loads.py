"""Loads beside a real topic: records before, during and behind them count once, whatever is killed."""

import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from caraway.dataplane.index.feeding.worker import IndexWorker
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.records.removal import known_erasures
from caraway.dataplane.index.storage.follower import IndexFollower
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.admin import ensure_topics
from caraway.dataplane.topics.erased_keys import ErasedKeys, encode_erasure, erasure_of
from caraway.dataplane.topics.producer import TopicWriter
from caraway.offline.queries.model import LoadRequest
from tests.integration.index.flow import KEYS, ROOT, TIMEOUT_S, wait_for
from tests.integration.index.loading_process import STEPS
from tests.integration.index.loads import History, moved
from tests.unit.dataplane.index.naive import CODEC

MAC_KEYS = {"one": b"k" * 32}


@pytest.fixture
def history(kafka: str) -> Iterator[History]:
    topic = f"loads.{secrets.token_hex(6)}"
    ensure_topics(kafka, [topic], 2)
    with TopicWriter(kafka, timeout_s=TIMEOUT_S) as writer:
        yield History(writer, topic)


@contextmanager
def following(kafka: str, folder: Path, erased: ErasedKeys | None = None) -> Iterator[tuple[IndexWorker, IndexStore]]:
    with IndexStore(folder, cache_bytes=1 << 20, shared=True) as store:
        worker = IndexWorker(kafka, store, erased)
        worker.start()
        try:
            yield worker, store
        finally:
            worker.stop()


def wait_until_caught_up(worker: IndexWorker) -> None:
    """Wait until the index is followed and has all records; it is written by the live thread then."""
    wait_for(lambda: [s.lag for s in worker.positions() if s.following] == [0], f"{worker.positions()}")


def test_a_load_goes_on_with_the_topic(kafka: str, history: History, tmp_path: Path) -> None:
    plan = history.plan
    history.send(400)
    follower = IndexFollower(tmp_path / "index", tmp_path / "own", cache_bytes=1 << 20)
    with following(kafka, tmp_path / "index") as (worker, store):
        worker.set_plans([plan])
        wait_until_caught_up(worker)
        assert worker.hold(plan.asset)
        held = worker.positions()[0]
        assert (held.held, held.following, held.lag) == (True, False, 0)
        assert held.offsets == store.offsets(plan.asset)
        # The index that is held reads none of these records, which come before the cuts.
        history.send(300)
        offsets = history.tables(kafka, tmp_path / "made")
        # More records come behind the cuts, the first ones before the load and the others after it.
        history.send(200)
        assert store.offsets(plan.asset) == held.offsets
        assert worker.load(plan.asset, moved(store, tmp_path / "made"), offsets)
        history.send(100)
        wait_until_caught_up(worker)
        assert not worker.positions()[0].held
        history.check(IndexReader(store), tmp_path / "written")
        history.check(IndexReader(follower), tmp_path / "followed")
        # The tables have the earlier records, so the index has read the later ones only.
        assert worker.positions()[0].written < len(history.sent)
    with following(kafka, tmp_path / "index") as (worker, store):
        worker.set_plans([plan])
        history.send(50)
        wait_until_caught_up(worker)
        history.check(IndexReader(store), tmp_path / "restarted")


def test_an_index_that_is_released_reads_its_topic(kafka: str, history: History, tmp_path: Path) -> None:
    history.send(100)
    with following(kafka, tmp_path / "index") as (worker, store):
        assert not worker.hold(history.plan.asset)
        worker.release(history.plan.asset)
        worker.set_plans([history.plan])
        wait_until_caught_up(worker)
        for _ in range(3):
            assert worker.hold(history.plan.asset)
            assert worker.hold(history.plan.asset)
            history.send(70)
            worker.release(history.plan.asset)
            worker.release(history.plan.asset)
            wait_until_caught_up(worker)
        history.check(IndexReader(store), tmp_path / "written")


def test_an_index_that_is_not_wanted_any_more_takes_nothing(kafka: str, history: History, tmp_path: Path) -> None:
    plan = history.plan
    history.send(100)
    offsets = history.tables(kafka, tmp_path / "made")
    with following(kafka, tmp_path / "index") as (worker, store):
        worker.set_plans([plan])
        wait_until_caught_up(worker)
        worker.hold(plan.asset)
        worker.set_plans([])
        assert not worker.load(plan.asset, moved(store, tmp_path / "made"), offsets)
        worker.set_plans([plan])
        wait_until_caught_up(worker)
        history.check(IndexReader(store), tmp_path / "written")


def test_a_repair_lets_an_index_be_followed_again(kafka: str, history: History, tmp_path: Path) -> None:
    plan = history.plan
    history.send(200)
    offsets = history.tables(kafka, tmp_path / "made")
    with following(kafka, tmp_path / "index") as (worker, store):
        worker.set_plans([plan])
        wait_until_caught_up(worker)
        worker.hold(plan.asset)
        store.mark_damaged("as a read said")
        wait_for(lambda: not store.damaged and not store.refusing, "the repair")
        wait_until_caught_up(worker)
        # The load takes the index out of the tails again, and replaces what it has read since.
        assert worker.load(plan.asset, moved(store, tmp_path / "made"), offsets)
        history.send(100)
        wait_until_caught_up(worker)
        history.check(IndexReader(store), tmp_path / "written")


def test_a_shard_has_its_partitions_only(kafka: str, history: History, tmp_path: Path) -> None:
    plan = history.plan
    history.send(300)
    found = []
    for number in range(2):
        load = LoadRequest(asset=plan.asset.hex(), number=number, shards=2)
        offsets = history.tables(kafka, tmp_path / f"made-{number}", load=load)
        assert list(offsets) == [number]
        with IndexStore(tmp_path / f"loaded-{number}") as loaded, IndexStore(tmp_path / f"read-{number}") as read:
            worker = IndexWorker(kafka, read, holds=load.holds)
            worker.start()
            worker.set_plans([plan])
            wait_until_caught_up(worker)
            worker.stop()
            loaded.load(plan.asset, moved(loaded, tmp_path / f"made-{number}"), offsets)
            assert loaded.offsets(plan.asset) == read.offsets(plan.asset) == offsets
            keys = [CODEC.encode_key([key]) or b"" for key in KEYS]
            answers = [IndexReader(store).read(plan, keys, 10**9, ["k", "t"]) for store in (loaded, read)]
            assert repr(answers[0]) == repr(answers[1])
            found.append(answers[0][1])
    assert all(one != other for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("known_to_the_load", [True, False], ids=["before the cuts", "behind the cuts"])
def test_an_erasure_is_not_lost(kafka: str, history: History, tmp_path: Path, *, known_to_the_load: bool) -> None:
    plan = history.plan
    erased, of_load = ErasedKeys(lambda: MAC_KEYS), ErasedKeys(lambda: MAC_KEYS)
    erasure = erasure_of(plan.topic, plan.schema.keys, [KEYS[3]], "one", MAC_KEYS["one"])
    history.send(200)
    announce = partial(history.writer.write_to_all, history.topic, *encode_erasure(erasure))
    with following(kafka, tmp_path / "index", erased) as (worker, store):
        worker.set_plans([plan])
        wait_until_caught_up(worker)
        worker.hold(plan.asset)
        if known_to_the_load:
            announce().result(TIMEOUT_S)
            of_load.add(plan.topic, [erasure])
        offsets = history.tables(kafka, tmp_path / "made", erased=of_load)
        if not known_to_the_load:
            announce().result(TIMEOUT_S)
        assert worker.load(plan.asset, moved(store, tmp_path / "made"), offsets)
        wait_until_caught_up(worker)
        assert known_erasures(store, plan.asset, pending=True) == [erasure]
        hidden = ErasedKeys(lambda: MAC_KEYS)
        hidden.add(plan.topic, [erasure])
        history.check(IndexReader(store, erased), tmp_path / "written", hidden)
        wait_for(lambda: worker.remove_erased(plan, worker._repairing.stopping), "the removal")
        assert known_erasures(store, plan.asset, pending=True) == []
        assert known_erasures(store, plan.asset) == [erasure]
        assert not any(
            KEYS[3].encode() == key[10 + 2 : 10 + 6] for key, _ in store.scan(plan.asset, plan.asset + b"\xf0")
        )


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(step, marks=[] if step == "ingested" else pytest.mark.full(reason="a process for each step"))
        for step in (*STEPS, "over")
    ],
)
def test_a_kill_at_any_step(kafka: str, history: History, tmp_path: Path, step: str) -> None:
    plan = history.plan
    history.send(200)
    with following(kafka, tmp_path / "index") as (worker, store):
        worker.set_plans([plan])
        wait_until_caught_up(worker)
        before = store.offsets(plan.asset)
    history.send(300)
    offsets = history.tables(kafka, tmp_path / "made")
    command = [sys.executable, "-m", "tests.integration.index.loading_process", str(tmp_path), kafka, plan.topic, step]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.decode().strip() == step:
                break
        process.kill()
    with IndexStore(tmp_path / "index") as store:
        found = store.offsets(plan.asset)
        has_data = store.has_data(plan.asset)
    assert not list(tmp_path.glob("index.loading*"))
    if step in {"dropped", "rewritten"}:
        assert (found, has_data) == ({}, False)
    elif step in {"ingested", "loaded", "over"}:
        assert found == offsets
    else:
        assert all(before[p] <= found[p] <= offsets[p] for p in before)
    history.send(100)
    with following(kafka, tmp_path / "index") as (worker, store):
        worker.set_plans([replace(plan)])
        wait_until_caught_up(worker)
        history.check(IndexReader(store), tmp_path / "written")
