"""Queries of the mock: inputs, resolution, result frames."""

# ruff: noqa: ANN001, ANN202 (definitions as users write them)
# Checkers see classes where decorators make datasets and featuresets.
# mypy: disable-error-code="no-untyped-def, attr-defined, arg-type, list-item, assignment, no-redef"
# mypy: disable-error-code="type-arg, valid-type"

from datetime import UTC, date, datetime
from decimal import Decimal as Number
from typing import Any, Dict, List, Optional

import numpy as np
import pandas as pd
import pytest

from caraway import F, dataset, extractor, featureset, field
from caraway.connectors import source
from caraway.dtypes import Decimal, Embedding, between, oneof, regex, struct
from caraway.errors import InvalidInputError
from caraway.expr import col, now
from caraway.lib import inputs, outputs
from caraway.testing import MockClient
from tests.unit.testing.shop import DATASETS, HOUR, T0, Buyer, Request, Users, committed, filled, hook, users

__owner__ = "tests@example.com"


@struct
class Residence:
    city: str
    zip: Optional[int]


# For each field its type, a value, and the dtype of its column.
FIELDS: dict[str, tuple[Any, Any, str]] = {
    "number": (int, 3, "Int64"),
    "share": (float, 0.5, "Float64"),
    "flag": (bool, True, "boolean"),
    "text": (str, "a", "string"),
    "raw": (bytes, b"\x00", "object"),
    "when": (datetime, T0, "datetime64[ns, UTC]"),
    "day": (date, date(2024, 5, 1), "object"),
    "price": (Decimal[2], Number("1.50"), "decimal128(28, 2)[pyarrow]"),
    "level": (between(int, 0, 5), 2, "Int64"),
    "color": (oneof(str, ["red", "blue"]), "red", "string"),
    "code": (regex("[a-z]+"), "abc", "string"),
    "many": (List[int], [1, 2], "object"),
    "pairs": (Dict[str, float], {"x": 1.0}, "object"),
    "vector": (Embedding[2], [0.5, 1.5], "object"),
}
TYPES = {**{name: kind for name, (kind, _, _) in FIELDS.items()}, "place": Residence}
VALUES = {name: value for name, (_, value, _) in FIELDS.items()}
KEYED = {"__module__": __name__, "key": field(key=True), "at": field(timestamp=True)}
THINGS = {**KEYED, "__annotations__": {"key": int, **TYPES, "at": datetime}}
Things: Any = source(hook.endpoint("things"), disorder="1d", cdc="upsert")(
    dataset(index=True)(type("Things", (), THINGS))
)
LOOKUPS = {name: F(getattr(Things, name)) for name in TYPES}
OPTIONAL = {"key": int, **{name: Optional[kind] for name, kind in TYPES.items()}}
Thing: Any = featureset(type("Thing", (), {"__module__": __name__, "__annotations__": OPTIONAL, **LOOKUPS}))


@pytest.fixture(scope="module")
def things() -> MockClient:
    client = committed([Things], [Thing])
    row = {"key": 1, **VALUES, "place": {"city": "Rome", "zip": None}, "at": T0}
    client.log("shop", "things", pd.DataFrame([row]))
    return client


@pytest.mark.spec("featuresets:5.4:1", "featuresets:5.4:2", "featuresets:5.4:3", "featuresets:5.4:4")
@pytest.mark.spec("featuresets:5.4:5", "featuresets:5.4:6")
@pytest.mark.spec("types:15:9")
@pytest.mark.parametrize(("feature", "dtype"), [(name, dtype) for name, (_, _, dtype) in FIELDS.items()])
def test_looked_up_columns_have_the_dtypes_of_the_contract(things: MockClient, feature: str, dtype: str) -> None:
    name = f"Thing.{feature}"
    result = things.query([Thing.key], [name], pd.DataFrame({"Thing.key": [1, 2]}))
    assert str(result[name].dtype) == dtype
    value, absent = result[name].tolist()
    assert value == VALUES[feature]
    assert absent is (pd.NaT if feature == "when" else pd.NA)
    rows = things.query_rows([Thing.key], [name], pd.DataFrame({"Thing.key": [1, 2]}))
    assert rows == [{name: VALUES[feature]}, {name: None}]
    assert things.query_rows([Thing.key], [name], [{"Thing.key": 1}, {"Thing.key": 2}]) == rows


