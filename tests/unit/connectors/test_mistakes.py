"""Tests of mistakes that people make with connectors, each with the class of the error and the facts in its text.

`define` mistakes are refused where they are written, `commit` ones when the definitions are committed.
"""

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from caraway import dataset, field
from caraway.connectors import (
    HTTP,
    S3,
    BigQuery,
    Certificate,
    DataConnector,
    Kafka,
    Sample,
    at_timestamp,
    eval,  # noqa: A004 (the API's name)
    ref,
    source,
)
from caraway.expr import col, lit
from caraway.graph.specs import DatasetSpec, Graph
from caraway.graph.validation.graphs import validate
from caraway.integrations.aws import Secret
from tests.unit.connectors.systems import BROKERS, CLICKS, KAFKA, KINESIS, LAKE, POSTGRES, SERVER, WEB
from tests.unit.refusals import ROW, check, mistakes_of

mistake = mistakes_of("connectors")

__owner__ = "ada@example.com"


def fed(conn: Any = CLICKS, **options: Any) -> object:
    return source(conn, **{"disorder": "1d", "cdc": "append", **options})


AT_DEFINE: list[Any] = [
    # Systems.
    mistake(lambda: WEB.endpoint(""), ValueError, "web|endpoint"),
    mistake(lambda: WEB.endpoint(3), TypeError, "web|endpoint|3"),  # type: ignore[arg-type]
    mistake(lambda: Kafka(**{**KAFKA, "security_protocol": "SSL"}), ValueError, "Kafka k|SSL|SASL_SSL"),
    mistake(lambda: Kafka(**{**KAFKA, "sasl_mechanism": "OAUTH"}), ValueError, "Kafka k|OAUTH|GSSAPI"),
    mistake(lambda: Kafka(**{**KAFKA, "sasl_plain_password": 3}), ValueError, "k|sasl_plain_password|int"),
    mistake(lambda: BROKERS.topic(""), ValueError, "k|topic"),
    mistake(lambda: S3(name="s", role_arn=Secret(arn="a")), ValueError, "s|role_arn"),  # type: ignore[arg-type]
    mistake(lambda: LAKE.bucket("b", path="a/x*"), ValueError, "x*|**"),
    mistake(lambda: LAKE.bucket("b", path="/a"), ValueError, "/a|empty"),
    mistake(lambda: POSTGRES.table("", "c"), ValueError, "pg|table_name"),
    mistake(lambda: POSTGRES.table("t", 3), TypeError, "pg|t|cursor"),  # type: ignore[arg-type]
    mistake(
        lambda: BigQuery(name="b", project_id="p", dataset_id="d", service_account_key="{}"),  # type: ignore[arg-type]
        ValueError,
        "b|service_account_key",
    ),
    mistake(lambda: KINESIS.stream("s", "middle", "json"), ValueError, "kin|middle|trim_horizon"),
    mistake(lambda: KINESIS.stream("s", "1700000000", "json"), ValueError, "1700000000|ISO 8601"),
    mistake(lambda: KINESIS.stream("s", "20240101", "json"), ValueError, "kin|init_position"),
    mistake(lambda: KINESIS.stream("s", None, "json"), TypeError, "kin|NoneType"),  # type: ignore[arg-type]
    mistake(lambda: KINESIS.stream("s", True, "json"), TypeError, "kin|init_position"),
    mistake(lambda: KINESIS.stream("s", date(2024, 1, 1), "json"), TypeError, "kin|init_position"),  # type: ignore[arg-type]
    mistake(lambda: KINESIS.stream("s", 1e30, "json"), ValueError, "kin|init_position"),
    mistake(lambda: at_timestamp([1]), TypeError, "list"),  # type: ignore[arg-type]
    mistake(lambda: HTTP(name="h", host="x", healthz="/", ca_cert="pem"), ValueError, "h|ca_cert|Certificate"),  # type: ignore[arg-type]
    mistake(lambda: SERVER.path("/in", limit=0), ValueError, "h|limit|0"),
    mistake(lambda: SERVER.path("/in", headers={"a": 1}), TypeError, "h|headers"),  # type: ignore[dict-item]
    mistake(lambda: Certificate(3), ValueError, "Certificate|int"),  # type: ignore[arg-type]
    # @source.
    mistake(lambda: fed(disorder="late"), ValueError, "[Webhook: web](endpoint=clicks)|disorder|late"),
    mistake(lambda: fed(disorder=3), ValueError, "disorder|3"),
    mistake(lambda: fed(since="2024-01-01"), TypeError, "since|2024-01-01"),
    mistake(lambda: fed(until=date(2024, 1, 1)), TypeError, "until|date"),
    mistake(lambda: fed(since=datetime(2024, 1, 2), until=datetime(2024, 1, 1)), ValueError, "since|until"),  # noqa: DTZ001 (naive is UTC)
    mistake(lambda: fed(env="~"), ValueError, "env|~"),
    mistake(lambda: fed(env="a b"), ValueError, "env|a b"),
    mistake(lambda: fed(env=["a", "~b"]), ValueError, "env|~b"),
    mistake(lambda: fed(starting_from=1), TypeError, "starting_from"),
    mistake(lambda: fed(preproc=[1]), TypeError, "preproc"),
    mistake(lambda: fed(preproc={"a": ref("")}), ValueError, "ref"),
    mistake(lambda: ref("a[b"), ValueError, "a[b|b"),
    mistake(lambda: ref("a[]"), ValueError, "a[]"),
    mistake(lambda: ref("a[b]c"), ValueError, "a[b]c"),
    mistake(lambda: ref("[b]"), ValueError, "[b]"),
    mistake(lambda: fed(preproc={"region": ref("place[zone]")}), ValueError, "region|place[zone]|Kafka|Files"),
    mistake(lambda: eval(3), TypeError, "eval|3"),  # type: ignore[arg-type]
    mistake(lambda: eval(col("a"), schema={"a": "nothing"}), TypeError, "schema|a"),
    mistake(lambda: eval(col("a"), schema=[int]), TypeError, "schema"),  # type: ignore[arg-type]
    mistake(lambda: fed()(3), TypeError, "@source|3"),  # type: ignore[operator]
    mistake(lambda: source(CLICKS, cdc="append"), TypeError, "disorder"),  # type: ignore[call-arg]
    mistake(lambda: source(CLICKS, disorder="1d"), TypeError, "cdc"),  # type: ignore[call-arg]
    mistake(lambda: fed(3), TypeError, "int", "2.1:anything else"),
    mistake(lambda: fed(SERVER.path("/in")), TypeError, "sink", "2.1:an HTTP connector"),
    mistake(lambda: fed(POSTGRES.table("t", "c"), every="often"), ValueError, "every"),
    mistake(lambda: fed(max_future="soon"), ValueError, "max_future"),
    *(mistake(lambda n=n: fed(id=n), TypeError, "id is the name of a field") for n in (3, [], [3])),
    mistake(lambda: fed(id="user", cdc="upsert"), ValueError, 'id is for cdc="append"|upsert|key'),
    mistake(lambda: fed(bounded=True), AttributeError, "idleness"),
    mistake(lambda: fed(idleness="1h"), AttributeError, "bounded"),
    mistake(lambda: fed(bounded=True, idleness="long"), ValueError, "idleness"),
    mistake(lambda: fed(where=col("region") == "north"), TypeError, "eval"),
    mistake(lambda: fed(where="region"), TypeError, "where"),
    *(mistake(lambda n=n: fed(sample=n), ValueError, "ample", "2.7:float outside [0, 1]") for n in (1.5, -0.1)),
    *(mistake(lambda n=n: fed(sample=n), ValueError, "ample", "2.7:2") for n in (1, 0, True, "0.5")),
    mistake(lambda: Sample(1.5, using=["a"]), ValueError, "Sample", "2.7:Sample rate outside [0, 1]"),
    mistake(lambda: Sample(float("nan"), using=["a"]), ValueError, "Sample", "2.7:Sample rate outside [0, 1]"),
    mistake(lambda: Sample(0.5, using=[]), ValueError, "Sample", "2.7:using empty or None"),
    mistake(lambda: Sample(0.5, using=None), ValueError, "Sample", "2.7:using empty or None"),  # type: ignore[arg-type]
    mistake(
        lambda: fed(sample=Sample(0.5, using=["a"]), preproc={"a": 1}),
        ValueError,
        "ample",
        "2.7:using contains a preproc key",
    ),
]


