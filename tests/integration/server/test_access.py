"""Tests of a server with tokens: access at every endpoint, the audit log, and that no token leaks."""

# mypy: disable-error-code="attr-defined"

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from caraway import connectors, dataset, field, meta
from caraway.apps.cli import app
from caraway.apps.server.surface import DOCUMENT, ENDPOINTS
from caraway.graph.specs import Graph
from caraway.graph.wire.graphs import CommitRequest, encode_commit
from caraway.state.audit import AuditLog
from caraway.state.permissions import Grant, Mode
from tests.integration.databases import content_of
from tests.integration.server.guarded import Guarded
from tests.integration.server.server_process import ServerProcess, eventually
from tests.integration.server.test_api import pot
from tests.integration.server.test_sources import graph_of
from tests.tls import TLS
from tests.unit.compute.query import garden

BY_PLACE = {(endpoint.method.lower(), endpoint.path): endpoint for endpoint in ENDPOINTS}


@pytest.fixture(scope="module")
def users(guarded_garden: Guarded) -> Guarded:
    return guarded_garden


@pytest.fixture(scope="module")
def guarded(guarded_garden: Guarded) -> ServerProcess:
    return guarded_garden.server


READS = frozenset({Mode.READ_DEFINITION, Mode.READ_DATA})


@connectors.source(garden.hook.endpoint("guests"), disorder="1h", cdc="upsert")
@meta(owner="a@b.co")
@dataset(index=True)
class Guests:
    name: str = field(key=True, erase_key=True)
    age: int
    at: datetime = field(timestamp=True)


@connectors.source(garden.hook.endpoint("visitors"), disorder="1h", cdc="upsert")
@meta(owner="a@b.co")
@dataset
class Visitors:
    name: str = field(key=True)
    at: datetime = field(timestamp=True)


def ask_all(client: httpx2.Client) -> dict[tuple[str, str], int]:
    """Send a nearly empty request to every path, and return the statuses."""
    statuses = {}
    for path, methods in DOCUMENT["paths"].items():
        for method in methods:
            # Without a limit a wait would last for seconds; other bodies are as good as empty.
            body = None if method in {"get", "delete"} else {"seconds": 0}
            statuses[method, path] = client.request(method, path.replace("{name}", "Pots"), json=body).status_code
    return statuses


