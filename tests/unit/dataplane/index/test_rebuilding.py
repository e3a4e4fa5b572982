"""A new database that replaces a damaged one is read only after it has caught up with the old one."""

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest
from typing_extensions import override

from caraway.dataplane.index.feeding.worker import IndexWorker
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.storage.follower import IndexFollower
from caraway.dataplane.index.storage.store import IndexStore
from caraway.errors import UnavailableError
from caraway.graph.plan.model import IndexKind
from tests.unit.dataplane.index.naive import CODEC, index_plan

ASSET = b"asset  1"
PLAN = index_plan(IndexKind.VERSIONS, revised=True, asset=ASSET)
CACHE = 1 << 20


def read(reader: IndexReader) -> object:
    return reader.read(PLAN, [CODEC.encode_key(["a"]) or b""], 0, ["n"])


def put(store: IndexStore, offset: int) -> None:
    batch = store.batch()
    store.put_offset(batch, ASSET, 0, offset)
    store.write(batch)


class Filler(IndexWorker):
    """A worker that adds one record to a store at each look, and has no threads."""

    def __init__(self, store: IndexStore) -> None:
        super().__init__("nowhere:1", store)
        self.store = store

    @override
    def is_alive(self) -> bool:
        return True

    @override
    def rebuild(self) -> None:
        self.store.begin_anew(self.store.due or {ASSET: self.store.offsets(ASSET)})

    @override
    def has_regained(self, due: Mapping[bytes, Mapping[int, int]]) -> bool:
        at = self.store.offsets(ASSET).get(0, 0)
        if at >= due[ASSET][0]:
            return True
        put(self.store, at + 1)
        return False


def test_nobody_reads_until_all_is_there_again_not_after_a_start_either(tmp_path: Path) -> None:
    path = tmp_path / "index"
    follower = IndexFollower(path, tmp_path / "follower", cache_bytes=CACHE)
    store = IndexStore(path, cache_bytes=CACHE, shared=True)
    looking = Filler(store)
    put(store, 3)
    readers = [IndexReader(store), IndexReader(follower)]
    for reader in readers:
        assert read(reader) == ([[None]], [False])
    looking.repair()
    assert looking.problem() is None

    store.mark_damaged("as a read said")
    assert looking.problem() is not None
    looking.repair()
    assert not store.damaged
    assert store.offsets(ASSET) == {}
    for refused in (1, 2):
        for reader in readers:
            with pytest.raises(UnavailableError, match="isn't built anew yet"):
                read(reader)
        looking.repair()
        assert store.offsets(ASSET) == {0: refused}
    # The second database is damaged too, and the process ends: the content of the first one is still required.
    store.mark_damaged("as another read said")
    looking.repair()
    assert store.offsets(ASSET) == {}
    store.close()

    with IndexStore(path, cache_bytes=CACHE, shared=True) as store:
        looking, readers[0] = Filler(store), IndexReader(store)
        for _ in range(4):
            for reader in readers:
                with pytest.raises(UnavailableError, match="isn't built anew yet"):
                    read(reader)
            assert looking.problem() is not None
            looking.repair()
        assert store.offsets(ASSET) == {0: 3}
        for reader in readers:
            assert read(reader) == ([[None]], [False])
        assert looking.problem() is None
    assert len(list(tmp_path.glob("index.damaged-*"))) == 2
    with IndexStore(path, cache_bytes=CACHE) as store:
        assert not store.refusing


def test_a_marker_of_another_process_is_seen_while_running(tmp_path: Path) -> None:
    path = tmp_path / "index"
    with IndexStore(path, cache_bytes=CACHE, shared=True) as store:
        put(store, 1)
        follower = IndexFollower(path, tmp_path / "follower", cache_bytes=CACHE)
        # The first time the follower only opens the database again, since a table may just have been removed.
        for _ in range(2):
            follower.iterator()
            follower.mark_damaged("as a read said")
        looking = Filler(store)
        looking.repair()
        refusing = []
        for _ in range(3):
            refusing.append(store.refusing)
            looking.repair()
        assert refusing == [True, True, False]
        assert store.offsets(ASSET) == {0: 1}


def test_a_read_that_is_under_way_is_waited_for(tmp_path: Path) -> None:
    with IndexStore(tmp_path / "index", cache_bytes=CACHE) as store:
        put(store, 1)
        store.db.flush()
        under_way = [store.iterator()]
        begun = threading.Event()
        with ThreadPoolExecutor(1) as thread:

            def begin_anew() -> None:
                begun.set()
                store.begin_anew({ASSET: {0: 1}})

            done = thread.submit(begin_anew)
            begun.wait()
            assert not wait([done], timeout=0.2).done
            under_way[0].seek(b"")
            assert under_way[0].valid()
            under_way.clear()
            done.result()
        assert store.offsets(ASSET) == {}
        put(store, 2)
        assert store.offsets(ASSET) == {0: 2}
