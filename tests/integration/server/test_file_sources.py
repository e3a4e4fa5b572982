"""Files as sources of a server: objects of an S3 server and files of a folder, whatever is killed."""

# mypy: disable-error-code="attr-defined"

import io
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import httpx2
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from caraway import Dataset, connectors, dataset, field, meta
from caraway.apps.stack import ports
from caraway.connectors import S3, source
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.graph.connectors import S3Connector
from caraway.graph.specs import Graph
from caraway.process.settings.connectors import SourcesSettings
from tests.integration.server.server_process import ServerProcess, end_of, eventually, numbers_of, records
from tests.tls import TLS
from tests.unit.dataplane.sources.hudi_source import Recorded

BEGIN = 1_700_000_000
FILES, ROWS = 6, 5_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a server that speaks S3's protocol, in a process of its own.

    `deltalake` holds Python's lock while it waits for some answers (for a history, for example), so a server in this
    process could never give them.
    """
    port = ports.choose()
    with (tmp_path_factory.mktemp("store") / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "moto.server", "-p", str(port)], stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: answers(address), lambda: "the store didn't start")
        yield address
    finally:
        process.terminate()
        process.wait()


def answers(address: str) -> bool:
    try:
        return httpx2.get(address, verify=TLS).is_success
    except httpx2.TransportError:
        return False


@pytest.fixture
def file_server(store: str, tmp_path: Path, own_server: Callable[..., ServerProcess]) -> Callable[[], ServerProcess]:
    """Return a function that starts servers that may read the folder `drop` and the store, called `lake`."""
    sources = SourcesSettings(endpoints={"lake": store}, local_folders=(str(tmp_path / "drop"),))
    return partial(own_server, sources=sources)


@pytest.fixture
def bucket(store: str) -> str:
    name = f"bucket-{secrets.token_hex(6)}"
    s3(store).create_bucket(Bucket=name)
    return name


def s3(store: str) -> Any:
    return boto3.client(
        "s3", endpoint_url=store, region_name="us-east-1", aws_access_key_id="key", aws_secret_access_key="secret"
    )


def lake() -> S3:
    return S3(name="lake", aws_access_key_id="key", aws_secret_access_key="secret")


def readings(connector: connectors.DataConnector, *, every: str | None = "1s", disorder: str = "1h") -> Dataset:
    rounds: dict[str, Any] = {} if every is None else {"every": every}

    @meta(owner="a@b.co")
    @source(connector, disorder=disorder, cdc="append", **rounds)
    @dataset
    class Measured:
        n: int
        moisture: float
        at: datetime = field(timestamp=True)

    return Measured


def parquet(numbers: Sequence[int]) -> bytes:
    out = io.BytesIO()
    table = pa.table(
        {
            "n": numbers,
            "moisture": [number / 7 for number in numbers],
            "at": pa.array([(BEGIN + number) * 1_000_000 for number in numbers], pa.timestamp("us", "UTC")),
        }
    )
    pq.write_table(table, out, row_group_size=1_000)
    return out.getvalue()


@pytest.mark.spec("connectors:11:9")
@pytest.mark.full(reason="three starts of a server; the tests below follow buckets")
def test_a_killed_server_takes_each_row_of_a_bucket_once(
    file_server: Callable[[], ServerProcess], kafka: str, store: str, bucket: str
) -> None:
    client = s3(store)
    for number in range(FILES):
        content = parquet(range(number * ROWS, (number + 1) * ROWS))
        client.put_object(Bucket=bucket, Key=f"raw/day=2023-11-{14 + number}/part.parquet", Body=content)
    client.put_object(Bucket=bucket, Key="raw/day=2023-11-14/broken.parquet", Body=parquet([1])[:-8])
    path = "raw/day=%Y-%m-%d/*.parquet"
    server = file_server()
    with pytest.raises(AssertionError, match=f"bucket {bucket}-2 isn't there"):
        server.commit(Graph(datasets=(readings(lake().bucket(f"{bucket}-2", prefix="raw")).to_spec(),)))
    server.commit(Graph(datasets=(readings(lake().bucket(bucket, path=path, format="parquet")).to_spec(),)))
    topic = server.made_topic("Measured")
    server.run_in_slices_until(lambda: end_of(kafka, topic) >= 1)
    server.kill()
    server = file_server()
    eventually(lambda: end_of(kafka, topic) >= FILES * ROWS, server.said)
    # New objects are found by the next round, and those that were read aren't read again.
    client.put_object(Bucket=bucket, Key="raw/day=2023-12-01/new.parquet", Body=parquet([-1]))
    eventually(lambda: end_of(kafka, topic) >= FILES * ROWS + 1, server.said)
    assert numbers_of(kafka, topic) == Counter([-1, *range(FILES * ROWS)])
    letters = [orjson.loads(value) for value in records(kafka, DEAD_LETTERS) if topic.encode() in value]
    assert [letter["file"] for letter in letters] == ["raw/day=2023-11-14/broken.parquet"]
    assert "footer" in letters[0]["reason"][0]["message"]
    # The next thing that goes wrong is shown: the bucket is gone.
    for found in client.list_objects_v2(Bucket=bucket)["Contents"]:
        client.delete_object(Bucket=bucket, Key=found["Key"])
    client.delete_bucket(Bucket=bucket)
    eventually(lambda: f"bucket {bucket}" in server.source()["error"], server.said)


@pytest.mark.spec("connectors:11:10")
def test_a_delta_table_in_a_bucket_is_followed(
    file_server: Callable[[], ServerProcess], store: str, bucket: str
) -> None:
    options = {
        "aws_access_key_id": "key",
        "aws_secret_access_key": "secret",
        "aws_endpoint": store,
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
        "aws_conditional_put": "etag",
    }
    url = f"s3://{bucket}/tables/pots"

    def table(*numbers: int, moisture: float = 0.5) -> Any:
        at = pa.array([(BEGIN + number) * 1_000_000 for number in numbers], pa.timestamp("us", "UTC"))
        return pa.table({"pot": pa.array(numbers, pa.int64()), "moisture": [moisture] * len(numbers), "at": at})

    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(url, table(1, 2, 3), configuration=feed, storage_options=options)

    @meta(owner="a@b.co")
    @source(lake().bucket(bucket, prefix="tables/pots", format="delta"), disorder="1h", cdc="native", every="1s")
    @dataset(index=True)
    class Pots:
        pot: int = field(key=True)
        moisture: float
        at: datetime = field(timestamp=True)

    server = file_server()
    server.commit(Graph(datasets=(Pots.to_spec(),)))

    def moistures() -> dict[object, float]:
        return server.looked_up("Pots", "pot", range(1, 6), "moisture")

    eventually(lambda: moistures() == {1: 0.5, 2: 0.5, 3: 0.5}, lambda: f"{moistures()} {server.source()}")
    server.kill()
    opened = DeltaTable(url, storage_options=options)
    opened.delete("pot = 1")
    opened.update(predicate="pot = 2", updates={"moisture": "0.25"})
    write_deltalake(url, table(5), mode="append", storage_options=options)
    server = file_server()
    eventually(lambda: moistures() == {2: 0.25, 3: 0.5, 5: 0.5}, lambda: f"{moistures()} {server.source()}")


@pytest.mark.spec("connectors:11:11")
@pytest.mark.full(reason="starts of a server; Delta's test follows a bucket, unit tests read these tables")
@pytest.mark.parametrize("name", ["cow6", "cow8"])
def test_a_hudi_table_in_a_bucket_is_followed(
    file_server: Callable[[], ServerProcess], store: str, bucket: str, tmp_path: Path, name: str
) -> None:
    recorded = Recorded(tmp_path, name)
    recorded.hide(1)
    client = s3(store)

    def upload() -> None:
        for file in recorded.path.rglob("*"):
            if file.is_file():
                client.upload_file(str(file), bucket, f"tables/{name}/{file.relative_to(recorded.path)}")

    upload()
    connector = lake().bucket(bucket, prefix=f"tables/{name}", format="hudi")

    @meta(owner="a@b.co")
    @source(connector, disorder="1h", cdc="upsert", every="1s")
    @dataset(index=True)
    class Rows:
        k: int = field(key=True)
        text: str
        at: datetime = field(timestamp=True)

    server = file_server()
    spec = Rows.to_spec()
    (there,) = spec.sources
    assert isinstance(there.connector, S3Connector)
    elsewhere = replace(there, connector=replace(there.connector, prefix=f"other/{name}"))
    with pytest.raises(AssertionError, match=f"Hudi table other/{name} isn't there: there is no other/{name}/.hoodie"):
        server.commit(Graph(datasets=(replace(spec, sources=(elsewhere,)),)))
    server.commit(Graph(datasets=(spec,)))
    keys = sorted({key for number in range(len(recorded.instants)) for key in recorded.content(number)})

    def texts() -> dict[object, str]:
        return server.looked_up("Rows", "k", keys, "text")

    def expected(instant: int) -> dict[object, str]:
        return {key: each["text"] for key, each in recorded.content(instant).items()}

    eventually(lambda: texts() == expected(0), lambda: f"{texts()} {server.source()}")
    server.kill()
    recorded.show(1, -1)
    upload()
    server = file_server()
    eventually(lambda: texts() == expected(-2), lambda: f"{texts()} {server.source()}")
    # A delete isn't read, and neither is a history of which nothing is left; both are shown.
    recorded.show(len(recorded.instants) - 1)
    upload()
    eventually(lambda: "removes rows" in server.source()["error"], server.said)
    for number in range(len(recorded.instants)):
        for file in recorded.files(number):
            client.delete_object(Bucket=bucket, Key=f"tables/{name}/{file.relative_to(recorded.path)}")
    eventually(lambda: "archived" in server.source()["error"], server.said)
