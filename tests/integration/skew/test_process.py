"""The process of the skew watch: it counts each row once however often it is killed, and a server starts it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from signal import SIGKILL, SIGTERM

import psutil
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from caraway.apps.cli import app
from caraway.process.children.forking import name_of
from caraway.process.settings.monitoring import SkewSettings
from caraway.state.findings import Finding
from tests.integration.server.server_process import eventually
from tests.integration.skew.conftest import Shop, archived_server
from tests.timeouts import scaled

KILLS = 3
AT_ONCE = SkewSettings(seconds=0.05, delay_seconds=0.0, rows_per_minute=1e9)


@pytest.mark.full(reason="three kills; test_store.py checks that counts and positions are written together")
def test_each_row_is_counted_once_however_often_the_process_is_killed(shop: Shop) -> None:
    settings = shop.settings.model_copy(update={"skew": AT_ONCE})
    log = shop.server.settings.data_dir / "skew.log"

    def start() -> "subprocess.Popen[bytes]":
        with log.open("ab") as out:
            environment = {**os.environ, **settings.environment()}
            return subprocess.Popen(
                [sys.executable, "-m", "caraway.offline.monitoring"], env=environment, stdout=out, stderr=out
            )

    def counted() -> int:
        return sum(shop.found().get("n", {}).values())

    shop.commit()
    shop.pay_often(3)
    asked = 0
    for _ in range(KILLS):
        process = start()
        before = counted()
        # Rows come all the time, so the process is killed while it works at some of them.
        while counted() <= before:
            assert process.poll() is None, log.read_text()
            shop.ask([shop.till.n, shop.till.scaled], [0, 1, 2])
            asked += 3
        process.send_signal(SIGKILL)
        process.wait()
    process = start()
    eventually(lambda: counted() == asked, log.read_text)
    assert shop.found() == {"n": {Finding.SAME: asked}, "scaled": {Finding.SAME: asked}}
    process.send_signal(SIGTERM)
    assert process.wait(scaled(60)) == 0, log.read_text()


@pytest.fixture
def watched(kafka: str, postgres: str, spark: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    with (
        archived_server(tmp_path, spark, kafka=kafka, postgres=postgres, skew=AT_ONCE) as deployment,
        closing(Shop(*deployment)) as made,
    ):
        yield made


def test_a_server_watches_and_shows_what_it_found(watched: Shop) -> None:
    url = str(watched.server.settings.server.url)
    runner = CliRunner()
    watched.commit()
    watched.pay_often(5)
    told = runner.invoke(app, ["skew", "--url", url])
    assert "have been computed again" in told.stdout
    watched.ask([watched.till.n, watched.till.chance], [0, 1])
    watched.plant(datetime.now(UTC), {"Till.user": 4}, {"Till.mean": 12345.0})

    def figures() -> set[str]:
        lines = watched.server.http.get("/metrics").text.splitlines()
        return {line for line in lines if line.startswith("caraway_skew") and "_created" not in line}

    labels = 'branch="main",feature="{}",featureset="Till"'
    expected = {
        f"caraway_skew_rows_checked_total{{{labels.format('n')}}} 2.0",
        f"caraway_skew_rows_checked_total{{{labels.format('chance')}}} 2.0",
        f"caraway_skew_rows_checked_total{{{labels.format('mean')}}} 1.0",
        f'caraway_skew_mismatches_total{{{labels.format("chance")},reason="non-deterministic extractor"}} 2.0',
        f'caraway_skew_mismatches_total{{{labels.format("mean")},reason="unknown"}} 1.0',
    }
    eventually(lambda: figures() == expected, watched.server.said)
    told = runner.invoke(app, ["skew", "--url", url])
    lines = told.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["Till.chance", "Till.mean", "Till.n"]
    assert "12345.0" in told.stdout
    assert "an extractor reads a clock or draws numbers" in told.stdout
    assert "late data" not in told.stdout
    only = runner.invoke(app, ["skew", "--url", url, "--feature", "Till.n"])
    assert "Till.mean" not in only.stdout
    # The process ends with its server.
    children = psutil.Process(watched.server.pid).children(recursive=True)
    (watch,) = [child for child in children if child.name() == name_of("caraway.offline.monitoring")]
    watched.server.kill()
    watch.wait(scaled(60))
