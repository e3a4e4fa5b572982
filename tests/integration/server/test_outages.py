"""Tests of parts that aren't there yet, go away and come back."""

import concurrent.futures
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from caraway.apps.stack import ports
from caraway.apps.stack.jars import JarSet
from caraway.apps.stack.kafka import EmbeddedKafka
from caraway.apps.stack.postgres import EmbeddedPostgres
from tests.alone import running
from tests.integration.server.server_process import ServerProcess, end_of, eventually
from tests.timeouts import scaled
from tests.unit.compute.query import garden

ROW = {"pot": 1, "species": "oak", "size": None, "bought": 1000}


@pytest.mark.full(reason="starts and stops of all parts; tests/e2e/test_kill.py kills them below a whole stack")
@pytest.mark.timeout(600)
def test_the_server_waits_for_its_parts_and_survives_their_absence(jars: JarSet, tmp_path: Path) -> None:
    port = ports.choose()
    broker = EmbeddedKafka(
        tmp_path / "kafka",
        port=port,
        controller_port=ports.choose(avoid=[port]),
        jars=jars.broker,
        heap_mb=256,
        with_password=False,
    )
    database = EmbeddedPostgres(tmp_path / "postgres", ports.choose())
    server = ServerProcess(tmp_path / "server", kafka=broker.bootstrap_servers, postgres=database.url)
    server.start(healthy=False)
    try:
        health = server.health()
        assert health.status_code == 503
        assert set(health.json()["problems"]) == {"kafka", "postgres"}
        early = server.log("pots", [ROW])
        assert (early.status_code, early.json()["code"], early.headers["retry-after"]) == (503, "unavailable", "1")

        with running(database, tmp_path / "postgres.log"):
            with running(broker, tmp_path / "kafka.log"):
                eventually(lambda: server.health().status_code == 200, server.said)
                server.commit(garden.graph())
                assert server.log("pots", [ROW]).status_code == 200
                eventually(lambda: server.query(["State.species"], [{"Tap.pot": 1}]).json()["State.species"] == ["oak"])

            eventually(lambda: "kafka" in server.health().json().get("problems", {}), server.said)
            started = time.monotonic()
            away = server.log("pots", [ROW | {"species": "elm"}])
            assert (away.status_code, away.headers["retry-after"]) == (503, "1")
            assert time.monotonic() - started < scaled(30)
            assert server.query(["State.species"], [{"Tap.pot": 1}]).json() == {"State.species": ["oak"]}

            with running(broker, tmp_path / "kafka.log"):
                eventually(lambda: server.health().status_code == 200, server.said)
                assert server.log("pots", [ROW | {"species": "ash", "bought": 2000}]).status_code == 200
                eventually(lambda: server.query(["State.species"], [{"Tap.pot": 1}]).json()["State.species"] == ["ash"])

        eventually(lambda: "postgres" in server.health().json().get("problems", {}), server.said)
        assert server.query(["State.species"], [{"Tap.pot": 1}]).json() == {"State.species": ["ash"]}
        with running(database, tmp_path / "postgres.log"):
            eventually(lambda: "postgres" not in server.health().json().get("problems", {}), server.said)
    finally:
        assert server.stop() == 0, server.said()


def test_sigterm_lets_requests_finish(own_server: Callable[[], ServerProcess], kafka: str) -> None:
    server = own_server()
    server.commit(garden.graph())
    topic = server.topic("Readings")
    before = end_of(kafka, topic)
    rows = [{"pot": number, "moisture": 0.5, "at": number} for number in range(30_000)]
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        request = thread.submit(server.log, "readings", rows)
        server.run_in_slices_until(lambda: end_of(kafka, topic) > before)
        server.terminate()
        server.resume()
        assert request.result().json()["accepted"] == len(rows)
    assert server.wait() == 0, server.said()


def test_a_second_server_on_the_same_folder_says_why_it_ends(server: ServerProcess, tmp_path: Path) -> None:
    other = ServerProcess(
        server.settings.data_dir,
        kafka=str(server.settings.kafka.bootstrap_servers),
        postgres=str(server.settings.postgres.url),
    )
    other.log_file = tmp_path / "other.log"
    with pytest.raises(AssertionError):
        other.start()
    assert "in use by another process" in other.said()
    assert other.wait() == 1
    other.http.close()
