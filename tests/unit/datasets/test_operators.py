# Checkers see classes where decorators make datasets and featuresets, and wrong arguments are tested here.
# mypy: disable-error-code="arg-type, attr-defined, misc, operator, type-arg, valid-type"
import traceback
import warnings
from collections.abc import Callable
from datetime import date, datetime
from typing import Any, Optional

import pytest

from caraway.datasets import Average, Count, Dataset, Max, Min, Stddev, Sum, dataset, field, pipeline
from caraway.datasets.nodes import Node
from caraway.dtypes import Continuous, Decimal, Hopping, Tumbling, between, oneof
from caraway.dtypes.annotations import dtype_of
from caraway.dtypes.types import type_name
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.expr import col, lit
from caraway.graph.operators import Aggregate, Join
from caraway.lib import inputs

FOREVER = Continuous("forever")
HOUR = Continuous("1h")


@dataset
class Orders:
    user: int
    shop: Optional[str]
    price: float
    count: Optional[int]
    stars: between(int, 1, 5)
    size: oneof(str, ["s", "m"])
    cost: Decimal[2]
    day: date
    at: datetime


@dataset(index=True)
class Users:
    user: int = field(key=True)
    town: Optional[str]
    size: oneof(str, ["s", "m"])
    born: date
    since: datetime


def columns(node: Node) -> dict[str, str]:
    return {name: type_name(dtype) for name, dtype in node.node_schema.columns.items()}


def test_filter_keeps_the_schema() -> None:
    assert Orders.filter(col("price") > 1).node_schema == Orders.node_schema


def test_assign_adds_and_replaces() -> None:
    node = Orders.assign(
        price=col("price").round().astype(int),
        twice=(col("price") * 2).astype(Optional[float]),
        stars=col("stars").astype(int),
    )
    assert (columns(node)["price"], columns(node)["twice"], columns(node)["stars"]) == ("int", "Optional[float]", "int")
    assert list(columns(node))[-1] == "at"


@pytest.mark.parametrize(
    ("computed", "declared", "fits"),
    [
        # The table of section 6.
        (int, float, True),
        (float, int, False),
        (int, Optional[int], True),
        (Optional[int], int, False),
        (int, Optional[float], True),
        (Optional[int], Optional[float], True),
        (bool, int, False),
        (oneof(str, ["a"]), str, True),
        (between(int, 0, 1), int, True),
        (between(int, 0, 1), float, False),
        (str, oneof(str, ["a"]), True),
        (int, Decimal[2], False),
        (Decimal[2], float, False),
        (Decimal[2], Decimal[3], False),
        (list[int], list[float], False),
        (date, datetime, False),
    ],
)
def test_which_types_may_be_declared(computed: Any, declared: Any, fits: bool) -> None:  # noqa: FBT001
    made = dataset(type("D", (), {"__annotations__": {"x": computed, "at": datetime}, "at": field(timestamp=True)}))
    if fits:
        assert made.assign(y=col("x").astype(declared)).node_schema.values["y"] == dtype_of(declared)
    else:
        with pytest.raises(DefinitionTypeError, match="y is declared"):
            made.assign(y=col("x").astype(declared))


def test_select_drop_rename() -> None:
    assert list(columns(Users.select("user", "town"))) == ["user", "town", "since"]
    assert list(columns(Users.select(["town", "user"]))) == ["user", "town", "since"]
    assert list(columns(Users.select(columns=["user", "since"]))) == ["user", "since"]
    assert list(columns(Orders.select([]))) == ["at"]
    assert list(columns(Users.drop("town", "born"))) == ["user", "size", "since"]
    renamed = Users.rename({"user": "id", "since": "at", "town": "place"})
    assert list(columns(renamed)) == ["id", "place", "size", "born", "at"]
    assert (list(renamed.node_schema.keys), renamed.node_schema.timestamp) == (["id"], "at")
    chained = Users.rename({"town": "c", "size": "town"})
    assert list(columns(chained)) == ["user", "c", "town", "born", "since"]