@pytest.mark.spec("connectors:0b:define")
@pytest.mark.parametrize(ROW, AT_DEFINE)
def test_mistakes_that_are_refused_where_they_are_written(
    call: Callable[[], object], error: type[Exception], facts: str
) -> None:
    check(call, error, facts)


def visits(conn: DataConnector = CLICKS, *, keyed: bool = False, **options: Any) -> DatasetSpec:
    @source(conn, **{"disorder": "1d", "cdc": "append", **options})
    @dataset
    class Visits:
        user: int = field(key=keyed)
        region: str
        spent: float
        at: datetime

    made: Any = Visits
    found: DatasetSpec = made.to_spec()
    return found


AT_COMMIT: list[Any] = [
    mistake(lambda: visits(keyed=True), ValueError, "user|append|upsert"),
    mistake(lambda: visits(cdc="upsert"), ValueError, "upsert|append"),
    mistake(lambda: visits(preproc={"region": None}), ValueError, "region|None"),
    mistake(lambda: visits(preproc={"region": ["a"]}), ValueError, "region|list"),
    mistake(lambda: visits(preproc={"spent": Decimal(1)}), ValueError, "spent|Decimal"),
    mistake(lambda: visits(preproc={"at": date(2024, 1, 1)}), ValueError, "at|date"),
    mistake(
        lambda: visits(preproc={"spent": eval(col("cents").astype(int), schema={"cents": float})}),
        TypeError,
        "spent|int|float",
        "2.5:typed expression expr.astype(T)",
    ),
    mistake(
        lambda: visits(preproc={"spent": eval(col("cents").astype(float), schema={"cents": int})}),
        TypeError,
        "spent|int|float",
        "2.5:typed expression expr.astype(T)",
    ),
    mistake(lambda: visits(where=eval((col("spent") > lit(1.0)).astype(int))), TypeError, "where|int|bool"),
]


@pytest.mark.spec("connectors:0b:commit", "connectors:2.4:append", "connectors:2.4:upsert")
@pytest.mark.parametrize(ROW, AT_COMMIT)
def test_mistakes_that_are_refused_at_commit(
    call: Callable[[], DatasetSpec], error: type[Exception], facts: str
) -> None:
    check(lambda: validate(Graph(datasets=(call(),))), error, f"Visits|{facts}")


@pytest.mark.spec("connectors:2.4:debezium", "connectors:2.4:native")
def test_what_is_right_passes() -> None:
    validate(Graph(datasets=(visits(),)))
    for cdc in ("debezium", "native"):
        validate(Graph(datasets=(visits(keyed=True, cdc=cdc),)))
        validate(Graph(datasets=(visits(cdc=cdc),)))
    validate(Graph(datasets=(visits(cdc="debezium", preproc={"spent": eval(col("c").astype(float), {"c": float})}),)))
