"""Requests of offline queries that can't be answered are refused at once, and never fail the server."""

# mypy: disable-error-code="attr-defined, arg-type, assignment, misc"

import secrets
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from typing import Any, Optional

import pandas as pd
import pyarrow as pa
import pytest

from caraway.client import Client
from caraway.connectors import Webhook, source
from caraway.datasets import dataset, field, index
from caraway.featuresets import extractor, featureset
from caraway.featuresets import feature as F
from caraway.lib import inputs, outputs
from tests.integration.server.server_process import ServerProcess

__owner__ = "offline@example.com"

ARROW = "application/vnd.apache.arrow.stream"
NUL = "a\x00b"
ROWS = {"Pot.pot": [1], "at": [1]}
BODY = {
    "input_features": ["Pot.pot"],
    "output_features": ["Pot.size"],
    "timestamp_column": "at",
    "input": {"Pandas": ROWS},
}


def pots(client: Client) -> None:
    version = int.from_bytes(secrets.token_bytes(3))
    hook = Webhook(name="pots")

    @source(hook.endpoint("pots"), disorder="14d", cdc="upsert")
    @dataset(index=True, version=version)
    class Pots:
        pot: int = field(key=True)
        size: int
        at: datetime

    @source(hook.endpoint("notes"), disorder="14d", cdc="upsert")
    @index(online=True, offline=None)
    @dataset(version=version)
    class Notes:
        pot: int = field(key=True)
        note: str
        at: datetime

    @featureset
    class Pot:
        pot: int
        size: Optional[int] = F(Pots.size)
        note: Optional[str] = F(Notes.note)
        text: str

        @extractor(deps=[Notes])
        @inputs("pot")
        @outputs("text")
        def read(cls: Any, ts: Any, pot: Any) -> Any:
            return Notes.lookup(ts, pot=pot)[0]["note"].fillna("").rename("text")

    client.commit("pots", datasets=[Pots, Notes], featuresets=[Pot])


def files(**table: Any) -> dict[str, Any]:
    return {"input": {"S3": {"s3_table": {"bucket": "b", "path_prefix": "p", **table}}}}


def mapped(column: str) -> dict[str, Any]:
    table = {"bucket": "b", "path_prefix": "p"}
    return {"input": {"S3": {"s3_table": table, "feature_to_column_map": {"Pot.pot": column}}}}


def csv(**form: Any) -> dict[str, Any]:
    return files(format={"csv": {"delimiter": 44, **form}})


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"output_features": []}, "output_features"),
    ({"timestamp_column": "then"}, "then"),
    ({"input": {"Pandas": {"Pot.pot": [], "at": []}}}, "no rows"),
    ({"input": {"Pandas": {"Pot.pot": [1, 2], "at": [1]}}}, "length"),
    ({"input": {"Excel": {}}}, "Pandas"),
    (files(format="xml"), "xml"),
    ({"output_features": ["Pot.note"]}, "dataset Notes has no offline index"),
    ({"output_features": ["Pot.text"]}, "dataset Notes has no offline index"),
    ({"timestamp_column": NUL, "input": {"Pandas": {"Pot.pot": [1], NUL: [1]}}}, "timestamp_column"),
    ({"workflow": NUL}, "workflow"),
    (files(bucket=NUL), "bucket"),
    (files(path_prefix=NUL), "path_prefix"),
    (mapped(NUL), "feature_to_column_map"),
    (csv(headers=[NUL]), "headers"),
    (csv(delimiter=0), "delimiter"),
    (csv(delimiter=-1), "delimiter"),
    (csv(delimiter=233), "delimiter"),
    (files(bucket="b["), "no address"),
    (files(bucket="s3://AKIAKEY:SECRET@b"), "creds"),
    (files(bucket="key@b"), "creds"),
    (files(bucket="FILE:///etc"), "offline.local_files"),
    (files(), "offline.own_rights"),
    (files(path_prefix="p?endpoint_override=169.254.169.254&scheme=http"), "offline.endpoints"),
    (files(bucket="hdfs://namenode:8020"), "files are at one of"),
    (files(format="delta", db={"db": {"S3": {"creds": None, "role_arn": "r"}}}), "offline.roles"),
    ({"s3_output": 7}, "s3_output"),
    ({"s3_output": {"bucket": "file:///tmp", "path_prefix": "p"}}, "offline.local_files"),
]


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


STREAMS: list[tuple[bytes, str]] = [
    (b"", "no Arrow IPC stream"),
    (b"abc", "no Arrow IPC stream"),
    (stream(pa.table(ROWS))[:-50], "no Arrow IPC stream"),
    (stream(pa.schema([("Pot.pot", pa.int64()), ("at", pa.int64())]).empty_table()), "no rows"),
    (stream(pa.table({"at": [1]})), "no column 'Pot.pot'"),
    (stream(pa.table([pa.array([1])] * 4, names=["Pot.pot", "at", "l", "l"])), "one name"),
    (stream(pa.table({**ROWS, "l": pa.array([1]).view(pa.int64()), "v": pa.array(["a"], pa.string_view())})), "'v'"),
]


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[Client]:
    with closing(Client(str(server.settings.server.url))) as client:
        pots(client)
        yield client


@pytest.mark.usefixtures("client")
def test_what_can_t_be_asked_is_refused_at_once(server: ServerProcess) -> None:
    for change, told in REFUSED:
        answer = server.http.post("/query_offline", json=BODY | change)
        assert answer.status_code == 400, (change, answer.text)
        assert told in answer.json()["err_msg"], (change, answer.text)
        assert "SECRET" not in answer.text
    wanted = {"inputs": "Pot.pot", "outputs": "Pot.size", "timestamp_column": "at"}
    for body, told in STREAMS:
        answer = server.http.post("/query_offline", params=wanted, content=body, headers={"content-type": ARROW})
        assert answer.status_code == 400, (told, answer.text)
        assert told in answer.json()["err_msg"], answer.text
    unknown = server.http.post("/query_offline", json=BODY | {"output_features": ["Pot.nothing"]})
    assert (unknown.status_code, "Pot.nothing" in unknown.text) == (404, True)
    unknown = server.http.get("/query_offline/status", params={"request_id": "none"})
    assert (unknown.status_code, "none" in unknown.text) == (404, True)
    for path in ("status", "result"):
        assert server.http.get(f"/query_offline/{path}", params={"request_id": NUL}).status_code == 400
    assert server.http.post("/query_offline/cancel", params={"request_id": NUL}, json={}).status_code == 400
    assert server.http.get("/query_offline/list").json() == {"queries": []}, "nothing of all this was recorded"


def test_other_columns_may_have_any_names_and_values(client: Client) -> None:
    frame = pd.DataFrame({**ROWS, NUL: [NUL], "_error": ["mine"]})
    found = client.training_set(inputs=["Pot.pot"], outputs=["Pot.size"], timestamp_column="at", rows=frame)
    result = found.to_arrow()
    assert result.drop_columns(["at"]).to_pydict() == {"Pot.size": [None], NUL: [NUL], "_error": ["mine"]}
