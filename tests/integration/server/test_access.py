"""Tests of a server with tokens: access at every endpoint, the audit log, and that no token leaks."""

from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pyarrow as pa
import pytest
import sqlalchemy as sa
from psycopg import sql
from typer.testing import CliRunner

from caraway.cli import app
from caraway.graph.specs import Graph
from caraway.graph.wire.graphs import CommitRequest, encode_commit
from caraway.profiles.tables import Profile, profiled
from caraway.served.drift import DriftStore, HourKey, Profiled
from caraway.served.findings import CountKey, Finding, Findings, Found, Sample
from caraway.served.skew import SkewStore
from caraway.server.surface import DOCUMENT, ENDPOINTS
from caraway.state.access import Access
from caraway.state.audit import AuditLog
from caraway.state.database import connect
from caraway.state.permissions import Grant, Mode
from tests.integration.server.server_process import ServerProcess, eventually
from tests.integration.server.test_api import pot
from tests.unit.query import garden

# The request to send at each path, and its target.
REQUESTS: dict[tuple[str, str], tuple[str, dict[str, Any] | None]] = {
    ("post", "/api/v1/query"): ("extract_features", {"inputs": [], "outputs": [], "data": []}),
    ("post", "/api/v1/query/explain"): ("explain_query", {}),
    ("post", "/get-online-features"): ("extract_features", {}),
    ("post", "/api/v1/log"): ("log", {}),
    ("post", "/api/v1/commit"): ("sync", None),
    ("post", "/api/v1/dataset/{name}/lookup"): ("lookup", {}),
    ("post", "/api/v1/dataset/{name}/erase"): ("erase", {}),
    ("get", "/api/v1/dataset/{name}/erasures"): ("erasures", None),
    ("get", "/api/v1/secret/{name}"): ("get_secret", None),
    ("post", "/api/v1/secret/{name}"): ("add_secret", {}),
    ("patch", "/api/v1/secret/{name}"): ("update_secret", {}),
    ("delete", "/api/v1/secret/{name}"): ("delete_secret", None),
    ("get", "/api/v1/secrets"): ("list_secrets", None),
    ("post", "/api/v1/init"): ("init_branch", {"clone_from": "nowhere"}),
    ("post", "/api/v1/delete"): ("delete_branch", {}),
    ("get", "/api/v1/branch/list"): ("list_branches", None),
    ("get", "/api/v1/branch/log"): ("branch_log", None),
    ("get", "/api/v1/branch/diff"): ("branch_diff", None),
    ("post", "/api/v1/branch/rollback"): ("roll_back", {}),
    ("get", "/api/v1/dead_letters"): ("dead_letters", None),
    ("get", "/api/v1/dead_letters/{name}"): ("dead_letter", None),
    ("post", "/api/v1/dead_letters/{name}/replay"): ("replay", {}),
    ("post", "/api/v1/source/try"): ("try_sources", None),
    ("get", "/api/v1/datasets"): ("list_datasets", None),
    ("get", "/api/v1/definition/{name}"): ("describe", None),
    ("get", "/api/v1/xray"): ("xray", None),
    ("get", "/api/v1/lineage"): ("lineage", None),
    ("get", "/api/v1/dataset/{name}/inspect"): ("inspect", None),
    ("post", "/api/v1/wait"): ("wait", {"seconds": 0}),
    ("get", "/api/v1/ledger"): ("ledger", None),
    ("get", "/api/v1/archive"): ("archive", None),
    ("get", "/api/v1/skew"): ("skew", None),
    ("get", "/api/v1/drift"): ("drift", None),
    ("get", "/api/v1/drift/profiles"): ("drift_profiles", None),
    ("post", "/api/v1/drift/reference"): ("set_reference", {"profile": ""}),
    ("get", "/api/v1/drift/findings"): ("drift_findings", None),
    ("get", "/api/v1/drift/datasets"): ("dataset_findings", None),
    ("get", "/api/v1/drift/datasets/{name}"): ("dataset_drift", None),
    ("get", "/api/v1/drift/datasets/{name}/profile"): ("dataset_profile", None),
    ("get", "/api/v1/expectations"): ("expectations", None),
    ("get", "/api/v1/tokens"): ("list_tokens", None),
    ("post", "/api/v1/tokens"): ("create_token", {}),
    ("delete", "/api/v1/token/{name}"): ("revoke_token", None),
    ("get", "/api/v1/roles"): ("list_roles", None),
    ("get", "/api/v1/audit"): ("list_audit", None),
    ("post", "/api/v1/why"): ("why", {}),
    ("get", "/api/v1/why"): ("why_answer", None),
    ("post", "/api/v1/query_offline"): ("extract_historical_features", {}),
    ("get", "/api/v1/query_offline/status"): ("offline_status", None),
    ("post", "/api/v1/query_offline/cancel"): ("cancel_offline", None),
    ("get", "/api/v1/query_offline/list"): ("list_offline", None),
    ("get", "/api/v1/query_offline/explain"): ("explain_offline", None),
    ("get", "/api/v1/query_offline/result"): ("offline_result", None),
    ("get", "/api/v1/health"): ("health", None),
    ("get", "/api/v1/status"): ("status", None),
    ("get", "/api/v1/problems"): ("problems", None),
    ("get", "/api/v1/freshness"): ("freshness", None),
    ("get", "/api/v1/freshness/history"): ("freshness_history", None),
    ("get", "/api/v1/metrics"): ("metrics", None),
    ("get", "/api/v1/openapi.json"): ("openapi", None),
    ("get", "/api/v1/docs"): ("docs", None),
    ("get", "/metrics"): ("metrics", None),
    ("get", "/"): ("root", None),
}
BY_PLACE = {(endpoint.method.lower(), endpoint.path): endpoint for endpoint in ENDPOINTS}
UNTAGGED = {"Pots": ("pii",)}


