"""Tests of branches, history and rollback on a real server, by the client's methods and by the commands."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from caraway.cli import app
from caraway.client import Client
from caraway.errors import RemoteError
from caraway.graph.specs import Graph
from caraway.graph.wire.graphs import CommitRequest, encode_commit
from tests.integration.server.server_process import ServerProcess, eventually
from tests.integration.server.test_api import pot
from tests.unit.control.graphs import clicks, users
from tests.unit.query import garden


@pytest.fixture
def own(own_server: Callable[[], ServerProcess]) -> ServerProcess:
    return own_server()


def on(branch: str) -> dict[str, str]:
    return {"X-Caraway-Branch": branch}


def commit_on(server: ServerProcess, branch: str, graph: Graph) -> str:
    content = encode_commit(CommitRequest(message=f"on {branch}", graph=graph, incremental=True))
    answer = server.http.post("/commit", content=content, headers=on(branch))
    assert answer.status_code == 200, answer.text
    commit_id: str = answer.json()["commit_id"]
    return commit_id


def run(server: ServerProcess, *arguments: str) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--url", str(server.settings.server.url)])
    return result.exit_code, result.stdout


@pytest.fixture
def client(own: ServerProcess) -> Iterator[Client]:
    with closing(Client(str(own.settings.server.url), token="")) as client:
        yield client


def test_a_clone_has_the_data_and_goes_its_own_way(own: ServerProcess, client: Client) -> None:
    own.commit(garden.graph())
    own.log("pots", [pot(1, "oak")])
    assets = own.http.get("/ledger").json()["assets"]
    client.clone_branch("dev/me", "main")
    assert client.branch() == "dev/me"
    assert client.list_branches() == ["dev/me", "main"]
    cloned = own.http.get("/ledger").json()["assets"]
    assert [asset["id"] for asset in cloned] == [asset["id"] for asset in assets]
    assert {tuple(asset["branches"]) for asset in cloned} == {("dev/me", "main")}

    def species(branch: str, number: int) -> object:
        body = {"inputs": ["Tap.pot"], "outputs": ["State.species"], "data": [{"Tap.pot": number}]}
        return own.http.post("/query", json=body, headers=on(branch)).json()

    def has_elm(branch: str) -> bool:
        return species(branch, 2) == {"State.species": ["elm"]}

    eventually(lambda: species("dev/me", 1) == {"State.species": ["oak"]}, own.said)
    # Logged rows reach all branches, and a commit on one branch changes nothing on the other.
    commit_on(own, "dev/me", Graph(datasets=(users(),)))
    assert own.log("pots", [pot(2, "elm")]).status_code == 200
    for branch in ("main", "dev/me"):
        eventually(partial(has_elm, branch), own.said)
    lookup = {"keys": [{"user": "a"}], "fields": ["age"]}
    there = own.http.post("/dataset/Users/lookup", json=lookup, headers=on("dev/me"))
    assert there.json() == {"found": [False], "data": {"age": [None]}}
    assert own.http.post("/dataset/Users/lookup", json=lookup).status_code == 404
    client.delete_branch("dev/me")
    assert client.branch() == "main"
    assert own.http.post("/query", json={}, headers=on("dev/me")).status_code == 404


def test_the_data_of_a_deleted_branch_stay_deleted(own: ServerProcess, client: Client) -> None:
    def species(branch: str, number: int) -> object:
        body = {"inputs": ["Tap.pot"], "outputs": ["State.species"], "data": [{"Tap.pot": number}]}
        answer = own.http.post("/query", json=body, headers=on(branch))
        assert answer.status_code == 200, answer.text
        return answer.json()["State.species"][0]

    def has(branch: str, number: int, name: str) -> bool:
        return species(branch, number) == name

    # Other tests use the same broker and equal definitions, so their dead letters are left out, and the pots have
    # numbers of their own.
    earlier: set[str] = set()

    def refused(branch: str) -> list[str]:
        answer = own.http.get("/dead_letters", headers=on(branch))
        assert answer.status_code == 200, answer.text
        return [letter["id"] for letter in answer.json()["dead_letters"] if letter["id"] not in earlier]

    def log(number: int, name: str) -> None:
        """Log a row that is accepted and one that isn't."""
        own.log("pots", [pot(number, name), pot(number, name, size="big")])

    client.init_branch("one")
    first = commit_on(own, "one", garden.graph())
    earlier.update(refused("one"))
    log(7701, "oak")
    eventually(partial(has, "one", 7701, "oak"), own.said)
    (letter,) = refused("one")
    assert "topic" not in own.http.get(f"/dead_letters/{letter}", headers=on("one")).json()
    client.delete_branch("one")

    # An equal definition on a fresh branch begins without rows and without dead letters.
    client.init_branch("two")
    commit_on(own, "two", garden.graph())
    assert letter not in refused("two")
    earlier.update(refused("two"))
    log(7702, "ash")
    eventually(partial(has, "two", 7702, "ash"), own.said)
    assert species("two", 7701) == "fern"
    assert own.http.get(f"/dead_letters/{letter}", headers=on("two")).status_code == 404
    # A branch with equal definitions at the same time shares rows and dead letters.
    client.init_branch("three")
    commit_on(own, "three", garden.graph())
    eventually(partial(has, "three", 7702, "ash"), own.said)
    assert len(refused("two")) == 1
    assert refused("three") == refused("two")

    # A rollback gives the kept rows back, beside the newer generation that other branches use.
    answer = own.http.post("/branch/rollback", json={"commit_id": first})
    assert answer.status_code == 200, answer.text
    eventually(partial(has, "main", 7701, "oak"), own.said)
    assert (species("main", 7702), species("two", 7701)) == ("fern", "fern")
    assert refused("main") == [letter]
    log(7703, "yew")
    for branch in ("main", "two", "three"):
        eventually(partial(has, branch, 7703, "yew"), own.said)


