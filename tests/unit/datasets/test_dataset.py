# Checkers see classes where decorators make datasets and featuresets, and wrong arguments are tested here.
# mypy: disable-error-code="arg-type, attr-defined, misc, union-attr"
import pickle
from collections.abc import Callable
from datetime import date, datetime
from typing import Any, List, Optional, Union  # noqa: UP035 (what users write)

import pandas as pd
import pytest

from caraway.connectors import Webhook, source
from caraway.datasets import Dataset, dataset, field, index
from caraway.dtypes import struct
from caraway.dtypes.types import DATETIME, INT
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.graph.connectors import WebhookConnector
from caraway.graph.runtime import DatasetHandle
from caraway.graph.specs import IndexSpec
from caraway.lib import desc, meta

__owner__ = "module@example.com"


@meta(owner="ana@example.com", description="levels", tags=["water"])
@dataset(index=True, version=2, history="90d")
class Tank:
    # which one
    # of them
    tank: int = field(key=True)
    litres: float = field().meta(description="how full")
    # a name
    name: Optional[str]

    seen: datetime


@dataset
class Reading:
    tank: int
    litres: float = 5
    at: datetime


def test_attributes() -> None:
    assert [str(f) for f in Tank.fields] == ["tank", "litres", "name", "seen"]
    assert (Tank.key_fields, Tank.timestamp_field, Tank.erase_key_fields, Tank.is_terminal) == (
        ["tank"],
        "seen",
        [],
        False,
    )
    assert Tank.litres.fqn() == "Tank.litres"
    assert str(Tank.name) == "name"
    assert Tank.name.is_optional()
    assert [desc(f) for f in Tank.fields] == ["which one\nof them", "how full", "a name", ""]
    assert desc(Tank) == "levels"
    assert Dataset["anything"] == "anything"
    with pytest.raises(AttributeError, match="Tank has no field depth; fields: tank"):
        _ = Tank.depth


def test_schema_is_keys_values_timestamp() -> None:
    assert Tank.schema() == {
        "tank": pd.Int64Dtype,
        "litres": pd.Float64Dtype,
        "name": Optional[pd.StringDtype],
        "seen": datetime,
    }
    assert Tank.schema() is not Tank.schema()


def test_spec() -> None:
    spec = Tank.to_spec()
    assert (spec.name, spec.version, spec.history_us) == ("Tank", 2, 90 * 86_400_000_000)
    assert spec.metadata.owner == "ana@example.com"
    assert spec.keys == ("tank",)
    assert Reading.to_spec().metadata.owner == "module@example.com"
    assert Reading.to_spec().index is None


def test_metadata_may_stand_below() -> None:
    @dataset
    @meta(owner="below@example.com")
    class Below:
        at: datetime

    assert Below.to_spec().metadata.owner == "below@example.com"


def test_a_dataset_is_shipped_as_a_handle() -> None:
    handle = pickle.loads(pickle.dumps(Tank))  # noqa: S301 (our own)
    assert handle == DatasetHandle("Tank", ("tank",), ("tank", "litres", "name", "seen"))
    assert handle.litres == "litres"
    assert pickle.loads(pickle.dumps(Tank.litres)) == "litres"  # noqa: S301 (our own)


def body(annotations: dict[str, Any], **values: Any) -> type:
    return type("Bad", (), {"__annotations__": annotations, **values})


KEYED = {"k": int, "at": datetime}


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        # The table of 2.1.
        ({}, None),
        ({"index": True}, (True, True)),
        ({"index": True, "offline": False}, (True, False)),
        ({"index": True, "online": False}, (False, True)),
        ({"index": True, "online": False, "offline": False}, (False, False)),
        ({"online": True}, (True, False)),
        ({"online": True, "offline": False}, (True, False)),
        ({"offline": True}, (False, True)),
    ],
)
def test_index_flags(flags: dict[str, bool], expected: tuple[bool, bool] | None) -> None:
    spec = dataset(**flags)(body(KEYED, k=field(key=True))).to_spec()
    assert spec.index == (None if expected is None else IndexSpec(online=expected[0], offline=expected[1]))


