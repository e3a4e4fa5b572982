"""The search for server and token: each place in its turn, and each token for its own server only."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from caraway.apps.stack.announcement import announce, withdraw
from caraway.apps.stack.folder import DataFolder
from caraway.apps.stack.record import StackRecord, write_record
from caraway.client import Client
from caraway.client.discovery import (
    DEFAULT_URL,
    LOCK,
    ServerAddress,
    entry_name,
    find_server,
    is_running,
    running_stacks,
    stacks_folder,
)
from caraway.errors import InvalidInputError, UnavailableError

ONE, OTHER = "http://127.0.0.1:8101", "http://127.0.0.1:8102"
Start = Callable[..., DataFolder]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, as a user without stacks."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def start() -> Iterator[Start]:
    """Yield a function that makes a data folder look like that of a running stack, by holding its lock."""
    folders: list[DataFolder] = []

    def make(path: Path, url: str = ONE, *, announced: bool = True) -> DataFolder:
        folder = DataFolder(path.absolute())
        folder.claim()
        folders.append(folder)
        write_record(folder.record, StackRecord(state="running", urls={"server": url}))
        folder.ensure_token()
        if announced:
            announce(folder.path, url)
        return folder

    yield make
    for folder in folders:
        folder.release()


def token_of(folder: DataFolder) -> str:
    return folder.token.read_text().strip()


def test_without_anything_it_is_the_default_address_and_no_token() -> None:
    assert find_server() == ServerAddress(DEFAULT_URL, "")
    assert DEFAULT_URL == "http://127.0.0.1:8100"


def test_arguments_come_first(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    start(Path("caraway-data"))
    monkeypatch.setenv("CARAWAY_URL", OTHER)
    monkeypatch.setenv("CARAWAY_TOKEN", "t")
    assert find_server("https://far.test", "mine") == ServerAddress("https://far.test", "mine")
    assert find_server(ONE, "") == ServerAddress(ONE, "")


def test_variables_come_before_stacks(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    start(Path("caraway-data"))
    monkeypatch.setenv("CARAWAY_URL", "https://far.test")
    assert find_server() == ServerAddress("https://far.test", "")
    monkeypatch.setenv("CARAWAY_TOKEN", "t")
    assert find_server() == ServerAddress("https://far.test", "t")


def test_the_token_of_the_environment_goes_to_the_server_of_the_environment_only(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = start(Path("caraway-data"))
    monkeypatch.setenv("CARAWAY_TOKEN", "t")
    assert find_server("https://far.test").token == "t"
    assert find_server().token == "t"
    monkeypatch.setenv("CARAWAY_URL", "https://far.test")
    assert find_server("https://farther.test").token == ""
    assert find_server(ONE).token == token_of(folder)


def test_the_stack_of_the_folder_we_are_in(start: Start) -> None:
    folder = start(Path("caraway-data"), announced=False)
    assert find_server() == ServerAddress(ONE, token_of(folder))


@pytest.mark.parametrize("by_variable", [True, False])
def test_the_stack_of_a_named_folder(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, by_variable: bool
) -> None:
    start(Path("caraway-data"))
    named = start(tmp_path / "named", OTHER, announced=False)
    if by_variable:
        monkeypatch.setenv("CARAWAY_DATA_DIR", str(named.path))
    assert find_server(data_dir=None if by_variable else named.path) == ServerAddress(OTHER, token_of(named))


def test_a_named_folder_without_a_stack_is_an_error(start: Start, tmp_path: Path) -> None:
    start(Path("caraway-data"))
    with pytest.raises(UnavailableError, match=r"no stack runs in .*named: start it with `caraway up`"):
        find_server(data_dir=tmp_path / "named")


def test_the_only_running_stack_is_found_from_any_folder(start: Start, tmp_path: Path) -> None:
    folder = start(tmp_path / "elsewhere")
    assert find_server() == ServerAddress(ONE, token_of(folder))
    with Client() as client:
        assert (client.url, client.token) == (ONE, token_of(folder))


def test_a_stack_that_ended_is_not_found(start: Start, tmp_path: Path) -> None:
    dead, alive = start(tmp_path / "dead"), start(tmp_path / "alive", OTHER)
    dead.release()
    assert [stack.url for stack in running_stacks()] == [OTHER]
    assert find_server().url == OTHER
    start(Path("caraway-data"), announced=False).release()
    assert find_server().token == token_of(alive)


def test_several_stacks_are_listed(start: Start, tmp_path: Path) -> None:
    for name, url in (("one", ONE), ("other", OTHER)):
        start(tmp_path / name, url)
    with pytest.raises(InvalidInputError) as caught:
        find_server()
    for expected in (ONE, OTHER, str(tmp_path / "one"), str(tmp_path / "other"), "CARAWAY_URL", "--url"):
        assert expected in str(caught.value)


def test_the_folder_we_are_in_comes_before_the_list(start: Start, tmp_path: Path) -> None:
    start(tmp_path / "other", OTHER)
    start(Path("caraway-data"), ONE)
    assert find_server().url == ONE


def test_a_url_of_a_stack_brings_its_token(start: Start, tmp_path: Path) -> None:
    one, other = start(tmp_path / "one", ONE), start(tmp_path / "other", OTHER)
    assert find_server(ONE).token == token_of(one)
    assert find_server(f"{OTHER}/").token == token_of(other)


def test_localhost_is_sent_to_the_address_at_which_the_stack_listens(start: Start, tmp_path: Path) -> None:
    folder = start(tmp_path / "one", ONE)
    # Another program may listen at [::1]:8101, to which `localhost` may also resolve.
    assert find_server("http://localhost:8101") == ServerAddress(ONE, token_of(folder))


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8103",
        "https://127.0.0.1:8101",
        "http://evil.example:8101",
        "http://[::1]:8101",
        "http://127.0.0.1.evil.example:8101",
        "http://127.0.0.1:8101@evil.example",
        "http://evil.example/?http://127.0.0.1:8101",
        "http://127.0.0.1:port",
        "",
        "//127.0.0.1:8101",
    ],
)
def test_no_other_address_gets_the_token_of_a_stack(start: Start, tmp_path: Path, url: str) -> None:
    folder = start(tmp_path / "one", ONE)
    found = find_server(url)
    assert found.token != token_of(folder) or found.url == ONE
    assert found.url == (url or ONE)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")
@pytest.mark.parametrize("part", ["folder", "record"])
def test_the_folder_of_another_user_is_refused(start: Start, part: str) -> None:
    folder = start(Path("caraway-data"), announced=False)
    os.chown(folder.path if part == "folder" else folder.record, 12345, 12345)
    assert find_server() == ServerAddress(DEFAULT_URL, "")
    with pytest.raises(UnavailableError, match=r"belongs to another user.*CARAWAY_URL"):
        find_server(data_dir=folder.path)


def test_the_token_of_the_environment_goes_to_nobody_without_an_address(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARAWAY_TOKEN", "t")
    with pytest.raises(UnavailableError, match="CARAWAY_URL"):
        find_server()
    assert find_server(DEFAULT_URL) == ServerAddress(DEFAULT_URL, "t")
    assert find_server(token="") == ServerAddress(DEFAULT_URL, "")
    start(tmp_path / "one", ONE)
    assert find_server() == ServerAddress(ONE, "t")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"url": 1}', b'{"url": "http://x"}', b"\xff", b"[" * 100_000])
def test_an_entry_that_means_nothing_is_ignored_and_removed(start: Start, tmp_path: Path, content: bytes) -> None:
    start(tmp_path / "one")
    folder = stacks_folder()
    assert folder is not None
    (folder / "broken.json").write_bytes(content)
    assert find_server().url == ONE
    announce(tmp_path / "one", ONE)
    assert not (folder / "broken.json").exists()


def test_only_the_user_can_read_list_and_token(start: Start, tmp_path: Path) -> None:
    started = start(tmp_path / "one")
    folder = stacks_folder()
    assert folder is not None
    entry = folder / entry_name(started.path)
    assert json.loads(entry.read_text()) == {"url": ONE, "data_dir": str(started.path)}
    assert token_of(started) not in entry.read_text()
    modes = {path: path.stat().st_mode & 0o777 for path in (folder, entry, started.run, started.token)}
    assert modes == {folder: 0o700, entry: 0o600, started.run: 0o700, started.token: 0o600}


def test_a_stack_that_stops_leaves_the_list(start: Start, tmp_path: Path) -> None:
    one = start(tmp_path / "one")
    start(tmp_path / "other", OTHER)
    withdraw(one.path)
    assert [stack.url for stack in running_stacks()] == [OTHER]
    withdraw(one.path)


def test_stacks_that_do_not_run_are_removed_from_the_list(start: Start, tmp_path: Path) -> None:
    start(tmp_path / "dead").release()
    start(tmp_path / "alive")
    folder = stacks_folder()
    assert folder is not None
    assert [entry.name for entry in folder.glob("*.json")] == [entry_name(tmp_path / "alive")]


def test_a_killed_stack_does_not_run(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.claim()
    folder.release()
    program = (
        "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print('locked', flush=True); input()"
    )
    command = [sys.executable, "-u", "-I", "-S", "-c", program, str(tmp_path / LOCK)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as stack:
        assert stack.stdout is not None
        assert stack.stdout.readline() == "locked\n"
        assert is_running(tmp_path)
        stack.kill()
    assert not is_running(tmp_path)


def test_a_look_does_not_keep_a_stack_from_its_folder(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.claim()
    folder.release()
    ended = Event()

    def look() -> None:
        while not ended.is_set():
            is_running(tmp_path)

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        try:
            for _ in range(200):
                folder.claim()
                folder.release()
        finally:
            ended.set()
        looking.result()


def test_a_relative_folder_of_states_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert stacks_folder() == tmp_path / ".local" / "state" / "caraway" / "stacks"


def test_a_token_is_made_once_and_again_if_its_file_is_empty(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    file = folder.token
    file.parent.mkdir()
    folder.ensure_token()
    first = file.read_text()
    assert len(first.strip()) > 40
    file.chmod(0o644)
    folder.ensure_token()
    assert file.read_text() == first
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("\n")
    folder.ensure_token()
    assert file.read_text().strip() not in {"", first.strip()}