@pytest.mark.spec("featuresets:5.4:5")
def test_looked_up_structs_are_instances_and_supplied_ones_mappings(things: MockClient) -> None:
    frame = pd.DataFrame({"Thing.key": [1, 2]})
    found, absent = things.query([Thing.key], [Thing.place], frame)["Thing.place"].tolist()
    assert isinstance(found, Residence)
    assert found == Residence(city="Rome", zip=None)
    assert absent is pd.NA
    given = pd.DataFrame({"Thing.place": [Residence(city="Bari", zip=7)]})
    echoed = things.query([Thing.place], [Thing.place], given)["Thing.place"].tolist()
    assert echoed == [{"city": "Bari", "zip": 7}]
    assert type(echoed[0]) is dict


def test_values_of_python_come_out_of_every_column() -> None:
    client = filled()
    frame = pd.DataFrame({"Request.user": [1], "Request.limit": [None]})
    result = client.query([Request.user, Request.limit], [Buyer], frame)
    assert [type(result[name].tolist()[0]) for name in result] == [int, str, str, float, int, bool, str, bool]


@pytest.mark.spec("featuresets:5.3:inputs", "featuresets:5.3:outputs", "featuresets:5.3:input_dataframe")
def test_columns_are_in_the_order_wanted_and_each_appears_once() -> None:
    client = filled()
    frame = pd.DataFrame({"extra": [0, 0], "Request.user": [2, 1], "Request.limit": [1.0, 1.0]}, index=[7, 3])
    wanted = ["Buyer.orders", Buyer, Buyer.orders, Request.user]
    result = client.query(["Request.user", Request.limit], wanted, frame)
    assert list(result) == [
        "Buyer.orders",
        *(f"Buyer.{n}" for n in ("user", "name", "city", "mean", "is_regular", "greeting", "is_rich")),
        "Request.user",
    ]
    assert result.index.tolist() == [0, 1]
    assert result["Buyer.name"].tolist() == ["Bob", "Anna"]
    by_name = client.query(["Request.user", "Request.limit"], ["Buyer"], frame)
    assert by_name["Buyer.name"].tolist() == ["Bob", "Anna"]
    assert client.query([Request.user], [], frame).empty
    assert client.query([Request.user], [Buyer.name], frame.head(0)).shape == (0, 0)


@pytest.mark.spec("types:15:8")
def test_inputs_given_as_objects_are_cast_on_a_copy_and_by_name() -> None:
    client = filled()
    frame = pd.DataFrame({"Request.limit": ["1.5", None], "Request.user": ["1", 2.0]})
    before = frame.copy()
    result = client.query([Request.user, Request.limit], [Request.user, Request.limit, Buyer.name], frame)
    assert result["Request.user"].tolist() == [1, 2]
    assert result["Request.limit"].tolist() == [1.5, pd.NA]
    assert result["Buyer.name"].tolist() == ["Anna", "Bob"]
    pd.testing.assert_frame_equal(frame, before)


def test_inputs_given_by_name_are_untouched_and_fail_where_they_are_read() -> None:
    client = filled()
    frame = pd.DataFrame({"Request.user": ["one"], "Request.limit": np.array([2], dtype=np.int8)})
    echoed = client.query(["Request.user", "Request.limit"], ["Request.user", "Request.limit"], frame)
    assert echoed["Request.user"].tolist() == ["one"]
    assert echoed["Request.limit"].dtype == np.int8
    with pytest.raises(InvalidInputError, match=r"Request\.user.*one"):
        client.query(["Request.user"], [Buyer.name], frame)


def test_restrictions_are_not_enforced_on_inputs(things: MockClient) -> None:
    frame = pd.DataFrame({"Thing.level": [9]})
    assert things.query([Thing.level], [Thing.level], frame)["Thing.level"].tolist() == [9]


def test_a_feature_that_is_not_committed_is_echoed() -> None:
    @featureset
    class Stranger:
        x: int

    client = filled()
    frame = pd.DataFrame({"Stranger.x": [4], "Request.user": [1], "Buyer.z": ["?"]})
    result = client.query([Stranger.x, Request.user, "Buyer.z"], [Stranger.x, Buyer.name, "Buyer.z"], frame)
    assert result.iloc[0].tolist() == [4, "Anna", "?"]


def test_a_supplied_feature_wins_and_suppresses_what_only_it_needs() -> None:
    client = filled()
    frame = pd.DataFrame({"Buyer.name": ["Zoe"]})
    result = client.query([Buyer.name], [Buyer.greeting, Buyer.name], frame)
    assert result.iloc[0].tolist() == ["Hello Zoe", "Zoe"]


