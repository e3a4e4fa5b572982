"""Tests that data survive a power failure, for which a file system of the tests' own drops all that wasn't synced."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from caraway.dataplane.objects.folder import ObjectFolder
from caraway.process.private_files import kept_password
from caraway.process.secrets.keyring import add_key, open_keyring
from tests.services.power import Power, powered
from tests.unit.dataplane.archive.test_tables import offsets, opened, records

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