def test_selecting_everything_warns_and_does_nothing() -> None:
    with pytest.warns(UserWarning, match="no effect"):
        assert Users.select("user", "town", "size", "born") is Users


def test_latest() -> None:
    node = Orders.groupby("user", "shop").latest()
    assert list(node.node_schema.keys) == ["user", "shop"]
    assert "price" in node.node_schema.values


def test_join_columns() -> None:
    left = Orders.select("user", "price").join(Users, how="left", on=["user"])
    # A left join makes optional and takes restrictions off.
    assert columns(left) == {
        "user": "int",
        "price": "float",
        "town": "Optional[str]",
        "size": "Optional[str]",
        "born": "Optional[date]",
        "at": "datetime",
    }
    inner = Orders.select("user").join(
        Users, how="inner", left_on=["user"], right_on=["user"], fields=["size", "since"]
    )
    assert columns(inner) == {"user": "int", "size": "oneof(str, ['s', 'm'])", "since": "datetime", "at": "datetime"}
    bounded = Orders.select("user").join(Users, how="inner", on=["user"], within=("1d", "1h"))
    assert isinstance(bounded.node_operator, Join)
    assert (bounded.node_operator.within_low_us, bounded.node_operator.within_high_us) == (
        86_400_000_000,
        3_600_000_000,
    )
    assert left.node_operator.within_low_us is None


def test_aggregate_types_and_defaults() -> None:
    node = Orders.groupby("user").aggregate(
        Count(window=HOUR, into_field="n"),
        total=Sum(of="price", window=FOREVER),
        items=Sum(of="count", window=HOUR),
        stars=Sum(of="stars", window=HOUR),
        mean=Average(of="count", window=HOUR),
        maybe=Average(of="price", window=HOUR, default=None),
        spread=Stddev(of="price", window=HOUR),
        first_day=Min(of="day", window=HOUR, default=date(1970, 1, 3)),
        last=Max(of="at", window=HOUR),
        best=Max(of="stars", window=HOUR, default=1.0),
    )
    assert columns(node) == {
        "user": "int",
        "n": "int",
        "total": "float",
        "items": "int",
        "stars": "int",
        "mean": "float",
        "maybe": "Optional[float]",
        "spread": "float",
        "first_day": "date",
        "last": "Optional[datetime]",
        "best": "int",
        "at": "datetime",
    }
    assert isinstance(node.node_operator, Aggregate)
    by_name = {a.into: a for a in node.node_operator.aggregates}
    assert {name: a.default for name, a in by_name.items()} == {
        "n": 0,
        "total": 0.0,
        "items": 0,
        "stars": 0,
        "mean": 0.0,
        "maybe": None,
        "spread": -1.0,
        "first_day": 2,
        "last": None,
        "best": 1,
    }
    assert (by_name["n"].window_us, by_name["total"].window_us) == (3_600_000_000, None)


def test_keyed_input_over_all_time() -> None:
    node = Users.groupby("town").aggregate(n=Count(window=FOREVER))
    assert columns(node) == {"town": "Optional[str]", "n": "int", "since": "datetime"}


def total(node: Any) -> Any:
    return node.groupby("user").aggregate(total=Sum(of="price", window=HOUR))


