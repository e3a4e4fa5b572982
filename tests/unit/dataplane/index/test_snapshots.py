"""Snapshots: a restored database equals the original, and a damaged snapshot is refused."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.storage.keys import emission_key
from caraway.dataplane.index.storage.repair import DAMAGED
from caraway.dataplane.index.storage.snapshots import FILES, MANIFESTS, SnapshotKeeper, Snapshots
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.dataplane.topics.codec import PUT
from caraway.dataplane.topics.identity import position_id
from caraway.errors import UnavailableError
from caraway.graph.plan.model import IndexKind
from tests.unit.dataplane.index.naive import CODEC, SMALL, Sent, index_plan

pytestmark = pytest.mark.slow

PLAN = index_plan(IndexKind.VERSIONS, revised=False)
KEY = CODEC.encode_key(["a"]) or b""


class Clock:
    """A clock that advances by a second at each reading."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture
def objects(tmp_path: Path) -> ObjectFolder:
    return ObjectFolder(str(tmp_path / "objects"))


@pytest.fixture
def snapshots(objects: ObjectFolder) -> Snapshots:
    return Snapshots(objects, kept=2, clock=Clock())


def fill(store: IndexStore, first: int, count: int) -> None:
    sent = [
        Sent("a", position_id(n, 0), b"", PUT, n, (n, n / 7, "1.00")).message(n) for n in range(first, first + count)
    ]
    IndexWriter(store).apply(PLAN, sent)


def newest(store: IndexStore) -> object:
    (column,), (found,) = IndexReader(store).read(PLAN, [KEY], 10**9, ["n"])
    assert found is (column[0] is not None)
    return column[0]


def taken(snapshots: Snapshots, folder: Path, *ends: int) -> None:
    """Take a snapshot each time the index reaches one of the offsets `ends`."""
    with IndexStore(folder) as store:
        start = 0
        for end in ends:
            fill(store, start, end - start)
            assert snapshots.take(store) is not None
            start = end


def restored(snapshots: Snapshots, folder: Path) -> tuple[object, object]:
    with IndexStore(folder, restore=snapshots.restore) as store:
        return newest(store), store.offsets(PLAN.asset)


def test_a_new_database_begins_with_the_newest_snapshot(snapshots: Snapshots, tmp_path: Path) -> None:
    taken(snapshots, tmp_path / "one", 100, 250)
    assert restored(snapshots, tmp_path / "two") == (249, {0: 250})
    with IndexStore(tmp_path / "two", restore=snapshots.restore) as store:
        fill(store, 250, 50)
        assert newest(store) == 299
    # The restored database continues independently of the original.
    assert restored(snapshots, tmp_path / "two") == (299, {0: 300})
    assert restored(snapshots, tmp_path / "three") == (249, {0: 250})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["objects", "one", "three", "two"]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("harm", [flip, halve, Path.unlink])
@pytest.mark.parametrize("what", [MANIFESTS, FILES])
def test_a_torn_snapshot_is_refused(
    objects: ObjectFolder, tmp_path: Path, harm: Callable[[Path], None], what: str
) -> None:
    snapshots = Snapshots(objects, kept=2, clock=Clock())
    taken(snapshots, tmp_path / "one", 100)
    first = {stored.name for stored in objects.stored(what)}
    taken(snapshots, tmp_path / "other", 250)
    victims = sorted(
        (stored for stored in objects.stored(what) if stored.name not in first and stored.size),
        key=lambda stored: stored.size,
    )
    harm(tmp_path / "objects" / victims[-1].name)
    assert restored(snapshots, tmp_path / "two") == (99, {0: 100})
    for stored in objects.stored(what):
        (tmp_path / "objects" / stored.name).unlink()
    assert restored(snapshots, tmp_path / "three") == (None, {})


def named(objects: ObjectFolder) -> set[str]:
    """Return the files that the manifests list."""
    manifests = [json.loads(objects.read(stored.name)) for stored in objects.stored(MANIFESTS)]
    return {f"{FILES}/{file['digest']}" for manifest in manifests for file in manifest["files"]}


