"""The client's HTTP requests, and its results from the answers."""

# Checkers see classes where decorators make datasets and featuresets, and wrong arguments are tested here.
# mypy: disable-error-code="arg-type, list-item, type-arg, valid-type, attr-defined"

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Optional
from urllib.parse import quote

import pandas as pd
import pytest

from caraway.client import Client
from caraway.connectors import S3, Webhook, source
from caraway.datasets import dataset, field
from caraway.errors import InvalidInputError, RemoteError
from caraway.featuresets import feature, featureset
from caraway.graph.wire.graphs import decode_commit
from tests.unit.client.stub import Stub, running

__owner__ = "tests@example.com"
T0 = datetime(2024, 5, 1, tzinfo=UTC)
STATUS = {
    "request_id": "7",
    "output_bucket": "b",
    "output_prefix": "p",
    "completion_rate": 1.0,
    "failure_rate": 0.0,
    "status": "done",
}


@source(Webhook(name="web").endpoint("pots"), disorder="1d", cdc="upsert", env="prod")
@dataset(index=True)
class Pots:
    pot: int = field(key=True, erase_key=True)
    wet: float
    at: datetime


@featureset
class Pot:
    pot: int
    wet: Optional[float] = feature(Pots.wet)
    old: int = feature().meta(deleted=True)


@pytest.fixture
def server() -> Iterator[Stub]:
    with running() as stub:
        yield stub


@pytest.fixture
def client(server: Stub) -> Iterator[Client]:
    with Client(f"{server.url}/some/prefix", "secret", "dev") as made:
        yield made


