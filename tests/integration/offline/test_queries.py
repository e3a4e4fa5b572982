"""Offline queries over a real server: equal to the mock client, through failing rows, kills and cancellations."""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from signal import SIGKILL
from typing import Any

import httpx
import pandas as pd
import psutil
import pyarrow as pa
import pytest

from caraway.client import Client
from caraway.testing import MockClient
from tests.integration.archive.archive_process import ArchiveProcess
from tests.integration.offline.shop import asked, definitions, logged
from tests.integration.server.server_process import ServerProcess, eventually

ARROW = "application/vnd.apache.arrow.stream"


class Shop:
    """A server with the shop's data, and a mock client with the same."""

    def __init__(self, server: ServerProcess, version: int) -> None:
        self.datasets, self.featuresets = definitions(version)
        self.buyer, self.friend = self.featuresets
        self.client = Client(str(server.settings.server.url))
        self.mock = MockClient()
        for client in (self.client, self.mock):
            client.commit("shop", datasets=self.datasets, featuresets=self.featuresets)
            for endpoint, frame in logged().items():
                client.log("shop", endpoint, frame)
        self.http = server.http

    def close(self) -> None:
        self.client.close()

    def begin(self, frame: pd.DataFrame, outputs: list[Any] | None = None) -> str:
        found = self.client.query_offline([self.buyer.user], outputs or [self.buyer], "at", frame)
        assert found["status"] in {"waiting", "running", "succeeded"}
        return str(found["request_id"])

    def status(self, request_id: str) -> dict[str, Any]:
        return dict(self.client.track_offline_query(request_id))

    def finished(self, request_id: str, said: Callable[[], str]) -> dict[str, Any]:
        eventually(lambda: self.status(request_id)["status"] not in {"waiting", "running"}, said)
        return self.status(request_id)

    def result(self, request_id: str, parts: int) -> pd.DataFrame:
        tables = []
        for part in range(parts):
            answer = self.http.get("/query_offline/result", params={"request_id": request_id, "part": part})
            assert answer.headers["content-type"] == ARROW
            tables.append(pa.ipc.open_stream(answer.content).read_all())
        frame: pd.DataFrame = pa.concat_tables(tables).to_pandas()
        return frame


@pytest.fixture
def shop(server: ServerProcess) -> Iterator[Shop]:
    # Tests share a broker, so their topics need different names.
    with closing(Shop(server, int.from_bytes(secrets.token_bytes(3)))) as made:
        yield made


def same(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    for name in expected.columns:
        one, other = ([plain(value) for value in frame[name].tolist()] for frame in (found, expected))
        assert one == other, name


def plain(value: Any) -> Any:
    """Return a value of either frame: None for all that stands for null, a list for an array."""
    if hasattr(value, "__len__") and not isinstance(value, str):
        return list(value)
    return None if pd.isna(value) else value


@pytest.mark.full(reason="many queries, each a process; e2e/test_known.py compares with the oracle")
def test_features_of_the_past_are_those_of_the_mock_client(
    server: ServerProcess, shop: Shop, archive_of: Callable[[str], ArchiveProcess]
) -> None:
    frame = asked(300)
    expected = shop.mock.query_offline([shop.buyer.user], [shop.buyer, shop.friend], "at", frame)
    # Without an archive all records come from the topics.
    request_id = shop.begin(frame, [shop.buyer, shop.friend])
    found = shop.finished(request_id, server.said)
    assert (found["status"], found["completion_rate"], found["failure_rate"]) == ("succeeded", 1.0, 0.0), found
    result = shop.result(request_id, found["parts"])
    assert list(result.columns) == [*expected.columns, "label", "_history", "_error"]
    same(result, expected)
    assert result["label"].tolist() == frame["label"].tolist()
    assert result["_error"].isna().all()
    # With it they come from tables, and here there is nothing left on the topics.
    archive = archive_of("archive")
    archive.start()
    eventually(lambda: all(t["messages"] == 0 for t in server.http.get("/archive").json()["tables"]), archive.said)
    again = shop.begin(frame, [shop.buyer, shop.friend])
    found = shop.finished(again, server.said)
    same(shop.result(again, found["parts"]), expected)
    listed = server.http.get("/query_offline/list").json()["queries"]
    assert [query["request_id"] for query in listed] == [again, request_id]
    # An Arrow body does the same.
    rows = pa.Table.from_pandas(frame, preserve_index=False)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    wanted = {"inputs": "Buyer.user", "outputs": "Buyer,Friend", "timestamp_column": "at"}
    answer = server.http.post(
        "/query_offline", params=wanted, content=sink.getvalue().to_pybytes(), headers={"content-type": ARROW}
    )
    assert answer.status_code == 200, answer.text
    in_arrow = answer.json()["request_id"]
    found = shop.finished(in_arrow, server.said)
    same(shop.result(in_arrow, found["parts"]), expected)


def test_a_row_that_fails_says_why_and_the_others_go_on(server: ServerProcess, shop: Shop) -> None:
    frame = asked(40)
    frame["Buyer.user"] = frame["Buyer.user"].astype(object)
    frame["at"] = frame["at"].map(lambda at: at.isoformat())
    frame["Buyer.age"] = 30
    frame.loc[3, "Buyer.user"] = "nobody"
    frame.loc[17, "at"] = "yesterday"
    frame.loc[39, "Buyer.age"] = 77
    body = {
        "input_features": ["Buyer.user", "Buyer.age"],
        "output_features": ["Buyer.n", "Buyer.per_year"],
        "input": {"Pandas": {name: frame[name].tolist() for name in frame}},
        "timestamp_column": "at",
    }
    request_id = server.http.post("/query_offline", json=body).json()["request_id"]
    found = shop.finished(request_id, server.said)
    assert (found["status"], found["rows"], found["rows_failed"]) == ("succeeded", 40, 3)
    assert found["failure_rate"] == 3 / 40
    result = shop.result(request_id, found["parts"])
    assert "row 3" in result["_error"][3]
    assert "'nobody'" in result["_error"][3]
    assert "row 17" in result["_error"][17]
    assert "nobody is 77" in result["_error"][39]
    right = result[result["_error"].isna()].index
    assert len(right) == 37
    good = frame.loc[right].reset_index(drop=True)
    good["Buyer.user"] = good["Buyer.user"].astype(int)
    given = [shop.buyer.user, shop.buyer.age]
    expected = shop.mock.query_offline(given, [shop.buyer.n, shop.buyer.per_year], "at", good)
    same(result.loc[right].reset_index(drop=True), expected)
    assert result.loc[[3, 17, 39], "Buyer.n"].isna().all()


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"output_features": ["Buyer.nothing"]}, 404, "Buyer.nothing"),
    ({"output_features": []}, 400, "output_features"),
    ({"timestamp_column": "then"}, 400, "then"),
    ({"input": {"Pandas": {"Buyer.user": [], "at": []}}}, 400, "no rows"),
    ({"input": {"Pandas": {"Buyer.user": [1, 2], "at": [1]}}}, 400, "length"),
    ({"input": {"Excel": {}}}, 400, "Pandas"),
    ({"input": {"S3": {"s3_table": {"bucket": "file:///etc", "path_prefix": "passwd"}}}}, 400, "local_files"),
    ({"input": {"S3": {"s3_table": {"bucket": "b", "path_prefix": "p", "format": "xml"}}}}, 400, "xml"),
]


