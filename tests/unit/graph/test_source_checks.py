"""Tests of sources against their datasets, as a commit checks them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
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
from caraway.graph.functions import PythonFunction
from caraway.graph.source_checks import check_sink, check_source, check_systems, conflicting_systems
from caraway.graph.sources import Cdc, Computed, Constant, Ref, SampleSpec, SinkSpec, SourceSpec, distinct_sources
from caraway.graph.specs import DatasetSpec, Graph
from caraway.graph.systems import (
    CSVFormat,
    FilesSystem,
    HTTPSystem,
    KafkaSystem,
    KinesisSystem,
    MongoSystem,
    PubSubSystem,
    RegisteredSystem,
    RegistryFormat,
    S3System,
    SchemaRegistry,
)
from tests.unit.graph import building

WEB = WebhookConnector(name="w", endpoint="e", retention_us=0)
SOURCE = SourceSpec(connector=WEB, cdc=Cdc.APPEND, disorder_us=0)
KAFKA = KafkaSystem(name="k", bootstrap_servers="b:1", security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")
TOPIC = KafkaConnector(system=KAFKA, topic="t")
KEYS = S3System(name="s", access_key_id="i", secret_access_key="k")
MONGO = MongoSystem(name="m", host="h", database="d", username="u", password="p")


def dataset(*, keys: tuple[str, ...] = (), **columns: DataType) -> DatasetSpec:
    return building.dataset("Weighing", {**columns, "at": DATETIME}, keys=keys)


WEIGHING = dataset(hive=STRING, grams=FLOAT, count=INT)


def computed(expr: Any, **schema: DataType) -> Computed:
    return Computed(by=expr.node, schema=tuple(schema.items()))


def made(**preproc: Any) -> SourceSpec:
    return replace(SOURCE, preproc=tuple(preproc.items()))


NULLS: dict[str, Connector] = {
    "topic": replace(TOPIC, topic="t\0"),
    "host": TableConnector(system=replace(MONGO, host="\0h"), table="t", cursor="c"),
    "password": TableConnector(system=replace(MONGO, password="p\0w"), table="t", cursor="c"),
    "container": FilesConnector(system=FilesSystem(name="f"), container="/data\0", prefix="", format="json"),
    "delimiter": FilesConnector(
        system=FilesSystem(name="f"), container="/data", prefix="", format=CSVFormat(delimiter="\0")
    ),
}


@pytest.mark.parametrize("part", NULLS)
def test_null_characters_in_texts_of_connectors(part: str) -> None:
    source = SourceSpec(connector=NULLS[part], cdc=Cdc.APPEND, disorder_us=0)
    sink = SinkSpec(connector=NULLS[part])
    for check in (partial(check_source, WEIGHING, source), partial(check_sink, WEIGHING, sink)):
        with pytest.raises(CommitError, match=f"{part} contains a null character") as caught:
            check()
        assert "\0" not in str(caught.value)
        assert "p\0w" not in str(caught.value)


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


RESULT, CONDITION = rule("expression result type"), rule("eval(expr, schema)", "2.6")


def sampled(*using: str, source: SourceSpec = SOURCE) -> SourceSpec:
    return replace(source, sample=SampleSpec(rate=0.5, using=using))


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
    pytest.param(WEIGHING, where(col("kind") == lit("x"), kind=STRING), marks=CONDITION),
    (WEIGHING, where(col("hive") == lit("x"), hive=STRING)),
    (dataset(keys=("hive",), hive=STRING, city=STRING), sampled()),
    (WEIGHING, sampled("hive")),
    (WEIGHING, sampled(source=made(hive=Ref(path=("x",))))),
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


def refused(
    source: SourceSpec,
    said: str,
    *marks: pytest.MarkDecorator,
    error: type[Exception] = CommitError,
    into: DatasetSpec = WEIGHING,
) -> Any:
    """Return the case of a source; `said` has the facts of the message, with dots between them."""
    return pytest.param(into, source, error, said, marks=marks, id=said)


mistyped = partial(refused, error=CommitTypeError)

REFUSED = [
    refused(made(color=constant("red")), "color ... hive, grams, count, at"),
    refused(made(at=computed(col("x"), x=DATETIME)), "at ... timestamp ... ref", types("P4"), rule("timestamp field")),
    refused(made(at=function(lambda df: df["x"])), "at ... timestamp", types("P4")),
    refused(made(grams=constant(1)), "grams ... 1 ... int ... float", types("P5")),
    refused(made(count=constant(value=True)), "count ... True ... bool"),
    refused(made(count=constant(1.0)), "count ... float"),
    refused(made(hive=constant(1)), "hive ... int"),
    refused(made(hive=INSTANT), "hive ... datetime"),
    refused(made(at=constant("now")), "at ... 'now'"),
    refused(made(city=constant("b")), "city ... 'b'", into=dataset(city=OneOfType(STRING, ("a",)))),
    refused(made(tags=constant("b")), "tags", into=dataset(tags=ListType(STRING))),
    mistyped(made(grams=computed(col("count") + lit(1))), "grams ... int ... float", types("P3"), RESULT),
    mistyped(
        made(count=computed(col("n") + lit(1), n=INT)),
        "count ... int ... Optional[int]",
        types("P3"),
        RESULT,
        into=dataset(count=optional(INT)),
    ),
    mistyped(made(count=computed(col("n") + lit(1), n=optional(INT))), "count ... Optional[int]", RESULT),
    mistyped(made(grams=computed(lit(None))), "grams ... null"),
    refused(
        made(grams=computed(col("kg") * lit(1.0))),
        "grams ... kg ... schema",
        types("P1"),
        rule("expression input types"),
    ),
    refused(made(grams=computed(col("grams") * lit(1.0))), "grams ... schema", types("P1")),
    # The field that the entry reads is made only after it.
    refused(made(grams=computed(col("count") + lit(0.5)), count=constant(1)), "grams ... count"),
    refused(made(grams=computed(col("hive") * lit(1.0))), "grams ... str"),
    mistyped(where(col("grams") + lit(1.0)), "where ... float", types("P7")),
    mistyped(where(col("ok")), "where ... Optional[bool]", CONDITION, into=dataset(ok=optional(BOOL))),
    mistyped(where(col("hive") > lit(1), hive=INT), "where ... hive ... int ... str", types("P7"), CONDITION),
    refused(where(col("color") == lit("red")), "where ... color"),
    mistyped(where(when(col("grams") > lit(1.0)).then(lit("x"))), "where ... bool"),
    refused(sampled("color"), "sample ... color ... hive", rule("6", "2.7")),
    refused(sampled("at"), "sample ... at ... timestamp", rule("6", "2.7")),
    refused(sampled("hive", source=made(hive=constant("x"))), "sample ... hive ... preproc"),
    refused(
        sampled(source=made(hive=constant("x"))),
        "sample ... using",
        rule("no eligible column left", "2.7"),
        into=dataset(keys=("hive",), hive=STRING, city=STRING),
    ),
    refused(sampled(), "sample ... no column is left", into=dataset()),
    refused(of(KafkaConnector(system=KAFKA, topic="t", format="csv")), "[Kafka: k] ... 'csv'"),
    refused(of(KafkaConnector(system=KAFKA, topic="t", format=REGISTRY)), "confluent ... 'glue'"),
    refused(of(replace(TABLE, cursor=None)), "[Mongo: m] ... cursor"),
    refused(s3(access_key_id="i"), "[S3: s] ... key ... secret"),
    refused(s3(secret_access_key="i"), "secret ... key"),
    refused(s3(access_key_id="i", secret_access_key="k", role_arn="r"), "role_arn"),
]


@pytest.mark.parametrize(("dataset_spec", "source", "error", "said"), REFUSED)
def test_what_is_refused(dataset_spec: DatasetSpec, source: SourceSpec, error: type[Exception], said: str) -> None:
    with pytest.raises(error) as caught:
        check_source(dataset_spec, source)
    building.check_told(caught.value, f"dataset Weighing, source [ ... {said}")


@pytest.mark.parametrize(
    ("connector", "fact"),
    [
        (S3_TABLE, "role"),
        (replace(S3_TABLE, system=S3System(name="s", secret_access_key="x")), "role"),
        (replace(S3_TABLE, system=S3System(name="s"), suffix="*"), "a prefix"),
        (replace(S3_TABLE, system=RegisteredSystem(kind=S3System.kind, name="s"), suffix="*"), "a prefix"),
        (TABLE, "'c'"),
    ],
)
def test_sinks_that_are_refused(connector: Connector, fact: str) -> None:
    with pytest.raises(CommitError, match=fact):
        check_sink(WEIGHING, SinkSpec(connector=connector, how="incremental"))


def test_sinks_that_are_fine() -> None:
    check_sink(WEIGHING, SinkSpec(connector=replace(S3_TABLE, system=S3System(name="s")), how="incremental"))
    check_sink(WEIGHING, SinkSpec(connector=replace(TABLE, cursor=None), how="incremental"))
    registered = RegisteredSystem(kind=S3System.kind, name="s")
    check_sink(WEIGHING, SinkSpec(connector=replace(S3_TABLE, system=registered), how="incremental"))


PLAIN = {Cdc.APPEND, Cdc.UPSERT}
WITH_ENVELOPES = {*PLAIN, Cdc.DEBEZIUM}
KINESIS = KinesisConnector(system=KinesisSystem(name="n", role_arn="r"), stream_arn="s", start=StreamStart.LATEST)
PUBSUB = PubSubConnector(system=PubSubSystem(name="g", project_id="p", service_account_key="{}"), topic="t")
AVRO = replace(REGISTRY, registry="confluent")
PROTOBUF = replace(AVRO, format=RegistryFormat.PROTOBUF)


READ_IN_WAYS: list[tuple[str, Connector, set[Cdc]]] = [
    ("Webhook", WEB, WITH_ENVELOPES),
    ("Kafka json", TOPIC, WITH_ENVELOPES),
    ("Kafka Avro", replace(TOPIC, format=AVRO), WITH_ENVELOPES),
    ("Kafka Protobuf", replace(TOPIC, format=PROTOBUF), PLAIN),
    ("Kinesis", KINESIS, WITH_ENVELOPES),
    ("PubSub", PUBSUB, PLAIN),
    ("S3 csv/json/parquet", S3_TABLE, WITH_ENVELOPES),
    ("S3 csv/json/parquet", replace(S3_TABLE, format=CSVFormat()), WITH_ENVELOPES),
    ("S3 hudi", replace(S3_TABLE, format="hudi"), {*PLAIN, Cdc.NATIVE}),
    ("S3 delta", replace(S3_TABLE, format="delta"), {Cdc.NATIVE}),
    ("10", TABLE, PLAIN),
]


@pytest.mark.parametrize(
    ("connector", "modes"), [pytest.param(*case, marks=rule(row, "2.4b"), id=row) for row, *case in READ_IN_WAYS]
)
def test_ways_to_read_a_connector(connector: Connector, modes: set[Cdc]) -> None:
    assert connector.cdc == modes


def test_one_name_is_one_system() -> None:
    other = replace(KAFKA, bootstrap_servers="elsewhere:1")
    first = replace(WEIGHING, sources=(of(TOPIC),))
    same = replace(first, name="Same", sources=(of(KafkaConnector(system=KAFKA, topic="u")),))
    clash = replace(first, name="Clash", sinks=(SinkSpec(connector=KafkaConnector(system=other, topic="t")),))
    check_systems(Graph(datasets=(first, same)))
    with pytest.raises(CommitError) as caught:
        check_systems(Graph(datasets=(first, same, clash)))
    building.check_told(caught.value, "Clash ... Kafka k ... Weighing")
    http = HTTPSystem(name="k", host="h", healthz="/", ca_cert="pem")
    also = replace(
        first, name="Also", sources=(), sinks=(SinkSpec(connector=HTTPConnector(system=http, endpoint="e")),)
    )
    web = replace(first, name="Web", sources=(SOURCE, of(replace(WEB, endpoint="other"))))
    longer = replace(first, name="Longer", sources=(of(replace(WEB, retention_us=1)),))
    reference = of(KafkaConnector(system=RegisteredSystem(kind=KafkaSystem.kind, name="k"), topic="t"))
    known = replace(first, name="Known", sources=(reference,))
    messages = list(conflicting_systems(Graph(datasets=(first, also, web, longer, known))))
    assert [message.split(":")[0] for message in messages] == ["dataset Also", "dataset Longer"]


@pytest.mark.spec("connectors:2.9:same endpoint twice on one dataset")
def test_a_connector_that_is_named_twice_counts_once() -> None:
    other = of(replace(WEB, endpoint="other"))
    assert distinct_sources((SOURCE, other, replace(SOURCE, disorder_us=5))) == (SOURCE, other)
