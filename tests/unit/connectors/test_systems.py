"""Tests of external systems and their contents: constructors, checks, references, and specs."""

import copy
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from caraway.connectors import (
    CSV,
    GCS,
    HTTP,
    S3,
    Avro,
    Azure,
    BigQuery,
    Certificate,
    DataConnector,
    DataSource,
    Files,
    Kafka,
    Kinesis,
    Mongo,
    MySQL,
    Postgres,
    Protobuf,
    PubSub,
    Redshift,
    Snowflake,
    Webhook,
    at_timestamp,
    kinesis,
)
from caraway.errors import CommitError, DefinitionError
from caraway.graph.connectors import (
    FilesConnector,
    HTTPConnector,
    KafkaConnector,
    KinesisConnector,
    PubSubConnector,
    S3Connector,
    StreamStart,
    TableConnector,
    WebhookConnector,
)
from caraway.graph.systems import (
    AzureSystem,
    BigQuerySystem,
    CSVFormat,
    FilesSystem,
    GCSSystem,
    HTTPSystem,
    KafkaSystem,
    KinesisSystem,
    MongoSystem,
    MySQLSystem,
    PostgresSystem,
    PubSubSystem,
    RedshiftSystem,
    RegisteredSystem,
    RegistryFormat,
    S3System,
    SchemaRegistry,
    SecretRef,
    SnowflakeSystem,
    SystemKind,
)
from caraway.integrations.aws import Secret

DAY_US = 86_400_000_000
SECRET = Secret(arn="arn:aws:secretsmanager:eu:1:secret:db", role_arn="arn:aws:iam::1:role/r")
LOGIN: dict[str, Any] = {"host": "h", "db_name": "d", "username": "u", "password": SECRET["db"]["password"]}
PASSWORD = SecretRef(arn=SECRET.arn, role_arn=SECRET.role_arn, path=("db", "password"))
KEY = {"b": "2", "a": "1"}