def test_what_can_t_be_asked_is_refused_at_once(server: ServerProcess, shop: Shop) -> None:
    body = {
        "input_features": ["Buyer.user"],
        "output_features": ["Buyer.n"],
        "input": {"Pandas": {"Buyer.user": [1], "at": [1]}},
        "timestamp_column": "at",
    }
    for change, status, told in REFUSED:
        answer = server.http.post("/query_offline", json=body | change)
        assert answer.status_code == status, (change, answer.text)
        assert told in answer.json()["err_msg"]
    unknown = server.http.get("/query_offline/status", params={"request_id": "none"})
    assert (unknown.status_code, "none" in unknown.text) == (404, True)


def child_of(server: ServerProcess) -> psutil.Process | None:
    for process in psutil.Process(server.pid).children(recursive=True):
        try:
            if "caraway.offline" in process.cmdline():
                return process
        except psutil.NoSuchProcess:
            continue
    return None


def folders(scratch: Path) -> set[str]:
    """Return the names of the folders of temporary files."""
    return {folder.name for folder in scratch.iterdir()}


@pytest.mark.full(reason="a minute of rows; test_running.py ends processes between parts and amid them")
def test_a_query_goes_on_after_its_process_was_killed(server: ServerProcess, shop: Shop, scratch: Path) -> None:
    # The extractor makes parts of 5,000 rows.
    frame = asked(40_000)
    used = folders(scratch)
    request_id = shop.begin(frame, [shop.buyer.n, shop.buyer.per_year, shop.buyer.last])
    eventually(lambda: shop.status(request_id)["parts"] >= 1, server.said)
    process = child_of(server)
    assert process is not None
    left = folders(scratch) - used
    os.kill(process.pid, SIGKILL)
    process.wait()
    # It had an index of its own.
    assert any(name.startswith("caraway-scratch-offline-") for name in left), left
    before = shop.status(request_id)
    assert 1 <= before["parts"] < 8, before
    found = shop.finished(request_id, server.said)
    assert (found["status"], found["rows_done"], found["parts"]) == ("succeeded", 40_000, 8)
    eventually(lambda: not left & folders(scratch), server.said)
    assert used <= folders(scratch)
    result = shop.result(request_id, 8)
    assert result["label"].tolist() == frame["label"].tolist()
    some = frame.iloc[::97].reset_index(drop=True)
    wanted = [shop.buyer.n, shop.buyer.per_year, shop.buyer.last]
    same(result.iloc[::97].reset_index(drop=True), shop.mock.query_offline([shop.buyer.user], wanted, "at", some))


@pytest.mark.full(reason="a long query; test_running.py cancels queries")
def test_a_query_is_cancelled_between_parts(server: ServerProcess, shop: Shop) -> None:
    request_id = shop.begin(asked(60_000))
    eventually(lambda: shop.status(request_id)["parts"] >= 1, server.said)
    shop.client.cancel_offline_query(request_id)
    found = shop.finished(request_id, server.said)
    assert found["status"] == "cancelled"
    assert 0 < found["rows_done"] < 60_000
    with pytest.raises(httpx.HTTPStatusError):
        server.http.get("/query_offline/result", params={"request_id": request_id, "part": 99}).raise_for_status()
