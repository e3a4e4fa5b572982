"""Tests that data survive a power failure, for which a file system of the tests' own drops all that wasn't synced."""

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.graph.plan.model import IndexKind, IndexPlan
from caraway.process.private_files import kept_password
from caraway.process.secrets.keyring import add_key, open_keyring
from tests.faults import dying_index
from tests.faults.dying_index import KEYS, PLANS, RECORDS
from tests.services.power import Power, powered
from tests.unit.dataplane.archive.test_tables import offsets, opened, records
from tests.unit.dataplane.index.naive import CODEC, SECOND, NaiveIndex, Sent
from tests.unit.dataplane.index.test_index import COLUMNS, ROW_COLUMNS, same

pytestmark = pytest.mark.full(reason="a file system of its own, for which a package of Debian is fetched once")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def power(data: Path) -> Iterator[Power]:
    with powered(data) as power:
        yield power


def test_the_file_system_drops_what_is_not_synced(data: Path, power: Power) -> None:
    kept_password(data / "kept", 8)
    (data / "lost").write_text("never synced")
    with (data / "kept").open("a") as file:
        file.write("more")
    power.cut()
    assert [path.name for path in data.iterdir()] == ["kept"]
    assert len((data / "kept").read_text()) == 16


def test_the_keys_of_secrets_survive(data: Path, power: Power) -> None:
    ring = add_key(open_keyring(data / "new" / "secret.key"))
    power.cut()
    assert open_keyring(data / "new" / "secret.key") == ring


def test_passwords_survive(data: Path, power: Power) -> None:
    password = kept_password(data / "postgres" / "password", 24)
    power.cut()
    assert kept_password(data / "postgres" / "password", 24) == password


def test_objects_survive(data: Path, power: Power) -> None:
    ObjectFolder(str(data / "objects")).write("a/b/c", b"content")
    power.cut()
    assert ObjectFolder(str(data / "objects")).read("a/b/c") == b"content"


def test_what_the_archive_says_that_it_has_survives(data: Path, power: Power) -> None:
    """Topics are cut by the table's positions, so the records up to these must be on the disk."""
    table = opened(data / "objects")
    for start in range(0, 40, 10):
        table.append(records(range(start, start + 10)), {0: start + 10})
    assert table.compact() == 4
    table.append(records(range(40, 50)), {0: 50})
    power.cut()
    again = opened(data / "objects")
    assert again.positions([0]) == {0: 50}
    assert offsets(again) == list(range(50))


@pytest.mark.parametrize("share", [0.0, 0.7], ids=lambda share: f"{share:.0%}-written")
@pytest.mark.parametrize("kind", PLANS)
@pytest.mark.parametrize("seed", range(2))
def test_an_index_goes_back_to_a_position_and_follows_on(
    data: Path, power: Power, kind: IndexKind, seed: int, share: float
) -> None:
    """After a cut at any moment the index is at a position that it had, not before what was synced, and right there."""
    plan, topic, folder = PLANS[kind], dying_index.records(seed), data / "index"
    moment = random.Random(f"{kind} {seed} {share}").randint(1, RECORDS)
    program = [sys.executable, "-m", dying_index.__name__, str(folder), kind.value, str(seed)]
    positions, synced = [0], 0
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        # Lines that come after the kill was decided count as well.
        for line in process.stdout:
            position, is_synced = map(int, line.split())
            positions.append(position)
            synced = position if is_synced else synced
            if position >= moment:
                process.kill()
    power.cut(share, seed)
    with dying_index.opened(folder) as store:
        found = store.offsets(plan.asset).get(0, 0)
        assert synced <= found
        # The last batch may have been written, and not yet been told.
        assert found in positions or found > positions[-1]
        _agree(store, plan, topic[:found])
        dying_index.follow(store, plan, topic, RECORDS)
        _agree(store, plan, topic)
    assert not list(data.glob("*.damaged*"))


def _agree(store: IndexStore, plan: IndexPlan, topic: list[Sent]) -> None:
    """Check all values at some times against those of a dictionary of the records."""
    naive = NaiveIndex(plan)
    for sent in topic:
        naive.apply(sent)
    columns = COLUMNS if plan.kind is IndexKind.AGGREGATE else ROW_COLUMNS
    asked = [(key, seconds * SECOND) for key in KEYS for seconds in (1, 20, 70)]
    encoded = [CODEC.encode_key([key]) or b"" for key, _ in asked]
    read, there = IndexReader(store).read(plan, encoded, [at_us for _, at_us in asked], columns)
    for row, (key, at_us) in enumerate(asked):
        expected, known = naive.read(key, at_us, columns)
        assert there[row] == known
        assert same([column[row] for column in read], expected), (key, at_us)
