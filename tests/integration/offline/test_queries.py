"""Offline queries over a real server: equal to the mock client, through failing rows and a kill."""

import os
from pathlib import Path
from signal import SIGKILL

import psutil
import pyarrow as pa
import pytest

from tests.integration.offline.desk import Shop, same, some_fail
from tests.integration.offline.shop import asked
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
    wanted = [shop.buyer.n, shop.buyer.per_year, shop.buyer.last]
    request_id = shop.begin(frame, wanted)
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
    result = shop.result(request_id).to_pandas()
    found = shop.status(request_id)
    assert (found["rows_done"], found["parts"]) == (40_000, 8)
    eventually(lambda: not left & folders(scratch), server.said)
    assert used <= folders(scratch)
    assert result["label"].tolist() == frame["label"].tolist()
    some = frame.iloc[::97].reset_index(drop=True)
    same(result.iloc[::97].reset_index(drop=True), shop.mock.query_offline([shop.buyer.user], wanted, "at", some))