@pytest.mark.parametrize(
    ("wrong", "error", "facts"),
    [
        # 7.1
        (lambda: Orders.filter(col("count") > 1), DefinitionTypeError, ["filter", "Optional[bool]", "fillnull"]),
        (lambda: Orders.filter(col("price")), DefinitionTypeError, ["filter", "float"]),
        (lambda: Orders.filter(lit(None)), DefinitionTypeError, ["filter", "null"]),
        (lambda: Orders.filter(col("gone") > 1), DefinitionError, ["gone", "price"]),
        (lambda: Orders.filter((col("price") > 1).astype(bool)), DefinitionError, ["filter", "astype"]),
        (lambda: Orders.filter("price > 1"), DefinitionError, ["filter", "str"]),
        (lambda: Orders.filter(lambda df: df), DefinitionError, ["filter", "isn't available yet"]),
        # 7.2
        (lambda: Users.assign(user=lit(1).astype(int)), DefinitionError, ["user", "key", "town"]),
        (lambda: Users.assign(since=col("since").astype(datetime)), DefinitionError, ["since", "timestamp"]),
        (lambda: Users.assign(**{"": lit(1).astype(int)}), DefinitionError, ["name"]),
        (lambda: Users.assign(x=lit(1)), DefinitionTypeError, ["x", "astype"]),
        (lambda: Users.assign(x=1), DefinitionError, ["x", "int"]),
        (lambda: Users.assign(x=col("gone").astype(int)), DefinitionError, ["x", "gone"]),
        (lambda: Users.assign(x=(col("town") + 1).astype(int)), DefinitionError, ["x", "+", "Optional[str]"]),
        (
            lambda: Orders.assign(x=col("price").astype(int), y=col("shop").astype(str)),
            DefinitionTypeError,
            ["x", "int", "float", 'col("price")', "y", "Optional[str]"],
        ),
        (lambda: Users.assign(name="x", dtype=int, func=len), DefinitionTypeError, ["name", "dtype", "func"]),
        (lambda: Users.assign(), DefinitionError, ["at least one"]),
        (lambda: Users.assign("x", int, lambda df: df), DefinitionError, ["isn't available yet"]),
        (lambda: Users.assign("x", y=lit(1).astype(int)), DefinitionError, ["keywords only"]),
        # 7.3
        (lambda: Users.select("town"), DefinitionError, ["select", "user"]),
        (lambda: Users.select("user", "gone"), DefinitionError, ["select", "gone"]),
        (lambda: Users.select(), DefinitionError, ["select"]),
        (lambda: Users.select("user", columns=["user"]), DefinitionError, ["select", "both"]),
        (lambda: Users.drop("user"), DefinitionError, ["drop", "user", "key", "town"]),
        (lambda: Users.drop("since"), DefinitionError, ["drop", "since", "timestamp"]),
        (lambda: Users.drop("gone"), DefinitionError, ["drop", "gone"]),
        (lambda: Users.drop([]), DefinitionError, ["drop"]),
        (lambda: Users.drop(), DefinitionError, ["drop"]),
        # 7.5
        (lambda: Users.rename({"gone": "x"}), DefinitionError, ["rename", "gone"]),
        (lambda: Users.rename({"town": "size", "size": "town"}), DefinitionError, ["rename", "town", "size"]),
        (lambda: Users.rename({"town": ""}), DefinitionError, ["rename", "town"]),
        (lambda: Users.rename({}), DefinitionError, ["rename"]),
        (lambda: Users.rename("town"), DefinitionError, ["rename", "dict"]),
        # 7.10, 7.11
        (lambda: Orders.groupby(), DefinitionError, ["groupby"]),
        (lambda: Orders.groupby("gone"), DefinitionError, ["groupby", "gone", "user"]),
        (lambda: Orders.groupby("at"), DefinitionError, ["groupby", "at", "timestamp"]),
        (lambda: Orders.groupby("user", "user"), DefinitionError, ["groupby", "user", "twice"]),
        (lambda: Orders.groupby("user", window=Tumbling("1d")), DefinitionError, ["isn't available yet"]),
        (lambda: Users.groupby("town").latest(), DefinitionTypeError, ["latest", "user"]),
        (lambda: Orders.groupby("user").first(), DefinitionError, ["first", "isn't available yet"]),
        # 7.12
        (lambda: Orders.groupby("user").aggregate(), DefinitionTypeError, ["at least one"]),
        (lambda: Orders.groupby("user").aggregate([]), DefinitionError, ["at least one"]),
        (lambda: Orders.groupby("user").aggregate(x=3), DefinitionError, ["x", "int"]),
        (lambda: Orders.groupby("user").aggregate(Count(window=HOUR)), DefinitionError, ["into_field"]),
        (lambda: Orders.groupby("user").aggregate(emit=Count(window=HOUR)), DefinitionError, ["emit", "reserved"]),
        (lambda: Orders.groupby("user").aggregate(along=Count(window=HOUR)), DefinitionError, ["along", "reserved"]),
        (lambda: Orders.groupby("user").aggregate(n=Count(window=HOUR), emit="x"), DefinitionError, ["emit", "eager"]),
        (lambda: Orders.groupby("user").aggregate(n=Count(window=HOUR), along="at"), DefinitionError, ["along"]),
        (lambda: Orders.groupby("user").aggregate(n=Count()), DefinitionError, ["n", "window"]),
        (lambda: Orders.groupby("user").aggregate(x=Sum(of="gone", window=HOUR)), DefinitionError, ["x", "gone"]),
        (
            lambda: Orders.groupby("user").aggregate(Count(window=HOUR, into_field="n"), n=Count(window=HOUR)),
            DefinitionError,
            ["n", "twice"],
        ),
        (lambda: Orders.groupby("user").aggregate(user=Count(window=HOUR)), DefinitionError, ["user", "twice"]),
        (
            lambda: Users.groupby("town").aggregate(n=Count(window=HOUR)),
            DefinitionError,
            ["n", "keyed", "user", "forever"],
        ),
        (lambda: Users.groupby("town").aggregate(m=Max(of="born", window=FOREVER)), DefinitionError, ["m", "keyed"]),
        # 9 and 9.1
        (
            lambda: Orders.groupby("user").aggregate(x=Sum(of="shop", window=HOUR)),
            DefinitionTypeError,
            ["Sum", "shop", "str"],
        ),
        (
            lambda: Orders.groupby("user").aggregate(x=Average(of="day", window=HOUR)),
            DefinitionTypeError,
            ["Average", "date"],
        ),
        (
            lambda: Orders.groupby("user").aggregate(x=Stddev(of="at", window=HOUR)),
            DefinitionTypeError,
            ["Stddev", "at"],
        ),
        (lambda: Orders.groupby("user").aggregate(x=Min(of="shop", window=HOUR)), DefinitionTypeError, ["Min", "shop"]),
        (lambda: Orders.groupby("user").aggregate(x=Sum(of="cost", window=HOUR)), DefinitionTypeError, ["cost", "yet"]),
        (
            lambda: Orders.groupby("user").aggregate(x=Min(of="count", window=HOUR, default=0.5)),
            DefinitionTypeError,
            ["Min", "0.5", "count"],
        ),
        (
            lambda: Orders.groupby("user").aggregate(x=Min(of="day", window=HOUR, default=1)),
            DefinitionTypeError,
            ["Min", "day"],
        ),
        (
            lambda: Orders.groupby("user").aggregate(x=Average(of="price", window=HOUR, default="a")),
            DefinitionTypeError,
            ["Average", "x", "'a'"],
        ),
        (lambda: Count(window="1h"), DefinitionError, ["Count", "1h", "Continuous"]),
        (lambda: Count(window=Tumbling("1h")), DefinitionError, ["Count", "Tumbling", "yet"]),
        (lambda: Count(window=Hopping("1h", "1m")), DefinitionError, ["Count", "Hopping", "yet"]),
        (lambda: Count(unique=True), DefinitionError, ["unique", "yet"]),
        (lambda: Count(dropnull=True), DefinitionError, ["dropnull", "yet"]),
        # 5.5: nothing follows a continuous aggregate.
        (lambda: total(Orders).filter(col("total") > 1), DefinitionError, ["filter", "continuous"]),
        (lambda: total(Orders).assign(x=lit(1).astype(int)), DefinitionError, ["assign", "continuous"]),
        (lambda: total(Orders).select("user"), DefinitionError, ["select", "continuous"]),
        (lambda: total(Orders).drop("total"), DefinitionError, ["drop", "continuous"]),
        (lambda: total(Orders).rename({"total": "x"}), DefinitionError, ["rename", "continuous"]),
        (lambda: total(Orders).groupby("user"), DefinitionError, ["groupby", "continuous"]),
        (lambda: total(Orders).join(Users, how="left", on=["user"]), DefinitionError, ["join", "continuous"]),
        # 7.13
        (lambda: Orders.join(Users.filter(lit(True)), how="left", on=["user"]), DefinitionError, ["step"]),  # noqa: FBT003
        (lambda: Orders.join("Users", how="left", on=["user"]), DefinitionTypeError, ["str"]),
        (lambda: Orders.join(Users, how="outer", on=["user"]), DefinitionError, ["Users", "outer"]),
        (lambda: Orders.join(Users, how="left"), DefinitionError, ["Users", "on="]),
        (lambda: Orders.join(Users, how="left", on=["user"], left_on=["user"]), DefinitionError, ["Users", "on="]),
        (lambda: Orders.join(Users, how="left", left_on=["user"]), DefinitionError, ["Users", "right_on"]),
        (lambda: Orders.join(Users, how="left", on="user"), DefinitionError, ["Users", "list"]),
        (lambda: Orders.join(Users, how="left", on=["town"]), DefinitionError, ["Users", "town", "user"]),
        (lambda: Orders.join(Orders, how="left", on=["user"]), DefinitionError, ["Orders", "itself"]),
        (lambda: Users.join(Users, how="left", on=["user"]), DefinitionError, ["keyed", "yet"]),
        (lambda: Orders.join(Users, how="left", left_on=["gone"], right_on=["user"]), DefinitionError, ["gone"]),
        (
            lambda: Orders.join(Users, how="left", left_on=["count"], right_on=["user"]),
            DefinitionTypeError,
            ["count", "optional"],
        ),
        (
            lambda: Orders.join(Users, how="left", left_on=["price"], right_on=["user"]),
            DefinitionTypeError,
            ["price", "float", "int"],
        ),
        (
            lambda: Orders.join(Users, how="left", left_on=["user", "shop"], right_on=["user"]),
            DefinitionError,
            ["2 left"],
        ),
        (lambda: Orders.join(Users, how="left", on=["user"], within=("1d",)), DefinitionError, ["within"]),
        (lambda: Orders.join(Users, how="left", on=["user"], within=(None, "1d")), DefinitionError, ["within"]),
        (lambda: Orders.join(Users, how="left", on=["user"], within=("1d", "forever")), DefinitionError, ["within"]),
        (lambda: Orders.join(Users, how="left", on=["user"], within=("1x", "0s")), DefinitionError, ["within", "1x"]),
        (lambda: Orders.join(Users, how="left", on=["user"], fields=["user"]), DefinitionError, ["user", "town"]),
        (lambda: Orders.join(Users, how="left", on=["user"]), DefinitionError, ["size", "both sides"]),
        # Of the API, but not built yet.
        (lambda: Orders.transform(len), DefinitionError, ["transform", "yet"]),
        (lambda: Orders.dedup("user"), DefinitionError, ["dedup", "yet"]),
        (lambda: Orders.dropnull(), DefinitionError, ["dropnull", "yet"]),
        (lambda: Orders.explode("x"), DefinitionError, ["explode", "yet"]),
        (lambda: Users.changelog(delete="x"), DefinitionError, ["changelog", "yet"]),
        (lambda: Orders + Orders, DefinitionError, ["union", "yet"]),
    ],
)
def test_steps_that_are_refused(wrong: Callable[[], Any], error: type[Exception], facts: list[str]) -> None:
    with pytest.raises(error) as caught, warnings.catch_warnings():  # noqa: PT012 (made and used)
        warnings.simplefilter("ignore")
        wrong()
    assert all(fact in str(caught.value) for fact in facts), str(caught.value)


