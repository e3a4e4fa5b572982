"""Tests of `@sink`: its arguments, and the table of those that it refuses."""

from datetime import UTC, datetime
from typing import Any

import pytest

from caraway import dataset
from caraway.connectors import (
    S3,
    SINK_FIELD,
    Avro,
    DataConnector,
    sink,
)
from caraway.connectors.connectors import SnapshotData
from caraway.errors import CommitError
from caraway.graph.envs import for_env
from caraway.graph.sources import Cdc, SinkSpec
from caraway.graph.specs import DatasetSpec, Graph
from caraway.graph.validation.datasets import sinks_are_fed
from caraway.graph.validation.scope import CheckedGraph
from tests.unit.connectors.systems import BROKERS, LAKE, POSTGRES, SERVER, SNOW, WEB

HOUR_US = 3_600_000_000
KAFKA = BROKERS.topic("t")
DELTA = LAKE.bucket("b", prefix="p", format="delta")
TABLE = SNOW.table("t")
AT = datetime(2024, 1, 1, tzinfo=UTC)

OPTIONS: dict[str, dict[str, Any]] = {
    "Kafka": {"conn": KAFKA, "cdc": "debezium"},
    "HTTP": {"conn": SERVER.path("/in"), "cdc": "debezium"},
    "S3": {"conn": DELTA, "how": "incremental"},
    "Snowflake": {"conn": TABLE, "how": "incremental"},
}


def sunk(**options: Any) -> Any:
    @sink(**options)
    @dataset
    class Totals:
        user: int
        at: datetime

    made: Any = Totals
    return made


PLAIN: DatasetSpec = sunk(conn=KAFKA, cdc="debezium").to_spec()


def spec(**options: Any) -> SinkSpec:
    # This does what `@dataset` does with a sink, without making a dataset each time.
    found: SinkSpec = vars(sink(**options)(type("Totals", (), {})))[SINK_FIELD][0].sink_spec(PLAIN)
    return found


@pytest.mark.parametrize("kind", ["Kafka", "HTTP"])
def test_streams_get_changes(kind: str) -> None:
    conn: DataConnector = OPTIONS[kind]["conn"]
    expected = SinkSpec(connector=conn.spec(), cdc=Cdc.DEBEZIUM)
    assert spec(**OPTIONS[kind]) == expected
    assert spec(**OPTIONS[kind], how="incremental").how == "incremental"
    assert not spec(**OPTIONS[kind]).create


@pytest.mark.spec("connectors:12:renames on sinks")
@pytest.mark.parametrize("kind", ["S3", "Snowflake"])
def test_tables_get_rows(kind: str) -> None:
    conn: DataConnector = OPTIONS[kind]["conn"]
    expected = SinkSpec(connector=conn.spec(), how="incremental", create=True, every_us=HOUR_US)
    assert spec(**OPTIONS[kind]) == expected
    made = spec(**OPTIONS[kind], every="2h", renames={"user": "u"}, since=AT, until=AT, env="prod")
    assert (made.every_us, made.renames, made.env) == (2 * HOUR_US, (("user", "u"),), ("prod",))
    assert made.since_us == made.until_us == 1_704_067_200_000_000


def rows(name: str, *cells: tuple[str, dict[str, Any], str]) -> list[Any]:
    marker = pytest.mark.spec(f"connectors:4.1:{name}")
    return [pytest.param(kind, options, fact, marks=marker) for kind, options, fact in cells]


S3_KEYS = S3(name="s", aws_access_key_id="i", aws_secret_access_key="k").bucket("b", prefix="p", format="delta")
S3_SECRET = S3(name="s", aws_secret_access_key="k").bucket("b", prefix="p", format="delta")
S3_ROLE = S3(name="s", role_arn="r").bucket("b", prefix="p", format="delta")
AVRO = KAFKA.data_source.topic("t", Avro(registry="confluent", url="r"))

