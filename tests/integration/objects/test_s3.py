"""A bucket of S3 stores objects as a folder does, over HTTP with a real client."""

import secrets
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlencode

import boto3
import pyarrow as pa
import pytest
from pyarrow import fs

from caraway.dataplane.archive.store.tables import ArchiveTable, ReplacedError
from caraway.dataplane.index.storage.snapshots import Snapshots
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.objects.folder import PARTS, ObjectFolder
from caraway.dataplane.sources.files.arrow_store import ArrowStore
from caraway.errors import UnavailableError
from tests.services.moto import running_moto

REGION = "eu-central-1"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with running_moto() as address:
        yield address


@pytest.fixture
def url(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the address of a folder in the test's own bucket; credentials come from the environment, as for S3."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    bucket = f"bucket-{secrets.token_hex(6)}"
    client = boto3.client("s3", endpoint_url=endpoint, region_name=REGION)
    client.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
    host = endpoint.removeprefix("http://")
    return f"s3://{bucket}/some/prefix?{urlencode({'endpoint_override': host, 'scheme': 'http', 'region': REGION})}"


def test_objects_are_written_listed_read_and_removed(url: str, tmp_path: Path) -> None:
    folder = ObjectFolder(url)
    assert folder.stored() == []
    folder.write("b/c/2", b"two")
    folder.write("a/1", b"one")
    folder.write("a/1", b"uno")
    assert [(stored.name, stored.size) for stored in folder.stored()] == [("a/1", 3), ("b/c/2", 3)]
    assert [stored.name for stored in folder.stored("b")] == ["b/c/2"]
    assert folder.read("a/1") == b"uno"
    # The content is larger than one part of S3's uploads.
    content = secrets.token_bytes(1 << 20) * 11
    (tmp_path / "in").write_bytes(content)
    assert folder.put(tmp_path / "in", "large") == folder.fetch("large", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == content
    for _ in range(2):
        folder.remove("a/1")
        folder.remove("large")
    assert [stored.name for stored in folder.stored()] == ["b/c/2"]
    with pytest.raises(UnavailableError, match="a/1"):
        folder.read("a/1")


def test_a_write_that_fails_leaves_no_object(url: str, tmp_path: Path) -> None:
    folder = ObjectFolder(url)
    folder.write("a", b"1")
    with pytest.raises(UnavailableError, match="x/y"):
        folder.put(tmp_path / "missing", "x/y")
    assert [stored.name for stored in folder.stored()] == ["a"]
    folder.tidy(folder.stored()[0].written_at + 3600)
    assert [stored.name for stored in folder.stored()] == ["a"]
    assert not [stored for stored in folder.stored(PARTS) if stored.size]


def test_a_bucket_that_is_not_there_is_an_error(url: str) -> None:
    with pytest.raises(UnavailableError, match="nowhere"):
        ObjectFolder(url.replace("s3://bucket-", "s3://nowhere-")).write("a", b"")


def test_an_index_begins_with_a_snapshot_in_a_bucket(url: str, tmp_path: Path) -> None:
    snapshots = Snapshots(ObjectFolder(url))
    with IndexStore(tmp_path / "one" / "index", restore=snapshots.restore) as store:
        batch = store.batch()
        for number in range(1000):
            batch.put(b"asset  1" + number.to_bytes(4), b"value")
        store.write(batch)
        manifest = snapshots.take(store)
        assert manifest is not None
    with IndexStore(tmp_path / "two" / "index", restore=Snapshots(ObjectFolder(url)).restore) as store:
        assert store.get(b"asset  1" + (999).to_bytes(4)) == b"value"


def test_a_table_of_the_archive_takes_one_of_two_writers_and_is_removed(url: str) -> None:
    schema = pa.schema([("_offset", pa.int64())])

    def opened() -> ArchiveTable:
        return ArchiveTable.opened(url, "archive/topic/id", schema, dataset="D")

    first, second = opened(), opened()
    first.append(pa.table({"_offset": [0, 1]}), {0: 2})
    with pytest.raises(ReplacedError):
        second.append(pa.table({"_offset": [0]}), {0: 1})
    again = opened()
    assert again.positions([0]) == {0: 2}
    again.append(pa.table({"_offset": [2]}), {0: 3})
    assert sorted(again.read()["_offset"].to_pylist()) == [0, 1, 2]
    folder = ObjectFolder(url)
    folder.write("archive/other/id", b"stays")
    for _ in range(2):
        folder.remove_folder("archive/topic")
    assert [stored.name for stored in folder.stored()] == ["archive/other/id"]
    assert opened().positions([0]) == {0: 0}


def test_a_bucket_is_listed_without_repetition_and_read_in_large_parts(endpoint: str, url: str) -> None:
    bucket = url.removeprefix("s3://").partition("/")[0]
    client = boto3.client("s3", endpoint_url=endpoint, region_name=REGION)
    text = "".join(f'{{"row": {number}}}\n' for number in range(200_000)).encode()
    # The second name has an empty part, which pyarrow takes for its folder.
    for name in ("raw/a.json", "raw//c.json", "raw/raw/x.json"):
        client.put_object(Bucket=bucket, Key=name, Body=text)
    files = fs.S3FileSystem(
        endpoint_override=endpoint.removeprefix("http://"), scheme="http", region=REGION, access_key="k", secret_key="s"
    )
    store = ArrowStore(files, bucket, "bucket")
    found, folders = store.listed("raw")
    assert ([file.path for file in found], folders) == (["raw/a.json"], ["raw"])
    assert [file.path for file in store.listed("raw/raw")[0]] == ["raw/raw/x.json"]
    with closing(store.open("raw/a.json")) as opened:
        parts = list(iter(lambda: opened.read(10_000), b""))
    assert b"".join(parts) == text
    with closing(store.open("raw/a.json")) as opened:
        opened.seek(1_000_000)
        assert opened.read(10) == text[1_000_000:1_000_010]