@pytest.mark.parametrize(
    "flags", [{"index": True, "online": True}, {"index": True, "offline": True}, {"online": True, "offline": True}]
)
def test_index_flags_that_contradict(flags: dict[str, bool]) -> None:
    with pytest.raises(DefinitionError, match="Bad"):
        dataset(**flags)(body(KEYED, k=field(key=True)))


def test_index_decorator() -> None:
    made = index(dataset(body(KEYED, k=field(key=True))))
    assert made.to_spec().index == IndexSpec(online=True, offline=True)
    offline_less = index(online=True, offline=None)(dataset(body(KEYED, k=field(key=True))))
    assert offline_less.to_spec().index == IndexSpec(online=True, offline=False)
    with pytest.raises(DefinitionError, match="Bad is indexed already"):
        index(made)
    with pytest.raises(DefinitionError, match="no keys"):
        index(dataset(body({"at": datetime})))
    with pytest.raises(DefinitionError, match="onto a dataset"):
        index(body(KEYED))
    with pytest.raises(DefinitionError, match='"primary"'):
        index(type="secondary")
    with pytest.raises(DefinitionError, match='"forever" or None'):
        index(offline="1d")


@struct
class A:
    x: int


@struct
class B:
    x: int


def make(annotations: dict[str, Any], values: dict[str, Any] | None = None, **flags: Any) -> Callable[[], Any]:
    return lambda: dataset(**flags)(body(annotations, **(values or {})))


@pytest.mark.parametrize(
    ("wrong", "error", "facts"),
    [
        # 2.1
        (make(KEYED, history=5), DefinitionTypeError, ["Bad", "history"]),
        (make(KEYED, history="5x"), DefinitionError, ["Bad", "history", "x"]),
        (make(KEYED, index=True), DefinitionError, ["Bad", "no keys"]),
        # 2.3
        (lambda: field(erase_key=True), DefinitionError, ["erase key"]),
        (lambda: field(erase_key=True, timestamp=True), DefinitionError, ["erase key"]),
        (lambda: field(key=True, timestamp=True), DefinitionError, ["key and timestamp"]),
        (lambda: field().meta(deleted=True), DefinitionError, ["deleted"]),
        (lambda: field().meta(deprecated=True), DefinitionError, ["deprecated"]),
        (lambda: field().meta(owner="nobody"), DefinitionError, ["nobody", "email"]),
        # 2.4
        (make({"k": int}), DefinitionError, ["Bad", "timestamp"]),
        (make({"k": Optional[datetime]}), DefinitionError, ["Bad", "timestamp"]),
        (make({"k": datetime}, {"k": field(key=True)}), DefinitionError, ["Bad", "timestamp"]),
        (make({"a": datetime, "b": datetime}), DefinitionError, ["Bad", "a, b", "mark one"]),
        (
            make({"a": datetime, "b": datetime}, {"a": field(timestamp=True), "b": field(timestamp=True)}),
            DefinitionError,
            ["Bad", "a, b"],
        ),
        (make({"a": date}, {"a": field(timestamp=True)}), DefinitionError, ["Bad", "a", "date"]),
        (
            make({"k": Optional[int], "at": datetime}, {"k": field(key=True)}),
            DefinitionError,
            ["Bad", "k", "Optional[int]"],
        ),
        (make({"cls": int, "fqn": int, "at": datetime}), DefinitionError, ["Bad", "cls", "fqn"]),
        (make({"x": Union[A, B], "at": datetime}), DefinitionTypeError, ["Bad", "x", "A", "B"]),
        (make({"x": Union[int, str], "at": datetime}), DefinitionError, ["Bad", "x"]),
        (make({"x": Any, "at": datetime}), DefinitionTypeError, ["Bad", "x", "Any"]),
        (make({"x": dict[int, str], "at": datetime}), DefinitionError, ["Bad", "x", "keys"]),
        (make({"x": "Missing", "at": datetime}), DefinitionTypeError, ["Bad", "x", "Missing"]),
    ],
)
def test_definitions_that_are_refused(wrong: Callable[[], Any], error: type[Exception], facts: list[str]) -> None:
    with pytest.raises(error) as caught:
        wrong()
    assert all(fact in str(caught.value) for fact in facts), str(caught.value)


