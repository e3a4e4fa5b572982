"""Readers over Google Cloud Storage and Azure, with a server in place of each: formats, tables, and failures."""

import gzip
import io
import json
import random
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from werkzeug import Request, Response
from werkzeug.serving import make_server

from caraway.connectors import GCS, Azure
from caraway.dataplane.sources.delta import FEED, DeltaReader
from caraway.dataplane.sources.files import azure_store, google_store
from caraway.dataplane.sources.files.endpoints import GOOGLE_EMULATOR, azure_address
from caraway.dataplane.sources.files.reader import FilesReader
from caraway.dataplane.sources.files.stored import FileStore
from caraway.dataplane.sources.iceberg.reader import IcebergReader
from caraway.dataplane.sources.reader import Position, SourceContext
from caraway.dataplane.sources.rounds import Rounds
from caraway.dtypes.instants import instant_us
from caraway.errors import UnavailableError
from caraway.graph.connectors import FilesConnector
from caraway.graph.sources import Cdc
from tests.integration.sources.contexts import context_of
from tests.services import azurite
from tests.services.cutting import cutting_proxy
from tests.services.stores import STORES, CopiedDelta, Store, StoreName, running_store

BEGIN = 1_700_000_000
EVERY_US = 60_000_000
READERS: dict[str, Any] = {"delta": DeltaReader, "iceberg": IcebergReader}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[StoreName], Store]]:
    """Yield a function that returns a store, whose server is started when the first test asks for it."""
    running: dict[StoreName, Any] = {}
    made: dict[StoreName, Store] = {}

    def store(name: StoreName) -> Store:
        if name not in made:
            running[name] = running_store(name, tmp_path_factory.mktemp(name))
            made[name] = running[name].__enter__()
        return made[name]

    yield store
    for each in running.values():
        each.__exit__(None, None, None)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, stores: Callable[[StoreName], Store]) -> Store:
    return stores(request.param)


