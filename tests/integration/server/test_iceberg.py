"""Iceberg tables as a source and as a sink of a server that is killed in between."""

# mypy: disable-error-code="attr-defined"

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import boto3
import httpx
import msgspec
import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer
from pyiceberg.catalog.sql import SqlCatalog

from caraway import Dataset, dataset, field, meta, pipeline
from caraway.config.settings import SourcesSettings
from caraway.connectors import S3, Iceberg, sink, source
from caraway.datasets import Sum
from caraway.dtypes import Continuous
from caraway.graph.specs import Graph
from caraway.lib import inputs
from tests.integration.server.kills import kill_at_random
from tests.integration.server.server_process import ServerProcess, end_of, eventually, records
from tests.integration.spark.broker import running_broker

BEGIN = 1_700_000_000
SNAPSHOTS, SNAPSHOT = 10, 100_000
SCHEMA = pa.schema([("pot", pa.int64()), ("moisture", pa.float64()), ("at", pa.timestamp("us", "UTC"))])


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the address of a server that speaks S3's protocol, with a bucket; sinks find it in the environment."""
    server = ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    # All servers of one process have the same objects: a test would find the table of the one before in its folder.
    httpx.post(f"{address}/moto-api/reset").raise_for_status()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_ENDPOINT_URL": address,
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    boto3.client("s3", endpoint_url=address, region_name="us-east-1").create_bucket(Bucket="tables")
    yield address
    server.stop()


@pytest.fixture
def uri(postgres: str) -> str:
    """Return the URL of a database that is a catalog."""
    return postgres.replace("postgresql://", "postgresql+psycopg://")


@pytest.fixture
def catalog(uri: str, store: str) -> Iterator[SqlCatalog]:
    """Yield the catalog, as other programs use it."""
    made = SqlCatalog("ice", uri=uri, warehouse="s3://tables/lake", **{"s3.endpoint": store, "s3.region": "us-east-1"})
    made.create_namespace_if_not_exists("db")
    yield made
    made.engine.dispose()


@pytest.fixture
def start(store: str, own_server: Callable[..., ServerProcess]) -> Callable[[], ServerProcess]:
    """Return a function that starts servers."""
    return partial(own_server, sources=SourcesSettings(endpoints={"lake": store}))


def rows(*numbers: int, moisture: float = 0.5) -> Any:
    at = pa.array([(BEGIN + number) * 1_000_000 for number in numbers], pa.timestamp("us", "UTC"))
    return pa.Table.from_arrays([pa.array(numbers, pa.int64()), pa.array([moisture] * len(numbers)), at], schema=SCHEMA)


def graph_of(uri: str) -> Graph:
    """Return a table as it is, and what was ever added to it in sums, which are written to another table."""
    lake = S3(name="lake", aws_access_key_id="key", aws_secret_access_key="secret")
    table = lake.bucket("tables", prefix="lake/db/pots", format="iceberg")

    @meta(owner="a@b.co")
    @source(table, disorder="1h", cdc="native", every="1s")
    @dataset(index=True)
    class Pots:
        pot: int = field(key=True)
        moisture: float
        at: datetime = field(timestamp=True)

    @meta(owner="a@b.co")
    @source(table, disorder="1h", cdc="append", every="1s")
    @dataset
    class Added:
        pot: int
        moisture: float
        at: datetime = field(timestamp=True)

    @meta(owner="a@b.co")
    @sink(
        Iceberg(name="ice", uri=uri, warehouse="s3://tables/lake").table("db.sums"),
        how="incremental",
        every="1s",
        renames={"moisture": "wetness"},
    )
    @dataset
    class Sums:
        pot: int = field(key=True)
        moisture: float
        at: datetime = field(timestamp=True)

        @pipeline
        @inputs(Added)
        def sums(cls, added: Dataset) -> Any:
            return added.groupby("pot").aggregate(moisture=Sum(of="moisture", window=Continuous("forever")))

    return Graph(datasets=(Pots.to_spec(), Added.to_spec(), Sums.to_spec()))


