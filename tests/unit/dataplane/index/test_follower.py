"""An index that another process writes: a reader sees everything that was written, whatever happens to the writer."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from rocksdict import Rdict, RdictIter
from typing_extensions import override

from caraway.dataplane.index.storage.follower import IndexFollower
from caraway.dataplane.index.storage.geometry import Geometry
from caraway.dataplane.index.storage.store import IndexStore
from caraway.errors import UnavailableError
from tests.effort import examples

ASSETS = (b"asset  1", b"asset  2")
CACHE = 1 << 20
TIMEOUT_S = 60


def entries(iterator: RdictIter) -> dict[bytes, bytes]:
    found = {}
    iterator.seek(b"asset")
    while iterator.valid():
        found[iterator.key()] = iterator.value()
        iterator.next()
    iterator.status()
    return found


class Following(RuleBasedStateMachine):
    """A writer that writes, flushes, compacts, ends and returns with or without its database; and a follower."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "index"
        self.store: IndexStore | None = None
        self.model: dict[bytes, bytes] = {}
        self.kept: list[tuple[RdictIter, dict[bytes, bytes]]] = []
        self.now = 0.0
        self.follower = IndexFollower(
            self.path, Path(self.folder.name) / "reader", cache_bytes=CACHE, clock=lambda: self.now
        )

    @initialize()
    def begin(self) -> None:
        with pytest.raises(UnavailableError, match="hasn't started yet"):
            self.follower.iterator()
        self.start()

    @precondition(lambda self: self.store is None)
    @rule()
    def start(self) -> None:
        self.store = IndexStore(self.path, cache_bytes=CACHE, shared=True)
        # A database that was missing at the last attempt is looked for again after a pause.
        self.now += 1

    @precondition(lambda self: self.store is not None)
    @rule()
    def end(self) -> None:
        assert self.store is not None
        self.store.close()
        self.store = None

    @precondition(lambda self: self.store is not None)
    @rule(asset=st.sampled_from(ASSETS), keys=st.lists(st.integers(0, 20), min_size=1, max_size=30), value=st.binary())
    def write(self, asset: bytes, keys: list[int], value: bytes) -> None:
        assert self.store is not None
        batch = self.store.batch()
        for key in keys:
            name = asset + bytes([key])
            if name in self.model and len(value) % 2:
                batch.delete(name)
                self.model.pop(name)
            else:
                batch.put(name, value)
                self.model[name] = value
        self.store.write(batch)

    @precondition(lambda self: self.store is not None)
    @rule(asset=st.sampled_from(ASSETS))
    def drop(self, asset: bytes) -> None:
        assert self.store is not None
        self.store.drop(asset)
        self.model = {key: value for key, value in self.model.items() if not key.startswith(asset)}

    @precondition(lambda self: self.store is not None)
    @rule()
    def flush(self) -> None:
        assert self.store is not None
        self.store.db.flush()

    @precondition(lambda self: self.store is not None)
    @rule()
    def compact(self) -> None:
        assert self.store is not None
        self.store.db.flush()
        self.store.db.compact_range(None, None)

    @precondition(lambda self: self.store is None)
    @rule(moved=st.booleans())
    def lose(self, moved: bool) -> None:
        """Remove the database while the writer is away: moved aside because of damage, or deleted."""
        if not self.path.exists():
            return
        if moved:
            (self.path / "DAMAGED").write_text("found by a test")
        else:
            shutil.rmtree(self.path)
        self.start()
        self.model = {}

    @rule()
    def read(self) -> None:
        assert entries(self.follower.iterator()) == self.model

    @rule()
    def keep(self) -> None:
        self.kept.append((self.follower.iterator(), dict(self.model)))

    @rule()
    def look_again(self) -> None:
        """Check that a read in several steps is of one state, whatever was written since."""
        for iterator, then in self.kept:
            assert entries(iterator) == then
        self.kept = []

    @rule()
    def tick(self) -> None:
        self.follower.catch_up()

    @override
    def teardown(self) -> None:
        if self.store is not None:
            self.store.close()
        self.folder.cleanup()


@pytest.mark.slow
def test_a_follower_sees_all_that_was_written() -> None:
    run_state_machine_as_test(Following, settings=settings(max_examples=examples(40), stateful_step_count=40))


