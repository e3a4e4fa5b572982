"""Drift of datasets: a server profiles rows by the hour of their event time, and tells the owner what has shifted."""

import json
import os
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import caraway
from caraway.apps.cli import app
from caraway.client import Client
from caraway.errors import RemoteError
from caraway.process.settings.monitoring import AlertSettings, DriftSettings, QualitySettings
from tests.integration.quality.stalls import OWNER, definitions
from tests.integration.quality.test_process import Receiver, receiver
from tests.integration.server.server_process import ServerProcess, eventually, running_server

__all__ = ["receiver"]

ROWS = 3_000
VERSION = int.from_bytes(os.urandom(3))


@pytest.fixture
def watched(kafka: str, postgres: str, tmp_path: Path, receiver: Receiver) -> Iterator[ServerProcess]:
    settings = {
        "quality": QualitySettings(seconds=0.05),
        "drift": DriftSettings(enabled=False, seconds=0.1, hours=1),
        "alerts": AlertSettings(webhook=receiver.url),
    }
    with running_server(tmp_path / "server", kafka=kafka, postgres=postgres, **settings) as server:
        yield server


def sales(at: datetime, *, more: float = 0.0, stalls: tuple[str, ...] = ("apples", "pears")) -> pd.DataFrame:
    chance = random.Random(at.timestamp())
    return pd.DataFrame(
        {
            "stall": [chance.choice(stalls) for _ in range(ROWS)],
            "price": [None if chance.random() < 0.1 else chance.uniform(1, 99) + more for _ in range(ROWS)],
            "at": [at] * ROWS,
        }
    )


@pytest.mark.full(reason="profiles for a minute; skew/test_drift.py takes the same way with served features")
def test_what_has_shifted_since_a_day_before_is_told(watched: ServerProcess, receiver: Receiver) -> None:
    client = Client(str(watched.settings.server.url))
    client.commit("market", datasets=[one for one in definitions(VERSION) if str(one.fqn()) in {"Sales", "Stalls"}])
    now = datetime.now(UTC)

    def fields(**more: Any) -> dict[str, dict[str, Any]]:
        return {one["field"]: one for one in client.dataset_drift("Sales", **more)["fields"]}

    def drifted(**more: Any) -> set[str]:
        return {name for name, one in fields(**more).items() if one["drifted"]}

    def told() -> list[str]:
        """Return the fields of alerts; expectations have others."""
        return [alert["labels"]["field"] for alert in receiver.alerts if "field" in alert["labels"]]

    assert client.dataset_drift("Sales")["since"] is None
    assert client.dataset_profile("Sales") is None
    client.log("market", "sales", sales(now - timedelta(days=1)))
    client.log("market", "sales", sales(now), wait=True)
    eventually(lambda: fields().get("price", {}).get("reference_rows") == ROWS, watched.said)
    # Rows of yesterday have come just now, so only the delay is another one.
    assert drifted() == {"delay_seconds"}
    eventually(lambda: told() == ["delay_seconds"], watched.said)

    client.log("market", "sales", sales(now, more=60.0, stalls=("apples", "kiwis")))
    eventually(lambda: drifted() == {"delay_seconds", "price", "stall"}, watched.said)
    price = fields()["price"]
    assert (price["reference"], price["profile"]["rows"]) == ("day", 2 * ROWS)
    eventually(lambda: sorted(told()) == ["delay_seconds", "price", "stall"], watched.said)
    alert = next(a for a in receiver.alerts if a["labels"].get("field") == "price")
    assert alert["labels"] == {
        "alertname": "CarawayFieldDrifted",
        "branch": "main",
        "dataset": "Sales",
        "field": "price",
        "owner": OWNER,
        "severity": "warning",
    }
    assert alert["annotations"]["summary"].startswith("Sales.price has drifted: ")
    wanted = 'caraway_drift_dataset_drifted{branch="main",dataset="Sales",field="price"} 1.0'
    eventually(lambda: wanted in watched.http.get("/metrics").text.splitlines(), watched.said)
    found = watched.http.get("/drift/datasets").json()
    assert found["profiled"] == ["Sales"]
    assert {one["field"] for one in found["findings"] if one["drifted"]} == {"delay_seconds", "price", "stall"}

    # The hour before has no rows, so there is nothing to compare with.
    before = fields(reference="previous", hours=1)
    assert {(one["drifted"], one["reference"]) for one in before.values()} == {(False, None)}
    # At the desk a profile can be compared with any other one.
    profile = client.dataset_profile("Sales", hours=1)
    assert profile is not None
    assert profile.rows == 2 * ROWS
    assert caraway.drift(sales(now)[["price", "stall"]], profile).drifted == ("price", "stall")

    options = ["--url", str(watched.settings.server.url), "--dataset", "Sales"]
    shown = CliRunner().invoke(app, ["drift", *options])
    assert shown.exit_code == 0, shown.output
    assert {"apples", "kiwis"} <= {word.strip(",") for word in shown.stdout.split()}
    assert json.loads(CliRunner().invoke(app, ["drift", *options, "--json"]).stdout)["dataset"] == "Sales"
    refused = CliRunner().invoke(app, ["drift", *options, "--feature", "A.b"])
    assert (refused.exit_code, "exclude each other" in refused.output) == (1, True)
    with pytest.raises(RemoteError, match="isn't profiled; declare @meta"):
        client.dataset_drift("Stalls")
    with pytest.raises(RemoteError, match="there is no dataset 'Nothing'"):
        client.dataset_profile("Nothing")
    client.close()