@pytest.fixture
def container(store: Store) -> str:
    name = f"place-{secrets.token_hex(6)}"
    store.create(name)
    return name


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits as long as a cloud should be waited for."""
    monkeypatch.setattr(google_store, "RETRY", google_store.RETRY.with_timeout(2.0).with_delay(0.01, 0.1))
    monkeypatch.setattr(azure_store, "RETRIES", 0)


class Reading:
    """A source, with all that outlives its reader."""

    def __init__(self, connector: Any, address: str, *, cdc: Cdc = Cdc.APPEND, **source: Any) -> None:
        spec: FilesConnector = connector.spec()
        context = context_of(spec, endpoints={"lake": address}, cdc=cdc)
        self.context: SourceContext = replace(context, source=replace(context.source, **source))
        self.connector = spec
        self.time = float(BEGIN)
        self.position: Position = {}
        self.items: dict[str, bytes] = {}
        self.rows: list[Any] = []
        self.faults: list[str] = []

    def open(self) -> Any:
        def sleep(seconds: float) -> None:
            self.time += seconds

        rounds = Rounds(EVERY_US, now=lambda: self.time, sleep=sleep)
        reader = READERS.get(str(self.connector.format), FilesReader)(self.connector, self.context, rounds=rounds)
        self.position = reader.seek(self.position, dict(self.items))
        return reader

    def poll(self, reader: Any, rows: int = 10_000) -> bool:
        """Read once, and return whether the round goes on."""
        batch = reader.poll(rows=rows, size=1 << 22, timeout_s=EVERY_US / 1e6)
        if batch is None:
            return True
        self.position = json.loads(json.dumps(batch.position))
        for name, value in batch.items.items():
            self.items.pop(name, None)
            if value is not None:
                self.items[name] = value
        for number in range(len(batch.rows)):
            if number in batch.rows.faults:
                self.faults.append(batch.rows.faults[number])
            else:
                self.rows.append(batch.rows.row(number))
        return bool(self.position["reading"])

    def round(self, rows: int = 10_000) -> None:
        with closing(self.open()) as reader:
            while self.poll(reader, rows):
                pass

    def numbers(self) -> Counter[int]:
        return Counter(int(row["n"]) for row in self.rows)

    def error(self) -> str:
        """Return why a commit of this source is refused."""
        with pytest.raises(UnavailableError) as raised, closing(self.reader()) as reader:
            reader.peek(1)
        return str(raised.value)

    def reader(self) -> Any:
        return READERS.get(str(self.connector.format), FilesReader)(self.connector, self.context)


def rows_of(numbers: range) -> list[dict[str, Any]]:
    return [{"n": number, "at": BEGIN + number} for number in numbers]


def csv(numbers: range) -> bytes:
    return gzip.compress(("n,at\n" + "".join(f"{number},{BEGIN + number}\n" for number in numbers)).encode())


def json_lines(numbers: range) -> bytes:
    return b"".join(orjson.dumps(row) + b"\n" for row in rows_of(numbers))


def parquet(numbers: range) -> bytes:
    out = io.BytesIO()
    pq.write_table(table_of(numbers), out, row_group_size=100)
    return out.getvalue()


def avro(numbers: range) -> bytes:
    out = io.BytesIO()
    fields = [{"name": "n", "type": "long"}, {"name": "at", "type": "long"}]
    fastavro.writer(out, {"type": "record", "name": "Row", "fields": fields}, rows_of(numbers))
    return out.getvalue()


def table_of(numbers: range) -> Any:
    at = pa.array([(BEGIN + number) * 1_000_000 for number in numbers], pa.timestamp("us", "UTC"))
    return pa.table({"n": pa.array(numbers, pa.int64()), "at": at})


@pytest.mark.parametrize(
    ("form", "ending", "write"),
    [("csv", "csv.gz", csv), ("json", "json", json_lines), ("parquet", "parquet", parquet), ("avro", "avro", avro)],
)
def test_each_format_is_read_once_below_a_path(
    store: Store, container: str, form: str, ending: str, write: Callable[[range], bytes]
) -> None:
    for number in range(4):
        numbers = range(number * 500, number * 500 + 500)
        store.put(container, f"raw/a {number}%41 é/day=2023-11-1{number}/part.{ending}", write(numbers))
    store.put(container, f"raw/a/day=2023-11-11/_started.{ending}", write(range(9)))
    store.put(container, "raw/a/day=2023-11-11/other.txt", b"other")
    store.put(container, f"rawer/a/day=2023-11-11/part.{ending}", write(range(9)))
    given = {} if form == "csv" else {"format": form}
    connector = store.connector("lake", container, path=f"raw/*/day=%Y-%m-%d/*.{ending}", **given)
    reading = Reading(connector, store.server.address)
    reading.round(rows=300)
    assert reading.numbers() == Counter(range(2000))
    # Only what is new is read by the next round.
    store.put(container, f"raw/b/day=2023-12-01/part.{ending}", write(range(2000, 2010)))
    reading.round()
    assert reading.numbers() == Counter(range(2010))
    assert not reading.faults


def test_folders_of_other_days_are_not_listed(store: Store, container: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for day in range(10, 30):
        store.put(container, f"raw/day=2023-11-{day}/part.json", json_lines(range(day, day + 1)))
    asked: list[str] = []
    for kind in (google_store.GoogleStore, azure_store.AzureStore):
        listed = kind.listed

        def spy(self: FileStore, folder: str, listed: Any = listed) -> Any:
            asked.append(folder)
            return listed(self, folder)

        monkeypatch.setattr(kind, "listed", spy)
    connector = store.connector("lake", container, path="raw/day=%Y-%m-%d/*.json", format="json", spread="1h")
    since = datetime(2023, 11, 25, tzinfo=UTC)
    reading = Reading(connector, store.server.address, since_us=instant_us(since))
    reading.round()
    # The last hour of the day before may have rows of the first wanted one.
    assert reading.numbers() == Counter(range(24, 30))
    assert sorted(asked) == ["raw", *(f"raw/day=2023-11-{day}" for day in range(24, 30))]


def test_a_prefix_may_end_inside_of_a_name(store: Store, container: str) -> None:
    for path in ("raw/part-1.json", "raw/part-2/deep/er.json", "raw/other.json", "/odd.json", "raw//part-3.json"):
        store.put(container, path, json_lines(range(len(path), len(path) + 1)))
    for prefix, paths in {
        "raw/part-": ("raw/part-1.json", "raw/part-2/deep/er.json"),
        "ra": ("raw/part-1.json", "raw/part-2/deep/er.json", "raw/other.json", "raw//part-3.json"),
    }.items():
        reading = Reading(store.connector("lake", container, prefix=prefix, format="json"), store.server.address)
        reading.round()
        assert reading.numbers() == Counter(map(len, paths))


@pytest.mark.parametrize("form", ["json", "delta", "iceberg"])
def test_a_container_that_is_not_there_is_named(store: Store, form: str) -> None:
    connector = store.connector("lake", "nowhere-7", prefix="raw", format=form)
    error = Reading(connector, store.server.address).error()
    assert f"lake, {store.word} nowhere-7" in error
    assert "isn't there, or may not be seen; check the name" in error


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_folder_without_a_table_is_named(store: Store, container: str, form: str) -> None:
    connector = store.connector("lake", container, prefix="raw/pots", format=form)
    error = Reading(connector, store.server.address).error()
    assert f"{store.word} {container}, {form.capitalize()} table raw/pots isn't there" in error


@pytest.mark.parametrize(
    "form",
    [
        "json",
        pytest.param("delta", marks=pytest.mark.full(reason="it waits some seconds, as the case of JSON does")),
        pytest.param("iceberg", marks=pytest.mark.full(reason="the same")),
    ],
)
def test_a_store_that_does_not_answer_is_named_soon(store: Store, form: str) -> None:
    with cutting_proxy(store.server.address) as proxy:
        proxy.after = lambda: 0
        error = Reading(store.connector("lake", "raw", prefix="raw", format=form), proxy.address).error()
    assert f"{store.word} raw can't be read at {proxy.address}" in error


@pytest.mark.parametrize("form", ["json", "delta", "iceberg"])
@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("c29tZXRoaW5nIGVsc2U=", "refuses the server: .*; check account_name and account_key"),
        # pyarrow would end the process because of these two.
        ("not a key!", "account_key isn't the key of a storage account"),
        (None, "isn't HTTPS, so the server doesn't show its identity there; give account_key"),
    ],
)
def test_azure_refuses_other_keys(
    stores: Callable[[StoreName], Store], key: str | None, remedy: str, form: str
) -> None:
    store = stores("azure")
    container = f"place-{secrets.token_hex(6)}"
    store.create(container)
    connector = store.connector("lake", container, prefix="raw", format=form, account_key=key)
    reading = Reading(connector, store.server.address)
    with pytest.raises(UnavailableError, match=rf"^Azure lake, container {container}.* {remedy}"):
        reading.reader().peek(1)


def test_azure_without_an_identity_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    # pyarrow would end the process. The port is one at which nobody answers, and no name is looked up.
    connector = Azure(name="lake", account_name="hives").container("raw", prefix="raw", format="json")
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
    error = Reading(connector, "https://127.0.0.1:9").error()
    assert error.startswith("Azure lake, container raw")
    assert "give account_key, or give the machine an identity" in error


def test_google_without_credentials_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(GOOGLE_EMULATOR, raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "gone.json"))
    error = google_reading().error()
    assert error.startswith("GCS lake, bucket raw: the server has no credentials for Google: ")
    assert "Set GOOGLE_APPLICATION_CREDENTIALS in the server's environment" in error


def test_google_refuses_a_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []

    def refuse(environ: Any, start: Any) -> Any:
        asked.append(Request(environ).path)
        answer = {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
        return Response(json.dumps(answer), 400, content_type="application/json")(environ, start)

    server = make_server("127.0.0.1", 0, refuse, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    private = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    key = {
        "type": "service_account",
        "project_id": "p",
        "private_key_id": "1",
        "private_key": private.decode(),
        "client_email": "reader@p.iam.gserviceaccount.com",
        "token_uri": f"http://127.0.0.1:{server.port}/token",
    }
    (tmp_path / "key.json").write_text(json.dumps(key))
    monkeypatch.delenv(GOOGLE_EMULATOR, raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    error = google_reading().error()
    server.shutdown()
    assert error.startswith("GCS lake, bucket raw: Google refuses the credentials of the server: ")
    assert "Invalid JWT Signature" in error
    assert "check the key of the service account" in error
    assert set(asked) == {"/token"}


def google_reading() -> Reading:
    reading = Reading(GCS(name="lake").bucket("raw", prefix="raw", format="json"), "unused")
    reading.context = replace(reading.context, endpoints={})
    return reading


def test_half_a_file_is_one_dead_letter(store: Store, container: str) -> None:
    store.put(container, "raw/1.parquet", parquet(range(10)))
    store.put(container, "raw/2.parquet", parquet(range(10, 20))[:-8])
    reading = Reading(store.connector("lake", container, prefix="raw", format="parquet"), store.server.address)
    reading.round()
    assert reading.numbers() == Counter(range(10))
    (fault,) = reading.faults
    assert "the rest of the file can't be read" in fault


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_file_that_vanishes_while_it_is_read_ends_there(store: Store, container: str, is_replaced: bool) -> None:
    # The file has more bytes than are asked for at once, so that the answers would be those of two versions.
    rows = b"".join(b'{"n": %d, "at": %d, "pad": "%s"}\n' % (n, BEGIN + n, b"x" * 500) for n in range(10_000))
    store.put(container, "raw/1.json", rows)
    reading = Reading(store.connector("lake", container, prefix="raw", format="json"), store.server.address)
    with closing(reading.open()) as reader:
        assert reading.poll(reader, rows=100)
        assert len(reading.rows) == 100
        if is_replaced:
            store.put(container, "raw/1.json", json_lines(range(10_000, 10_010)))
        else:
            store.delete(container, "raw/1.json")
        while reading.poll(reader):
            pass
    # The rows that were decoded already stay.
    taken = len(reading.rows)
    assert taken < 10_000
    assert reading.numbers() == Counter(range(taken))
    assert not reading.faults
    reading.round()
    assert reading.numbers() == Counter(range(taken)) + Counter(range(10_000, 10_010) if is_replaced else ())


@pytest.mark.full(reason="the library of Azure waits a second after each cut, half a minute in all")
def test_cut_connections_lose_and_repeat_nothing(store: Store, container: str) -> None:
    chance = random.Random(5)
    bounds = range(0, 15_000, 5_000)
    for number in bounds:
        store.put(container, f"raw/{number}.parquet", parquet(range(number, number + 5_000)))
        store.put(container, f"raw/{number}.json", json_lines(range(-number - 5_000, -number)))
    found: Counter[int] = Counter()
    errors: list[str] = []
    with cutting_proxy(store.server.address) as proxy:
        for kind, ending in enumerate(("parquet", "json")):
            connector = store.connector("lake", container, path=f"raw/*.{ending}", format=ending)
            reading = Reading(connector, proxy.address)
            # Connections are cut at once until one was. Then half of them are, and most others after about as many
            # bytes as a file has. It depends on threads which connection gets which number.
            proxy.after = lambda kind=kind: chance.randrange(  # type: ignore[misc]
                200 if proxy.cuts <= kind else chance.choice([2_000, 300_000])
            )
            is_over = False
            while not is_over:
                try:
                    with closing(reading.open()) as reader:
                        while reading.poll(reader, rows=2_000):
                            pass
                        is_over = True
                except UnavailableError as error:
                    errors.append(str(error))
            found += reading.numbers() if ending == "parquet" else Counter(-n - 1 for n in reading.numbers().elements())
            assert not reading.faults
        assert proxy.cuts >= 2
    assert found == Counter(list(range(15_000)) * 2)
    # The library of Google tries again by itself; an error of either names the place.
    assert all(proxy.address in error for error in errors)


def test_a_delta_table_is_followed(store: Store, container: str, tmp_path: Path) -> None:
    prefix = "tables/the pots"
    lake = CopiedDelta(store, tmp_path / "table", container, prefix)
    write_deltalake(lake.url, table_of(range(5)), configuration={FEED: "true"})
    lake.copy()
    connector = store.connector("lake", container, prefix=prefix, format="delta")
    reading = Reading(connector, store.server.address, cdc=Cdc.NATIVE)
    reading.round()
    assert ops_of(reading) == [("r", n) for n in range(5)]
    reading.rows.clear()
    lake.table().delete("n = 3")
    write_deltalake(lake.url, table_of(range(7, 9)), mode="append")
    lake.copy()
    reading.round(rows=1)
    assert ops_of(reading) == [("d", 3), ("c", 7), ("c", 8)]


def ops_of(reading: Reading) -> list[tuple[str, int]]:
    return [(row["op"], int((row["after"] or row["before"])["n"])) for row in reading.rows]


def test_a_delta_table_that_the_store_itself_has_written_is_read(stores: Callable[[StoreName], Store]) -> None:
    store = stores("azure")
    container = f"place-{secrets.token_hex(6)}"
    store.create(container)
    options = {
        "azure_storage_account_name": azurite.ACCOUNT,
        "azure_storage_account_key": azurite.KEY,
        "azure_storage_endpoint": azure_address(azurite.ACCOUNT, store.server.address),
        "azure_allow_http": "true",
    }
    url = f"az://{container}/pots"
    write_deltalake(url, table_of(range(5)), configuration={FEED: "true"}, storage_options=options)
    connector = store.connector("lake", container, prefix="pots", format="delta")
    reading = Reading(connector, store.server.address, cdc=Cdc.NATIVE)
    reading.round()
    write_deltalake(url, table_of(range(5, 8)), mode="append", storage_options=options)
    reading.round()
    assert ops_of(reading) == [*(("r", n) for n in range(5)), *(("c", n) for n in range(5, 8))]


def test_an_iceberg_table_is_followed(store: Store, container: str, tmp_path: Path) -> None:
    catalog = SqlCatalog(
        "ice", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=store.location(container, "lake"), **store.io
    )
    with closing(catalog):
        catalog.create_namespace("db")
        table = catalog.create_table("db.pots", table_of(range(0)).schema)
        table.append(table_of(range(5)))
        (metadata,) = {path.rpartition("/metadata/")[0] for path in store.paths(container) if "/metadata/" in path}
        connector = store.connector("lake", container, prefix=metadata, format="iceberg")
        reading = Reading(connector, store.server.address, cdc=Cdc.NATIVE)
        reading.round()
        table.delete("n = 3")
        table.append(table_of(range(7, 9)))
        reading.round()
    assert ops_of(reading) == [*(("r", n) for n in range(5)), ("d", 3), ("c", 7), ("c", 8)]