WRITER = """
import sys
from pathlib import Path
from caraway.dataplane.index.storage.store import IndexStore
store = IndexStore(Path(sys.argv[1]), shared=True, cache_bytes=1 << 20)
for line in sys.stdin:
    number = int(line)
    for batch_number in range(number, number + 50):
        batch = store.batch()
        for name in range(10):
            batch.put(b"asset  1" + bytes([name]), batch_number.to_bytes(8) * 100)
        store.write(batch)
        if batch_number % 17 == 0:
            store.db.flush(wait=False)
    print(number + 49, flush=True)
"""


def writer(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ,
    )


@pytest.mark.slow
def test_a_writer_in_another_process_is_followed_while_it_writes_and_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "index"
    follower = IndexFollower(path, tmp_path / "reader", cache_bytes=CACHE)
    number = last = 0

    def look() -> int:
        """Return the number that was read; a batch is visible as a whole, and numbers never decrease."""
        values = set(entries(follower.iterator()).values())
        assert len(values) <= 1
        return int.from_bytes(values.pop()[:8]) if values else 0

    for _ in range(3):
        process = writer(path)
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(8):
            number += 50
            process.stdin.write(f"{number}\n")
            process.stdin.flush()
            if number == 50:
                # The first write creates the database.
                process.stdout.readline()
            seen = [look() for _ in range(20)]
            assert seen == sorted(seen)
            assert seen[0] >= last
            if number != 50:
                assert int(process.stdout.readline()) == number + 49
            # The writer has confirmed the write, so it is visible.
            assert look() == number + 49
            last = number + 49
        process.kill()
        process.communicate(timeout=TIMEOUT_S)
        assert look() == last


class Stuck:
    """A secondary instance whose catch-ups find nothing, as during a flush of the writer that takes long."""

    def __init__(self, db: Rdict) -> None:
        self._db = db

    def try_catch_up_with_primary(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


def test_a_write_that_no_catch_up_finds_is_found_by_opening_the_database_anew(tmp_path: Path) -> None:
    path = tmp_path / "index"
    follower = IndexFollower(path, tmp_path / "reader", cache_bytes=CACHE)
    with IndexStore(path, cache_bytes=CACHE, shared=True) as store:
        for number in range(3):
            batch = store.batch()
            batch.put(b"asset  1k", b"%d" % number)
            store.write(batch)
            assert entries(follower.iterator()) == {b"asset  1k": b"%d" % number}
            opened = follower._db
            assert opened is not None
            follower._db = Stuck(opened)  # type: ignore[assignment]


def test_a_write_that_an_opening_misses_is_found_by_a_catch_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "index"
    follower = IndexFollower(path, tmp_path / "reader", cache_bytes=CACHE)
    with IndexStore(path, cache_bytes=CACHE, shared=True) as store:
        # The reader's first look at the writer's database opens it as it was before the write.
        early = follower._opened()
        monkeypatch.setattr(follower, "_opened", lambda: early)
        batch = store.batch()
        batch.put(b"asset  1k", b"0")
        store.write(batch)
        assert entries(follower.iterator()) == {b"asset  1k": b"0"}


def test_a_database_of_another_shape_is_not_read(tmp_path: Path) -> None:
    follower = IndexFollower(tmp_path / "index", tmp_path / "reader", geometry=Geometry(split=32), cache_bytes=CACHE)
    with (
        IndexStore(tmp_path / "index", cache_bytes=CACHE, shared=True),
        pytest.raises(UnavailableError, match="its format is"),
    ):
        follower.iterator()


def test_damage_that_stays_is_reported_to_the_writer(tmp_path: Path) -> None:
    path = tmp_path / "index"
    follower = IndexFollower(path, tmp_path / "reader", cache_bytes=CACHE)
    with IndexStore(path, cache_bytes=CACHE, shared=True) as store:
        follower.iterator()
        follower.mark_damaged("a table")
        damaged = [store.damaged]
        # The first damage may be a table that was just removed, so the files are opened as they are now.
        follower.iterator()
        follower.mark_damaged("a table")
        damaged.append(store.damaged)
    with IndexStore(path, cache_bytes=CACHE, shared=True) as store:
        damaged.append(store.damaged)
        follower.iterator()
        follower.mark_damaged("another table")
        damaged.append(store.damaged)
    assert damaged == [False, True, False, False]
