"""Files as sources of a server: objects of an S3 server and files of a folder, whatever is killed."""

# mypy: disable-error-code="attr-defined"

import io
import os
import random
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
import httpx
import msgspec
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from caraway import Dataset, connectors, dataset, field, meta
from caraway.config.settings import SourcesSettings
from caraway.connectors import CSV, S3, Files, source
from caraway.graph.connectors import S3Connector
from caraway.graph.specs import Graph
from caraway.stack import ports
from caraway.topics.dead_letters import DEAD_LETTERS
from tests.integration.server.server_process import ServerProcess, end_of, eventually, records
from tests.unit.ingest.hudi_source import Recorded

BEGIN = 1_700_000_000
FILES, ROWS = 6, 5_000
# The rows of the long test, which is killed at random moments.
MANY = 1_000_000


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
        return httpx.get(address).is_success
    except httpx.TransportError:
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


def readings(connector: connectors.DataConnector, every: str = "1s") -> Dataset:
    @meta(owner="a@b.co")
    @source(connector, disorder="1h", cdc="append", every=every)
    @dataset
    class Measured:
        pot: int
        moisture: float
        at: datetime = field(timestamp=True)

    return Measured


def parquet(numbers: Sequence[int]) -> bytes:
    out = io.BytesIO()
    table = pa.table(
        {
            "pot": numbers,
            "moisture": [number / 7 for number in numbers],
            "at": pa.array([(BEGIN + number) * 1_000_000 for number in numbers], pa.timestamp("us", "UTC")),
        }
    )
    pq.write_table(table, out, row_group_size=1_000)
    return out.getvalue()


def pots(kafka: str, topic: str) -> Counter[int]:
    return Counter(msgspec.msgpack.decode(value)[7][0] for value in records(kafka, topic))


@pytest.mark.spec("connectors:11:9")
@pytest.mark.full(reason="three starts of a server; the tests below follow buckets, test_sources.py kills a server")
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
    topic = topic_of(server)
    server.run_in_slices_until(lambda: end_of(kafka, topic) >= 1)
    server.kill()
    server = file_server()
    eventually(lambda: end_of(kafka, topic) >= FILES * ROWS, server.said)
    # New objects are found by the next round, and those that were read aren't read again.
    client.put_object(Bucket=bucket, Key="raw/day=2023-12-01/new.parquet", Body=parquet([-1]))
    eventually(lambda: end_of(kafka, topic) >= FILES * ROWS + 1, server.said)
    assert pots(kafka, topic) == Counter([-1, *range(FILES * ROWS)])
    letters = [orjson.loads(value) for value in records(kafka, DEAD_LETTERS) if topic.encode() in value]
    assert [letter["file"] for letter in letters] == ["raw/day=2023-11-14/broken.parquet"]
    assert "footer" in letters[0]["reason"][0]["message"]
    # The next thing that goes wrong is shown: the bucket is gone.
    for found in client.list_objects_v2(Bucket=bucket)["Contents"]:
        client.delete_object(Bucket=bucket, Key=found["Key"])
    client.delete_bucket(Bucket=bucket)
    eventually(lambda: f"bucket {bucket}" in status_of(server)["error"], server.said)


def status_of(server: ServerProcess) -> dict[str, Any]:
    (status,) = server.http.get("/status").json()["sources"]
    return dict(status)


def topic_of(server: ServerProcess) -> str:
    eventually(lambda: "Measured" in str(server.http.get("/status").json().get("topics")), server.said)
    return server.topic("Measured")


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

    def moistures() -> list[float | None]:
        body = {"keys": [{"pot": pot} for pot in range(1, 6)], "fields": ["moisture"]}
        answer = server.http.post("/dataset/Pots/lookup", json=body)
        if answer.status_code != 200:
            return []
        found = answer.json()
        return [
            value if there else None for value, there in zip(found["data"]["moisture"], found["found"], strict=True)
        ]

    eventually(lambda: moistures() == [0.5, 0.5, 0.5, None, None], lambda: f"{moistures()} {status_of(server)}")
    server.kill()
    opened = DeltaTable(url, storage_options=options)
    opened.delete("pot = 1")
    opened.update(predicate="pot = 2", updates={"moisture": "0.25"})
    write_deltalake(url, table(5), mode="append", storage_options=options)
    server = file_server()
    eventually(lambda: moistures() == [None, 0.25, 0.5, None, 0.5], lambda: f"{moistures()} {status_of(server)}")


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

    def texts() -> dict[int, str]:
        body = {"keys": [{"k": key} for key in keys], "fields": ["text"]}
        answer = server.http.post("/dataset/Rows/lookup", json=body)
        if answer.status_code != 200:
            return {}
        found = answer.json()
        rows = zip(keys, found["data"]["text"], found["found"], strict=True)
        return {key: text for key, text, there in rows if there}

    def expected(instant: int) -> dict[int, str]:
        return {key: each["text"] for key, each in recorded.content(instant).items()}

    eventually(lambda: texts() == expected(0), lambda: f"{texts()} {status_of(server)}")
    server.kill()
    recorded.show(1, -1)
    upload()
    server = file_server()
    eventually(lambda: texts() == expected(-2), lambda: f"{texts()} {status_of(server)}")
    # A delete isn't read, and neither is a history of which nothing is left; both are shown.
    recorded.show(len(recorded.instants) - 1)
    upload()
    eventually(lambda: "removes rows" in status_of(server)["error"], server.said)
    for number in range(len(recorded.instants)):
        for file in recorded.files(number):
            client.delete_object(Bucket=bucket, Key=f"tables/{name}/{file.relative_to(recorded.path)}")
    eventually(lambda: "archived" in status_of(server)["error"], server.said)


@pytest.mark.full(reason="a million rows, and kills at random moments")
@pytest.mark.timeout(900)
def test_a_million_rows_are_taken_once_whatever_is_killed(
    file_server: Callable[[], ServerProcess], kafka: str, tmp_path: Path
) -> None:
    chance = random.Random(int.from_bytes(os.urandom(4)))
    drop = tmp_path / "drop"
    drop.mkdir()
    bounds = [0, *sorted(chance.sample(range(1, MANY), 30)), MANY]

    def write(at: int) -> None:
        lines = (f"{number},{number / 7},{BEGIN + number}\n" for number in range(bounds[at], bounds[at + 1]))
        # A file appears as a whole, as a writer should do it.
        (drop / f".{at}").write_text("".join(lines))
        (drop / f".{at}").rename(drop / f"{at}.csv")

    write(0)
    connector = Files(name="drop").folder(str(drop), path="*.csv", format=CSV(headers=["pot", "moisture", "at"]))
    server = file_server()
    server.commit(Graph(datasets=(readings(connector).to_spec(),)))
    topic = topic_of(server)
    for at in range(1, len(bounds) - 1):
        write(at)
        if at % 4 == 0:
            taken = end_of(kafka, topic)
            goal = min(taken + chance.randrange(1, 30_000), bounds[at])
            eventually(lambda goal=goal: end_of(kafka, topic) >= goal, server.said)  # type: ignore[misc]
            server.kill()
            server = file_server()
    eventually(lambda: end_of(kafka, topic) >= MANY, server.said)
    assert server.stop() == 0
    server = file_server()
    eventually(lambda: status_of(server)["polled_at"] is not None, server.said)
    assert pots(kafka, topic) == Counter(range(MANY))