@pytest.mark.spec("featuresets:6:1", "featuresets:5.1:incremental")
def test_commit(server: Stub, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    server.will({"summary": ["one\n", "two\n"]})
    response = client.commit("first", [Pots], [Pot], env="dev", preview=True, incremental=True, backfill=False)
    assert (server.last.method, server.last.path) == ("POST", "/api/v1/commit")
    assert server.last.params == {"preview": "true", "incremental": "true", "backfill": "false"}
    assert server.last.headers["content-type"] == "application/octet-stream"
    assert server.last.headers["authorization"] == "Bearer secret"
    assert server.last.headers["x-caraway-branch"] == "dev"
    sent = decode_commit(server.last.body)
    assert (sent.message, sent.env, sent.preview) == ("first", "dev", True)
    # The source is for another environment.
    assert [(d.name, d.sources) for d in sent.graph.datasets] == [("Pots", ())]
    assert capsys.readouterr().out == "one\ntwo\n"
    assert (response.status_code, response.ok, dict(response)["status_code"]) == (200, True, 200)
    assert response["body"] == response.text
    assert response.json() == {"summary": ["one\n", "two\n"]}


def test_an_answer_that_is_no_json_does_no_harm(
    server: Stub, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    server.will(b"fine")
    assert client.commit("x", [Pots]).text == "fine"
    assert "no summary" in capsys.readouterr().out


def test_the_difference_that_forbids_a_commit_is_printed(
    server: Stub, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    server.will({"err_msg": "Pots changed", "err_diff": "- wet\n+ dry"}, 400)
    with pytest.raises(RemoteError, match=r"^Pots changed") as raised:
        client.commit("x", [Pots])
    assert (raised.value.status, capsys.readouterr().out) == (400, "- wet\n+ dry\n")


@pytest.mark.spec("featuresets:6:4", "featuresets:5.5:1", "featuresets:5.5:workflow", "featuresets:5.5:num_dpus")
@pytest.mark.spec("featuresets:5.5:use_v2", "featuresets:5.5:timestamp_column", "featuresets:5.5:input_dataframe")
def test_an_offline_query_of_a_frame(server: Stub, client: Client) -> None:
    server.will(STATUS)
    frame = pd.DataFrame({"Pot.pot": [1], "t": [T0], "note": ["x"]})
    assert client.query_offline([Pot.pot], [Pot], "t", frame, workflow="w", num_dpus=3) == STATUS
    assert (server.last.method, server.last.path) == ("POST", "/api/v1/query_offline")
    assert server.last.json == {
        "input_features": ["Pot.pot"],
        "output_features": ["Pot.pot", "Pot.wet"],
        "input": {"Pandas": {"Pot.pot": [1], "note": ["x"], "t": ["2024-05-01T00:00:00Z"]}},
        "timestamp_column": "t",
        "s3_output": None,
        "use_v2": True,
        "workflow": "w",
        "num_dpus": 3,
    }
    assert frame["t"].tolist() == [T0]


def bucket(**options: Any) -> Any:
    keys = {"aws_access_key_id": "k", "aws_secret_access_key": "s"}
    return S3(name="s3", **keys).bucket("in", prefix="rows", **options)


@pytest.mark.spec("featuresets:5.5:4", "featuresets:5.5:feature_to_column_map")
def test_an_offline_query_of_a_bucket(server: Stub, client: Client) -> None:
    server.will(STATUS)
    client.query_offline(
        [Pot.pot],
        [Pot.wet],
        "t",
        input_s3=bucket(format="csv", presorted=True),
        output_s3=bucket(format="parquet"),
        feature_to_column_map={Pot.pot: "id"},
    )
    keys = {"S3": {"creds": {"access_key": "k", "secret_key": "s"}, "role_arn": None}}
    database = {"name": "extract_historical_s3_input", "db": keys}
    table = {"bucket": "in", "path_prefix": "rows", "db": database}
    assert server.last.json["input"] == {
        "S3": {
            "s3_table": {**table, "pre_sorted": True, "format": {"csv": {"delimiter": 44}}},
            "compression": "None",
            "feature_to_column_map": {"Pot.pot": "id"},
        }
    }
    assert server.last.json["s3_output"] == {**table, "pre_sorted": False, "format": "parquet"}


FRAME = pd.DataFrame({"Pot.pot": [1], "t": [T0]})


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda c: c.query_offline([Pot.pot], [Pot.wet], "t"), "input_dataframe"),
        (lambda c: c.query_offline([Pot.pot], [Pot.wet], "t", FRAME, bucket()), "not both"),
        (lambda c: c.query_offline([Pot.pot], [Pot.wet], "t", FRAME.head(0)), "no rows"),
        (lambda c: c.query_offline([Pot.pot], [Pot.wet], "time", FRAME), "time"),
        (lambda c: c.query_offline(["Pot"], [Pot.wet], "t", FRAME), "Pot"),
        (lambda c: c.query_offline([Pot.pot], [Pot.old], "t", FRAME), "Pot.old is deleted"),
        (lambda c: c.query_offline([Pot.pot], [Pot.wet], "t", FRAME, feature_to_column_map={}), "input_s3 only"),
        (lambda c: c.query_offline([Pot.pot], [Pot.wet], "t", input_s3="s3://x"), "s3://x"),
        (
            lambda c: c.query_offline(
                [Pot.pot], [Pot.wet], "t", input_s3=bucket(), feature_to_column_map={"Pot.x": "x"}
            ),
            "Pot.x",
        ),
        (lambda c: c.init_branch("a b"), "a b"),
        (lambda c: c.init_branch(""), "''"),
        (lambda c: c.clone_branch("a?", "main"), "a?"),
        (lambda c: c.erase(Pots, pd.DataFrame({"wet": [1.0]})), "wet"),
        (lambda c: c.erase(Pots, pd.DataFrame({"pot": [None]})), "null"),
    ],
)
def test_nothing_wrong_is_sent(server: Stub, client: Client, call: Callable[[Client], Any], said: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        call(client)
    assert said in str(raised.value)
    assert server.asked == []
    assert client.branch() == "dev"


@pytest.mark.spec("featuresets:6:5", "featuresets:6:6")
def test_offline_queries_are_followed_and_cancelled(server: Stub, client: Client) -> None:
    server.will(STATUS)
    assert client.track_offline_query("7") == STATUS
    asked = server.last
    assert (asked.method, asked.path, asked.params) == ("GET", "/api/v1/query_offline/status", {"request_id": "7"})
    assert client.cancel_offline_query("7") == STATUS
    asked = server.last
    assert (asked.method, asked.path, asked.params) == ("POST", "/api/v1/query_offline/cancel", {"request_id": "7"})
    assert asked.json == {}


@pytest.mark.spec("featuresets:6:8", "featuresets:5.6:2")
@pytest.mark.parametrize("answer", [[{"pot": 1, "wet": None}], {"pot": [1], "wet": [None]}])
def test_inspect(server: Stub, client: Client, answer: Any) -> None:
    server.will(answer)
    rows = client.inspect(Pots, n=3)
    assert (server.last.method, server.last.path, server.last.params) == (
        "GET",
        "/api/v1/dataset/Pots/inspect",
        {"n": "3"},
    )
    assert (rows["pot"].tolist(), rows["wet"].tolist(), str(rows["pot"].dtype)) == ([1], [pd.NA], "Int64")
    assert client.inspect("Pots")["pot"].tolist() == [1]


@pytest.mark.spec("featuresets:6:9", "featuresets:5.6:3")
def test_erase(server: Stub, client: Client) -> None:
    assert client.erase(Pots, pd.DataFrame({"pot": [1, 2]})).status_code == 200
    assert server.last.path == "/api/v1/dataset/Pots/erase"
    assert server.last.json == {"erase_keys": [{"pot": 1}, {"pot": 2}]}


@pytest.mark.spec("featuresets:6:10", "featuresets:5.8:1", "featuresets:5.8:2", "featuresets:5.8:6")
def test_branches_are_made(server: Stub, client: Client) -> None:
    client.init_branch("new")
    assert (server.last.path, server.last.json) == ("/api/v1/init", {})
    assert server.last.headers["x-caraway-branch"] == client.branch() == "new"
    client.clone_branch("copy", "new")
    assert (server.last.path, server.last.json) == ("/api/v1/init", {"clone_from": "new"})
    assert server.last.headers["x-caraway-branch"] == client.branch() == "copy"
    server.will({"err_msg": "branch copy exists"}, 409)
    with pytest.raises(RemoteError, match=r"^branch copy exists"):
        client.init_branch("other")
    assert client.branch() == "copy"


@pytest.mark.spec("featuresets:6:11", "featuresets:6:12", "featuresets:5.8:3", "featuresets:5.8:4", "featuresets:5.8:5")
def test_branches_are_listed_and_deleted(server: Stub, client: Client) -> None:
    server.will({"branches": [{"name": "main"}, {"name": "dev"}]})
    assert client.list_branches() == ["main", "dev"]
    assert (server.last.method, server.last.path) == ("GET", "/api/v1/branch/list")
    client.checkout("dev", init=True)
    assert server.last.path == "/api/v1/branch/list"
    client.checkout("new", init=True)
    assert (server.last.path, server.last.headers["x-caraway-branch"]) == ("/api/v1/init", "new")
    client.checkout("nowhere")
    client.delete_branch("dev")
    assert (server.last.path, server.last.json) == ("/api/v1/delete", {})
    assert (server.last.headers["x-caraway-branch"], client.branch()) == ("dev", "nowhere")
    client.delete_branch("nowhere")
    assert client.branch() == "main"


@pytest.mark.spec("featuresets:6:13", "featuresets:6:14", "featuresets:5.6:4", "featuresets:5.6:5")
def test_what_there_is(server: Stub, client: Client) -> None:
    server.will({"any": "graph"})
    assert client.lineage() == {"any": "graph"}
    assert (server.last.method, server.last.path) == ("GET", "/api/v1/lineage")
    client.xray(["a", "b"], "c", properties=["name", "tags"])
    assert (server.last.method, server.last.path) == ("GET", "/api/v1/xray")
    assert server.last.params == {"datasets": "a,b", "featuresets": "c", "properties": "name,tags"}
    client.xray(fields=["name"])
    assert server.last.params == {"properties": "name"}


@pytest.mark.spec("featuresets:6:15")
def test_secrets(server: Stub, client: Client) -> None:
    server.will({"value": "sesame"})
    assert client.get_secret("key") == "sesame"
    client.add_secret("key", "a")
    client.update_secret("key", "b")
    client.delete_secret("key")
    assert [asked.method for asked in server.asked] == ["GET", "POST", "PATCH", "DELETE"]
    assert {asked.path for asked in server.asked} == {"/api/v1/secret/key"}
    assert [asked.json for asked in server.asked] == [None, {"value": "a"}, {"value": "b"}, {}]


@pytest.mark.parametrize("name", ["key?x", "key#x", "key/../x"])
def test_a_name_never_means_another_secret_or_dataset(server: Stub, client: Client, name: str) -> None:
    server.will({"value": "sesame", "data": {}, "found": []})
    client.get_secret(name)
    client.delete_secret(name)
    server.answers.insert(0, (200, []))
    client.inspect(name)
    client.lookup(name, pd.DataFrame({"pot": [1]}))
    client.erase(name, pd.DataFrame({"pot": [1]}))
    quoted = quote(name, safe="")
    assert [asked.path.removeprefix("/api/v1/") for asked in server.asked] == [
        f"secret/{quoted}",
        f"secret/{quoted}",
        f"dataset/{quoted}/inspect",
        f"dataset/{quoted}/lookup",
        f"dataset/{quoted}/erase",
    ]


def test_a_route_that_the_server_does_not_have_is_named(server: Stub, client: Client) -> None:
    server.will({"err_msg": "there is nothing under /api/v1/lineage", "code": "unknown_path"}, 404)
    with pytest.raises(RemoteError, match=r"this server has no GET /lineage"):
        client.lineage()
