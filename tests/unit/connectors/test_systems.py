"""Tests of external systems and their contents: constructors, checks, references, and specs."""

import copy
import pickle
from dataclasses import replace
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
from caraway.graph import connectors as specs
from caraway.graph import systems
from caraway.integrations.aws import Secret

DAY_US = 86_400_000_000
SECRET = Secret(arn="arn:aws:secretsmanager:eu:1:secret:db", role_arn="arn:aws:iam::1:role/r")
LOGIN: dict[str, Any] = {"host": "h", "db_name": "d", "username": "u", "password": SECRET["db"]["password"]}
SECRET_REF = systems.SecretRef(arn=SECRET.arn, role_arn=SECRET.role_arn)
PASSWORD = replace(SECRET_REF, path=("db", "password"))
LOGGED_IN: dict[str, Any] = {"host": "h", "database": "d", "username": "u", "password": PASSWORD}
KEY = {"b": "2", "a": "1"}
MYSQL = systems.MySQLSystem(name="m", **LOGGED_IN, port=3306, jdbc_params="a=b&c=d")

KAFKA: dict[str, Any] = {"bootstrap_servers": "a:1,b:2", "security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}
PLACE: dict[str, Any] = {"account": "a", "username": "u", "password": "p", "warehouse": "w", "schema": "s", "role": "r"}
SNOWFLAKE: dict[str, Any] = {**PLACE, "db_name": "d"}


def kafka(**settings: Any) -> Kafka:
    return Kafka(**{"name": "k", **KAFKA, **settings})


def read(system: Any, cursor: str | None = "c", table: str = "t") -> specs.TableConnector:
    return specs.TableConnector(system=system, table=table, cursor=cursor)


def case(rows: str, connector: DataConnector, spec: object, name: str) -> Any:
    """Return a case: the connector, its spec, and its name; `rows` are those of the specification's tables."""
    return pytest.param(
        connector, spec, name, marks=[pytest.mark.spec(f"connectors:{row}") for row in rows.split("|") if row]
    )


CONNECTORS = [
    case(
        "3.1:Webhook|12:webhook retention",
        Webhook(name="w").endpoint("e"),
        specs.WebhookConnector(name="w", endpoint="e", retention_us=7 * DAY_US),
        "[Webhook: w](endpoint=e)",
    ),
    case(
        "3.1:Kafka",
        kafka(sasl_plain_username="u", sasl_plain_password=SECRET["db"]["password"]).topic("t"),
        specs.KafkaConnector(system=systems.KafkaSystem(name="k", **KAFKA, username="u", password=PASSWORD), topic="t"),
        "[Kafka: k](topic=t, format=json)",
    ),
    case(
        "3.1:S3",
        S3(name="s", aws_access_key_id="i", aws_secret_access_key="k").bucket("b", prefix="p/q", presorted=True),
        specs.S3Connector(
            system=systems.S3System(name="s", access_key_id="i", secret_access_key="k"),
            bucket="b",
            prefix="p/q",
            format=systems.CSVFormat(),
            presorted=True,
        ),
        "[S3: s](bucket=b,prefix=p/q)",
    ),
    case(
        "",
        Files(name="f").folder("/in", path="a/%Y/*.avro", format="avro", spread="1h", presorted=True),
        specs.FilesConnector(
            system=systems.FilesSystem(name="f"),
            container="/in",
            prefix="a/",
            suffix="%Y/*.avro",
            format="avro",
            presorted=True,
            spread_us=3_600_000_000,
        ),
        "[Files: f](folder=/in,prefix=a/)",
    ),
    case(
        "",
        GCS(name="g").bucket("b", prefix="p", format=CSV(delimiter=";", headers=["x"])),
        specs.FilesConnector(
            system=systems.GCSSystem(name="g"),
            container="b",
            prefix="p",
            format=systems.CSVFormat(delimiter=";", headers=("x",)),
        ),
        "[GCS: g](bucket=b,prefix=p)",
    ),
    case(
        "",
        Azure(name="a", account_name="n", account_key="k").container("c", prefix="p", format="delta"),
        specs.FilesConnector(
            system=systems.AzureSystem(name="a", account_name="n", account_key="k"),
            container="c",
            prefix="p",
            format="delta",
        ),
        "[Azure: a](container=c,prefix=p)",
    ),
    case(
        "3.1:Postgres",
        Postgres(name="p", **LOGIN).table("public.t", cursor="c"),
        read(systems.PostgresSystem(name="p", **LOGGED_IN, port=5432), table="public.t"),
        "[Postgres: p](table=public.t)",
    ),
    case(
        "3.1:MySQL", MySQL(name="m", **LOGIN, jdbc_params="a=b&c=d").table("t", "c"), read(MYSQL), "[MySQL: m](table=t)"
    ),
    case(
        "3.1:Snowflake",
        Snowflake(name="f", **SNOWFLAKE).table("t"),
        read(systems.SnowflakeSystem(name="f", **PLACE, database="d"), cursor=None),
        "[Snowflake: f](table=t)",
    ),
    case(
        "3.1:BigQuery",
        BigQuery(name="b", project_id="p", dataset_id="d", service_account_key=KEY).table("t", "c"),
        read(
            systems.BigQuerySystem(name="b", project_id="p", dataset_id="d", service_account_key='{"a": "1", "b": "2"}')
        ),
        "[BigQuery: b](table=t)",
    ),
    case(
        "3.1:Redshift",
        Redshift(name="r", db_name="d", host="h", schema="s", username="u", password="p").table("t", "c"),
        read(systems.RedshiftSystem(name="r", **{**LOGGED_IN, "password": "p"}, port=5439, schema="s")),
        "[Redshift: r](table=t)",
    ),
    case(
        "3.1:Mongo",
        Mongo(name="o", **LOGIN).collection("t", "c"),
        read(systems.MongoSystem(name="o", **LOGGED_IN)),
        "[Mongo: o](table=t)",
    ),
    case(
        "3.1:Kinesis",
        Kinesis(name="n", role_arn="arn").stream("arn:s", "LATEST", "json"),
        specs.KinesisConnector(
            system=systems.KinesisSystem(name="n", role_arn="arn"), stream_arn="arn:s", start=specs.StreamStart.LATEST
        ),
        "[Kinesis: n](stream=arn:s, format=json)",
    ),
    case(
        "3.1:PubSub",
        PubSub(name="g", project_id="p", service_account_key=SECRET).topic("t", "json"),
        specs.PubSubConnector(
            system=systems.PubSubSystem(name="g", project_id="p", service_account_key=SECRET_REF), topic="t"
        ),
        "[PubSub: g](topic=t, format=json)",
    ),
    case(
        "3.1:HTTP (sink only)",
        HTTP(name="h", host="https://x", healthz="/ok", ca_cert=Certificate(SECRET)).path("/in", 5, {"a": "b"}),
        specs.HTTPConnector(
            system=systems.HTTPSystem(name="h", host="https://x", healthz="/ok", ca_cert=SECRET_REF),
            endpoint="/in",
            limit=5,
            headers=(("a", "b"),),
        ),
        "[HTTP: h](endpoint=/in)",
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


# The method of each registered system that makes a connector, and its arguments, the last of which can't be left out.
METHODS: list[tuple[Any, str, tuple[str, ...]]] = [
    (Kafka, "topic", ("t",)),
    (Postgres, "table", ("t", "c")),
    (MySQL, "table", ("t", "c")),
    (BigQuery, "table", ("t", "c")),
    (Mongo, "collection", ("t", "c")),
    (Kinesis, "stream", ("s", "latest", "json")),
    (PubSub, "topic", ("t", "json")),
    (HTTP, "path", ("/in",)),
]


@pytest.mark.spec("connectors:12:Connector .get references")
@pytest.mark.parametrize(
    ("kind", "method", "given"), [*METHODS, *((k, "table", ("t", "c")) for k in (Snowflake, Redshift))]
)
def test_get_refers_to_what_is_registered(kind: Any, method: str, given: tuple[str, ...]) -> None:
    made: DataConnector = getattr(kind.get("x"), method)(*given)
    spec: Any = made.spec()
    assert spec.system == systems.RegisteredSystem(kind=kind.__name__, name="x")
    assert made.identifier().startswith(f"[{kind.__name__}: x](")


@pytest.mark.parametrize(("kind", "method", "given"), METHODS)
def test_a_missing_argument_is_a_type_error(kind: Any, method: str, given: tuple[str, ...]) -> None:
    with pytest.raises(TypeError):
        getattr(kind(name="x", **SOURCES[kind]), method)(*given[:-1])


def test_buckets_and_endpoints_have_names() -> None:
    assert S3.get("x").bucket("b", prefix="p").identifier() == "[S3: x](bucket=b,prefix=p)"
    methods: list[Any] = [S3(name="s").bucket, Webhook(name="w").endpoint]
    for method in methods:
        with pytest.raises(TypeError):
            method()


def test_what_systems_do_not_have() -> None:
    assert not hasattr(Webhook, "get")
    assert not hasattr(Mongo(name="o", **LOGIN), "table")
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
    assert kafka().topic("t", AVRO).spec().format == systems.SchemaRegistry(
        format=systems.RegistryFormat.AVRO, registry="confluent", url="http://r", username="u", password=SECRET_REF
    )
    assert kafka().topic("t", AVRO).identifier().endswith("format=Avro)")
    protobuf = kafka().topic("t", Protobuf(registry="confluent", url="http://r", token="x")).spec()
    assert isinstance(protobuf.format, systems.SchemaRegistry)
    assert protobuf.format.format is systems.RegistryFormat.PROTOBUF
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
    assert isinstance(spec, specs.TableConnector)
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
    assert spec.start is specs.StreamStart(given.lower())


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


def test_retention_is_a_duration() -> None:
    assert Webhook(name="w", retention="1h").endpoint("e").spec().retention_us == DAY_US // 24
    with pytest.raises(DefinitionError, match="webhook w: retention"):
        Webhook(name="w", retention="long")