@pytest.mark.full(reason="it takes a minute; laws of reader and writer with real catalogs are in each run")
def test_a_table_is_followed_into_an_index_and_into_another_table(
    start: Callable[[], ServerProcess], catalog: SqlCatalog, uri: str
) -> None:
    server = start()
    with pytest.raises(AssertionError, match=r"Iceberg table lake/db/pots isn't there"):
        server.commit(graph_of(uri))
    table = catalog.create_table("db.pots", SCHEMA)
    table.append(rows(1, 2, 3))
    server.commit(graph_of(uri))

    def written() -> dict[int, float]:
        if not catalog.table_exists("db.sums_main_v1"):
            return {}
        found = catalog.load_table("db.sums_main_v1").scan().to_arrow().to_pylist()
        assert len({each["pot"] for each in found}) == len(found)
        return {each["pot"]: each["wetness"] for each in found}

    def there() -> dict[int, float]:
        body = {"keys": [{"pot": pot} for pot in range(1, 6)], "fields": ["moisture"]}
        answer = server.http.post("/dataset/Pots/lookup", json=body)
        if answer.status_code != 200:
            return {}
        found = answer.json()
        values = zip(range(1, 6), found["data"]["moisture"], found["found"], strict=True)
        return {pot: value for pot, value, is_there in values if is_there}

    def said() -> str:
        status = server.http.get("/status").json()
        return f"{there()} {written()} {status['sources']} {status['sinks']} {server.said()}"

    eventually(lambda: there() == {1: 0.5, 2: 0.5, 3: 0.5}, said)
    eventually(lambda: written() == {1: 0.5, 2: 0.5, 3: 0.5}, said)
    server.kill()
    table.refresh()
    table.delete("pot = 1")
    table.overwrite(rows(2, moisture=0.25), overwrite_filter="pot = 2")
    table.append(rows(5))
    server = start()
    eventually(lambda: there() == {2: 0.25, 3: 0.5, 5: 0.5}, said)
    eventually(lambda: written() == {1: 0.5, 2: 0.75, 3: 0.5, 5: 0.5}, said)
    (status,) = server.http.get("/status").json()["sinks"]
    assert (status["target"], status["guarantee"]) == ("db.sums_main_v1", "exactly once")


@pytest.mark.full(reason="a million rows, and some twenty kills; the test above has two")
@pytest.mark.timeout(1200)
def test_a_million_rows_survive_kills_at_random_moments(
    catalog: SqlCatalog, store: str, postgres: str, tmp_path: Path
) -> None:
    lake = S3(name="lake", aws_access_key_id="key", aws_secret_access_key="secret")

    @meta(owner="a@b.co")
    @source(lake.bucket("tables", prefix="lake/db/pots", format="iceberg"), disorder="14d", cdc="append", every="1s")
    @dataset
    class Added:
        pot: int
        moisture: float
        at: datetime = field(timestamp=True)

    table = catalog.create_table("db.pots", SCHEMA)

    def append(*parts: int) -> None:
        for part in parts:
            table.append(rows(*range(part * SNAPSHOT, (part + 1) * SNAPSHOT), moisture=float(part)))

    append(0)
    with running_broker(tmp_path / "kafka") as broker, ThreadPoolExecutor(1) as thread:
        kafka = broker.bootstrap_servers
        sources = SourcesSettings(endpoints={"lake": store})
        server = ServerProcess(tmp_path / "server", kafka=kafka, postgres=postgres, sources=sources)
        server.start()
        try:
            server.commit(Graph(datasets=(Added.to_spec(),)))
            eventually(lambda: "Added" in str(server.http.get("/status").json().get("topics")), server.said)
            topic = server.topic("Added")
            written = thread.submit(append, *range(1, SNAPSHOTS))
            kills = kill_at_random(
                server,
                broker,
                lambda: written.done() and end_of(kafka, topic) >= SNAPSHOTS * SNAPSHOT,
                chosen=Random(13),
                pause_s=(0.1, 1.2),
            )
            written.result()
            assert min(kills["server"], kills["broker"]) >= 2, kills
            found = Counter(msgspec.msgpack.decode(value)[7][0] for value in records(kafka, topic))
            assert found == Counter(range(SNAPSHOTS * SNAPSHOT))
        finally:
            server.kill()
            server.http.close()
