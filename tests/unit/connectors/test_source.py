"""Tests of `@source`: the specs that it leaves on a dataset, and the arguments that it refuses."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from caraway import dataset
from caraway.connectors import (
    CSV,
    SOURCE_FIELD,
    Avro,
    DataConnector,
    Mongo,
    MySQL,
    Protobuf,
    Sample,
    eval,  # noqa: A004 (the API's name)
    ref,
    source,
)
from caraway.errors import CommitError
from caraway.expr import col, lit
from caraway.graph.connectors import WebhookConnector
from caraway.graph.sources import Cdc, Computed, Constant, Ref, SampleSpec, SourceSpec
from caraway.graph.specs import DatasetSpec
from tests.unit.connectors.systems import BIG, BROKERS, CLICKS, GOOGLE, LAKE, LOGIN, POSTGRES, RED, SNOW, STREAM, WEB

DAY_US = 86_400_000_000
MINUTE_US = 60_000_000


@source(CLICKS, disorder="1d", cdc="append")
@dataset
class Clicks:
    user: int
    at: datetime
    region: str


SOURCED: Any = Clicks
PLAIN: DatasetSpec = SOURCED.to_spec()


def spec(conn: Any = CLICKS, **options: Any) -> SourceSpec:
    # This does what `@dataset` does with a source, without making a dataset each time.
    body = source(conn, **{"disorder": "1d", "cdc": "append", **options})(type("Clicks", (), {}))
    found: SourceSpec = vars(body)[SOURCE_FIELD][0].source_spec(PLAIN)
    return found


def test_what_is_left_is_the_source_as_a_value() -> None:
    assert PLAIN.sources == (spec(),)
    assert spec() == SourceSpec(
        connector=WebhookConnector(name="web", endpoint="clicks", retention_us=14 * DAY_US),
        disorder_us=DAY_US,
        cdc=Cdc.APPEND,
    )


def row(names: str, *case: object) -> Any:
    return pytest.param(*case, marks=[pytest.mark.spec(f"connectors:{name}") for name in names.split("|") if name])


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        row("2.2:disorder", {"disorder": "1h 30m"}, {"disorder_us": 90 * MINUTE_US}),
        row("2.2:env", {"env": "prod"}, {"env": ("prod",)}),
        row("2.2:env", {"env": ["~a", "~b"]}, {"env": ("~a", "~b")}),
        row("", {"max_future": "5m"}, {"max_future_us": 5 * MINUTE_US}),
        row(
            "2.2:bounded|2.2:idleness|2.3:bounded/idleness",
            {"bounded": True, "idleness": "1h"},
            {"bounded": True, "idleness_us": 60 * MINUTE_US},
        ),
        row("2.2:sample", {"sample": 0.25}, {"sample": SampleSpec(rate=0.25)}),
        row("", {"sample": Sample(0.5, using=["user"])}, {"sample": SampleSpec(rate=0.5, using=("user",))}),
    ],
)
def test_options_are_kept(options: dict[str, Any], kept: dict[str, Any]) -> None:
    made = spec(**options)
    assert {name: getattr(made, name) for name in kept} == kept


@pytest.mark.spec("connectors:2.1:a DataConnector", "connectors:2.9:1")
def test_decorators_apply_from_below_and_copy_the_connector() -> None:
    shared = WEB.endpoint("shared")

    @source(shared, disorder="1d", cdc="append", env="above")
    @dataset
    @source(shared, disorder="2d", cdc="append", env="upper")
    @source(shared, disorder="3d", cdc="append", env="lowest")
    class Clicks:
        user: int
        at: datetime

    kept: list[DataConnector] = getattr(Clicks, SOURCE_FIELD)
    assert [connector.envs for connector in kept] == ["lowest", "upper", "above"]
    assert all(connector is not shared and connector.data_source is not WEB for connector in kept)
    assert shared.disorder is None
    made: Any = Clicks
    assert [s.disorder_us for s in made.to_spec().sources] == [3 * DAY_US, 2 * DAY_US, DAY_US]


@pytest.mark.spec("connectors:2.9:7")
def test_one_connector_feeds_several_datasets() -> None:
    feed = source(CLICKS, disorder="1d", cdc="append", preproc={"region": "north"})

    @feed
    @dataset
    class First:
        region: str
        at: datetime

    @feed
    @dataset
    class Second:
        region: str
        at: datetime

    both: list[Any] = [First, Second]
    assert both[0].to_spec().sources == both[1].to_spec().sources
    assert getattr(First, SOURCE_FIELD)[0] is not getattr(Second, SOURCE_FIELD)[0]


def test_a_subclass_of_what_is_sourced_has_no_source_of_it() -> None:
    @source(CLICKS, disorder="1d", cdc="append")
    class Body:
        user: int
        at: datetime

    @source(WEB.endpoint("other"), disorder="1d", cdc="append")
    class Other(Body):
        pass

    assert [c.endpoint for c in vars(Body)[SOURCE_FIELD]] == ["clicks"]
    assert [c.endpoint for c in vars(Other)[SOURCE_FIELD]] == ["other"]


@pytest.mark.spec("connectors:2.2:cdc")
def test_cdc_is_checked_at_commit() -> None:
    for cdc in Cdc:
        assert spec(cdc=str(cdc)).cdc is cdc
    with pytest.raises(CommitError) as caught:
        spec(cdc="insert")
    assert all(
        fact in str(caught.value) for fact in ("Clicks", "[Webhook: web](endpoint=clicks)", "'insert'", "upsert")
    )


@pytest.mark.spec("connectors:2.2:every", "connectors:2.3:every", "connectors:12:every default")
def test_every_counts_where_one_asks_for_rows() -> None:
    table = POSTGRES.table("t", cursor="c")
    assert spec(table).every_us == 30 * MINUTE_US
    assert spec(table, every="5m").every_us == 5 * MINUTE_US
    assert spec(LAKE.bucket("b", prefix="p"), every="1h").every_us == 60 * MINUTE_US
    for pushed in (CLICKS, BROKERS.topic("t"), STREAM, GOOGLE):
        assert spec(pushed, every="5m").every_us is None


@pytest.mark.spec(
    "connectors:2.2:since, until",
    "connectors:2.3:applicability",
    "connectors:12:since/until for Webhook, PubSub",
)
@pytest.mark.parametrize("connector", [CLICKS, GOOGLE, BROKERS.topic("t"), POSTGRES.table("t", "c")])
def test_bounds_are_in_utc(connector: DataConnector) -> None:
    aware = datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    made = spec(connector, since=aware, until=datetime(2024, 1, 2))  # noqa: DTZ001 (naive is UTC)
    midnight_us = 1_704_067_200_000_000
    assert (made.since_us, made.until_us) == (midnight_us, midnight_us + DAY_US)
    assert spec(connector, since=aware, until=datetime(2024, 1, 1, tzinfo=UTC)).until_us == midnight_us


@pytest.mark.spec("connectors:2.2:preproc")
def test_preproc_keeps_its_order() -> None:
    made = spec(preproc={"region": ref("zone"), "user": eval(col("id") + lit(1), schema={"id": int}), "at": 5})
    assert [name for name, _ in made.preproc] == ["region", "user", "at"]
    first, second, third = (value for _, value in made.preproc)
    assert first == Ref(path=("zone",))
    assert isinstance(second, Computed)
    assert [name for name, _ in second.schema] == ["id"]
    assert isinstance(third, Constant)
    assert third.value == 5


@pytest.mark.spec("connectors:2.2:where", "connectors:2.6:callable", "connectors:2.6:eval(callable, schema)")
def test_where_takes_functions_and_eval() -> None:
    made = spec(where=lambda df: df["region"] == "north").where
    assert made is not None
    assert "north" in made.by.source_code  # type: ignore[union-attr]
    declared = spec(where=eval(lambda df: df["kind"] == "x", schema={"kind": str})).where
    assert declared is not None
    assert [name for name, _ in declared.schema] == ["kind"]


@pytest.mark.spec("connectors:2.1:a bare DataSource")
@pytest.mark.parametrize(
    ("bare", "missing"),
    [
        (WEB, ".endpoint("),
        (BROKERS, ".topic("),
        (LAKE, ".bucket("),
        (POSTGRES, "cursor"),
        (MySQL(name="my", **LOGIN), "cursor"),
        (SNOW, "cursor"),
        (BIG, "cursor"),
        (RED, "cursor"),
        (Mongo(name="mo", **LOGIN), ".collection("),
        (STREAM.data_source, ".stream("),
        (GOOGLE.data_source, ".topic("),
    ],
)
def test_a_bare_system_says_what_is_missing(bare: object, missing: str) -> None:
    with pytest.raises(TypeError) as caught:
        source(bare, "1d", "append")  # type: ignore[arg-type]
    assert missing in str(caught.value)


AVRO = Avro(registry="confluent", url="http://r")
PROTOBUF = Protobuf(registry="confluent", url="http://r", token="t")
NESTED_IS_POSSIBLE = [
    BROKERS.topic("t"),
    BROKERS.topic("t", None),
    BROKERS.topic("t", AVRO),
    BROKERS.topic("t", PROTOBUF),
    LAKE.bucket("b", prefix="p", format="json"),
    STREAM,
    GOOGLE,
]
NESTED_IS_REFUSED = [
    CLICKS,
    LAKE.bucket("b", prefix="p"),
    LAKE.bucket("b", prefix="p", format=CSV(delimiter=";")),
    LAKE.bucket("b", prefix="p", format="parquet"),
    POSTGRES.table("t", "c"),
    SNOW.table("t", "c"),
    BIG.table("t", "c"),
    RED.table("t", "c"),
]


@pytest.mark.parametrize("connector", NESTED_IS_POSSIBLE, ids=repr)
def test_references_lead_into_structs_where_records_have_them(connector: DataConnector) -> None:
    made = spec(connector, preproc={"region": ref("place[zone][name]")})
    assert made.preproc == (("region", Ref(path=("place", "zone", "name"))),)


@pytest.mark.parametrize("connector", NESTED_IS_REFUSED, ids=repr)
def test_references_lead_into_structs_nowhere_else(connector: DataConnector) -> None:
    # The connector stands behind a plain one, and is checked all the same.
    with pytest.raises(ValueError, match="region"):
        source(connector, "1d", "append", preproc={"user": ref("id"), "region": ref("place[zone]")})


@pytest.mark.spec("connectors:2.4b:S3 delta")
def test_delta_is_read_natively_only() -> None:
    delta = LAKE.bucket("b", prefix="p", format="delta")
    assert spec(delta, cdc="native").cdc is Cdc.NATIVE
    for cdc in ("append", "upsert", "debezium"):
        with pytest.raises(ValueError, match="native"):
            source(delta, "1d", cdc)
