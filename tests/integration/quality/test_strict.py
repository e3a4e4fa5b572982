"""A server refuses rows that aren't as strict expectations have them, and takes them once they are repaired."""

# mypy: disable-error-code="attr-defined, arg-type, assignment, misc, no-untyped-def"

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from caraway.apps.cli import app
from caraway.client import Client
from caraway.client.results import LogResult
from caraway.connectors import Webhook, source
from caraway.dataplane.ingest.intake_process import LEAST_BYTES
from caraway.datasets import dataset, field
from caraway.errors import RemoteError
from caraway.lib import expect_column_values_to_be_between, expectations
from tests.integration.server.server_process import ServerProcess, eventually, running_server

__owner__ = "strict@example.com"
VERSION = int.from_bytes(os.urandom(3))
AT = datetime.now(UTC)


def scales(most: int, version: int = VERSION) -> Any:
    """Define weighings, of which none may be above `most`."""

    @source(Webhook(name="scales").endpoint("weighings"), disorder="14d", cdc="upsert")
    @dataset(index=True, version=version)
    class Weighings:
        scale: int = field(key=True)
        grams: int
        at: datetime

        @expectations(strict=True)
        def sane(cls: Any) -> Any:
            return [
                expect_column_values_to_be_between("grams", 0, most),
                expect_column_values_to_be_between("grams", 1, strict=False),
            ]

    return Weighings


@pytest.fixture
def server(kafka: str, postgres: str, tmp_path: Path) -> Iterator[ServerProcess]:
    with running_server(tmp_path / "server", kafka=kafka, postgres=postgres) as server:
        yield server


def log(client: Client, frame: pd.DataFrame) -> LogResult:
    found = client.log("scales", "weighings", frame, batch_size=len(frame), strict=False)
    assert found is not None
    return found


def rows(*grams: int) -> pd.DataFrame:
    return pd.DataFrame({"scale": range(len(grams)), "grams": grams, "at": [AT] * len(grams)})


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    client = Client(str(server.settings.server.url))
    yield client
    client.close()


def test_refused_rows_are_dead_letters_and_can_be_repaired(server: ServerProcess, client: Client) -> None:
    client.commit("scales", datasets=[scales(100)])
    logged = log(client, rows(5, 700, 0))
    assert (logged.accepted, logged.rejected, logged.refused[0].row) == (2, 1, 1)
    assert "700 isn't as expected by expect_column_values_to_be_between(min_value=0, max_value=100" in str(logged)
    (letter,) = server.http.get("/dead_letters", params={"dataset": "Weighings"}).json()["dead_letters"]
    # A large request is left to another process, which refuses the same rows.
    many = rows(*[50] * (LEAST_BYTES // 10), -1)

    def is_left() -> bool:
        assert log(client, many).rejected == 1
        return "the process for large log requests takes them" in server.said()

    eventually(is_left, server.said)
    assert log(client, many).rejected == 1

    assert (letter["from"], letter["replayable"]) == ("scales/weighings", True)
    still = server.http.post(f"/dead_letters/{letter['id']}/replay", json={})
    assert still.status_code == 400, still.text
    assert "still doesn't fit Weighings: grams 700 isn't as expected" in still.text
    repaired = {"scale": 9_999, "grams": 70, "at": AT.isoformat()}
    replayed = server.http.post(f"/dead_letters/{letter['id']}/replay", json={"row": repaired})
    assert replayed.status_code == 200, replayed.text

    def served() -> Any:
        return client.lookup("Weighings", [{"scale": 9_999}])[0]["grams"].tolist()

    eventually(lambda: served() == [70], server.said)
    line = 'caraway_error_log_rows_total{dataset_name="Weighings",stage="expectation"}'
    assert any(found.startswith(line) for found in server.http.get("/metrics").text.splitlines())

    assert [found["strict"] for found in client.expectations("Weighings")] == [True, False]
    command = ["expectations", "--url", str(server.settings.server.url)]
    assert "strict" in CliRunner().invoke(app, command).stdout

    # Other strict expectations are another definition: its rows are others.
    with pytest.raises(RemoteError, match="strict expectations: was"):
        client.commit("scales", datasets=[scales(1_000)])
    client.commit("scales", datasets=[scales(1_000, VERSION + 1)])
    # Until the new version is ready, rows go to the old one.
    eventually(lambda: log(client, rows(5, 700)).accepted == 2, server.said)