def test_timestamps() -> None:
    made = dataset(body({"a": datetime, "b": datetime}, a=field(timestamp=True)))
    assert made.timestamp_field == "a"
    assert dict(made.node_schema.values) == {"b": DATETIME}
    # Accepted for compatibility: any other type marked as the timestamp holds instants.
    assert dataset(body({"a": int}, a=field(timestamp=True))).node_schema.columns == {"a": DATETIME}
    assert dataset(body({"a": int, "b": "datetime"})).timestamp_field == "b"


def test_text_annotations_see_local_names() -> None:
    @struct
    class Local:
        x: int

    @dataset
    class WithText:
        items: "List[Local]"
        count: "int"
        at: "datetime"

    assert WithText.node_schema.columns["count"] == INT


def test_erase_keys() -> None:
    made = dataset(body(KEYED, k=field(key=True, erase_key=True)))
    assert made.erase_key_fields == ["k"]


def test_sources_above_and_below() -> None:
    web = Webhook(name="web")

    @source(web.endpoint("above"), disorder="1d", cdc="append")
    @dataset
    @source(web.endpoint("upper"), disorder="1d", cdc="append")
    @source(web.endpoint("lowest"), disorder="2d", cdc="append", env="prod")
    class Sourced:
        at: datetime

    sources = Sourced.to_spec().sources
    assert [s.connector.endpoint for s in sources if isinstance(s.connector, WebhookConnector)] == [
        "lowest",
        "upper",
        "above",
    ]
    assert (sources[0].disorder_us, sources[0].env) == (2 * 86_400_000_000, ("prod",))


def test_lookup_needs_someone_who_answers() -> None:
    ts = pd.Series(pd.to_datetime(["2024-01-01"], utc=True))
    with pytest.raises(NotImplementedError, match="Tank"):
        Tank.lookup(ts, tank=pd.Series([1]))


@pytest.mark.parametrize(
    ("call", "facts"),
    [
        # The table of section 4.
        (lambda ts: Reading.lookup(ts, tank=pd.Series([1])), ["Reading", "no keys"]),
        (lambda ts: Tank.lookup(ts, pd.Series([1])), ["Tank", "by name"]),
        (lambda ts: Tank.lookup(ts), ["Tank", "tank is missing"]),
        (lambda ts: Tank.lookup(ts, tank=[1]), ["Tank", "tank", "list"]),
        (lambda _: Tank.lookup("2024", tank=pd.Series([1])), ["Tank", "ts", "str"]),
        (lambda _: Tank.lookup(pd.Series([1]), tank=pd.Series([1])), ["Tank", "ts", "int64"]),
        (lambda ts: Tank.lookup(ts, tank=pd.Series([1, 2])), ["Tank", "2 rows", "has 1"]),
        (lambda ts: Tank.lookup(ts, tank=pd.Series([1]), fields=["depth"]), ["Tank", "depth", "litres"]),
        (lambda ts: Tank.lookup(ts, tank=pd.Series([1]), color=pd.Series([1])), ["Tank", "color"]),
    ],
)
def test_lookups_that_are_refused(call: Callable[[Any], Any], facts: list[str]) -> None:
    with pytest.raises(DefinitionError) as caught:
        call(pd.Series(pd.to_datetime(["2024-01-01"], utc=True)))
    assert all(fact in str(caught.value) for fact in facts), str(caught.value)