@pytest.mark.parametrize(
    ("action", "status"),
    [
        (lambda client: client.init_branch("main"), 409),
        (lambda client: client.clone_branch("x", "nowhere"), 404),
        (lambda client: client.delete_branch("nowhere"), 404),
        (lambda client: client.delete_branch("main"), 400),
    ],
)
def test_refusals(server: ServerProcess, action: Callable[[Client], object], status: int) -> None:
    with closing(Client(str(server.settings.server.url), token="")) as client:
        with pytest.raises(RemoteError) as caught:
            action(client)
        assert caught.value.status == status
        assert client.branch() == "main"


def test_history_by_commands(own: ServerProcess) -> None:
    first = commit_on(own, "main", Graph(datasets=(users(),)))
    second = commit_on(own, "main", Graph(datasets=(clicks(),)))
    code, printed = run(own, "history", "--json")
    assert (code, [commit["id"] for commit in json.loads(printed)["commits"]]) == (0, [second, first])
    code, printed = run(own, "diff", first, second)
    assert (code, printed) == (1, "+ dataset Clicks\n")
    assert run(own, "diff", first, first) == (0, "")
    code, printed = run(own, "rollback", first, "--preview")
    assert code == 0
    assert "datasets removed: Clicks" in printed
    code, printed = run(own, "rollback", first)
    assert (code, own.http.get("/status").json()["datasets"]) == (0, ["Users"])
    code, printed = run(own, "rollback", second, "--json")
    assert code == 0
    assert "create" not in "".join(json.loads(printed)["summary"]), "what was kept is used again"
    code, printed = run(own, "history", "-n", "2")
    assert f"roll back to {second}" in printed
    assert f"roll back to {first}" in printed
    assert run(own, "diff", first, "0" * 32)[0] == 1
    assert run(own, "rollback", "no commit")[0] == 1


def test_branches_and_ledger_by_commands(own: ServerProcess) -> None:
    assert run(own, "branch", "create", "empty")[0] == 0
    commit_on(own, "main", Graph(datasets=(users(),)))
    assert run(own, "branch", "clone", "copy")[0] == 0
    code, printed = run(own, "branch", "list", "--json")
    heads = {branch["name"]: branch["head"] for branch in json.loads(printed)["branches"]}
    assert (code, heads["empty"]) == (0, None)
    assert heads["copy"] == heads["main"] is not None
    assert "copy" in run(own, "branch", "list")[1]
    eventually(lambda: run(own, "ledger") == (0, "Nothing is pending.\n"), lambda: str(run(own, "ledger")))
    closed = json.loads(run(own, "ledger", "--json", "--closed", "99")[1])["entries"]
    assert {(entry["deed"], entry["state"]) for entry in closed} == {("create", "done")}
    assert run(own, "branch", "delete", "copy")[0] == 0
    assert run(own, "branch", "delete", "copy")[0] == 1


def test_a_changed_dataset_goes_on_to_serve_until_the_new_one_has_caught_up(own: ServerProcess) -> None:
    commit_on(own, "main", Graph(datasets=(users(),)))
    eventually(lambda: run(own, "ledger")[0] == 0)
    commit_on(own, "main", Graph(datasets=(replace(users(version=2), history_us=5),)))

    def serves_its_head() -> bool:
        (main,) = own.http.get("/branch/list").json()["branches"]
        return bool(main["serving"] == main["head"])

    eventually(serves_its_head, own.said)
    states = {asset["state"] for asset in own.http.get("/ledger").json()["assets"] if asset["branches"]}
    assert states == {"ready"}


DEFINITIONS = """
from datetime import datetime

from caraway.connectors import Webhook, source
from caraway.datasets import dataset, field
from caraway.lib import meta

hook = Webhook(name="hook")


@meta(owner="me@example.com")
@source(hook.endpoint("rows"), disorder="1h", cdc="upsert")
@dataset(index=True)
class CommittedByCommand:
    key: int = field(key=True)
    at: datetime
"""


def test_a_module_is_previewed_and_committed_by_commands(own: ServerProcess, tmp_path: Path) -> None:
    module = tmp_path / "committed_by_command.py"
    module.write_text(DEFINITIONS)
    code, printed = run(own, "preview", str(module))
    assert code == 0
    assert "datasets new: CommittedByCommand" in printed
    assert own.http.get("/status").json()["datasets"] == []
    code, printed = run(own, "commit", str(module), "-m", "by command", "--json")
    assert (code, own.http.get("/status").json()["datasets"]) == (0, ["CommittedByCommand"])
    (record,) = own.http.get("/branch/log").json()["commits"]
    assert (record["id"], record["message"]) == (json.loads(printed)["commit_id"], "by command")
    assert run(own, "commit", str(module), "-m", "x", "--branch", "nowhere")[0] == 1
    assert run(own, "commit", "no_such_module", "-m", "x")[0] == 1
