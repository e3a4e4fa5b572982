"""Tests of sources against their datasets, as a commit checks them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cloudpickle
import pandas as pd
import pytest

from caraway.dtypes.types import (
    BOOL,
    DATETIME,
    FLOAT,
    INT,
    STRING,
    BetweenType,
    DataType,
    DecimalType,
    ListType,
    OneOfType,
    optional,
)
from caraway.errors import CommitError, CommitTypeError
from caraway.expr import col, lit, when
from caraway.graph.connectors import (
    Connector,
    HTTPConnector,
    KafkaConnector,
    KinesisConnector,
    PubSubConnector,
    S3Connector,
    StreamStart,
    TableConnector,
    WebhookConnector,
)
from caraway.graph.functions import PythonFunction
from caraway.graph.source_checks import check_sink, check_source, check_systems, conflicting_systems
from caraway.graph.sources import Cdc, Computed, Constant, Ref, SampleSpec, SinkSpec, SourceSpec, distinct_sources
from caraway.graph.specs import DatasetSpec, Graph
from caraway.graph.systems import (
    CSVFormat,
    HTTPSystem,
    KafkaSystem,
    KinesisSystem,
    MongoSystem,
    PubSubSystem,
    RegisteredSystem,
    RegistryFormat,
    S3System,
    SchemaRegistry,
    SystemKind,
)
from tests.unit.graph import building

WEB = WebhookConnector(name="w", endpoint="e", retention_us=0)
SOURCE = SourceSpec(connector=WEB, cdc=Cdc.APPEND, disorder_us=0)
KAFKA = KafkaSystem(name="k", bootstrap_servers="b:1", security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")
KEYS = S3System(name="s", access_key_id="i", secret_access_key="k")
MONGO = MongoSystem(name="m", host="h", database="d", username="u", password="p")


def dataset(*, keys: tuple[str, ...] = (), **columns: DataType) -> DatasetSpec:
    return building.dataset("Weighing", {**columns, "at": DATETIME}, keys=keys)


WEIGHING = dataset(hive=STRING, grams=FLOAT, count=INT)


def computed(expr: Any, **schema: DataType) -> Computed:
    return Computed(by=expr.node, schema=tuple(schema.items()))


def made(**preproc: Any) -> SourceSpec:
    return replace(SOURCE, preproc=tuple(preproc.items()))


def where(expr: Any, **schema: DataType) -> SourceSpec:
    return replace(SOURCE, where=computed(expr, **schema))


def function(call: Callable[[pd.DataFrame], Any]) -> Computed:
    return Computed(by=PythonFunction(name="f", source_code="", pickled=cloudpickle.dumps(call)))


def constant(value: Any) -> Constant:
    kinds: dict[type, DataType] = {bool: BOOL, int: INT, float: FLOAT, str: STRING}
    return Constant(value=value, dtype=kinds[type(value)])


INSTANT = Constant(value=1, dtype=DATETIME)


def types(row: str) -> pytest.MarkDecorator:
    return pytest.mark.spec(f"types:15b:{row}")


def rule(row: str, table: str = "2.5") -> pytest.MarkDecorator:
    return pytest.mark.spec(f"connectors:{table}:{row}")


S3_TABLE = S3Connector(system=KEYS, bucket="b", prefix="p", format="json")
TABLE = TableConnector(system=MONGO, table="t", cursor="c")

ACCEPTED = [
    (WEIGHING, SOURCE),
    (WEIGHING, made(grams=computed(col("kg") * lit(1000.0), kg=FLOAT))),
    pytest.param(WEIGHING, made(grams=computed(col("grams") + lit(1.0), grams=FLOAT)), marks=types("P1")),
    (WEIGHING, made(count=constant(1), grams=computed(col("count") + lit(0.5)))),
    (WEIGHING, made(at=Ref(path=("time",)), hive=Ref(path=("a", "b")))),
    pytest.param(WEIGHING, made(at=INSTANT), marks=rule("timestamp field")),
    pytest.param(WEIGHING, made(at=constant(5)), marks=types("P5")),
    (WEIGHING, made(hive=function(lambda df: df["x"]))),
    (dataset(hive=optional(STRING)), made(hive=constant("x"))),
    (dataset(price=DecimalType(2)), made(price=constant(1.25))),
    (dataset(grams=BetweenType(FLOAT, 0, 5)), made(grams=computed(col("kg") * lit(1.0), kg=FLOAT))),
    (dataset(city=OneOfType(STRING, ("a", "b"))), made(city=constant("a"))),
    (WEIGHING, where(col("grams") > lit(3.0))),
    pytest.param(WEIGHING, where(col("kind") == lit("x"), kind=STRING), marks=rule("eval(expr, schema)", "2.6")),
    (WEIGHING, where(col("hive") == lit("x"), hive=STRING)),
    (dataset(keys=("hive",), hive=STRING, city=STRING), replace(SOURCE, sample=SampleSpec(rate=0.5))),
    (WEIGHING, replace(SOURCE, sample=SampleSpec(rate=0.5, using=("hive",)))),
    (WEIGHING, replace(made(hive=Ref(path=("x",))), sample=SampleSpec(rate=0.5))),
    (WEIGHING, replace(SOURCE, connector=S3_TABLE)),
    (WEIGHING, replace(SOURCE, connector=TABLE)),
]


@pytest.mark.parametrize(("dataset_spec", "source"), ACCEPTED)
def test_what_is_fine(dataset_spec: DatasetSpec, source: SourceSpec) -> None:
    check_source(dataset_spec, source)


def of(connector: Connector) -> SourceSpec:
    return replace(SOURCE, connector=connector)


def s3(**settings: Any) -> SourceSpec:
    return of(replace(S3_TABLE, system=S3System(name="s", **settings)))


REGISTRY = SchemaRegistry(format=RegistryFormat.AVRO, registry="glue", url="r")

REFUSED = [
    (WEIGHING, made(color=constant("red")), CommitError, ["color", "hive, grams, count, at"]),
    pytest.param(
        WEIGHING,
        made(at=computed(col("x"), x=DATETIME)),
        CommitError,
        ["at", "timestamp", "ref"],
        marks=[types("P4"), rule("timestamp field")],
    ),
    pytest.param(WEIGHING, made(at=function(lambda df: df["x"])), CommitError, ["at", "timestamp"], marks=types("P4")),
    pytest.param(WEIGHING, made(grams=constant(1)), CommitError, ["grams", "1", "int", "float"], marks=types("P5")),
    (WEIGHING, made(count=constant(value=True)), CommitError, ["count", "True", "bool"]),
    (WEIGHING, made(count=constant(1.0)), CommitError, ["count", "float"]),
    (WEIGHING, made(hive=constant(1)), CommitError, ["hive", "int"]),
    (WEIGHING, made(hive=INSTANT), CommitError, ["hive", "datetime"]),
    (WEIGHING, made(at=constant("now")), CommitError, ["at", "'now'"]),
    (dataset(city=OneOfType(STRING, ("a",))), made(city=constant("b")), CommitError, ["city", "'b'"]),
    (dataset(tags=ListType(STRING)), made(tags=constant("b")), CommitError, ["tags"]),
    pytest.param(
        WEIGHING,
        made(grams=computed(col("count") + lit(1))),
        CommitTypeError,
        ["grams", "int", "float"],
        marks=[types("P3"), rule("expression result type")],
    ),
    pytest.param(
        dataset(count=optional(INT)),
        made(count=computed(col("n") + lit(1), n=INT)),
        CommitTypeError,
        ["count", "int", "Optional[int]"],
        marks=[types("P3"), rule("expression result type")],
    ),
    pytest.param(
        WEIGHING,
        made(count=computed(col("n") + lit(1), n=optional(INT))),
        CommitTypeError,
        ["count", "Optional[int]"],
        marks=rule("expression result type"),
    ),
    (WEIGHING, made(grams=computed(lit(None))), CommitTypeError, ["grams", "null"]),
    pytest.param(
        WEIGHING,
        made(grams=computed(col("kg") * lit(1.0))),
        CommitError,
        ["grams", "kg", "schema"],
        marks=[types("P1"), rule("expression input types")],
    ),
    pytest.param(
        WEIGHING,
        made(grams=computed(col("grams") * lit(1.0))),
        CommitError,
        ["grams", "schema"],
        marks=types("P1"),
    ),
    # The field that the entry reads is made only after it.
    (WEIGHING, made(grams=computed(col("count") + lit(0.5)), count=constant(1)), CommitError, ["grams", "count"]),
    (WEIGHING, made(grams=computed(col("hive") * lit(1.0))), CommitError, ["grams", "str"]),
    pytest.param(WEIGHING, where(col("grams") + lit(1.0)), CommitTypeError, ["where", "float"], marks=types("P7")),
    pytest.param(
        dataset(ok=optional(BOOL)),
        where(col("ok")),
        CommitTypeError,
        ["where", "Optional[bool]"],
        marks=rule("eval(expr, schema)", "2.6"),
    ),
    pytest.param(
        WEIGHING,
        where(col("hive") > lit(1), hive=INT),
        CommitTypeError,
        ["where", "hive", "int", "str"],
        marks=[types("P7"), rule("eval(expr, schema)", "2.6")],
    ),
    (WEIGHING, where(col("color") == lit("red")), CommitError, ["where", "color"]),
    (WEIGHING, where(when(col("grams") > lit(1.0)).then(lit("x"))), CommitTypeError, ["where", "bool"]),
    pytest.param(
        WEIGHING,
        replace(SOURCE, sample=SampleSpec(rate=0.5, using=("color",))),
        CommitError,
        ["sample", "color", "hive"],
        marks=rule("6", "2.7"),
    ),
    pytest.param(
        WEIGHING,
        replace(SOURCE, sample=SampleSpec(rate=0.5, using=("at",))),
        CommitError,
        ["sample", "at", "timestamp"],
        marks=rule("6", "2.7"),
    ),
    (
        WEIGHING,
        replace(made(hive=constant("x")), sample=SampleSpec(rate=0.5, using=("hive",))),
        CommitError,
        ["sample", "hive", "preproc"],
    ),
    pytest.param(
        dataset(keys=("hive",), hive=STRING, city=STRING),
        replace(made(hive=constant("x")), sample=SampleSpec(rate=0.5)),
        CommitError,
        ["sample", "using"],
        marks=rule("no eligible column left", "2.7"),
    ),
    (dataset(), replace(SOURCE, sample=SampleSpec(rate=0.5)), CommitError, ["sample", "no column is left"]),
    (WEIGHING, of(KafkaConnector(system=KAFKA, topic="t", format="csv")), CommitError, ["[Kafka: k]", "'csv'"]),
    (WEIGHING, of(KafkaConnector(system=KAFKA, topic="t", format=REGISTRY)), CommitError, ["confluent", "'glue'"]),
    (WEIGHING, of(replace(TABLE, cursor=None)), CommitError, ["[Mongo: m]", "cursor"]),
    (WEIGHING, s3(access_key_id="i"), CommitError, ["[S3: s]", "key", "secret"]),
    (WEIGHING, s3(secret_access_key="i"), CommitError, ["secret", "key"]),
    (WEIGHING, s3(access_key_id="i", secret_access_key="k", role_arn="r"), CommitError, ["role_arn"]),
]


@pytest.mark.parametrize(("dataset_spec", "source", "kind", "facts"), REFUSED)
def test_what_is_refused(
    dataset_spec: DatasetSpec, source: SourceSpec, kind: type[Exception], facts: list[str]
) -> None:
    with pytest.raises(kind) as caught:
        check_source(dataset_spec, source)
    assert all(fact in str(caught.value) for fact in ("dataset Weighing, source [", *facts))


@pytest.mark.parametrize(
    ("connector", "fact"),
    [(S3_TABLE, "role"), (replace(S3_TABLE, system=S3System(name="s", secret_access_key="x")), "role"), (TABLE, "'c'")],
)
def test_sinks_that_are_refused(connector: Connector, fact: str) -> None:
    with pytest.raises(CommitError, match=fact):
        check_sink(WEIGHING, SinkSpec(connector=connector, how="incremental"))


def test_sinks_that_are_fine() -> None:
    check_sink(WEIGHING, SinkSpec(connector=replace(S3_TABLE, system=S3System(name="s")), how="incremental"))
    check_sink(WEIGHING, SinkSpec(connector=replace(TABLE, cursor=None), how="incremental"))
    registered = RegisteredSystem(kind=SystemKind.S3, name="s")
    check_sink(WEIGHING, SinkSpec(connector=replace(S3_TABLE, system=registered), how="incremental"))


PLAIN = {Cdc.APPEND, Cdc.UPSERT}
WITH_ENVELOPES = {*PLAIN, Cdc.DEBEZIUM}
KINESIS = KinesisConnector(system=KinesisSystem(name="n", role_arn="r"), stream_arn="s", start=StreamStart.LATEST)
PUBSUB = PubSubConnector(system=PubSubSystem(name="g", project_id="p", service_account_key="{}"), topic="t")
AVRO = replace(REGISTRY, registry="confluent")
PROTOBUF = replace(AVRO, format=RegistryFormat.PROTOBUF)


@pytest.mark.parametrize(
    ("connector", "modes"),
    [
        pytest.param(WEB, WITH_ENVELOPES, marks=rule("Webhook", "2.4b")),
        pytest.param(KafkaConnector(system=KAFKA, topic="t"), WITH_ENVELOPES, marks=rule("Kafka json", "2.4b")),
        pytest.param(
            KafkaConnector(system=KAFKA, topic="t", format=AVRO), WITH_ENVELOPES, marks=rule("Kafka Avro", "2.4b")
        ),
        pytest.param(
            KafkaConnector(system=KAFKA, topic="t", format=PROTOBUF), PLAIN, marks=rule("Kafka Protobuf", "2.4b")
        ),
        pytest.param(KINESIS, WITH_ENVELOPES, marks=rule("Kinesis", "2.4b")),
        pytest.param(PUBSUB, PLAIN, marks=rule("PubSub", "2.4b")),
        pytest.param(S3_TABLE, WITH_ENVELOPES, marks=rule("S3 csv/json/parquet", "2.4b")),
        pytest.param(replace(S3_TABLE, format=CSVFormat()), WITH_ENVELOPES, marks=rule("S3 csv/json/parquet", "2.4b")),
        pytest.param(replace(S3_TABLE, format="hudi"), {*PLAIN, Cdc.NATIVE}, marks=rule("S3 hudi", "2.4b")),
        pytest.param(replace(S3_TABLE, format="delta"), {Cdc.NATIVE}, marks=rule("S3 delta", "2.4b")),
        pytest.param(TABLE, PLAIN, marks=rule("10", "2.4b")),
    ],
)
def test_ways_to_read_a_connector(connector: Connector, modes: set[Cdc]) -> None:
    assert connector.cdc == modes


def test_one_name_is_one_system() -> None:
    other = replace(KAFKA, bootstrap_servers="elsewhere:1")
    first = replace(WEIGHING, sources=(of(KafkaConnector(system=KAFKA, topic="t")),))
    same = replace(first, name="Same", sources=(of(KafkaConnector(system=KAFKA, topic="u")),))
    clash = replace(first, name="Clash", sinks=(SinkSpec(connector=KafkaConnector(system=other, topic="t")),))
    check_systems(Graph(datasets=(first, same)))
    with pytest.raises(CommitError) as caught:
        check_systems(Graph(datasets=(first, same, clash)))
    assert all(fact in str(caught.value) for fact in ("Clash", "Kafka k", "Weighing"))
    http = HTTPSystem(name="k", host="h", healthz="/", ca_cert="pem")
    also = replace(
        first, name="Also", sources=(), sinks=(SinkSpec(connector=HTTPConnector(system=http, endpoint="e")),)
    )
    web = replace(first, name="Web", sources=(SOURCE, of(replace(WEB, endpoint="other"))))
    longer = replace(first, name="Longer", sources=(of(replace(WEB, retention_us=1)),))
    reference = of(KafkaConnector(system=RegisteredSystem(kind=SystemKind.KAFKA, name="k"), topic="t"))
    known = replace(first, name="Known", sources=(reference,))
    messages = list(conflicting_systems(Graph(datasets=(first, also, web, longer, known))))
    assert [message.split(":")[0] for message in messages] == ["dataset Also", "dataset Longer"]


@pytest.mark.spec("connectors:2.9:same endpoint twice on one dataset")
def test_a_connector_that_is_named_twice_counts_once() -> None:
    other = of(replace(WEB, endpoint="other"))
    assert distinct_sources((SOURCE, other, replace(SOURCE, disorder_us=5))) == (SOURCE, other)
