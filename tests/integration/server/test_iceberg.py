"""Iceberg tables as a source and as a sink of a server that is killed in between."""

# mypy: disable-error-code="attr-defined"

from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from typing import Any

import boto3
import httpx2
import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer
from pyiceberg.catalog.sql import SqlCatalog

from caraway import Dataset, dataset, field, meta, pipeline
from caraway.connectors import S3, Iceberg, sink, source
from caraway.datasets import Sum
from caraway.dtypes import Continuous
from caraway.graph.specs import Graph
from caraway.lib import inputs
from caraway.process.settings.connectors import SourcesSettings
from tests.integration.server.server_process import ServerProcess, eventually

# An engine computes the rows that the sink writes.
pytestmark = pytest.mark.usefixtures("jobs")

BEGIN = 1_700_000_000
SCHEMA = pa.schema([("pot", pa.int64()), ("moisture", pa.float64()), ("at", pa.timestamp("us", "UTC"))])


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the address of a server that speaks S3's protocol, with a bucket; sinks find it in the environment."""
    server = ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    # All servers of one process have the same objects: a test would find the table of the one before in its folder.
    httpx2.post(f"{address}/moto-api/reset").raise_for_status()
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

    def there() -> dict[object, float]:
        return server.looked_up("Pots", "pot", range(1, 6), "moisture")

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
