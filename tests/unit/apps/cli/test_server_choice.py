"""The choice of server and branch: options before and behind a command, and the line that says what is changed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from caraway.apps.cli import app
from caraway.apps.stack.announcement import announce
from caraway.apps.stack.folder import DataFolder
from caraway.apps.stack.record import StackRecord, write_record
from tests.unit.client.stub import Stub, running

runner = CliRunner()
LIST: dict[str, object] = {"dead_letters": [], "next": None}
ACCEPTED = {"accepted": 1, "rejected": 0, "errors": [], "warnings": []}


@pytest.fixture
def stub() -> Iterator[Stub]:
    with running() as server:
        yield server


@pytest.fixture(autouse=True)
def _empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, as a user without stacks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("CARAWAY_URL", "CARAWAY_TOKEN", "CARAWAY_BRANCH", "CARAWAY_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)


def test_options_before_a_command_are_those_of_the_command(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARAWAY_BRANCH", "other")
    stub.will(LIST)
    told = runner.invoke(app, ["--url", stub.url, "--token", "t", "-b", "week", "dead-letters", "list", "-n", "7"])
    assert told.exit_code == 0, told.output
    headers = stub.last.headers
    assert (headers["authorization"], headers["x-caraway-branch"]) == ("Bearer t", "week")
    assert stub.last.params["limit"] == "7"


def test_an_option_behind_the_command_counts_more(stub: Stub) -> None:
    stub.will(LIST)
    runner.invoke(app, ["-b", "one", "dead-letters", "list", "--url", stub.url, "-b", "two"])
    assert stub.last.headers["x-caraway-branch"] == "two"


def test_an_option_before_a_command_that_has_none_is_refused() -> None:
    told = runner.invoke(app, ["--branch", "week", "init", "shop"])
    assert told.exit_code == 2
    assert "No such option: --branch" in told.stderr
    assert not Path("shop").exists()


@pytest.mark.parametrize(
    "command",
    [
        "log hook end {}",
        "rollback 123",
        "branch create week",
        "branch clone week",
        "branch delete week",
        "dead-letters replay 1-0",
        "erase Users --with user=1",
        "offline cancel 1",
        "secrets delete key",
        "commit definitions_of_choice.py -m x",
        "preview definitions_of_choice.py",
    ],
)
def test_a_command_that_changes_something_says_where(command: str, stub: Stub) -> None:
    Path("definitions_of_choice.py").write_text(
        "from caraway.featuresets import featureset\n@featureset\nclass User:\n    user: int\n"
    )
    told = runner.invoke(app, [*command.split(), "--url", stub.url])
    about = "" if command.split(maxsplit=1)[0] in {"branch", "secrets"} else ", branch main"
    assert told.stderr.splitlines()[0] == f"→ {stub.url}{about}"


def test_the_stack_of_another_folder_is_never_used_silently(stub: Stub, tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "theirs")
    folder.claim()
    try:
        write_record(folder.record, StackRecord(state="running", urls={"server": stub.url}))
        announce(folder.path, stub.url)
        line = f"→ {stub.url} (the stack in {folder.path}), branch main\n"
        stub.will(LIST)
        told = runner.invoke(app, ["dead-letters", "list", "--json"])
        assert (told.stderr, json.loads(told.stdout)) == (line, LIST)
        stub.will(ACCEPTED)
        assert runner.invoke(app, ["log", "hook", "end", "{}"]).stderr == line
        # A folder that is named, or in which the user works, needs no line for a command that only reads.
        stub.will(LIST)
        assert runner.invoke(app, ["dead-letters", "list", "--data", str(folder.path)]).stderr == ""
    finally:
        folder.release()


def test_no_word_suggests_a_command_that_destroys_data() -> None:
    for typed in (["merge"], ["erased"], ["dwon"], ["rolback"]):
        told = runner.invoke(app, typed)
        assert told.exit_code == 2
        for name in ("erase", "down", "rollback"):
            assert f"'{name}'" not in told.output
    assert runner.invoke(app, ["erase", "--help"]).exit_code == 0


def test_status_and_jobs_of_a_server_elsewhere(stub: Stub) -> None:
    job = {"id": "Pots.1", "desired": "running", "state": "failing", "mode": "real-time", "error": "no topic"}
    stopped = {**job, "id": "Old.1", "desired": "stopped"}
    index = {"dataset": "Pots", "lag": 5, "lag_seconds": 2.0, "freshness_seconds": 2.0}
    status = {"jobs": [job, stopped], "sources": [], "sinks": [], "index": {"indexes": [index]}}
    problem = {"what": "Pots stands still.", "since": "", "remedy": "Look at it.", "link": "/pots"}
    stub.will(status)
    told = runner.invoke(app, ["jobs", "--url", stub.url])
    assert told.exit_code == 1
    assert ("Pots.1" in told.stdout, "Old.1" in told.stdout) == (True, False)
    # The last answer is repeated, so one serves both requests of `status`.
    stub.will({**status, "problems": [problem]})
    told = runner.invoke(app, ["--url", stub.url, "status"])
    assert told.exit_code == 0
    for expected in (f"Caraway at {stub.url}: running", "no topic", "Pots stands still. Look at it."):
        assert expected in told.stdout
    assert runner.invoke(app, ["status", "--url", "http://127.0.0.1:1"]).exit_code == 1


def test_no_jobs_are_told_with_the_folder(tmp_path: Path) -> None:
    told = runner.invoke(app, ["jobs"])
    assert f"There are no jobs in {tmp_path / 'caraway-data'}, where the stack is stopped" in told.stdout
    assert told.exit_code == 1
