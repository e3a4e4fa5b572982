"""Offline queries on Spark: the same results as in process, to the bit, also for rows that fail."""

import os
import random
import secrets
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from signal import SIGKILL
from typing import Any

import psutil
import pyarrow as pa
import pytest

from caraway.client import Client
from caraway.config.settings import OfflineSettings
from tests.integration.archive.archive_process import ArchiveProcess
from tests.integration.offline.shop import asked, definitions, logged
from tests.integration.server.server_process import ServerProcess, eventually

# Tasks hold 20 kB of records in memory, so they sort most of them on the disk.
DIVIDED = OfflineSettings(spark_broadcast_mb=0, spark_records_mb=0.02, spark_driver_memory="512m")


@pytest.fixture
def server(kafka: str, postgres: str, tmp_path: Path) -> Iterator[ServerProcess]:
    """Yield a server whose queries on Spark divide all datasets."""
    process = ServerProcess(tmp_path / "server", kafka=kafka, postgres=postgres, offline=DIVIDED)
    process.start()
    yield process
    process.kill()
    process.http.close()


_AS_KNOWN = pytest.mark.full(reason="Spark starts anew; test_command.py asks a process for rows as known")


@pytest.mark.parametrize("as_known", [False, pytest.param(True, marks=_AS_KNOWN)])
def test_spark_and_the_process_agree_to_the_bit(
    server: ServerProcess, archive_of: Callable[[str], ArchiveProcess], *, as_known: bool
) -> None:
    datasets, featuresets = definitions(int.from_bytes(secrets.token_bytes(3)))
    buyer, friend = featuresets
    rows = asked(700)
    rows["Buyer.user"] = rows["Buyer.user"].astype("Int64")
    with closing(Client(str(server.settings.server.url))) as client:
        client.commit("shop", datasets=datasets, featuresets=featuresets)
        archive = archive_of("archive")
        for half in (slice(0, 250), slice(250, None)):
            for name, frame in logged().items():
                client.log("shop", name, frame.iloc[half])
            if half.start == 0:
                # The tables have the first rows, and the topics the others.
                archive.start()
                eventually(lambda: _archived(server), archive.said)
                assert archive.stop() == 0
        results = [
            _computed(client, server, [buyer.user], [buyer, friend], rows, as_known=as_known, execution=execution)
            for execution in ("process", "spark")
        ]
    assert results[0].equals(results[1])
    assert results[0].num_rows == 700


@pytest.mark.full(reason="Spark starts anew; test_queries.py has the same rows in the process of the server")
def test_rows_that_fail_on_spark_say_why_and_the_others_go_on(server: ServerProcess) -> None:
    datasets, featuresets = definitions(int.from_bytes(secrets.token_bytes(3)))
    frame = asked(60)
    frame["Buyer.user"] = frame["Buyer.user"].astype(object)
    frame["at"] = frame["at"].map(lambda at: at.isoformat())
    frame["Buyer.age"] = 30
    frame.loc[3, "Buyer.user"] = "nobody"
    frame.loc[17, "at"] = "yesterday"
    frame.loc[59, "Buyer.age"] = 77
    body = {
        "input_features": ["Buyer.user", "Buyer.age"],
        "output_features": ["Buyer.n", "Buyer.per_year", "Buyer.last"],
        "input": {"Pandas": {name: frame[name].tolist() for name in frame}},
        "timestamp_column": "at",
    }
    with closing(Client(str(server.settings.server.url))) as client:
        client.commit("shop", datasets=datasets, featuresets=featuresets)
        for name, rows in logged().items():
            client.log("shop", name, rows)
        found = []
        for execution in ("process", "spark"):
            answer = server.http.post("/query_offline", json=body | {"execution": execution})
            assert answer.status_code == 200, answer.text
            request_id = answer.json()["request_id"]
            table = _result(client, server, request_id)
            found.append((table, client.offline_result(request_id).errors().to_dict("list")))
    assert found[0][0].equals(found[1][0])
    assert found[0][1] == found[1][1]
    told = " ".join(map(str, found[1][1].values()))
    assert "row 3" in told
    assert "row 17" in told
    assert "nobody is 77" in told


def _archived(server: ServerProcess) -> bool:
    return all(table["messages"] == 0 for table in server.http.get("/archive").json()["tables"])


def _computed(client: Client, server: ServerProcess, *arguments: Any, **more: Any) -> pa.Table:
    inputs, outputs, rows = arguments
    begun = client.query_offline(inputs, outputs, "at", rows, **more)
    return _result(client, server, begun["request_id"])


def _result(client: Client, server: ServerProcess, request_id: str) -> pa.Table:
    eventually(lambda: client.track_offline_query(request_id)["status"] not in {"waiting", "running"}, server.said)
    found = client.track_offline_query(request_id)
    assert found["status"] == "succeeded", (found, server.said())
    return client.offline_result(request_id).to_arrow()


