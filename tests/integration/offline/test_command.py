"""`caraway offline` and training sets at the desk, over a real server."""

import json
from typing import Any

import pandas as pd
import polars as pl
from typer.testing import CliRunner

import caraway
from caraway.cli import app
from tests.integration.offline.desk import Shop, same
from tests.integration.offline.shop import asked

runner = CliRunner()


def command(shop: Shop, *arguments: str) -> str:
    options = ["--url", shop.client.url, "--branch", shop.client.branch()]
    done = runner.invoke(app, ["offline", *arguments, *options])
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

    listed = json.loads(command(shop, "list", "--json"))["queries"]
    assert [query["request_id"] for query in listed] == [known.request_id, found.request_id]
    assert found.request_id[:8] in command(shop, "list")
    told = command(shop, "status", found.request_id)
    assert "succeeded: 500 of 500 rows" in told
    assert "offline/" in told
    assert "succeeded" in command(shop, "cancel", found.request_id)
    before = shop.client.explain_offline([shop.buyer.user], [*outputs, shop.buyer.last])
    after = found.explain()
    assert (before["execution"], after["execution"]) == ("process", "process")
    assert before["records"] == after["records"] > 0
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
