"""Offline queries on Spark: the same results as in process, to the bit, also for rows that fail."""

import os
from collections.abc import Callable, Iterator
from signal import SIGKILL

import pytest
from pyspark.sql import SparkSession

from caraway.process.settings.offline import OfflineSettings
from tests.integration.archive.archive_process import ArchiveProcess
from tests.integration.jobs import running_jobs
from tests.integration.offline.desk import Shop, partly_archived, processes_of, queries_of, some_fail
from tests.integration.offline.shop import asked
from tests.integration.server.server_process import ServerProcess, eventually, running_server

# Tasks hold 20 kB of records in memory, so they sort most of them on the disk.
DIVIDED = OfflineSettings(spark_broadcast_mb=0, spark_records_mb=0.02, spark_driver_memory="512m")


@pytest.fixture(scope="module")
def server(
    kafka: str, module_postgres: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """Yield a server whose queries on Spark divide all datasets."""
    folder = tmp_path_factory.mktemp("server")
    with (
        running_server(folder, kafka=kafka, postgres=module_postgres, offline=DIVIDED) as process,
        running_jobs(process.settings, spark),
    ):
        yield process


_AS_KNOWN = pytest.mark.full(reason="Spark starts anew; test_queries.py asks a process for rows as known")


@pytest.mark.parametrize("as_known", [False, pytest.param(True, marks=_AS_KNOWN)])
def test_spark_and_the_process_agree_to_the_bit(
    server: ServerProcess, archive_of: Callable[[str], ArchiveProcess], *, as_known: bool
) -> None:
    rows = asked(700)
    rows["Buyer.user"] = rows["Buyer.user"].astype("Int64")
    with partly_archived(server, archive_of) as shop:
        process, spark = (
            shop.result(shop.begin(rows, [shop.buyer, shop.friend], as_known=as_known, execution=execution))
            for execution in ("process", "spark")
        )
    assert process.equals(spark)
    assert process.num_rows == 700


@pytest.mark.full(reason="Spark starts anew; test_queries.py has the same rows in the process of the server")
def test_rows_that_fail_on_spark_say_why_and_the_others_go_on(shop: Shop) -> None:
    _, body = some_fail(60)
    found = []
    for execution in ("process", "spark"):
        request_id = shop.ask(body | {"execution": execution})
        found.append((shop.result(request_id), shop.client.offline_result(request_id).errors().to_dict("list")))
    assert found[0][0].equals(found[1][0])
    assert found[0][1] == found[1][1]
    told = " ".join(map(str, found[1][1].values()))
    assert all(text in told for text in ("row 3", "row 17", "nobody is 77"))


@pytest.mark.parametrize(
    "victim",
    [
        pytest.param("pyspark.daemon", marks=pytest.mark.full(reason="a task is computed twice")),
        pytest.param("java", marks=pytest.mark.full(reason="Spark starts twice")),
        pytest.param("caraway.offline", marks=pytest.mark.full(reason="Spark starts twice")),
        pytest.param("caraway.apps.server", marks=pytest.mark.full(reason="Spark starts twice")),
    ],
)
def test_a_query_on_spark_survives_a_kill(server: ServerProcess, shop: Shop, victim: str) -> None:
    rows, wanted = asked(20_000), [shop.buyer, shop.friend]
    begun = shop.begin(rows, wanted, execution="spark")
    # The tasks have begun when there are processes for them.
    eventually(lambda: len(processes_of(server, "pyspark.daemon")) >= 2, server.said)
    if victim == "caraway.apps.server":
        server.kill()
        server.start()
    else:
        found = queries_of(server) if victim == "caraway.offline" else processes_of(server, victim)
        os.kill(found[-1].pid, SIGKILL)
    result = shop.result(begun)
    assert result.equals(shop.result(shop.begin(rows, wanted, execution="process")))
    assert result["label"].to_pylist() == rows["label"].tolist()


@pytest.mark.full(reason="Spark starts anew; test_running.py cancels a query between parts")
def test_a_query_on_spark_is_cancelled_in_the_middle(server: ServerProcess, shop: Shop) -> None:
    begun = shop.begin(asked(300_000), [shop.buyer, shop.friend], execution="spark")
    eventually(lambda: len(processes_of(server, "pyspark.daemon")) >= 2, server.said)
    shop.client.cancel_offline_query(begun)
    assert shop.finished(begun)["status"] == "cancelled"
    eventually(lambda: not queries_of(server), server.said)
    nothing = shop.http.get("/query_offline/result", params={"request_id": begun, "part": 99})
    assert nothing.is_error