@pytest.mark.parametrize(
    "victim",
    [
        pytest.param("pyspark.daemon", marks=pytest.mark.full(reason="a task is computed twice")),
        pytest.param("java", marks=pytest.mark.full(reason="Spark starts twice")),
        pytest.param("caraway.offline", marks=pytest.mark.full(reason="Spark starts twice")),
    ],
)
def test_a_query_on_spark_survives_a_kill(server: ServerProcess, victim: str) -> None:
    datasets, featuresets = definitions(int.from_bytes(secrets.token_bytes(3)))
    rows = asked(20_000)
    with closing(Client(str(server.settings.server.url))) as client:
        client.commit("shop", datasets=datasets, featuresets=featuresets)
        for name, frame in logged().items():
            client.log("shop", name, frame)
        arguments: list[Any] = [[featuresets[0].user], [featuresets[0], featuresets[1]], "at", rows]
        begun = client.query_offline(*arguments, execution="spark")["request_id"]
        # The tasks have begun when there are processes for them.
        eventually(lambda: len(_processes(server, "pyspark.daemon")) >= 2, server.said)
        killed = _processes(server, victim)[-1]
        os.kill(killed.pid, SIGKILL)
        found = _result(client, server, begun)
        expected = _result(client, server, client.query_offline(*arguments, execution="process")["request_id"])
    assert found.equals(expected)
    assert found["label"].to_pylist() == rows["label"].tolist()


@pytest.mark.timeout(900)
@pytest.mark.full(reason="Spark starts for each kill; single kills of each process are among the tests of every run")
def test_queries_on_spark_resume_or_say_that_they_failed_whenever_a_process_is_killed(server: ServerProcess) -> None:
    seed = int.from_bytes(secrets.token_bytes(3))
    chance = random.Random(seed)
    datasets, featuresets = definitions(seed)
    rows = asked(20_000)
    with closing(Client(str(server.settings.server.url))) as client:
        client.commit("shop", datasets=datasets, featuresets=featuresets)
        for name, frame in logged().items():
            client.log("shop", name, frame)
        arguments: list[Any] = [[featuresets[0].user], [featuresets[0], featuresets[1]], "at", rows]
        expected = _result(client, server, client.query_offline(*arguments, execution="process")["request_id"])
        for victim in ("pyspark.daemon", "java", "caraway.offline", "caraway.server"):
            begun = client.query_offline(*arguments, execution="spark")["request_id"]
            # A moment is a number of seconds of the processor that the victim has had.
            moment = chance.uniform(0.0, 6.0)
            name = "caraway.offline" if victim == "caraway.server" else victim
            eventually(lambda name=name, moment=moment, begun=begun: _has_worked(client, server, begun, name, moment))  # type: ignore[misc]
            if victim == "caraway.server":
                server.kill()
                server.start()
            elif killed := _processes(server, victim):
                os.kill(chance.choice(killed).pid, SIGKILL)
            eventually(lambda begun=begun: _is_over(client, begun), server.said)  # type: ignore[misc]
            found = client.track_offline_query(begun)
            if found["status"] == "succeeded":
                assert client.offline_result(begun).to_arrow().equals(expected), (seed, victim, moment)
            else:
                assert (found["status"], bool(found["error"])) == ("failed", True), (seed, victim, moment, found)


def _is_over(client: Client, request_id: str) -> bool:
    return client.track_offline_query(request_id)["status"] not in {"waiting", "running"}


def _has_worked(client: Client, server: ServerProcess, request_id: str, name: str, seconds: float) -> bool:
    """Return whether a process of a query has had so many seconds of the processor, or the query is over."""
    times = []
    for process in _processes(server, name):
        try:
            used = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        times.append(used.user + used.system)
    return max(times, default=-1.0) >= seconds or _is_over(client, request_id)


@pytest.mark.full(reason="Spark starts anew; test_queries.py cancels a query in the process of the server")
def test_a_query_on_spark_is_cancelled_in_the_middle(server: ServerProcess) -> None:
    datasets, featuresets = definitions(int.from_bytes(secrets.token_bytes(3)))
    with closing(Client(str(server.settings.server.url))) as client:
        client.commit("shop", datasets=datasets, featuresets=featuresets)
        for name, frame in logged().items():
            client.log("shop", name, frame)
        rows = asked(300_000)
        begun = client.query_offline([featuresets[0].user], [*featuresets], "at", rows, execution="spark")["request_id"]
        eventually(lambda: len(_processes(server, "pyspark.daemon")) >= 2, server.said)
        client.cancel_offline_query(begun)
        eventually(lambda: client.track_offline_query(begun)["status"] != "running", server.said)
        assert client.track_offline_query(begun)["status"] == "cancelled"
        eventually(lambda: not _processes(server, "caraway.offline"), server.said)


def _processes(server: ServerProcess, name: str) -> list[psutil.Process]:
    """Return the processes of an offline query that run a program."""
    found = []
    for process in psutil.Process(server.pid).children(recursive=True):
        try:
            if name == process.name() or name in process.cmdline():
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found