def test_old_snapshots_go_and_files_that_nobody_needs(objects: ObjectFolder, tmp_path: Path) -> None:
    clock = Clock()
    patient = Snapshots(objects, kept=2, clock=clock)
    taken(patient, tmp_path / "one", 100, 200, 300, 400)
    assert len(objects.stored(MANIFESTS)) == 2
    before = {stored.name for stored in objects.stored(FILES)}
    assert named(objects) < before
    # Files written a moment ago may belong to a snapshot that another server is taking, so the clock is advanced.
    clock.now += 10**9
    with IndexStore(tmp_path / "one") as store:
        fill(store, 400, 1)
        assert patient.take(store) is not None
    assert len(objects.stored(MANIFESTS)) == 2
    assert {stored.name for stored in objects.stored(FILES)} == named(objects)
    assert restored(patient, tmp_path / "two") == (400, {0: 401})


def test_a_table_that_is_there_is_not_copied_again(
    objects: ObjectFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots = Snapshots(objects, kept=2, clock=Clock())
    put: list[str] = []
    original = ObjectFolder.put

    def counted(self: ObjectFolder, path: Path, name: str) -> str:
        put.append(path.name)
        return original(self, path, name)

    monkeypatch.setattr(ObjectFolder, "put", counted)
    with IndexStore(tmp_path / "one") as store:
        fill(store, 0, 100)
        snapshots.take(store)
        first = [name for name in put if name.endswith(".sst")]
        put.clear()
        fill(store, 100, 100)
        snapshots.take(store)
    second = [name for name in put if name.endswith(".sst")]
    assert len(first) == len(second) == 1
    assert first != second


def test_nothing_new_is_no_snapshot(snapshots: Snapshots, tmp_path: Path) -> None:
    with IndexStore(tmp_path / "one") as store:
        fill(store, 0, 10)
        assert snapshots.take(store) is not None
        assert snapshots.take(store) is None
        fill(store, 10, 1)
        assert snapshots.take(store) is not None


def test_an_index_that_emits_is_built_anew(snapshots: Snapshots, tmp_path: Path) -> None:
    emitting = index_plan(IndexKind.VERSIONS, revised=False, asset=b"asset--2")
    with IndexStore(tmp_path / "one") as store:
        fill(store, 0, 10)
        IndexWriter(store).apply(emitting, [Sent("a", position_id(0, 0), b"", PUT, 1, (1, 0.5, "1.00")).message(0)])
        batch = store.batch()
        batch.put(emission_key(emitting.asset), b"what it sent")
        store.write(batch)
        snapshots.take(store)
    with IndexStore(tmp_path / "two", restore=snapshots.restore) as store:
        assert store.assets() == {PLAN.asset}
        assert store.get(emission_key(emitting.asset)) is None
        assert newest(store) == 9


def test_one_that_turns_out_damaged_is_not_taken_again(snapshots: Snapshots, tmp_path: Path) -> None:
    taken(snapshots, tmp_path / "one", 100, 250)
    for last, end in ((249, 250), (99, 100)):
        assert restored(snapshots, tmp_path / "two") == (last, {0: end})
        (tmp_path / "two" / DAMAGED).write_text("a read failed")
    assert restored(snapshots, tmp_path / "two") == (None, {})


def test_another_shape_is_not_restored(snapshots: Snapshots, tmp_path: Path) -> None:
    taken(snapshots, tmp_path / "one", 100)
    with IndexStore(tmp_path / "two", geometry=SMALL, restore=snapshots.restore) as store:
        assert store.offsets(PLAN.asset) == {}


def test_a_store_that_is_away_keeps_nobody(tmp_path: Path) -> None:
    (tmp_path / "objects").write_text("a file")
    snapshots = Snapshots(ObjectFolder(str(tmp_path / "objects")))
    with IndexStore(tmp_path / "one", restore=snapshots.restore) as store:
        fill(store, 0, 10)
        with pytest.raises(UnavailableError, match="can't be used"):
            snapshots.take(store)
        assert newest(store) == 9
    assert sorted(path.name for path in tmp_path.iterdir()) == ["objects", "one"]


def test_the_keeper_takes_them_and_ends(objects: ObjectFolder, tmp_path: Path) -> None:
    snapshots = Snapshots(objects)
    with IndexStore(tmp_path / "one") as store:
        fill(store, 0, 10)
        keeper = SnapshotKeeper(snapshots, store, 0.01)
        keeper.start()
        while not objects.stored(MANIFESTS):
            pass
        assert keeper.stop(60)
    assert restored(snapshots, tmp_path / "two") == (9, {0: 10})
