# Type checkers see classes where decorators make datasets and featuresets, and the tests pass wrong arguments.
# mypy: disable-error-code="arg-type, attr-defined, misc, union-attr"
import inspect
import pickle
from datetime import datetime
from typing import Any, List, Optional

import pandas as pd
import pytest

from caraway.datasets import Dataset, Filter, Visitor, dataset, field, index, on_demand
from caraway.dtypes import struct
from caraway.dtypes.types import DATETIME, INT
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.expr import col
from caraway.graph.runtime import DatasetHandle, lookup_provider
from caraway.graph.specs import IndexSpec
from caraway.lib import desc, meta
from tests.unit.datasets.shop import KEYED, body

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
    litres: float = 5  # type: ignore[assignment]
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


INDEXES: list[tuple[int, dict[str, Any], tuple[bool, bool] | None]] = [
    # Datasets 2.1b, the row first; then the arguments, and whether it is online and offline.
    (1, {}, None),
    (2, {"index": True}, (True, True)),
    (3, {"index": True, "offline": False}, (True, False)),
    (4, {"index": True, "online": False}, (False, True)),
    (5, {"index": True, "online": False, "offline": False}, (False, False)),
    (7, {"online": True}, (True, False)),
    (7, {"online": True, "offline": False}, (True, False)),
    (8, {"offline": True}, (False, True)),
]


@pytest.mark.parametrize(
    ("flags", "expected"), [pytest.param(*case, marks=pytest.mark.spec(f"datasets:2.1b:{n}")) for n, *case in INDEXES]
)
def test_index_flags(flags: dict[str, Any], expected: tuple[bool, bool] | None) -> None:
    spec = dataset(**flags)(body(KEYED, k=field(key=True))).to_spec()
    assert spec.index == (None if expected is None else IndexSpec(online=expected[0], offline=expected[1]))


@pytest.mark.spec("datasets:2.2:4")
def test_index_decorator() -> None:
    made = index(dataset(body(KEYED, k=field(key=True))))
    assert made.to_spec().index == IndexSpec(online=True, offline=True)
    offline_less = index(online=True, offline=None)(dataset(body(KEYED, k=field(key=True))))
    assert offline_less.to_spec().index == IndexSpec(online=True, offline=False)


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


TS = pd.Series(pd.to_datetime(["2024-01-01", "2024-01-02"], utc=True), index=[5, 7])


def test_a_lookup_asks_the_provider() -> None:
    asked: list[Any] = []

    def provide(dataset: str, ts: Any, keys: pd.DataFrame, fields: Any) -> Any:
        asked.append((dataset, list(ts), keys.to_dict("list"), list(fields)))
        return keys, pd.Series([True, False])

    token = lookup_provider.set(provide)
    try:
        Tank.lookup(TS, tank=pd.Series([3, 4]), fields=[Tank.litres, "seen"])
        Tank.lookup(TS, tank=pd.Series([3, 4]), fields=None)
    finally:
        lookup_provider.reset(token)
    assert asked == [("Tank", list(TS), {"tank": [3, 4]}, fields) for fields in (["litres", "seen"], [])]


def test_the_signature_of_a_lookup_names_the_keys() -> None:
    parameters = inspect.signature(Tank.lookup).parameters
    assert list(parameters) == ["ts", "tank", "fields"]
    assert parameters["tank"].kind is inspect.Parameter.KEYWORD_ONLY
    assert Tank.lookup.__annotations__["tank"] is pd.Series


def test_a_comment_of_another_class_of_the_name_is_no_duplicate() -> None:
    # The text of a class made at run time isn't at hand, or is that of another class.
    assert [f.name for f in dataset(body(KEYED)).fields] == ["k", "at"]


@pytest.mark.spec("datasets:2.1:1", "datasets:2.1:2", "datasets:2.1:3", "datasets:2.1:4", "datasets:2.1:5")
def test_the_decorator_may_stand_bare() -> None:
    for made in (dataset(body(KEYED)), dataset()(body(KEYED))):
        spec = made.to_spec()
        assert (spec.version, spec.history_us, spec.index) == (1, 2 * 365 * 86_400_000_000, None)


def test_edges_are_counted() -> None:
    made = dataset(body({"x": int, "at": datetime}))
    assert made.num_out_edges() == 0
    step = made.filter(col("x") > 1)
    made.drop("x")
    assert (made.num_out_edges(), step.num_out_edges(), (step + step).num_out_edges()) == (2, 0, 0)
    assert step.num_out_edges() == 2


class Names(Visitor):
    def visitFilter(self, operator: Filter) -> str:  # noqa: N802 (the public API's names)
        return "filter"


def test_names_without_a_part_in_the_engine() -> None:
    step = dataset(body({"x": int, "at": datetime})).filter(col("x") > 1)
    assert Names().visit(step) == Names().visit(step.node_operator) == "filter"
    with pytest.raises(DefinitionError, match="Names has no method visitDrop"):
        Names().visit(step.drop("x"))
    made = on_demand(expires_after="7d")(len)
    assert (made.function, made.expires_after) == (len, "7d")
    with pytest.raises(DefinitionTypeError, match="int 5"):
        on_demand(expires_after="7d")(5)
