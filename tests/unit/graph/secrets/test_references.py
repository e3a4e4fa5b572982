"""Secrets are found in every part of a definition, and missing ones are reported at the commit."""

from dataclasses import replace

import pytest

from caraway.apps.server.control.service import CommitService
from caraway.errors import CommitError, UnavailableError, UnknownEntityError
from caraway.graph.connectors import Connector, IcebergConnector, KafkaConnector, S3Connector, TableConnector
from caraway.graph.functions import PythonFunction
from caraway.graph.operators import FilterFunction, Input
from caraway.graph.secrets.references import lacking, passwords_in_clear, secret_references
from caraway.graph.sources import Cdc, SinkSpec, SourceSpec
from caraway.graph.specs import DatasetSpec, Graph
from caraway.graph.systems import (
    IcebergSystem,
    KafkaSystem,
    PostgresSystem,
    RegistryFormat,
    S3System,
    SchemaRegistry,
    SecretRef,
)
from caraway.graph.wire.graphs import CommitRequest
from tests.unit.apps.server.control.graphs import clicks, shopper, spend, users
from tests.unit.apps.server.control.test_service import World

PASSWORD = SecretRef(arn="store:password", path=("sales",))
SYSTEM = PostgresSystem(
    name="db", host="h", port=5432, database="d", username=SecretRef(arn="env:USER"), password=PASSWORD
)
TABLE = TableConnector(system=SYSTEM, table="orders", cursor="at")
KAFKA = KafkaSystem(
    name="k",
    bootstrap_servers="a:9092",
    security_protocol="SASL_SSL",
    sasl_mechanism="PLAIN",
    username="me",
    password="pw",
)
SIGNING = 'lambda df: df["user"] == secrets.get("salt") or secrets . get( \'pepper\' )'
CODE = 'return secrets.get("salt") + secrets.get(name) + secrets.get("salt")'


def from_table() -> DatasetSpec:
    return replace(users(), name="Orders", sources=(SourceSpec(connector=TABLE, disorder_us=0, cdc=Cdc.UPSERT),))


def filtered() -> DatasetSpec:
    function = PythonFunction(name="signed", source_code=SIGNING, pickled=b"", includes=('secrets.get("more")',))
    (pipeline,) = spend().pipelines
    return replace(
        spend(),
        sinks=(SinkSpec(connector=TABLE),),
        pipelines=(replace(pipeline, operator=FilterFunction(of=Input(dataset="Clicks"), function=function)),),
    )


def test_all_that_names_a_secret_is_found() -> None:
    graph = Graph(
        datasets=(clicks(), from_table(), filtered()), featuresets=(shopper("user", "spent", "big", code=CODE),)
    )
    found = [
        (reference.entity, reference.where, reference.secret.arn, reference.by_code)
        for reference in secret_references(graph)
    ]
    table = "[Postgres: db](table=orders)"
    assert found == [
        ("Orders", f"dataset Orders, source {table}", "env:USER", False),
        ("Orders", f"dataset Orders, source {table}", "store:password", False),
        ("Spend", f"dataset Spend, sink {table}", "env:USER", False),
        ("Spend", f"dataset Spend, sink {table}", "store:password", False),
        ("Spend", "dataset Spend, pipeline sum_up", "store:salt", True),
        ("Spend", "dataset Spend, pipeline sum_up", "store:pepper", True),
        ("Spend", "dataset Spend, pipeline sum_up", "store:more", True),
        ("Shopper", "featureset Shopper, extractor is_big", "store:salt", True),
    ]


def look_up(secret: SecretRef) -> str:
    if secret.arn.startswith("env:"):
        return "there"
    if secret.arn == "store:salt":
        raise UnavailableError("the store is away")
    raise UnknownEntityError(f"there is no secret {secret.arn}")


def test_what_cannot_work_is_a_fault_and_the_rest_is_reported() -> None:
    graph = Graph(datasets=(from_table(), filtered()))
    missing = "there is no secret store:password"
    faults, told = lacking(secret_references(graph), look_up, {"Orders"})
    assert faults == [f"dataset Orders, source [Postgres: db](table=orders): {missing}"]
    assert told == [
        f"secret missing: dataset Spend, sink [Postgres: db](table=orders): {missing}",
        "secret not found out: dataset Spend, pipeline sum_up: the store is away",
        "secret missing: dataset Spend, pipeline sum_up: there is no secret store:pepper",
        "secret missing: dataset Spend, pipeline sum_up: there is no secret store:more",
    ]
    assert len(lacking(secret_references(graph), look_up, set())[1]) == len(told) + 1


def sold_to(connector: Connector, name: str = "Orders") -> DatasetSpec:
    return replace(users(), name=name, sources=(SourceSpec(connector=connector, disorder_us=0, cdc=Cdc.UPSERT),))


REGISTRY = SchemaRegistry(format=RegistryFormat.AVRO, registry="confluent", url="https://me:pw@registry")
LAKE = S3System(name="s", access_key_id="me", secret_access_key="pw")
IN_CLEAR = [
    (replace(TABLE, system=replace(SYSTEM, password="pw")), "password"),
    (KafkaConnector(system=KAFKA, topic="t"), "sasl_plain_password"),
    (KafkaConnector(system=replace(KAFKA, password=None), topic="t", format=REGISTRY), "the login in url"),
    (
        S3Connector(system=LAKE, bucket="b", prefix="p", format="json"),
        "aws_secret",
    ),
    (IcebergConnector(system=IcebergSystem(name="i", uri="mysql://me:pw@h/d"), table="a.b"), "password in uri"),
]


@pytest.mark.parametrize("preview", [False, True])
@pytest.mark.parametrize(("connector", "field"), IN_CLEAR)
def test_a_password_in_clear_is_warned_of_and_never_shown(connector: Connector, field: str, preview: bool) -> None:
    world = World()
    service = CommitService(world, world, world, look_up=lambda _: "there")
    request = CommitRequest(message="", graph=Graph(datasets=(sold_to(connector),)), preview=preview)
    (told,) = [line for line in service.commit(request).summary if "password in clear" in line]
    assert "dataset Orders, source [" in told
    assert field in told
    assert "caraway secrets set" in told
    assert "pw" not in told
    if not preview:
        assert "password in clear" not in str(service.commit(request).summary)


def test_secrets_and_empty_passwords_are_not_in_clear() -> None:
    open_to_all = replace(SYSTEM, username="", password="")
    graph = Graph(datasets=(from_table(), sold_to(replace(TABLE, system=open_to_all), "Open")))
    assert passwords_in_clear(graph, {"Orders", "Open"}) == []


@pytest.mark.parametrize("preview", [False, True])
def test_a_missing_secret_of_a_reference_is_refused_and_one_of_code_is_reported(preview: bool) -> None:
    world = World()
    service = CommitService(world, world, world, look_up=look_up)
    with pytest.raises(CommitError, match=r"dataset Orders, source \[Postgres: db\].*: there is no secret store:pass"):
        service.commit(CommitRequest(message="", graph=Graph(datasets=(from_table(),)), preview=preview))
    assert world.actions == []
    code = shopper("user", "spent", "big", code='return secrets.get("pepper")')
    told = "secret missing: featureset Shopper, extractor is_big: there is no secret store:pepper"
    request = CommitRequest(message="", graph=Graph(datasets=(clicks(), spend()), featuresets=(code,)), preview=preview)
    assert service.commit(request).summary[-1] == told
    if not preview:
        back = service.roll_back(world.commits[0].id)
        assert back.summary[-1] == told