def tagged() -> Graph:
    """Return the garden, with pots that are private."""
    graph = garden.graph()
    return replace(
        graph,
        datasets=tuple(replace(d, metadata=replace(d.metadata, tags=UNTAGGED.get(d.name, ()))) for d in graph.datasets),
    )


@pytest.fixture(scope="module")
def engine(database: str) -> Iterator[sa.Engine]:
    engine = connect(database)
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def database(module_postgres: str) -> str:
    """Return a database of the module's own, because its tests count lines of the audit log."""
    return module_postgres


@pytest.fixture(scope="module")
def guarded(
    kafka: str, database: str, engine: sa.Engine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """Yield a server with tokens that serves the garden and has `http` as the administrator."""
    process = ServerProcess(tmp_path_factory.mktemp("guarded"), kafka=kafka, postgres=database, tokens=True)
    process.start()
    _, token = Access(engine, by="test").create_token("root@example.com", roles_given=["admin"])
    process.http.headers["Authorization"] = f"Bearer {token}"
    eventually(lambda: process.http.get("/status").status_code == 200, process.said)
    process.commit(tagged())
    yield process
    assert process.stop() == 0, process.said()


class Users:
    """Clients of one server, each with an account of its own."""

    def __init__(self, server: ServerProcess, engine: sa.Engine) -> None:
        self.server, self.engine = server, engine
        self.access = Access(engine, by="test")
        self._made: list[httpx.Client] = []

    def user(self, name: str, *grants: Grant) -> httpx.Client:
        """Return a client whose account has these grants, after the server has learned of them."""
        self.access.define_role(name, grants)
        token_id, token = self.access.create_token(name, roles_given=[name], kind="service")
        client = httpx.Client(
            base_url=str(self.server.settings.server.url),
            headers={"Authorization": f"Bearer {token}", "X-Token-Id": token_id},
            timeout=self.server.http.timeout,
        )
        self._made.append(client)
        eventually(lambda: client.get("/metrics").status_code == 200, self.server.said)
        return client

    def close(self) -> None:
        for client in self._made:
            client.close()


@pytest.fixture
def users(guarded: ServerProcess, engine: sa.Engine) -> Iterator[Users]:
    made = Users(guarded, engine)
    yield made
    made.close()


def ask_all(client: httpx.Client) -> dict[tuple[str, str], int]:
    """Send a nearly empty request to every path, and return the statuses."""
    statuses = {}
    for path, methods in DOCUMENT["paths"].items():
        for method in methods:
            body = REQUESTS[method, path][1]
            statuses[method, path] = client.request(method, path.replace("{name}", "Pots"), json=body).status_code
    return statuses


def test_every_path_is_asked_at() -> None:
    assert REQUESTS.keys() == {(method, path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert all(REQUESTS[place][0] == endpoint.target for place, endpoint in BY_PLACE.items())


@pytest.mark.parametrize("header", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic cm9vdDpyb290"}])
def test_without_a_valid_token_hardly_anything_is_answered(guarded: ServerProcess, header: dict[str, str]) -> None:
    with httpx.Client(base_url=str(guarded.settings.server.url), headers=header) as client:
        for path, status in ask_all(client).items():
            if BY_PLACE[path].permission.public:
                assert status == 200, path
            else:
                assert status == 401, path
        refused = client.post("/api/v1/log", content=b"x" * 1_000)
        assert refused.headers["www-authenticate"] == "Bearer"
        assert refused.json()["code"] == "unauthenticated"


@pytest.mark.spec("featuresets:10:2")
@pytest.mark.parametrize("mode", [None, *Mode])
def test_a_mode_opens_the_paths_that_need_it(users: Users, mode: Mode | None) -> None:
    granted = [] if mode is None else [Grant(modes=frozenset({mode}))]
    client = users.user(f"only-{mode}", *granted)
    for path, status in ask_all(client).items():
        need = BY_PLACE[path].permission
        if path == ("post", "/api/v1/init"):
            # A clone reads and writes definitions and data, so no single mode is enough.
            assert status == 403, (path, status)
        elif path == ("post", "/api/v1/wait"):
            # Any mode on the branch is enough.
            assert (status == 403) is (mode is None), (path, status)
        elif not need.modes or (mode in need.modes and not need.every):
            assert status not in {401, 403}, (path, status)
        else:
            assert status == 403, (path, status)


@pytest.mark.spec("featuresets:10:2")
def record_findings(engine: sa.Engine) -> None:
    """Record that values of some features differ from those that are computed again."""
    names, now = ("State.mean", "State.species", "Former.x"), datetime.now(UTC)
    keys = [CountKey(branch="main", commit="c", feature=name, hour=now, finding=Finding.LATE_DATA) for name in names]
    samples = [
        Sample(
            branch="main",
            commit="c",
            feature=name,
            finding=Finding.LATE_DATA,
            served_at=now,
            at=now,
            query="q",
            served=f"of {name}",
            recomputed="1",
            partition=0,
            offset=1,
            row=0,
        )
        for name in names
    ]
    SkewStore(engine).add(Findings(topic_id="t", since={}, until={0: 2}, counts=Counter(keys), samples=samples))


def test_tags_limit_every_way_to_ask(users: Users, guarded: ServerProcess) -> None:
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
    record_findings(users.engine)
    found = client.get("/api/v1/skew").json()
    # Nobody knows the tags of a feature that isn't defined any more.
    assert [feature["feature"] for feature in found["features"]] == ["State.mean"]
    assert [sample["served"] for sample in found["samples"]] == ["of State.mean"]
    # A feature that may not be read is told from one that doesn't exist neither here nor in what is said of drift.
    assert client.get("/api/v1/skew", params={"feature": "State.species"}).status_code == 404
    assert client.get("/api/v1/skew", params={"feature": "State"}).json()["features"] == found["features"]
    # Findings about private features and datasets aren't problems of this caller either.
    wrong = client.get("/api/v1/problems").json()
    assert wrong["reads_data"]
    assert not any("species" in problem["what"] for problem in wrong["problems"])
    for path in ("/freshness", "/freshness/history"):

        def measured(asked: httpx.Client, path: str) -> set[str]:
            return {one["dataset"] for one in asked.get(path).json()["datasets"]}

        eventually(lambda path=path: "Pots" in measured(guarded.http, path), guarded.said)  # type: ignore[misc]
        eventually(lambda path=path: "Rules" in measured(client, f"/api/v1{path}"), guarded.said)  # type: ignore[misc]
        assert "Pots" not in measured(client, f"/api/v1{path}")
    served = profiled([pa.table({"State.mean": [1.0], "State.species": ["oak"]})]).columns
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    keys = {
        HourKey(branch="main", feature=name, kind=column.kind, hour=hour): column for name, column in served.items()
    }
    assert DriftStore(users.engine).add(Profiled(topic_id="t", since={}, until={0: 1}, columns=keys))
    drift = client.get("/api/v1/drift").json()
    assert [feature["feature"] for feature in drift["features"]] == ["State.mean"]
    assert client.get("/api/v1/drift", params={"feature": "State.species"}).status_code == 404
    found_last = [
        Found(branch="main", feature=name, distance="psi", value=1.0, drifted=drifted)
        for name, drifted in (("State.species", True), ("State.mean", False))
    ]
    DriftStore(users.engine).record("main", found_last)
    seen = [
        [one["feature"] for one in caller.get(path, params=params).json()["findings"]]
        for caller, path, params in (
            (client, "/api/v1/drift/findings", {}),
            (guarded.http, "/drift/findings", {}),
            (guarded.http, "/drift/findings", {"limit": 1}),
        )
    ]
    assert seen == [["State.mean"], ["State.species", "State.mean"], ["State.species"]]
    assert [feature["feature"] for feature in guarded.http.get("/drift").json()["features"]] == [*served]
    profiles = client.get("/api/v1/drift/profiles", params={"feature": "State.mean"}).json()
    assert Profile.from_bytes(b64decode(profiles["served"])).columns["State.mean"].rows == 1
    assert client.get("/api/v1/drift/profiles", params={"feature": "State.species"}).status_code == 403
    assert guarded.http.get("/drift/profiles", params={"feature": "State.species"}).json()["served"] is not None
    assert client.get("/api/v1/drift/profiles", params={"feature": "State.nothing"}).status_code == 404
    references = {"profile": b64encode(Profile(served).to_bytes()).decode()}
    refused = client.post("/api/v1/drift/reference", json=references)
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    own = {"profile": b64encode(Profile({"State.mean": served["State.mean"]}).to_bytes()).decode()}
    assert client.post("/api/v1/drift/reference", json=own).json() == {"features": ["State.mean"], "ignored": []}
    every = guarded.http.get("/skew").json()
    assert [feature["feature"] for feature in every["features"]] == ["Former.x", "State.mean", "State.species"]
    for path in ("Pots", "Pots/profile"):
        assert client.get(f"/api/v1/drift/datasets/{path}").status_code == 404
        # It isn't profiled.
        assert guarded.http.get(f"/drift/datasets/{path}").status_code == 400
    assert client.get("/api/v1/dataset/Pots/inspect").status_code == 403
    assert client.get("/api/v1/dataset/Rules/inspect").status_code == 200
    # The source code of an extractor that may be read can have the name of a dataset that may not; it is left out here.
    shown = "name,metaflags,dsschema,field_metadata,tags,lineage_tags,sink_destination"
    named = client.get("/api/v1/xray", params={"properties": shown}).text + client.get("/api/v1/lineage").text
    assert ("Pots" in named, "State.species" in named, "Rules" in named) == (False, False, True)
    assert client.get("/api/v1/xray", params={"datasets": "Pots"}).status_code == 404
    rule = {"species": "private oak", "text": "rarely", "water": 1, "since": "2026-01-01T00:00:00Z"}
    taken = client.post("/api/v1/log", json={"webhook": "garden", "endpoint": "rules", "data": [rule]})
    assert taken.status_code == 200, taken.text
    for path in ("/api/v1/init", "/api/v1/delete"):
        answer = client.post(path, json={"clone_from": "main"}, headers={"X-Caraway-Branch": "copy"})
        assert answer.status_code == (403 if path.endswith("init") else 404)


def test_a_commit_needs_all_that_it_touches(users: Users, guarded: ServerProcess) -> None:
    client = users.user("definer", Grant(modes=frozenset(Mode), without=frozenset({"pii"})))
    before = guarded.http.get("/branch/log").json()["commits"]

    def commit(graph: Graph) -> httpx.Response:
        content = encode_commit(CommitRequest(message="by tags", graph=graph))
        return client.post("/api/v1/commit", content=content)

    described = {"Pots": "all pots", "Rules": "all rules"}
    for name, description in described.items():
        graph = tagged()
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


def test_branches_limit_definitions_and_data(users: Users, guarded: ServerProcess) -> None:
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
    gone = client.post("/api/v1/delete", headers={"X-Caraway-Branch": "dev"})
    assert gone.status_code == 200, gone.text


def test_a_revoked_token_is_refused_soon(users: Users, guarded: ServerProcess) -> None:
    client = users.user("leaver", Grant(modes=frozenset(Mode)))
    assert client.get("/api/v1/status").status_code == 200
    users.access.revoke_token(client.headers["X-Token-Id"])
    eventually(lambda: client.get("/api/v1/status").status_code == 401, guarded.said)
    users.access.revoke_token(client.headers["X-Token-Id"])


def test_what_was_changed_and_refused_is_written_down(users: Users, guarded: ServerProcess, engine: sa.Engine) -> None:
    client = users.user("watched", Grant(modes=frozenset({Mode.READ_DATA})))
    content = encode_commit(CommitRequest(message="no", graph=Graph()))
    for _ in range(2):
        assert client.post("/api/v1/commit", content=content).status_code == 403
    audit = AuditLog(engine)

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


def test_a_token_is_made_and_revoked_through_the_api(users: Users, guarded: ServerProcess, engine: sa.Engine) -> None:
    url = str(guarded.settings.server.url)
    users.access.define_role("by-api", [Grant(modes=frozenset({Mode.READ_DEFINITION}))])
    wanted = {"account": "made@example.com", "roles": ["by-api"], "kind": "service", "note": "a test", "days": 2}
    made = guarded.http.post("/tokens", json=wanted).json()
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {made['token']}"}) as client:
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
    lines = guarded.http.get("/audit", params={"limit": 5}).json()
    about = [line for line in lines["audit"] if made["id"] in line["detail"] or made["id"] == line["token"]]
    shown = [(line["action"], line["account"], line["outcome"]) for line in about]
    assert shown == [
        ("create_token", "made@example.com", "forbidden"),
        ("revoke token", "root@example.com", "done"),
        ("create token", "root@example.com", "done"),
    ]
    assert all(line["token"] for line in about)
    older = guarded.http.get("/audit", params={"limit": 1, "before": lines["next"]}).json()["audit"]
    assert older[0]["number"] < lines["next"] == lines["audit"][-1]["number"]


def test_no_token_is_kept_or_logged(users: Users, guarded: ServerProcess, database: str) -> None:
    client = users.user("secretive", Grant(modes=frozenset(Mode)))
    ask_all(client)
    token = client.headers["Authorization"].removeprefix("Bearer ")
    secret = token.split("_", 2)[2]
    with psycopg.connect(database) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        for (table,) in tables:
            rows = connection.execute(sql.SQL("SELECT t::text FROM {} t").format(sql.Identifier(table)))
            content = str(rows.fetchall())
            assert secret not in content, table
            assert secret.encode().hex() not in content, table
    assert secret not in guarded.log_file.read_text()
    assert secret not in guarded.http.get("/metrics").text


def test_the_commands_for_tokens_and_roles(guarded: ServerProcess, database: str, tmp_path: Path) -> None:
    runner = CliRunner()

    def run(*arguments: str, code: int = 0) -> str:
        result = runner.invoke(app, [*arguments, "--database", database, "--data", str(tmp_path)])
        assert result.exit_code == code, result.output
        return result.output

    run("roles", "define", "reader", "--may", "read-data", "--branch", "main", "--without", "pii")
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
    with httpx.Client(base_url=str(guarded.settings.server.url), headers={"Authorization": f"Bearer {token}"}) as cleo:
        eventually(lambda: cleo.get("/api/v1/status").status_code == 200, guarded.said)
        run("roles", "take", "cleo", "reader")
        eventually(lambda: cleo.get("/api/v1/status").status_code == 403, guarded.said)
        assert "cleo" not in run("roles", "delete", "reader")
        run("tokens", "revoke", token.split("_")[1])
        eventually(lambda: cleo.get("/metrics").status_code == 401, guarded.said)
    assert "no token 'x'" in run("tokens", "revoke", "x", code=1)
    run("roles", "give", "cleo", "admin")
    assert "cleo, root@example.com have it" in run("roles", "delete", "admin", code=1)
