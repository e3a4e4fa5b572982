"""A job that is paused computes nothing, and goes on where it stopped: each row counts once."""

# mypy: disable-error-code="no-untyped-def, attr-defined, list-item, assignment"

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from caraway import Client, Count, connectors, dataset, field, pipeline
from caraway.dtypes import Continuous
from caraway.lib.params import inputs
from caraway.state.database import connect
from caraway.state.model import JobState
from caraway.state.reader import StateReader
from tests.integration.jobs import running_jobs
from tests.integration.server.server_process import ServerProcess, eventually, running_server

__owner__ = "mill@example.com"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@connectors.source(connectors.Webhook(name="mill").endpoint("sacks"), disorder="1h", cdc="append")
@dataset
class Sacks:
    mill: str
    at: datetime = field(timestamp=True)


@dataset(index=True)
class Ground:
    mill: str = field(key=True)
    count: int
    at: datetime = field(timestamp=True)

    @pipeline
    @inputs(Sacks)
    def grind(cls, sacks: Any) -> Any:
        return sacks.groupby("mill").aggregate(count=Count(window=Continuous("forever")))


@pytest.fixture
def server(kafka: str, postgres: str, spark: SparkSession, tmp_path: Path) -> Iterator[ServerProcess]:
    with running_server(tmp_path, kafka=kafka, postgres=postgres) as process, running_jobs(process.settings, spark):
        yield process


def test_a_paused_job_goes_on_where_it_stopped(server: ServerProcess) -> None:
    assert server.settings.postgres.url is not None
    database = connect(server.settings.postgres.url)
    state = StateReader(database)
    with ExitStack() as stack:
        stack.callback(database.dispose)
        client = stack.enter_context(Client(str(server.settings.server.url)))
        client.commit("mill", [Sacks, Ground], [])

        def job() -> dict[str, Any]:
            (found,) = server.http.get("/status").json()["jobs"]
            return dict(found)

        def log(minute: int) -> None:
            client.log("mill", "sacks", pd.DataFrame({"mill": ["a"] * 3, "at": [NOON.replace(minute=minute)] * 3}))

        def counted() -> int:
            found, _ = client.lookup(Ground, pd.DataFrame({"mill": ["a"]}), fields=["count"])
            return int(found.iloc[0])

        def is_running() -> bool:
            # The engine reports a start every few seconds, and the first rows may be served before.
            return bool(job()["state"] == "running")

        log(1)
        client.wait()
        assert counted() == 3
        eventually(is_running, server.said)
        asked = {"job_id": job()["id"], "paused": True}
        assert server.http.post("/job/pause", json=asked).json() == asked
        assert job()["state"] == "paused"
        # The engine reports that it has stopped the query; only then rows wait for certain.
        eventually(lambda: [found.state for found in state.jobs()] == [JobState.STOPPED], server.said)
        log(2)
        assert job()["state"] == "paused"
        assert counted() == 3
        assert server.http.post("/job/pause", json={**asked, "paused": False}).json()["paused"] is False
        client.wait()
        assert counted() == 6
        eventually(is_running, server.said)