@pytest.mark.parametrize("header", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic cm9vdDpyb290"}])
def test_without_a_valid_token_hardly_anything_is_answered(guarded: ServerProcess, header: dict[str, str]) -> None:
    with httpx2.Client(base_url=str(guarded.settings.server.url), headers=header, verify=TLS) as client:
        for path, status in ask_all(client).items():
            if path == ("get", "/api/v1/sign-in"):
                # This server has no identity provider.
                assert status == 409
            elif BY_PLACE[path].permission.public:
                assert status == 200, path
            else:
                assert status == 401, path
        refused = client.post("/api/v1/log", content=b"x" * 1_000)
        assert refused.headers["www-authenticate"] == "Bearer"
        assert refused.json()["code"] == "unauthenticated"


@pytest.mark.spec("featuresets:10:2")
def test_tags_limit_every_way_to_ask(users: Guarded, guarded: ServerProcess) -> None:
    guarded.log("pots", [pot(701, "oak", size=12.5)])
    data = {"Tap.pot": [701]}
    eventually(lambda: guarded.query(["State.species"], data).json() == {"State.species": ["oak"]}, guarded.said)
    client = users.user("no-pii", Grant(modes=frozenset(Mode), without=frozenset({"pii"})))

    def query(output: str) -> dict[str, object]:
        return {"inputs": ["Tap.pot"], "outputs": [output], "data": data}

    allowed = client.post("/api/v1/query", json=query("State.mean"))
    assert allowed.json() == {"State.mean": [-1.0]}
    feast = {"features": ["State:species"], "entities": {"Tap.pot": [701]}}
    log = {"webhook": "garden", "endpoint": "pots", "data": [pot(702, "elm")]}
    for path, body in (
        ("/api/v1/query", query("State.species")),
        ("/api/v1/query", query("State.advice")),
        ("/api/v1/query", query("State")),
        ("/api/v1/query/explain", query("State.species")),
        ("/get-online-features", feast),
        ("/api/v1/dataset/Pots/lookup", {"keys": [{"pot": 701}]}),
        ("/api/v1/dataset/Pots/lookup", {"keys": [{"pot": 701}], "fields": ["size"]}),
        ("/api/v1/log", log),
    ):
        refused = client.post(path, json=body)
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden"), (path, refused.text)
        assert "oak" not in refused.text
        assert guarded.http.post(path.removeprefix("/api/v1"), json=body).status_code == 200 or path.startswith("/get")
    rule = {"species": "private oak", "text": "rarely", "water": 1, "since": "2026-01-01T00:00:00Z"}
    taken = client.post("/api/v1/log", json={"webhook": "garden", "endpoint": "rules", "data": [rule]})
    assert taken.status_code == 200, taken.text
    for path in ("/api/v1/init", "/api/v1/delete"):
        answer = client.post(path, json={"clone_from": "main"}, headers={"X-Caraway-Branch": "copy"})
        assert answer.status_code == (403 if path.endswith("init") else 404)


def test_a_commit_needs_all_that_it_touches(users: Guarded, guarded: ServerProcess) -> None:
    client = users.user("definer", Grant(modes=frozenset(Mode), without=frozenset({"pii"})))
    before = guarded.http.get("/branch/log").json()["commits"]

    def commit(graph: Graph) -> httpx2.Response:
        content = encode_commit(CommitRequest(message="by tags", graph=graph))
        return client.post("/api/v1/commit", content=content)

    described = {"Pots": "all pots", "Rules": "all rules"}
    for name, description in described.items():
        graph = garden.tagged(Pots=["pii"])
        datasets = tuple(
            replace(d, metadata=replace(d.metadata, description=description)) if d.name == name else d
            for d in graph.datasets
        )
        answer = commit(replace(graph, datasets=datasets))
        commits = guarded.http.get("/branch/log").json()["commits"]
        if name == "Pots":
            assert answer.status_code == 403
            assert "'definer' lacks write-definition on branch 'main' for: Pots" in answer.json()["err_msg"]
            assert commits == before
        else:
            assert answer.status_code == 200, answer.text
            assert commits[0]["author"] == "definer"
            assert commits[1:] == before


def test_branches_limit_definitions_and_data(users: Guarded, guarded: ServerProcess) -> None:
    made = guarded.http.post("/init", json={"clone_from": "main"}, headers={"X-Caraway-Branch": "dev"})
    assert made.status_code == 200, made.text
    client = users.user("dev-only", Grant(modes=frozenset(Mode), branches=frozenset({"dev"})))
    body = {"inputs": ["Tap.pot"], "outputs": ["State.mean"], "data": {"Tap.pot": [1]}}
    for branch, status in (("dev", 200), ("main", 403)):
        assert client.post("/api/v1/query", json=body, headers={"X-Fennel-Branch": branch}).status_code == status
        assert client.get("/api/v1/branch/log", headers={"X-Caraway-Branch": branch}).status_code == status
    head = guarded.http.get("/branch/log").json()["commits"][0]["id"]
    other = client.get("/api/v1/branch/diff", params={"from": head, "to": head})
    assert (other.status_code, "branch 'main'" in other.json()["err_msg"]) == (403, True)
    stolen = client.post("/api/v1/branch/rollback", json={"commit_id": head}, headers={"X-Caraway-Branch": "dev"})
    assert stolen.status_code == 403
    promoted = client.post("/api/v1/branch/promote", json={"source": "main"}, headers={"X-Caraway-Branch": "dev"})
    assert (promoted.status_code, "branch 'main'" in promoted.json()["err_msg"]) == (403, True)
    gone = client.post("/api/v1/delete", headers={"X-Caraway-Branch": "dev"})
    assert gone.status_code == 200, gone.text


def test_a_branch_is_a_limit(users: Guarded, guarded: ServerProcess) -> None:
    """Neither a rollback, nor an equal definition, nor an erasure, nor a log on a branch reaches the data of main."""
    content = encode_commit(CommitRequest(message="guests", graph=graph_of(Guests), incremental=True))
    assert guarded.http.post("/commit", content=content).status_code == 200
    guarded.log("guests", [{"name": "ada", "age": 36, "at": "2026-01-01T00:00:00Z"}])
    ada = {"keys": [{"name": "ada"}]}
    eventually(lambda: guarded.http.post("/dataset/Guests/lookup", json=ada).json()["found"] == [True], guarded.said)
    for name, cloned in (("empty", None), ("copy", "main")):
        made = guarded.http.post("/init", json={"clone_from": cloned}, headers={"X-Caraway-Branch": name})
        assert made.status_code == 200, made.text
    head = guarded.http.get("/branch/log").json()["commits"][0]["id"]
    own = Grant(modes=frozenset(Mode), branches=frozenset({"empty", "copy"}))
    public = Grant(
        modes=frozenset({Mode.READ_DEFINITION, Mode.READ_DATA}),
        branches=frozenset({"main"}),
        without=frozenset({"pii"}),
    )
    ways: dict[str, tuple[str, str, dict[str, Any]]] = {
        "commit": ("empty", "commit", {"content": content}),
        "rollback": ("empty", "branch/rollback", {"json": {"commit_id": head}}),
        "erase": ("copy", "dataset/Guests/erase", {"json": {"erase_keys": [{"name": "ada"}]}}),
        "log": ("copy", "log", {"json": {"webhook": "garden", "endpoint": "guests", "data": []}}),
    }
    wanted = {
        "commit": "lacks read-data on branch 'main' for Guests",
        "rollback": "lacks read-definition on branch 'main'",
        "erase": "lacks write-data on branch 'main' for Guests",
        "log": "lacks write-data on branch 'main' for Guests",
    }
    # Somebody who may read the dataset on main may share it, but not all else that a commit of main brings along.
    halved = {**wanted, "rollback": "lacks read-definition on branch 'main' for: Pots"}
    for account, grants, texts in (("branch-only", (own,), wanted), ("half-reader", (own, public), halved)):
        client = users.user(account, *grants)
        for way, (branch, path, body) in ways.items():
            answer = client.post(f"/api/v1/{path}", headers={"X-Caraway-Branch": branch}, **body)
            allowed = (account, way) == ("half-reader", "commit")
            assert answer.status_code == (200 if allowed else 403), (account, way, answer.text)
            assert allowed or texts[way] in answer.json()["err_msg"], (account, way, answer.text)
    assert guarded.http.post("/dataset/Guests/lookup", json=ada).json()["found"] == [True]
    # A clone by somebody who may do both needs no further right, nor does who writes to the older branch.
    writer = users.user("main-only", Grant(modes=frozenset({Mode.WRITE_DATA}), branches=frozenset({"main"})))
    row = {"name": "bob", "age": 4, "at": "2026-01-01T00:00:00Z"}
    logged = writer.post("/api/v1/log", json={"webhook": "garden", "endpoint": "guests", "data": [row]})
    assert logged.status_code == 200, logged.text
    everything = users.user("everywhere", Grant(modes=frozenset(Mode)))
    for way, (branch, path, body) in ways.items():
        answer = everything.post(f"/api/v1/{path}", headers={"X-Caraway-Branch": branch}, **body)
        assert answer.status_code == 200, (way, answer.text)


def test_an_older_branch_gives_no_right_on_a_younger_one(users: Guarded, guarded: ServerProcess) -> None:
    """An account with all rights on an older branch that may read a younger one gets no row into the latter."""
    for name in ("older", "younger"):
        assert guarded.http.post("/init", json={}, headers={"X-Caraway-Branch": name}).status_code == 200
    content = encode_commit(CommitRequest(message="visitors", graph=graph_of(Visitors), incremental=True))
    made = guarded.http.post("/commit", content=content, headers={"X-Caraway-Branch": "younger"})
    assert made.status_code == 200, made.text
    row = {"name": "ada", "at": "2026-01-01T00:00:00Z"}
    ways: dict[str, dict[str, Any]] = {
        "log": {"json": {"webhook": "garden", "endpoint": "visitors", "data": [row]}},
        "commit": {"content": content},
    }

    def statuses(client: httpx2.Client) -> dict[str, int]:
        answers = {
            way: client.post(f"/api/v1/{way}", headers={"X-Caraway-Branch": "older"}, **body)
            for way, body in ways.items()
        }
        refused = "lacks write-data on branch 'younger' for Visitors"
        assert all(each.status_code == 200 or refused in each.json()["err_msg"] for each in answers.values()), answers
        return {way: answer.status_code for way, answer in answers.items()}

    own = Grant(modes=frozenset(Mode), branches=frozenset({"older"}))
    reader = users.user("younger-reader", own, Grant(modes=READS, branches=frozenset({"younger"})))
    assert statuses(reader) == {"log": 403, "commit": 403}
    both = users.user("both", own, Grant(modes=frozenset(Mode), branches=frozenset({"younger"})))
    assert statuses(both) == {"log": 200, "commit": 200}
    # After the commit of somebody with the right, the two share the rows, and writers of the older one need no more.
    assert statuses(reader)["log"] == 200


def test_a_dataset_with_the_name_of_another_branch_s_shows_nothing_of_that_one(
    users: Guarded, guarded: ServerProcess
) -> None:
    spec = Visitors.to_spec()
    for branch, version in (("theirs", 11), ("ours", 12)):
        assert guarded.http.post("/init", json={}, headers={"X-Caraway-Branch": branch}).status_code == 200
        graph = Graph(datasets=(replace(spec, version=version),))
        content = encode_commit(CommitRequest(message=branch, graph=graph))
        made = guarded.http.post("/commit", content=content, headers={"X-Caraway-Branch": branch})
        assert made.status_code == 200, made.text

    def shown(client: httpx2.Client) -> tuple[set[str], set[str]]:
        """Return the branches of the assets of Visitors in the ledger, and those of the entries."""
        found = client.get("/api/v1/ledger", params={"closed": 999}).json()
        of = {asset["id"]: asset["branches"] for asset in found["assets"] if asset["dataset"] == "Visitors"}
        entries = [entry["asset"] for entry in found["entries"] if entry["asset"] in of]
        return {branch for names in of.values() for branch in names}, {b for asset in entries for b in of[asset]}

    both = users.user("both-of-one-name", Grant(modes=frozenset(Mode), branches=frozenset({"ours", "theirs"})))
    assert all(found >= {"ours", "theirs"} for found in shown(both))
    ours = users.user("one-of-one-name", Grant(modes=frozenset(Mode), branches=frozenset({"ours"})))
    assert shown(ours) == ({"ours"}, {"ours"})


def test_what_was_changed_and_refused_is_written_down(users: Guarded, guarded: ServerProcess) -> None:
    client = users.user("watched", Grant(modes=frozenset({Mode.READ_DATA})))
    content = encode_commit(CommitRequest(message="no", graph=Graph()))
    for _ in range(2):
        assert client.post("/api/v1/commit", content=content).status_code == 403
    audit = AuditLog(users.engine)

    def refusals() -> int:
        return sum(r.times for r in audit.newest(1_000) if (r.act.account, r.outcome) == ("watched", "forbidden"))

    eventually(lambda: refusals() == 2, guarded.said)
    guarded.http.post("/init", json={}, headers={"X-Caraway-Branch": "written-down"})
    guarded.http.post("/init", json={}, headers={"X-Caraway-Branch": "written-down"})
    done = [r for r in audit.newest(1_000) if r.act.branch == "written-down"]
    assert [(r.act.account, r.act.action, r.outcome) for r in done] == [
        ("root@example.com", "init_branch", "conflict"),
        ("root@example.com", "init_branch", "done"),
    ]
    guarded.http.post("/delete", json={}, headers={"X-Caraway-Branch": "written-down"})


def test_a_token_is_made_and_revoked_through_the_api(users: Guarded, guarded: ServerProcess) -> None:
    url = str(guarded.settings.server.url)
    users.access.define_role("by-api", [Grant(modes=frozenset({Mode.READ_DEFINITION}))])
    wanted = {"account": "made@example.com", "roles": ["by-api"], "kind": "service", "note": "a test", "days": 2}
    made = guarded.http.post("/tokens", json=wanted).json()
    with httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {made['token']}"}, verify=TLS) as client:
        eventually(lambda: client.get("/api/v1/status").status_code == 200, guarded.said)
        # An account that may not do everything can't make a token, not even for itself.
        assert client.post("/api/v1/tokens", json={"account": "made@example.com"}).status_code == 403
        listed = guarded.http.get("/tokens", params={"limit": 1}).json()["tokens"]
        assert [(one["id"], one["account"], one["roles"]) for one in listed] == [
            (made["id"], "made@example.com", ["by-api"])
        ]
        assert made["token"] not in str(listed)
        assert guarded.http.get("/tokens", params={"limit": 5, "skip": 1}).json()["tokens"][0]["id"] != made["id"]
        assert guarded.http.get("/roles").json()["roles"]["by-api"][0]["modes"] == ["read-definition"]
        assert guarded.http.request("DELETE", f"/token/{made['id']}").json() == {"id": made["id"]}
        eventually(lambda: client.get("/api/v1/status").status_code == 401, guarded.said)
    assert guarded.http.request("DELETE", "/token/nobody").status_code == 404
    assert guarded.http.post("/tokens", json={**wanted, "roles": ["no such role"]}).status_code == 404
    # The author of each change is the account of the token that was shown.
    lines: dict[str, Any] = {}

    def about() -> list[dict[str, Any]]:
        lines.update(guarded.http.get("/audit", params={"limit": 8}).json())
        return [line for line in lines["audit"] if made["id"] in line["detail"] or made["id"] == line["token"]]

    # Refusals are written every second, so this one may come before or behind the end of the token.
    eventually(lambda: len(about()) == 3, guarded.said)
    shown = [(line["action"], line["account"], line["outcome"]) for line in about()]
    refused = ("create_token", "made@example.com", "forbidden")
    assert shown.count(refused) == 1
    assert [line for line in shown if line != refused] == [
        ("revoke token", "root@example.com", "done"),
        ("create token", "root@example.com", "done"),
    ]
    assert all(line["token"] for line in about())
    older = guarded.http.get("/audit", params={"limit": 1, "before": lines["next"]}).json()["audit"]
    assert older[0]["number"] < lines["next"] == lines["audit"][-1]["number"]


def test_no_token_is_kept_or_logged(users: Guarded, guarded: ServerProcess) -> None:
    client = users.user("secretive", Grant(modes=frozenset(Mode)))
    ask_all(client)
    token = client.headers["Authorization"].removeprefix("Bearer ")
    secret = token.split("_", 2)[2]
    content = content_of(str(guarded.settings.postgres.url))
    assert secret not in content
    assert secret.encode().hex() not in content
    assert secret not in guarded.log_file.read_text()
    assert secret not in guarded.http.get("/metrics").text


def test_the_commands_for_tokens_and_roles(guarded: ServerProcess, tmp_path: Path) -> None:
    runner, database = CliRunner(), str(guarded.settings.postgres.url)

    def run(*arguments: str, code: int = 0) -> str:
        result = runner.invoke(app, [*arguments, "--database", database, "--data", str(tmp_path)])
        assert result.exit_code == code, result.output
        return result.output

    first = run("roles", "define", "reader", "--may", "read-data", "--branch", "main", "--without", "pii")
    assert first.startswith("→ Postgres at postgresql://")
    assert f"/{database.partition('?')[0].rpartition('/')[2]}" in first
    run("roles", "define", "reader", "--may", "read-definition", "--more")
    listed = run("roles", "list")
    assert "read-data on all entities without pii of branches main" in listed
    assert "read-definition on all entities of all branches" in listed
    assert "there is no role 'nobody'" in run("tokens", "create", "cleo", "--role", "nobody", code=1)
    printed = run("tokens", "create", "cleo", "--role", "reader", "--days", "3", "--note", "for the demo")
    token = printed.strip().splitlines()[-1]
    secret = token.split("_", 2)[2]
    shown = run("tokens", "list")
    assert "cleo" in shown
    assert "for the demo" in shown
    assert secret not in shown + run("audit")
    with httpx2.Client(
        base_url=str(guarded.settings.server.url), headers={"Authorization": f"Bearer {token}"}, verify=TLS
    ) as cleo:
        eventually(lambda: cleo.get("/api/v1/status").status_code == 200, guarded.said)
        run("roles", "take", "cleo", "reader")
        eventually(lambda: cleo.get("/api/v1/status").status_code == 403, guarded.said)
        assert "cleo" not in run("roles", "delete", "reader")
        run("tokens", "revoke", token.split("_")[1])
        eventually(lambda: cleo.get("/metrics").status_code == 401, guarded.said)
    assert "no token 'x'" in run("tokens", "revoke", "x", code=1)
    run("roles", "give", "cleo", "admin")
    assert "cleo, root@example.com have it" in run("roles", "delete", "admin", code=1)