REFUSED = [
    *rows(
        "cdc",
        *((kind, {"cdc": cdc}, "debezium") for kind in ("Kafka", "HTTP") for cdc in (None, "append", "upsert")),
        *((kind, {"cdc": "debezium"}, "cdc") for kind in ("S3", "Snowflake")),
    ),
    *rows(
        "format",
        ("Kafka", {"conn": AVRO}, "json"),
        ("Kafka", {"conn": KAFKA.data_source.topic("t", "csv")}, "csv"),
        ("Kafka", {"conn": KAFKA.data_source.topic("t", None)}, "json"),
        ("S3", {"conn": LAKE.bucket("b", prefix="p")}, "delta"),
        ("S3", {"conn": LAKE.bucket("b", prefix="p", format="parquet")}, "parquet"),
    ),
    *rows(
        "every",
        *((kind, {"every": "1h"}, "every") for kind in ("Kafka", "HTTP")),
        *((kind, {"every": "often"}, "every") for kind in ("S3", "Snowflake")),
    ),
    *rows(
        "how",
        *((kind, {"how": how}, "incremental") for kind in OPTIONS for how in ("recreate", SnapshotData("m", 3), "x")),
        *((kind, {"how": None}, "incremental") for kind in ("S3", "Snowflake")),
    ),
    *rows(
        "renames",
        *((kind, {"renames": {"user": "u"}}, "renames") for kind in ("Kafka", "HTTP")),
        *((kind, {"renames": [1]}, "renames") for kind in ("S3", "Snowflake")),
    ),
    *rows(
        "since/until",
        *((kind, {name: AT}, name) for kind in ("Kafka", "HTTP") for name in ("since", "until")),
        *((kind, {"since": AT, "until": datetime(2023, 1, 1, tzinfo=UTC)}, "since") for kind in ("S3", "Snowflake")),
    ),
    *rows(
        "credentials",
        ("S3", {"conn": S3_KEYS}, "aws_access_key_id"),
        ("S3", {"conn": S3_SECRET}, "aws_secret_access_key"),
        ("S3", {"conn": S3_ROLE}, "role_arn"),
    ),
    # A table has one place, and each of these paths stands for several.
    *(("S3", {"conn": LAKE.bucket("b", path=path, format="delta")}, "prefix=") for path in ("a/*", "%Y/**", "a/%Y")),
    *rows("cursor", ("Snowflake", {"conn": SNOW.table("t", cursor="c")}, "cursor")),
]


@pytest.mark.parametrize(("kind", "options", "fact"), REFUSED)
def test_what_is_refused(kind: str, options: dict[str, Any], fact: str) -> None:
    sink(**OPTIONS[kind])
    with pytest.raises(ValueError) as caught:
        sink(**{**OPTIONS[kind], **options})
    assert fact in str(caught.value)
    assert f"[{kind}: " in str(caught.value)


def test_a_plain_path_is_a_prefix() -> None:
    by_path = spec(**{**OPTIONS["S3"], "conn": LAKE.bucket("b", path="a/b", format="delta")})
    assert by_path == spec(**{**OPTIONS["S3"], "conn": LAKE.bucket("b", prefix="a/b", format="delta")})


@pytest.mark.parametrize(
    ("conn", "fact"),
    [
        (3, "int"),
        (KAFKA.data_source, ".topic("),
        (SNOW, ".table("),
        (WEB.endpoint("e"), "[Webhook: web]"),
        (POSTGRES.table("t", "c"), "[Postgres: pg]"),
    ],
)
def test_what_takes_no_rows_is_a_value_error(conn: Any, fact: str) -> None:
    with pytest.raises(ValueError) as caught:
        sink(conn, cdc="debezium")
    assert fact in str(caught.value)


def test_sinks_stand_above_and_below_and_share_no_connector() -> None:
    @sink(KAFKA, cdc="debezium", env="upper")
    @dataset
    @sink(KAFKA, cdc="debezium", env="lower")
    class Totals:
        user: int
        at: datetime

    kept = getattr(Totals, SINK_FIELD)
    assert [connector.envs for connector in kept] == ["lower", "upper"]
    assert KAFKA.envs is None
    made: Any = Totals
    graph = for_env(Graph(datasets=(made.to_spec(),)), "upper")
    assert [s.env for s in graph.datasets[0].sinks] == [("upper",)]


def test_a_sink_goes_onto_a_dataset() -> None:
    with pytest.raises(TypeError, match="int"):
        sink(KAFKA, cdc="debezium")(3)


@pytest.mark.spec("connectors:2.9:5")
def test_what_no_pipeline_fills_has_no_sink() -> None:
    scope = CheckedGraph(Graph(datasets=(PLAIN,)))
    with pytest.raises(CommitError, match="Totals has neither a source nor a pipeline"):
        sinks_are_fed(scope)