KAFKA: dict[str, Any] = {"bootstrap_servers": "a:1,b:2", "security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}
SNOWFLAKE: dict[str, Any] = {
    "account": "a",
    "db_name": "d",
    "username": "u",
    "password": "p",
    "warehouse": "w",
    "schema": "s",
    "role": "r",
}


def kafka(**settings: Any) -> Kafka:
    return Kafka(**{"name": "k", **KAFKA, **settings})


def row(name: str) -> pytest.MarkDecorator:
    return pytest.mark.spec(f"connectors:3.1:{name}")


CONNECTORS = [
    pytest.param(
        Webhook(name="w").endpoint("e"),
        WebhookConnector(name="w", endpoint="e", retention_us=7 * DAY_US),
        "[Webhook: w](endpoint=e)",
        marks=[row("Webhook"), pytest.mark.spec("connectors:12:webhook retention")],
    ),
    pytest.param(
        kafka(sasl_plain_username="u", sasl_plain_password=SECRET["db"]["password"]).topic("t"),
        KafkaConnector(
            system=KafkaSystem(
                name="k",
                bootstrap_servers="a:1,b:2",
                security_protocol="SASL_SSL",
                sasl_mechanism="PLAIN",
                username="u",
                password=PASSWORD,
            ),
            topic="t",
        ),
        "[Kafka: k](topic=t, format=json)",
        marks=row("Kafka"),
    ),
    pytest.param(
        S3(name="s", aws_access_key_id="i", aws_secret_access_key="k").bucket("b", prefix="p/q"),
        S3Connector(
            system=S3System(name="s", access_key_id="i", secret_access_key="k"),
            bucket="b",
            prefix="p/q",
            format=CSVFormat(),
        ),
        "[S3: s](bucket=b,prefix=p/q)",
        marks=row("S3"),
    ),
    pytest.param(
        Files(name="f").folder("/in", path="a/%Y/*.avro", format="avro", spread="1h", presorted=True),
        FilesConnector(
            system=FilesSystem(name="f"),
            container="/in",
            prefix="a/",
            suffix="%Y/*.avro",
            format="avro",
            presorted=True,
            spread_us=3_600_000_000,
        ),
        "[Files: f](folder=/in,prefix=a/)",
    ),
    pytest.param(
        GCS(name="g").bucket("b", prefix="p", format=CSV(delimiter=";", headers=["x"])),
        FilesConnector(
            system=GCSSystem(name="g"), container="b", prefix="p", format=CSVFormat(delimiter=";", headers=("x",))
        ),
        "[GCS: g](bucket=b,prefix=p)",
    ),
    pytest.param(
        Azure(name="a", account_name="n", account_key="k").container("c", prefix="p", format="delta"),
        FilesConnector(
            system=AzureSystem(name="a", account_name="n", account_key="k"), container="c", prefix="p", format="delta"
        ),
        "[Azure: a](container=c,prefix=p)",
    ),
    pytest.param(
        Postgres(name="p", **LOGIN).table("public.t", cursor="c"),
        TableConnector(
            system=PostgresSystem(name="p", host="h", port=5432, database="d", username="u", password=PASSWORD),
            table="public.t",
            cursor="c",
        ),
        "[Postgres: p](table=public.t)",
        marks=row("Postgres"),
    ),
    pytest.param(
        MySQL(name="m", **LOGIN, jdbc_params="a=b&c=d").table("t", cursor="c"),
        TableConnector(
            system=MySQLSystem(
                name="m",
                host="h",
                port=3306,
                database="d",
                username="u",
                password=PASSWORD,
                jdbc_params="a=b&c=d",
            ),
            table="t",
            cursor="c",
        ),
        "[MySQL: m](table=t)",
        marks=row("MySQL"),
    ),
    pytest.param(
        Snowflake(name="f", **SNOWFLAKE).table("t"),
        TableConnector(
            system=SnowflakeSystem(
                name="f",
                account="a",
                database="d",
                username="u",
                password="p",
                warehouse="w",
                schema="s",
                role="r",
            ),
            table="t",
            cursor=None,
        ),
        "[Snowflake: f](table=t)",
        marks=row("Snowflake"),
    ),
    pytest.param(
        BigQuery(name="b", project_id="p", dataset_id="d", service_account_key=KEY).table("t", "c"),
        TableConnector(
            system=BigQuerySystem(name="b", project_id="p", dataset_id="d", service_account_key='{"a": "1", "b": "2"}'),
            table="t",
            cursor="c",
        ),
        "[BigQuery: b](table=t)",
        marks=row("BigQuery"),
    ),
    pytest.param(
        Redshift(name="r", db_name="d", host="h", schema="s", username="u", password="p").table("t", "c"),
        TableConnector(
            system=RedshiftSystem(name="r", host="h", port=5439, database="d", schema="s", username="u", password="p"),
            table="t",
            cursor="c",
        ),
        "[Redshift: r](table=t)",
        marks=row("Redshift"),
    ),
    pytest.param(
        Mongo(name="o", **LOGIN).collection("t", "c"),
        TableConnector(
            system=MongoSystem(name="o", host="h", database="d", username="u", password=PASSWORD),
            table="t",
            cursor="c",
        ),
        "[Mongo: o](table=t)",
        marks=row("Mongo"),
    ),
    pytest.param(
        Kinesis(name="n", role_arn="arn").stream("arn:s", "LATEST", "json"),
        KinesisConnector(system=KinesisSystem(name="n", role_arn="arn"), stream_arn="arn:s", start=StreamStart.LATEST),
        "[Kinesis: n](stream=arn:s, format=json)",
        marks=row("Kinesis"),
    ),
    pytest.param(
        PubSub(name="g", project_id="p", service_account_key=SECRET).topic("t", "json"),
        PubSubConnector(
            system=PubSubSystem(
                name="g",
                project_id="p",
                service_account_key=SecretRef(arn=SECRET.arn, role_arn=SECRET.role_arn),
            ),
            topic="t",
        ),
        "[PubSub: g](topic=t, format=json)",
        marks=row("PubSub"),
    ),
    pytest.param(
        HTTP(name="h", host="https://x", healthz="/ok", ca_cert=Certificate(SECRET)).path("/in", 5, {"a": "b"}),
        HTTPConnector(
            system=HTTPSystem(
                name="h",
                host="https://x",
                healthz="/ok",
                ca_cert=SecretRef(arn=SECRET.arn, role_arn=SECRET.role_arn),
            ),
            endpoint="/in",
            limit=5,
            headers=(("a", "b"),),
        ),
        "[HTTP: h](endpoint=/in)",
        marks=row("HTTP (sink only)"),
    ),
]


@pytest.mark.parametrize(("connector", "spec", "name"), CONNECTORS)
def test_what_a_connector_is(connector: DataConnector, spec: object, name: str) -> None:
    assert connector.spec() == spec
    assert connector.identifier() == connector.spec().identifier == name
    assert name.startswith(connector.data_source.identifier())
    assert copy.deepcopy(connector).spec() == spec
    assert pickle.loads(pickle.dumps(connector)).spec() == spec  # noqa: S301 (our own)
    unset = ("cdc", "every", "disorder", "since", "until", "envs", "pre_proc", "where", "sample", "idleness")
    assert [getattr(connector, name) for name in unset] == [None] * len(unset)
    assert (connector.bounded, connector.how, connector.create, connector.renames) == (False, None, None, None)


SOURCES: dict[type[DataSource], dict[str, Any]] = {
    Webhook: {},
    Kafka: KAFKA,
    S3: {},
    Postgres: LOGIN,
    MySQL: LOGIN,
    Snowflake: SNOWFLAKE,
    BigQuery: {"project_id": "p", "dataset_id": "d", "service_account_key": KEY},
    Redshift: {"db_name": "d", "host": "h", "schema": "s"},
    Mongo: LOGIN,
    Kinesis: {"role_arn": "r"},
    PubSub: {"project_id": "p", "service_account_key": KEY},
    HTTP: {"host": "h", "healthz": "/", "ca_cert": Certificate("pem")},
    Files: {},
    GCS: {},
    Azure: {"account_name": "a"},
}


@pytest.mark.parametrize(("kind", "settings"), SOURCES.items(), ids=lambda v: getattr(v, "__name__", ""))
def test_each_required_setting_is_required_and_unknown_ones_are_ignored(
    kind: type[DataSource], settings: dict[str, Any]
) -> None:
    complete = {"name": "x", **settings}
    assert kind(**complete) == kind(**{**complete, "group_id": "ignored"})
    for name in complete:
        with pytest.raises(ValueError) as caught:
            kind(**{k: v for k, v in complete.items() if k != name})
        assert kind.__name__ in str(caught.value)
        assert name in str(caught.value)
        with pytest.raises(ValueError, match=name):
            kind(**{**complete, name: 3.5})
    with pytest.raises(ValueError, match="name"):
        kind(**{**complete, "name": ""})
    with pytest.raises(TypeError):
        kind("x", **settings)  # type: ignore[call-arg]


def test_ports_are_numbers() -> None:
    assert Postgres(name="p", **LOGIN, port="6000").port == 6000  # type: ignore[arg-type]
    for wrong in ("many", True, 1.5):
        with pytest.raises(ValueError, match="port"):
            Postgres(name="p", **LOGIN, port=wrong)  # type: ignore[arg-type]


def test_no_message_and_no_repr_shows_a_credential() -> None:
    assert "hidden" not in repr(Postgres(name="p", host="h", db_name="d", username="u", password="hidden"))
    with pytest.raises(ValueError) as caught:
        Postgres(name="p", host="h", db_name="d", username="u", password=["hidden"])  # type: ignore[arg-type]
    assert "hidden" not in str(caught.value)
    assert "hidden" not in repr(Certificate("hidden"))


HANDLES: list[tuple[Callable[[], DataConnector], SystemKind]] = [
    (lambda: Kafka.get("x").topic("t"), SystemKind.KAFKA),
    (lambda: S3.get("x").bucket("b", prefix="p"), SystemKind.S3),
    (lambda: Postgres.get("x").table("t", "c"), SystemKind.POSTGRES),
    (lambda: MySQL.get("x").table("t", "c"), SystemKind.MYSQL),
    (lambda: Snowflake.get("x").table("t", "c"), SystemKind.SNOWFLAKE),
    (lambda: BigQuery.get("x").table("t", "c"), SystemKind.BIGQUERY),
    (lambda: Redshift.get("x").table("t", "c"), SystemKind.REDSHIFT),
    (lambda: Mongo.get("x").collection("t", "c"), SystemKind.MONGO),
    (lambda: Kinesis.get("x").stream("s", "latest", "json"), SystemKind.KINESIS),
    (lambda: PubSub.get("x").topic("t", "json"), SystemKind.PUBSUB),
    (lambda: HTTP.get("x").path("/in"), SystemKind.HTTP),
]


@pytest.mark.spec("connectors:12:Connector .get references")
@pytest.mark.parametrize(("make", "kind"), HANDLES)
def test_get_refers_to_what_is_registered(make: Callable[[], DataConnector], kind: SystemKind) -> None:
    spec: Any = make().spec()
    assert spec.system == RegisteredSystem(kind=kind, name="x")
    assert make().identifier().startswith(f"[{kind}: x](")


def test_webhooks_have_no_get_and_names_are_needed() -> None:
    assert not hasattr(Webhook, "get")
    with pytest.raises(ValueError, match=r"Kafka\.get"):
        Kafka.get("")


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI"])
def test_ways_into_kafka(protocol: str, mechanism: str) -> None:
    assert kafka(security_protocol=protocol, sasl_mechanism=mechanism).security_protocol == protocol


AVRO = Avro(registry="confluent", url="http://r", username="u", password=SECRET)


@pytest.mark.spec("connectors:3.1:Kafka")
def test_formats_of_kafka() -> None:
    assert kafka().topic("t", None).spec().format == "json"
    assert kafka().topic("t", AVRO).spec().format == SchemaRegistry(
        format=RegistryFormat.AVRO,
        registry="confluent",
        url="http://r",
        username="u",
        password=SecretRef(arn=SECRET.arn, role_arn=SECRET.role_arn),
    )
    assert kafka().topic("t", AVRO).identifier().endswith("format=Avro)")
    protobuf = kafka().topic("t", Protobuf(registry="confluent", url="http://r", token="x")).spec()
    assert isinstance(protobuf.format, SchemaRegistry)
    assert protobuf.format.format is RegistryFormat.PROTOBUF
    for wrong in ("csv", CSV(), 3):
        with pytest.raises(CommitError, match=r"\[Kafka: k\]\(topic=t"):
            kafka().topic("t", wrong).spec()  # type: ignore[arg-type]


@pytest.mark.spec("connectors:12:Avro registry auth")
def test_logins_of_registries() -> None:
    assert Avro(registry="confluent", url="r").token is None
    login = {"username": "u", "password": "p"}
    for kind in (Avro, Protobuf):
        for complete in (login, {"token": "t"}):
            kind(registry="confluent", url="r", **complete)
        for wrong in ({**login, "token": "t"}, {"username": "u"}, {"password": "p"}):
            with pytest.raises(ValueError, match=r"username|password"):
                kind(registry="confluent", url="r", **wrong)
    with pytest.raises(ValueError, match="missing"):
        Protobuf(registry="confluent", url="r")
    with pytest.raises(CommitError, match="glue"):
        kafka().topic("t", Avro(registry="glue", url="r")).spec()


def test_ways_into_redshift() -> None:
    settings: dict[str, Any] = {"name": "r", "db_name": "d", "host": "h", "schema": "s"}
    spec = Redshift(**settings, s3_access_role_arn="a").table("t", "c").spec()
    assert isinstance(spec, TableConnector)
    assert spec.cursor == "c"
    login: dict[str, Any] = {"username": "u", "password": "p"}
    for wrong in ({}, {"username": "u"}, {"password": "p"}, {"s3_access_role_arn": "a", **login}):
        system = Redshift(**settings, **wrong)
        with pytest.raises(AttributeError, match="s3_access_role_arn"):
            system.table("t", "c")


def test_schema_is_the_keyword_of_snowflake() -> None:
    assert Snowflake(name="f", **SNOWFLAKE).src_schema == "s"
    renamed = {("src_schema" if k == "schema" else k): v for k, v in SNOWFLAKE.items()}
    with pytest.raises(ValueError, match="schema"):
        Snowflake(name="f", **renamed)


MIDNIGHT = datetime(2024, 1, 1, tzinfo=UTC)
MIDNIGHT_US = 1_704_067_200_000_000
INSTANTS = [
    MIDNIGHT,
    datetime(2024, 1, 1),  # noqa: DTZ001 (naive is UTC)
    1_704_067_200,
    1_704_067_200.0,
    "2024-01-01T00:00:00Z",
    "2024-01-01T01:00:00+01:00",
    "2024-01-01",
]


@pytest.mark.parametrize("given", INSTANTS, ids=str)
def test_streams_begin_at_an_instant(given: Any) -> None:
    stream = Kinesis(name="n", role_arn="r")
    assert at_timestamp(given)() == MIDNIGHT
    assert kinesis.at_timestamp is at_timestamp
    assert stream.stream("s", given, "json").spec().start == MIDNIGHT_US
    assert stream.stream("s", at_timestamp(given), format="json").spec().start == MIDNIGHT_US


@pytest.mark.parametrize("given", ["latest", "LATEST", "Trim_Horizon"])
def test_streams_begin_at_a_place_in_any_case(given: str) -> None:
    spec = Kinesis(name="n", role_arn="r").stream("s", given, "json").spec()
    assert spec.start is StreamStart(given.lower())


def test_files_are_checked_like_the_objects_of_s3() -> None:
    drop = Files(name="d")
    with pytest.raises(DefinitionError, match="absolute path, not 'in'"):
        drop.folder("in", prefix="p")
    with pytest.raises(DefinitionError, match="csv, json, parquet, avro, delta, iceberg, hudi, not 'orc'"):
        drop.folder("/in", prefix="p", format="orc")
    with pytest.raises(AttributeError, match="prefix or path"):
        drop.folder("/in")
    with pytest.raises(DefinitionError, match=r"'x\*' isn't possible"):
        drop.folder("/in", path="x*")
    with pytest.warns(UserWarning, match="tells no time"):
        drop.folder("/in", path="x/*", spread="1h")


@pytest.mark.spec("connectors:12:Kinesis Avro; S3 Avro")
def test_formats_that_are_not_read() -> None:
    with pytest.raises(AttributeError, match="json"):
        Kinesis(name="n", role_arn="r").stream("s", "latest", "avro")
    with pytest.raises(ValueError, match="avro"):
        S3(name="s").bucket("b", prefix="p", format="avro")
    with pytest.raises(ValueError, match="json"):
        PubSub(name="g", project_id="p", service_account_key=KEY).topic("t", "avro")


METHODS: list[tuple[Any, tuple[Any, ...]]] = [
    (Webhook(name="w").endpoint, ()),
    (kafka().topic, ()),
    (S3(name="s").bucket, ()),
    (Postgres(name="p", **LOGIN).table, ("t",)),
    (MySQL(name="p", **LOGIN).table, ("t",)),
    (BigQuery(name="b", project_id="p", dataset_id="d", service_account_key=KEY).table, ("t",)),
    (Mongo(name="o", **LOGIN).collection, ("t",)),
    (Kinesis(name="n", role_arn="arn").stream, ("s", "latest")),
    (PubSub(name="g", project_id="p", service_account_key=KEY).topic, ("t",)),
    (HTTP(name="h", host="h", healthz="/", ca_cert=Certificate("pem")).path, ()),
]


@pytest.mark.parametrize(("method", "given"), METHODS)
def test_a_missing_argument_is_a_type_error(method: Any, given: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        method(*given)


def test_mongo_has_collections_only() -> None:
    assert not hasattr(Mongo(name="o", **LOGIN), "table")


def test_retention_is_a_duration() -> None:
    assert Webhook(name="w", retention="1h").endpoint("e").spec().retention_us == DAY_US // 24
    with pytest.raises(DefinitionError, match="webhook w: retention"):
        Webhook(name="w", retention="long")