def derive(build: Callable[..., Any], *given: Dataset, **annotations: Any) -> Dataset:
    build.__name__ = "compute"
    members = {"compute": pipeline(inputs(*given)(build))} if given else {"compute": pipeline(build)}
    shape = {"__annotations__": annotations or {"user": int, "total": float, "at": datetime}, "user": field(key=True)}
    made: Dataset = dataset(type("Derived", (), {**shape, **members}))
    return made


def test_a_pipeline_becomes_a_spec() -> None:
    made = derive(lambda cls, orders: total(orders), Orders)
    (spec,) = made.to_spec().pipelines
    assert (spec.name, spec.inputs) == ("compute", ("Orders",))
    assert made.is_terminal
    with pytest.raises(DefinitionTypeError, match="input Derived"):
        derive(lambda cls, x: x, made)


def test_own_fields_serve_as_names() -> None:
    made = derive(
        lambda cls, orders: orders.groupby(cls.user).aggregate(**{str(cls.total): Sum(of=Orders.price, window=HOUR)}),
        Orders,
    )
    assert made.is_terminal


def no_self(orders: Any) -> Any:
    return orders


@pytest.mark.parametrize(
    ("wrong", "error", "facts"),
    [
        # 5.1
        (lambda: derive(lambda cls: cls), DefinitionTypeError, ["compute", "@inputs"]),
        (lambda: inputs(), DefinitionError, ["@inputs()"]),
        (lambda: derive(no_self, Orders), DefinitionTypeError, ["compute", "orders", "cls"]),
        (lambda: derive(lambda cls, orders: orders, int), DefinitionTypeError, ["compute", "orders"]),
        (lambda: derive(lambda cls, orders: None, Orders), DefinitionError, ["Derived.compute", "NoneType"]),
        (
            lambda: derive(lambda cls, orders: orders.groupby("user"), Orders),
            DefinitionError,
            ["Derived.compute", "groupby"],
        ),
        (
            lambda: derive(lambda cls, orders: orders.drop("gone"), Orders),
            DefinitionError,
            ["Derived.compute", "drop", "gone"],
        ),
        (lambda: derive(lambda cls: None, Orders), TypeError, ["positional"]),
        (
            lambda: derive(lambda cls, o: o.select("user").join(Users, how="left", on=["user"]), Orders),
            DefinitionError,
            ["Derived.compute", "Users", "@inputs"],
        ),
        # 5.6
        (
            lambda: derive(lambda cls, o: o.rename({"at": "t"}).groupby("shop").latest(), Orders),
            DefinitionTypeError,
            [
                "Derived",
                "compute",
                "timestamp is t",
                "key shop (Optional[str])",
                "key user (int)",
                "value total (float)",
            ],
        ),
        (
            lambda: derive(lambda cls, o: total(o), Orders, user=int, total=Optional[float], at=datetime),
            DefinitionTypeError,
            ["total is float in the output, Optional[float] in the dataset"],
        ),
        # 5.4
        (lambda: pipeline(env="a b"), DefinitionError, ["a b"]),
    ],
)
def test_pipelines_that_are_refused(wrong: Callable[[], Any], error: type[Exception], facts: list[str]) -> None:
    with pytest.raises(error) as caught:  # noqa: PT012 (made and used)
        made = wrong()
        made(lambda cls: cls)
    assert all(fact in str(caught.value) for fact in facts), str(caught.value)


def test_an_error_shows_the_line_of_the_step() -> None:
    with pytest.raises(DefinitionError) as caught:
        derive(lambda cls, orders: orders.drop("gone"), Orders)
    lines = [frame.line for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert any(line and 'orders.drop("gone")' in line for line in lines)
