"""Tests of branches, history and rollback on a real server, by the client's methods and by the commands."""

import json
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest
from typer.testing import CliRunner

from caraway.apps.cli import app
from caraway.client import Client
from caraway.graph.specs import Graph
from caraway.graph.wire.graphs import CommitRequest, encode_commit
from tests.integration.server.server_process import ServerProcess, eventually
from tests.integration.server.test_api import pot
from tests.unit.apps.server.control.graphs import clicks, users
from tests.unit.compute.query import garden


@pytest.fixture(scope="module")
def branching(kafka: str, module_postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("branches"), kafka=kafka, postgres=module_postgres)
    process.start()
    yield process
    assert process.stop() == 0, process.said()


@pytest.fixture
def own(branching: ServerProcess) -> Iterator[ServerProcess]:
    """Yield a server whose only branch is main, which only one test uses; what others gave up is kept for a while."""
    yield branching
    for branch in branching.http.get("/branch/list").json()["branches"]:
        if branch["name"] != "main":
            branching.http.post("/delete", json={}, headers=on(branch["name"])).raise_for_status()


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


def used_assets(server: ServerProcess) -> dict[str, list[str]]:
    """Return the branches of each asset that has any."""
    return {
        asset["id"]: asset["branches"] for asset in server.http.get("/ledger").json()["assets"] if asset["branches"]
    }


def test_a_clone_has_the_data_and_goes_its_own_way(own: ServerProcess, client: Client) -> None:
    client.init_branch("base")
    commit_on(own, "base", garden.graph())
    own.log("pots", [pot(1, "oak")])
    assets = used_assets(own)
    client.clone_branch("dev/me", "base")
    assert client.branch() == "dev/me"
    assert client.list_branches() == ["base", "dev/me", "main"]
    assert used_assets(own) == {name: ["base", "dev/me"] for name in assets}

    def species(branch: str, number: int) -> object:
        body = {"inputs": ["Tap.pot"], "outputs": ["State.species"], "data": [{"Tap.pot": number}]}
        return own.http.post("/query", json=body, headers=on(branch)).json()

    def has_elm(branch: str) -> bool:
        return species(branch, 2) == {"State.species": ["elm"]}

    eventually(lambda: species("dev/me", 1) == {"State.species": ["oak"]}, own.said)
    # Logged rows reach all branches, and a commit on one branch changes nothing on the other.
    commit_on(own, "dev/me", Graph(datasets=(users(),)))
    assert own.log("pots", [pot(2, "elm")]).status_code == 200
    for branch in ("base", "dev/me"):
        eventually(partial(has_elm, branch), own.said)
    lookup = {"keys": [{"user": "a"}], "fields": ["age"]}
    there = own.http.post("/dataset/Users/lookup", json=lookup, headers=on("dev/me"))
    assert there.json() == {"found": [False], "data": {"age": [None]}}
    assert own.http.post("/dataset/Users/lookup", json=lookup, headers=on("base")).status_code == 404
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
    client.init_branch("four")
    answer = own.http.post("/branch/rollback", json={"commit_id": first}, headers=on("four"))
    assert answer.status_code == 200, answer.text
    eventually(partial(has, "four", 7701, "oak"), own.said)
    assert (species("four", 7702), species("two", 7701)) == ("fern", "fern")
    assert refused("four") == [letter]
    log(7703, "yew")
    for branch in ("four", "two", "three"):
        eventually(partial(has, branch, 7703, "yew"), own.said)


def test_history_by_commands(own: ServerProcess, client: Client) -> None:
    client.init_branch("past")

    def told(*arguments: str) -> Any:
        return run(own, *arguments, "--branch", "past")

    first = commit_on(own, "past", Graph(datasets=(users(),)))
    second = commit_on(own, "past", Graph(datasets=(clicks(),)))
    code, printed = told("history", "--json")
    assert (code, [commit["id"] for commit in json.loads(printed)["commits"]]) == (0, [second, first])
    code, printed = run(own, "diff", first, second)
    assert (code, printed) == (1, "+ dataset Clicks\n")
    assert run(own, "diff", first, first) == (0, "")
    # A branch stands for its newest commit, and a beginning for the id.
    assert run(own, "diff", first[:8], "past") == (1, "+ dataset Clicks\n")
    for unknown in ("nothing", first[:3], "main"):
        assert run(own, "diff", first, unknown)[0] == 1
    code, printed = told("rollback", first, "--preview")
    assert code == 0
    assert "datasets removed: Clicks" in printed
    code, printed = told("rollback", first)
    served = own.http.get("/datasets", headers=on("past")).json()["datasets"]
    assert (code, [found["name"] for found in served]) == (0, ["Users"])
    code, printed = told("rollback", second, "--json")
    assert code == 0
    assert "create" not in "".join(json.loads(printed)["summary"]), "what was kept is used again"
    code, printed = told("history", "-n", "2")
    assert f"roll back to {second}" in printed
    assert f"roll back to {first}" in printed
    assert run(own, "diff", first, "0" * 32)[0] == 1
    assert told("rollback", "no commit")[0] == 1


def test_promotion_is_a_commit_of_another_branch(own: ServerProcess, client: Client) -> None:
    client.init_branch("target")
    commit_on(own, "target", Graph(datasets=(users(),)))
    client.clone_branch("week", "target")
    commit_on(own, "week", Graph(datasets=(clicks(),)))

    def promoted(*options: str) -> Any:
        return run(own, "promote", "week", "--branch", "target", *options)

    code, printed = promoted("--preview")
    assert (code, "datasets new: Clicks" in printed) == (0, True)
    assert run(own, "diff", "target", "week") == (1, "+ dataset Clicks\n")
    code, printed = promoted()
    assert code == 0
    assert "topics create" not in printed, "what the branch has made is used again"
    assert run(own, "diff", "target", "week") == (0, "")
    newest = own.http.get("/branch/log", headers=on("target")).json()["commits"][0]
    assert (f"commit {newest['id']}\n" in printed, newest["message"]) == (True, "promote week")
    # An entity that only the target holds is never removed in silence.
    commit_on(own, "target", garden.graph())
    assert promoted()[0] == 1
    code, printed = promoted("--incremental")
    assert (code, "removed" in printed) == (0, False)
    assert run(own, "promote", "nowhere", "--branch", "target")[0] == 1


def test_branches_and_ledger_by_commands(own: ServerProcess) -> None:
    assert run(own, "branch", "create", "empty")[0] == 0
    assert own.http.post("/init", json={}, headers=on("../x")).status_code == 400
    commit_on(own, "main", Graph(datasets=(users(),)))
    assert run(own, "branch", "clone", "copy")[0] == 0
    code, printed = run(own, "branch", "list", "--json")
    heads = {branch["name"]: branch["head"] for branch in json.loads(printed)["branches"]}
    assert (code, heads["empty"]) == (0, None)
    assert heads["copy"] == heads["main"] is not None
    assert "copy" in run(own, "branch", "list")[1]
    # Assets that must still be made would make it fail; those that earlier tests gave up are removed later.
    eventually(lambda: run(own, "ledger")[0] == 0, lambda: str(run(own, "ledger")))
    closed = json.loads(run(own, "ledger", "--json", "--closed", "99")[1])["entries"]
    assert ("create", "done") in {(entry["deed"], entry["state"]) for entry in closed}
    assert run(own, "branch", "delete", "copy")[0] == 0
    assert run(own, "branch", "delete", "copy")[0] == 1