def test_what_an_extractor_returns_stays_as_it_is() -> None:
    @featureset
    class Raw:
        x: int
        flag: bool
        small: float
        copy: bool = F(Request.raw) if hasattr(Request, "raw") else F()

        @extractor
        @inputs("x")
        @outputs("flag", "small", "copy")
        def compute(cls, ts, x):
            values = x.to_numpy(dtype=np.int64)
            return pd.DataFrame({"small": values, "flag": values > 1, "copy": pd.array(values > 1, dtype="boolean")})

    @featureset
    class Alias:
        flag: bool = F(Raw.flag)

    client = committed(featuresets=[Raw, Alias])
    result = client.query([Raw.x], [Raw.flag, Raw.small, Raw.copy, Alias.flag], pd.DataFrame({"Raw.x": [1, 2]}))
    assert [str(dtype) for dtype in result.dtypes] == ["bool", "int64", "boolean", "bool"]
    assert result["Alias.flag"].tolist() == [False, True]


@pytest.mark.spec("featuresets:2.3:7")
def test_lists_of_keys_are_looked_up_element_by_element() -> None:
    @featureset
    class Group:
        user: List[Optional[int]]
        name: List[str] = F(Users.name, default="nobody")
        city: List[Optional[str]] = F(Users.city)

    client = committed(DATASETS, [Group])
    client.log("shop", "users", users((1, "Ann", "Rome", T0), (2, "Bob", None, T0 + HOUR)))
    frame = pd.DataFrame({"Group.user": [[1, 2, 9], [], [2, None]]})
    result = client.query([Group.user], [Group.name, Group.city], frame)
    assert result["Group.name"].tolist() == [["Ann", "Bob", "nobody"], [], ["Bob", "nobody"]]
    assert result["Group.city"].tolist() == [["Rome", pd.NA, pd.NA], [], [pd.NA, pd.NA]]
    past = client.query([Group.user], [Group.name], frame, timestamps=[T0, T0, T0])
    assert past["Group.name"].tolist() == [["Ann", "nobody", "nobody"], [], ["nobody", "nobody"]]
    with pytest.raises(ValueError, match=r"Group\.user"):
        client.query(["Group.user"], [Group.name], pd.DataFrame({"Group.user": [1]}))


@pytest.mark.spec("featuresets:5.5:timestamp_column", "featuresets:5.5:workflow", "featuresets:5.5:use_v2")
@pytest.mark.spec("featuresets:5.5:num_dpus", "featuresets:5.5:input_dataframe", "featuresets:5.5:1")
def test_an_offline_query_reads_each_row_at_its_time() -> None:
    @featureset
    class Clock:
        hour: int = F(now().dt.hour)
        late: bool = F(col("hour") > 1)
        seen: datetime

        @extractor
        @outputs("seen")
        def look(cls, ts):
            return ts.rename("seen")

    client = filled()
    client.commit("clock", featuresets=[Clock], incremental=True)
    times = ["2024-05-01", T0.timestamp() + 7200, int((T0 + 3 * HOUR).timestamp() * 1_000)]
    frame = pd.DataFrame({"Request.user": [1, 1, 9], "t": times})
    result = client.query_offline(
        [Request.user], [Buyer.name, Buyer.orders, Clock], "t", frame, workflow="w", use_v2=False, num_dpus=1
    )
    assert list(result) == ["Buyer.name", "Buyer.orders", "Clock.hour", "Clock.late", "Clock.seen", "t"]
    assert result["Buyer.name"].tolist() == ["Ann", "Anna", "nobody"]
    assert result["Buyer.orders"].tolist() == [1, 2, 0]
    assert result["Clock.hour"].tolist() == [0, 2, 3]
    assert str(result["t"].dtype) == "datetime64[ns, UTC]"
    assert result["t"].tolist() == result["Clock.seen"].tolist() == [T0, T0 + 2 * HOUR, T0 + 3 * HOUR]
    assert frame["t"].tolist() == times
    # An order at T0 isn't seen by a row of T0 that asks what was before.
    before = client.query_offline([Request.user], [Buyer.orders], "t", frame, before=True)
    assert before["Buyer.orders"].tolist() == [0, 2, 0]
    assert before["t"].tolist() == result["t"].tolist()
    assert client.query_offline([Request.user], [Buyer.name], "t", frame.head(0)).empty
    assert client.track_offline_query("x").status_code == client.cancel_offline_query("x").status_code == 404


def test_now_is_one_instant_for_all_rows() -> None:
    @featureset
    class Clock:
        at: datetime = F(now())
        x: int

    client = committed(featuresets=[Clock])
    result = client.query([Clock.x], [Clock.at], pd.DataFrame({"Clock.x": [1, 2]}))["Clock.at"]
    assert result[0] == result[1]
    assert abs((result[0] - datetime.now(UTC)).total_seconds()) < 60
