"""Queries with log=true are on their topic (tests/integration/archive has what becomes of it)."""

import asyncio
import secrets
from typing import Any

import orjson
import pandas as pd

from caraway.client import AsyncClient
from caraway.dataplane.archive.served_log import SERVED
from tests.integration.server.server_process import ServerProcess, eventually, records


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


def test_programs_on_asyncio_query_many_rows_at_once(server: ServerProcess) -> None:
    url = str(server.http.base_url)

    async def ask() -> list[list[dict[str, Any]]]:
        async with AsyncClient(url) as client:
            asked = (client.query_rows(["Tap.pot"], ["State"], pd.DataFrame({"Tap.pot": [pot]})) for pot in range(50))
            return await asyncio.gather(*asked)

    expected = server.query(["State"], {"Tap.pot": list(range(50))}).json()
    found = [row for rows in asyncio.run(ask()) for row in rows]
    assert {name: [row[name] for row in found] for name in expected} == expected
