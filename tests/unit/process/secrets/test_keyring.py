"""Tests of the keys of a deployment: made once, kept from others, and never lost by a rotation."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from caraway.errors import UnavailableError
from caraway.process.secrets.keyring import add_key, open_keyring
from caraway.process.settings.errors import ConfigurationError


def test_the_first_start_makes_a_file_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "data" / "secret.key"
    with ThreadPoolExecutor(8) as threads:
        rings = list(threads.map(open_keyring, [path] * 16))
    assert len({ring.current.id for ring in rings}) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["secret.key"]
    assert rings[0].current.text.decode() not in repr(rings[0])


def test_a_secret_opens_under_its_name_only_and_with_its_key_only(tmp_path: Path) -> None:
    ring, other = open_keyring(tmp_path / "one"), open_keyring(tmp_path / "two")
    key_id, sealed = ring.seal("password", "geheim ü")
    assert b"geheim" not in sealed
    assert ring.open("password", key_id, sealed) == "geheim ü"
    with pytest.raises(UnavailableError, match="was changed"):
        ring.open("other", key_id, sealed)
    with pytest.raises(UnavailableError, match="was changed"):
        ring.open("password", key_id, sealed[:-8] + b"AAAAAAA=")
    with pytest.raises(UnavailableError, match=rf"sealed with the key {key_id}, which .*two hasn't got"):
        other.open("password", key_id, sealed)


def test_a_new_key_comes_before_the_others(tmp_path: Path) -> None:
    ring = open_keyring(tmp_path / "key")
    key_id, sealed = ring.seal("a", "value")
    turned = add_key(ring)
    assert turned.current.id != key_id
    assert [key.id for key in turned.keys] == [turned.current.id, key_id]
    assert turned.open("a", key_id, sealed) == "value"
    assert turned.mac_keys()[key_id] == ring.current.mac_key
    assert open_keyring(tmp_path / "key") == turned
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (b"", 0o600, "is empty"),
        (b"not a key\n", 0o600, "something else than keys"),
        (b"x", 0o640, "others may read"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, content: bytes, mode: int, said: str) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises(ConfigurationError, match=said):
        open_keyring(path)
