"""The tables of the archive as users see them: by HTTP, by a command, with other programs, and after an erasure."""

import json
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pandas as pd
import polars as pl
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from caraway.apps.cli import app
from caraway.client import Client
from tests.integration.archive.archive_process import ArchiveProcess, Duck, tables
from tests.integration.archive.doors import BATCH, definitions, rows
from tests.integration.server.server_process import ServerProcess, eventually

runner = CliRunner()


def test_tables_are_shown_read_by_others_and_lose_erased_keys(
    server: ServerProcess, archive_of: Callable[[str], ArchiveProcess], spark: SparkSession
) -> None:
    url = str(server.settings.server.url)
    archive = archive_of("archive")

    def shown() -> dict[str, Any]:
        found: list[dict[str, Any]] = server.http.get("/archive").json()["tables"]
        assert (found[-1]["dataset"], found[-1]["topic"]) == ("served features", "caraway.offline.monitoring-features")
        return {table["dataset"]: table for table in found[:-1]}

    with closing(Client(url)) as client, closing(Duck()) as duck:
        (opened, doors) = definitions(77)
        client.commit("doors", datasets=[opened, doors])
        assert [(name, table["kind"], table["url"]) for name, table in shown().items()] == [
            ("Doors", "versions", None),
            ("Opened", "events", None),
        ]
        archive.start()
        for endpoint in ("opened", "doors"):
            client.log("doors", endpoint, rows(0))
        eventually(lambda: all(table["records"] == BATCH for table in shown().values()), archive.said)
        assert {table["messages"] for table in shown().values()} == {0}
        told = runner.invoke(app, ["archive", "--url", url, "--json"])
        assert [table["records"] for table in json.loads(told.stdout)["tables"][:-1]] == [BATCH, BATCH]
        printed = runner.invoke(app, ["archive", "--url", url])
        assert "Doors" in printed.stdout
        assert f"{BATCH}" in printed.stdout

        expected = rows(0).sort_values("number", ignore_index=True)
        (table,) = tables(server.settings, "Opened")
        assert str(table) == shown()["Opened"]["url"]
        as_pandas = DeltaTable(table).to_pandas()
        as_polars = pl.scan_delta(str(table)).collect().to_pandas()
        as_spark = spark.read.parquet(*DeltaTable(table).file_uris()).toPandas()
        for frame in (as_pandas, as_polars, as_spark):
            found = frame.sort_values("number", ignore_index=True)
            assert found["number"].tolist() == expected["number"].tolist()
            assert found["door"].tolist() == expected["door"].tolist()
            assert pd.to_datetime(found["at"], utc=True).tolist() == expected["at"].tolist()

        (table,) = tables(server.settings, "Doors")
        newest = "SELECT number FROM {table} WHERE door = 'd3' QUALIFY row_number() OVER (ORDER BY \"at\" DESC) = 1"
        of_door = rows(0)[rows(0)["door"] == "d3"]
        assert duck.ask(newest, table) == (of_door.loc[of_door["at"].idxmax(), "number"],)

        client.erase(doors, pd.DataFrame({"door": ["d3"]}))
        eventually(lambda: duck.ask("SELECT count(*) FROM {table} WHERE door = 'd3'", table) == (0,), archive.said)
        client.log("doors", "doors", rows(BATCH))
        kept = int((pd.concat([rows(0), rows(BATCH)])["door"] != "d3").sum())
        eventually(lambda: duck.ask("SELECT count(*) FROM {table}", table) == (kept,), archive.said)
        erasures = server.http.get("/dataset/Doors/erasures").json()["erasures"]
        eventually(
            lambda: "archive" in str(server.http.get("/dataset/Doors/erasures").json()["erasures"]), archive.said
        )
        assert erasures
