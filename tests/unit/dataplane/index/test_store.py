"""The database on disk: damage, locks, formats, offsets."""

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.storage.geometry import Geometry
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.codec import PUT
from caraway.dataplane.topics.identity import position_id
from caraway.errors import ConflictError, UnavailableError
from caraway.graph.plan.model import IndexKind
from tests.unit.dataplane.index.naive import CODEC, Sent, index_plan

pytestmark = pytest.mark.slow

PLAN = index_plan(IndexKind.VERSIONS, revised=False)
KEY = CODEC.encode_key(["a"]) or b""


def fill(store: IndexStore, count: int = 2000) -> None:
    items = [Sent("a", position_id(n, 0), b"", PUT, n, (n, n / 7, f"{n}.00")).message(n) for n in range(count)]
    IndexWriter(store).apply(PLAN, items)


def aside(folder: Path) -> list[Path]:
    return sorted(folder.glob("index.damaged-*"))


def test_data_and_offsets_survive_a_restart(tmp_path: Path) -> None:
    with IndexStore(tmp_path / "index") as store:
        fill(store)
    with IndexStore(tmp_path / "index") as store:
        assert store.offsets(PLAN.asset) == {0: 2000}
        assert store.assets() == {PLAN.asset}
        assert IndexReader(store).read(PLAN, [KEY], 10**9, ["n"]) == ([[1999]], [True])


def test_one_process_has_the_database(tmp_path: Path) -> None:
    with IndexStore(tmp_path / "index"):
        folder = str(tmp_path / "index")
        imports = "from pathlib import Path; from caraway.dataplane.index.storage.store import IndexStore"
        script = f"{imports}; IndexStore(Path({folder!r}))"
        second = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert "ConflictError: the index database at" in second.stderr
        assert "in use by another process" in second.stderr
        with pytest.raises(ConflictError, match="in use by another process"):
            IndexStore(tmp_path / "index")


def test_a_folder_that_can_not_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UnavailableError, match="can't be opened"):
        IndexStore(tmp_path / "file" / "index")


def test_a_closed_database_is_unavailable(tmp_path: Path) -> None:
    store = IndexStore(tmp_path / "index")
    store.close()
    for use in (
        lambda: store.get(b"key"),
        lambda: store.get_many([b"key"]),
        lambda: store.iterator(),
        lambda: list(store.scan(b"a", b"b")),
        lambda: store.write(store.batch()),
        lambda: store.sync(),
        lambda: store.unused_tables(),
    ):
        with pytest.raises(UnavailableError, match="index database"):
            use()
    assert store.size_bytes() == 0


def empty(path: Path) -> None:
    path.write_bytes(b"")


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("harm", [empty, halve, Path.unlink])
@pytest.mark.parametrize("victim", ["CURRENT", "MANIFEST-*", "*.sst"])
def test_a_damaged_database_is_moved_aside(
    tmp_path: Path, victim: str, harm: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    with IndexStore(tmp_path / "index") as store:
        fill(store)
        store.db.flush()
    (file,) = sorted((tmp_path / "index").glob(victim))[:1]
    harm(file)
    with caplog.at_level(logging.ERROR), IndexStore(tmp_path / "index") as store:
        assert store.offsets(PLAN.asset) == {}
    assert len(aside(tmp_path)) == 1
    assert "can't be used" in caplog.text


def test_a_block_that_can_not_be_read_is_an_error_and_leads_to_a_new_database(tmp_path: Path) -> None:
    with IndexStore(tmp_path / "index") as store:
        fill(store)
        store.db.flush()
    (table,) = (tmp_path / "index").glob("*.sst")
    content = bytearray(table.read_bytes())
    # The damage is neither in the first block, which is read when the database is opened, nor in the index at the end.
    for position in range(len(content) // 4, len(content) * 3 // 4, 512):
        content[position] ^= 0xFF
    table.write_bytes(content)
    with IndexStore(tmp_path / "index") as store, pytest.raises(UnavailableError, match="is damaged"):
        IndexReader(store).read(PLAN, [KEY] * 20, list(range(0, 2000, 100)), ["n"])
    with IndexStore(tmp_path / "index") as store:
        assert store.offsets(PLAN.asset) == {}
    assert len(aside(tmp_path)) == 1


def test_a_torn_log_loses_data_and_offsets_together(tmp_path: Path) -> None:
    writer_script = f"""
import os
from pathlib import Path
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.topics.codec import PUT
from caraway.dataplane.topics.identity import position_id
from tests.unit.dataplane.index.naive import Sent, index_plan
from caraway.graph.plan.model import IndexKind
store = IndexStore(Path({str(tmp_path)!r}) / "index")
writer = IndexWriter(store)
plan = index_plan(IndexKind.VERSIONS, revised=False)
for n in range(100):
    writer.apply(plan, [Sent("a", position_id(n, 0), b"", PUT, n, (n, 0.5, "1.00")).message(n)])
os._exit(9)
"""
    subprocess.run([sys.executable, "-c", writer_script], check=False, cwd=Path(__file__).parents[4])
    (log,) = (file for file in (tmp_path / "index").glob("*.log") if file.stat().st_size)
    log.write_bytes(log.read_bytes()[:-1000])
    with IndexStore(tmp_path / "index") as store:
        (next_offset,) = store.offsets(PLAN.asset).values()
        assert 50 < next_offset < 100
        assert IndexReader(store).read(PLAN, [KEY], 10**9, ["n"]) == ([[next_offset - 1]], [True])


def test_tiles_of_another_shape_are_not_used(tmp_path: Path) -> None:
    with IndexStore(tmp_path / "index") as store:
        fill(store)
    with IndexStore(tmp_path / "index", geometry=Geometry(split=32)) as store:
        assert store.offsets(PLAN.asset) == {}
    assert len(aside(tmp_path)) == 1


def test_an_asset_is_forgotten_alone(tmp_path: Path) -> None:
    other = index_plan(IndexKind.VERSIONS, revised=False, asset=b"asset--2")
    with IndexStore(tmp_path / "index") as store:
        fill(store)
        writer = IndexWriter(store)
        writer.apply(other, [Sent("a", position_id(0, 0), b"", PUT, 1, (1, 0.5, "1.00")).message(6)])
        writer.forget(PLAN.asset)
        reader = IndexReader(store)
        assert store.offsets(PLAN.asset) == {}
        assert store.offsets(other.asset) == {0: 7}
        assert reader.read(PLAN, [KEY], 10**9, ["n"]) == ([[None]], [False])
        assert reader.read(other, [KEY], 10**9, ["n"]) == ([[1]], [True])
