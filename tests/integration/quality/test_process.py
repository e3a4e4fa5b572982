"""The process of the quality watch: a server starts it, and others are told."""

import json
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from caraway.apps.cli import app
from caraway.client import Client
from caraway.offline.monitoring.quality.archiving import PATH
from caraway.process.settings.monitoring import AlertSettings, QualitySettings
from tests.integration.jobs import running_jobs
from tests.integration.quality.stalls import OWNER, definitions
from tests.integration.server.server_process import ServerProcess, eventually, running_server

VERSION = int.from_bytes(os.urandom(3))


class Receiver:
    """A webhook that keeps what it is sent."""

    def __init__(self) -> None:
        alerts: list[dict[str, Any]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                alerts.extend(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.alerts = alerts
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/api/v2/alerts"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def watched(
    kafka: str, postgres: str, spark: SparkSession, tmp_path: Path, receiver: Receiver
) -> Iterator[ServerProcess]:
    alerts = AlertSettings(webhook=receiver.url)
    settings = {"quality": QualitySettings(seconds=0.05), "alerts": alerts}
    with (
        running_server(tmp_path / "server", kafka=kafka, postgres=postgres, **settings) as server,
        running_jobs(server.settings, spark),
    ):
        yield server


def sales(prices: list[float | None], at: datetime) -> pd.DataFrame:
    return pd.DataFrame({"stall": ["apples"] * len(prices), "price": prices, "at": [at] * len(prices)})


@pytest.mark.spec("connectors:11:19")
def test_a_server_checks_rows_and_tells_the_owner(watched: ServerProcess, receiver: Receiver) -> None:
    client = Client(str(watched.settings.server.url))
    datasets = [one for one in definitions(VERSION) if str(one.fqn()) != "Twice"]
    client.commit("market", datasets=datasets)
    now = datetime.now(UTC)
    client.log("market", "sales", sales([5.0, 60.0, 700.0, None], now))
    # Rows that come late belong to the time at which they happened.
    client.log("market", "sales", sales([500.0], now - timedelta(hours=5)))
    stalls = {"stall": ["apples", "pears"], "owner": ["ada", "Grace"], "at": [now, now]}
    client.log("market", "owners", pd.DataFrame(stalls), wait=True)

    def found(dataset: str, number: int = 0) -> dict[str, Any]:
        return client.expectations(dataset)[number]

    eventually(lambda: found("Sales")["total"]["evaluated"] == 4, watched.said)
    price = found("Sales")
    assert (price["status"], price["mostly"]) == ("violated", 0.9)
    assert price["last_hour"] == {"evaluated": 3, "failed": 1, "rate": pytest.approx(2 / 3)}
    assert price["last_day"]["failed"] == price["total"]["failed"] == 2
    assert sorted(sample["values"]["price"] for sample in price["samples"]) == [500.0, 700.0]
    assert [hour["evaluated"] for hour in price["series"]] == [1, 3]
    assert found("Sales", 2)["total"] == {"evaluated": 5, "failed": 1, "rate": 0.8}
    # The rows of a dataset that an index computes by itself, and those of an aggregate.
    eventually(
        lambda: found("Dear")["total"] == {"evaluated": 3, "failed": 2, "rate": pytest.approx(1 / 3)}, watched.said
    )
    eventually(lambda: found("Hours")["total"]["evaluated"] > 0, watched.said)

    eventually(lambda: {a["labels"]["dataset"] for a in receiver.alerts} >= {"Sales", "Dear", "Stalls"}, watched.said)
    alert = next(a for a in receiver.alerts if a["labels"]["dataset"] == "Sales")
    assert alert["labels"] == {
        "alertname": "CarawayExpectationViolated",
        "branch": "main",
        "dataset": "Sales",
        "expectation": "expect_column_values_to_be_between:price",
        "owner": OWNER,
        "severity": "warning",
        "version": str(VERSION),
    }
    assert "expected 90.00%" in alert["annotations"]["summary"]

    line = f'branch="main",dataset="Sales",expectation_name="{price["expectation"]}"'

    def figures() -> set[str]:
        return set(watched.http.get("/metrics").text.splitlines())

    wanted = {
        f'caraway_expectation_status_counter_total{{{line},status="success"}} 2.0',
        f'caraway_expectation_status_counter_total{{{line},status="failure"}} 2.0',
    }
    eventually(lambda: figures() >= wanted, watched.said)
    told = CliRunner().invoke(app, ["expectations", "--url", str(watched.settings.server.url), "--dataset", "Sales"])
    assert told.exit_code == 0, told.output
    # Violated expectations are on top.
    assert told.stdout.splitlines()[1].split()[:3] == ["Sales", "column_values_to_be_between:price", "violated"]
    assert watched.http.get("/expectations", params={"dataset": "Nothing"}).status_code == 404

    # Samples of erased keys aren't shown.
    (sample,) = found("Stalls")["samples"]
    assert sample["values"] == {"stall": "apples", "owner": "ada"}
    client.erase("Stalls", [{"stall": "apples"}])
    eventually(lambda: found("Stalls")["samples"] == [], watched.said)

    # Enough good rows end the alert.
    client.log("market", "sales", sales([1.0] * 20, now))
    eventually(lambda: found("Sales")["status"] == "ok", watched.said)
    # An alert that lasts ends a day later at the earliest.
    soon = (datetime.now(UTC) + timedelta(hours=12)).isoformat()

    def has_ended() -> bool:
        return any(a["labels"]["dataset"] == "Sales" and a["endsAt"] < soon for a in receiver.alerts)

    eventually(has_ended, watched.said)

    # The counts of checks that are over are in the table of the archive, although there are other checks.
    def archived() -> int:
        written = Path(watched.settings.objects_url) / PATH
        if not written.exists():
            return 0
        kept = DeltaTable(written).to_pyarrow_table().filter(pc.field("version") == VERSION)
        rows = kept.filter(pc.field("expectation") == price["expectation"]).to_pylist()
        return sum(row["evaluated"] for row in rows)

    client.commit("others", datasets=[one for one in definitions(VERSION + 1) if str(one.fqn()) != "Twice"])
    eventually(lambda: archived() == 24, watched.said)
    client.close()
