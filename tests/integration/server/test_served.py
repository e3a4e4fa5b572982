"""Tests that queries with log=true are on their topic and, once each, in the archive's table; even after kills."""

import secrets
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pytest

from caraway.served.log import SERVED
from tests.integration.archive.archive_process import ArchiveProcess, Duck, served_rows, served_table
from tests.integration.server.server_process import ServerProcess, eventually, records
from tests.unit.query import garden


def archived(server: ServerProcess, workflow: str) -> pl.DataFrame:
    frame = served_rows(server.settings)
    return frame.filter(pl.col("workflow") == workflow).sort("_offset", "row") if len(frame) else frame


def test_what_is_served_is_kept_on_the_topic(server: ServerProcess, kafka: str) -> None:
    workflow = f"kept-{secrets.token_hex(4)}"
    data = {"Tap.pot": [901, 902]}
    answer = server.query(["State.species", "State.answer"], data, log=True, workflow=workflow).json()
    server.query(["State.answer"], data, log=True, workflow=workflow, sampling_rate=0)
    server.query(["State.answer"], data, log=False, workflow=workflow)

    def kept() -> list[dict[str, Any]]:
        found = [orjson.loads(value) for value in records(kafka, SERVED)]
        return [record for record in found if record["workflow"] == workflow]

    eventually(kept, server.said)
    (record,) = kept()
    assert (record["inputs"], record["outputs"], record["rows"]) == (data, answer, [0, 1])
    assert record["branch"] == "main"
    sample = f'caraway_served_rows_counter_total{{outcome="kept",workflow="{workflow}"}} 2.0'
    eventually(lambda: sample in server.http.get("/metrics").text, server.said)


@pytest.mark.full(reason="starts and kills for a minute; archive/test_kills.py kills the same writers in each run")
def test_each_row_is_archived_once_whatever_is_killed(kafka: str, postgres: str, tmp_path: Path) -> None:
    workflow = f"archived-{secrets.token_hex(4)}"
    server = ServerProcess(tmp_path / "server", kafka=kafka, postgres=postgres)
    server.start()
    server.commit(garden.graph())
    archive = ArchiveProcess(server.settings, seconds=0.1)
    archive.start()

    def said() -> str:
        return server.said() + archive.said()

    def ask(first: int, count: int) -> None:
        for pot in range(first, first + count):
            answer = server.query(["State.answer"], [{"Tap.pot": pot}] * 2, log=True, workflow=workflow)
            assert answer.status_code == 200, answer.text

    ask(0, 30)
    eventually(lambda: len(archived(server, workflow)) == 60, said)
    for number in (1, 2):
        ask(30 * number, 30)
        # Some of the queries may be on the topic, in the table, or nowhere yet.
        eventually(lambda since=60 * number: len(archived(server, workflow)) > since, said)  # type: ignore[misc]
        archive.kill()
        server.kill()
        server.start()
        archive.start()
    ask(90, 1)
    eventually(lambda: 90 in _pots(server, workflow), said)
    pots = _pots(server, workflow)
    assert archive.stop() == 0, archive.said()
    assert server.stop() == 0, server.said()
    frame = archived(server, workflow)
    assert not frame.select("_offset", "row").is_duplicated().any()
    # Rows that were archived or durable before a kill are there; each query has both of its rows.
    assert sorted(pots) == sorted([pot for pot in set(pots) for _ in range(2)])
    assert set(range(30)) | {90} <= set(pots)
    assert [orjson.loads(text) for text in frame["outputs"]] == [{"State.answer": 42}] * len(frame)
    # A program that isn't ours reads the same rows.
    table = served_table(server.settings)
    assert table is not None
    with closing(Duck()) as duck:
        counts = duck.ask("SELECT count(*), count(DISTINCT (_offset, row)) FROM {table}", table)
    assert counts == (len(served_rows(server.settings)),) * 2


def _pots(server: ServerProcess, workflow: str) -> list[int]:
    frame = archived(server, workflow)
    return [orjson.loads(text)["Tap.pot"] for text in frame["inputs"]] if len(frame) else []
