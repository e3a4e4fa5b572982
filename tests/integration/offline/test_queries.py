"""Offline queries over a real server, also at the desk: equal to the mock client, through failing rows and a kill."""

import json
import os
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import caraway
from caraway.apps.cli import app
from tests.integration.offline.desk import Shop, queries_of, same, some_fail
from tests.integration.offline.shop import asked, logged
from tests.integration.server.server_process import ServerProcess, eventually

ARROW = "application/vnd.apache.arrow.stream"


def test_a_row_that_fails_says_why_and_the_others_go_on(shop: Shop) -> None:
    frame, body = some_fail(40)
    request_id = shop.ask(body)
    found = shop.finished(request_id)
    assert (found["status"], found["rows"], found["rows_failed"]) == ("succeeded", 40, 3)
    assert found["failure_rate"] == 3 / 40
    answer = shop.http.get("/query_offline/result", params={"request_id": request_id, "part": 0})
    assert (found["parts"], answer.headers["content-type"]) == (1, ARROW)
    result = pa.ipc.open_stream(answer.content).read_all().to_pandas()
    assert "row 3" in result["_error"][3]
    assert "'nobody'" in result["_error"][3]
    assert "row 17" in result["_error"][17]
    assert "nobody is 77" in result["_error"][39]
    right = result[result["_error"].isna()].index
    assert len(right) == 37
    good = frame.loc[right].reset_index(drop=True)
    good["Buyer.user"] = good["Buyer.user"].astype(int)
    given = [shop.buyer.user, shop.buyer.age]
    wanted = [shop.buyer.n, shop.buyer.per_year, shop.buyer.last]
    same(result.loc[right].reset_index(drop=True), shop.mock.query_offline(given, wanted, "at", good))
    assert result.loc[[3, 17, 39], "Buyer.n"].isna().all()


def command(shop: Shop, *arguments: str) -> str:
    options = ["--url", shop.client.url, "--branch", shop.client.branch()]
    done = CliRunner().invoke(app, ["offline", *arguments, *options])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_training_set_comes_to_the_desk(shop: Shop) -> None:
    frame = asked(500)
    outputs: list[Any] = [shop.buyer.n, shop.buyer.city, shop.buyer.mean]
    found = caraway.training_set([shop.buyer.user], outputs, "at", frame, client=shop.client, progress=False)
    expected = shop.mock.training_set([shop.buyer.user], outputs, "at", pl.from_pandas(frame))
    assert (len(found), found.failed) == (500, 0)
    same(found.to_pandas(), expected.to_pandas())
    assert found.to_polars().columns == ["Buyer.n", "Buyer.city", "Buyer.mean", "at", "label"]
    assert sum(batch.num_rows for batch in found.batches(64)) == 500
    assert found.errors().empty
    # All rows came a moment ago, so nothing was known in the past.
    known = shop.client.training_set([shop.buyer.user], outputs, "at", frame, as_known=True, progress=False)
    assert known.to_pandas()["Buyer.n"].tolist() == [0] * 500
    again = shop.client.offline_result(found.request_id)
    assert again.to_arrow() == found.to_arrow()
    # A row at the time of an event doesn't see the event itself.
    events = shop.mock.get_dataset_df("Purchases").head(len(frame))
    own = pd.DataFrame({"Buyer.user": events["user"], "at": events["at"]})
    given = [shop.buyer.user]
    before = shop.client.training_set(given, outputs, "at", own, before=True, progress=False).to_pandas()
    same(before, shop.mock.training_set(given, outputs, "at", own, before=True).to_pandas())
    after = shop.mock.training_set(given, outputs, "at", own).to_pandas()
    assert before["at"].tolist() == after["at"].tolist()
    # The pipeline leaves some purchases out; all others count at their own times.
    assert (before["Buyer.n"] < after["Buyer.n"]).mean() > 0.9

    listed = json.loads(command(shop, "list", "--json"))["queries"]
    assert [query["request_id"] for query in listed][1:] == [known.request_id, found.request_id]
    assert found.request_id[:8] in command(shop, "list")
    told = command(shop, "status", found.request_id)
    assert "succeeded: 500 of 500 rows" in told
    assert "offline/" in told
    assert "succeeded" in command(shop, "cancel", found.request_id)
    before = shop.client.explain_offline([shop.buyer.user], [*outputs, shop.buyer.last])
    after = found.explain()
    assert (before["execution"], after["execution"]) == ("process", "process")
    # The numbers are estimates by the messages, and those of waits may have come between the two.
    priced = int((logged()["purchases"]["price"] > 1.0).sum())
    assert min(before["records"], after["records"]) >= priced
    spending = next(one for one in before["datasets"] if one["dataset"] == "Spending")
    assert (spending["columns"], spending["index"]) == (["mean", "n"], ["last"])
    assert spending["archived_records"] == 0
    assert {"read", "lookups", "write"} <= after["progress"]["seconds"].keys()
    assert after["progress"]["bytes"] > 0
    asked_for_spark = shop.client.explain_offline([shop.buyer.user], outputs, execution="spark")
    assert (asked_for_spark["execution"], asked_for_spark["reason"]) == ("spark", "the request asks for it")
    told = command(shop, "explain", found.request_id)
    assert "computed in: process" in told
    assert "Spending" in told
    assert "500 rows" in told


def test_rows_that_fail_are_told_at_the_desk(shop: Shop) -> None:
    frame = pd.DataFrame({"Buyer.user": ["1", "x"], "at": pd.to_datetime(["2024-05-02", "2024-05-02"], utc=True)})
    found = shop.client.training_set([shop.buyer.user], [shop.buyer.n], "at", frame, progress=False)
    assert found.failed == 1
    errors = found.errors()
    assert errors.index.tolist() == [1]
    assert "'x'" in str(errors.iloc[0, -1])


def folders(scratch: Path) -> set[str]:
    """Return the names of the folders of temporary files."""
    return {folder.name for folder in scratch.iterdir()}


@pytest.mark.full(reason="a minute of rows; test_running.py ends processes between parts and amid them")
def test_a_query_goes_on_after_its_process_was_killed(server: ServerProcess, shop: Shop, scratch: Path) -> None:
    # The extractor makes parts of 5,000 rows.
    frame = asked(40_000)
    used = folders(scratch)
    wanted = [shop.buyer.n, shop.buyer.per_year, shop.buyer.last]
    request_id = shop.begin(frame, wanted)
    eventually(lambda: shop.status(request_id)["parts"] >= 1, server.said)
    (process,) = queries_of(server)
    left = folders(scratch) - used
    os.kill(process.pid, SIGKILL)
    process.wait()
    # It had an index of its own.
    assert any(name.startswith("caraway-scratch-offline-") for name in left), left
    before = shop.status(request_id)
    assert 1 <= before["parts"] < 8, before
    result = shop.result(request_id).to_pandas()
    found = shop.status(request_id)
    assert (found["rows_done"], found["parts"]) == (40_000, 8)
    eventually(lambda: not left & folders(scratch), server.said)
    assert used <= folders(scratch)
    assert result["label"].tolist() == frame["label"].tolist()
    some = frame.iloc[::97].reset_index(drop=True)
    same(result.iloc[::97].reset_index(drop=True), shop.mock.query_offline([shop.buyer.user], wanted, "at", some))
