"""Tests of the outputs of operators: columns, keys and types."""

# Type checkers see classes where decorators make datasets.
# mypy: disable-error-code="arg-type, attr-defined, misc, operator, type-arg, valid-type, union-attr, assignment"
import warnings
from collections.abc import Callable
from datetime import date, datetime
from typing import Any, List, Optional

import pandas as pd
import pytest

from caraway.datasets import Count, Sum, dataset, field
from caraway.datasets.nodes import Node
from caraway.dtypes import Continuous, Decimal, Embedding, Hopping, Session, Tumbling, between, oneof, regex
from caraway.dtypes.annotations import dtype_of
from caraway.dtypes.types import type_name
from caraway.expr import col
from caraway.graph.operators import Aggregate, Assign, Changelog, Dedup, Emit, Explode, First, Join, Transform
from caraway.graph.windows import HoppingWindow, SessionWindow
from tests.unit.datasets.shop import FOREVER, HOUR, Orders, Users, Visits, total


def columns(node: Node) -> dict[str, str]:
    return {name: type_name(dtype) for name, dtype in node.node_schema.columns.items()}


def keys(node: Node) -> list[str]:
    return list(node.node_schema.keys)


@pytest.mark.spec("datasets:10:1", "types:15:1")
def test_filter_keeps_the_schema() -> None:
    for on in (Orders, Users):
        assert on.filter(col("user") > 1).node_schema == on.node_schema
        assert on.filter(lambda df: df["user"] > 1).node_schema == on.node_schema


@pytest.mark.spec("datasets:10:2", "types:15:2", "types:15:3")
def test_assign_adds_and_replaces() -> None:
    node = Orders.assign(
        price=col("price").round().astype(int),
        twice=(col("price") * 2).astype(Optional[float]),
        stars=col("stars").astype(int),
    )
    assert (columns(node)["price"], columns(node)["twice"], columns(node)["stars"]) == ("int", "Optional[float]", "int")
    assert list(columns(node))[-1] == "at"
    # All expressions see the input.
    both = Orders.assign(price=(col("price") * 2).astype(float), other=col("price").astype(float))
    assert isinstance(both.node_operator, Assign)
    by_function = Users.assign("town", int, len).assign("tags", List[Optional[str]], len)
    assert (columns(by_function)["town"], columns(by_function)["tags"]) == ("int", "List[Optional[str]]")
    assert keys(by_function) == ["user"]


def fits(computed: Any, declared: Any, spec: str) -> Any:
    return pytest.param(computed, declared, True, marks=pytest.mark.spec(spec))


def refused(computed: Any, declared: Any, spec: str) -> Any:
    return pytest.param(computed, declared, False, marks=pytest.mark.spec(spec))


@pytest.mark.parametrize(
    ("computed", "declared", "accepted"),
    [
        fits(int, float, "datasets:6:1"),
        refused(float, int, "datasets:6:1"),
        fits(int, Optional[int], "datasets:6:2"),
        fits(str, Optional[str], "datasets:6:2"),
        refused(Optional[int], int, "datasets:6:2"),
        fits(int, Optional[float], "datasets:6:3"),
        fits(Optional[int], Optional[float], "datasets:6:3"),
        refused(bool, int, "datasets:6:3"),
        fits(oneof(str, ["a"]), str, "datasets:6:4"),
        fits(between(int, 0, 1), int, "datasets:6:5"),
        refused(between(int, 0, 1), float, "datasets:6:5"),
        fits(str, oneof(str, ["a"]), "datasets:6:6"),
        refused(int, Decimal[2], "datasets:6:6"),
        refused(Decimal[2], int, "datasets:6:6"),
        refused(Decimal[2], float, "datasets:6:6"),
        refused(Decimal[2], Decimal[3], "datasets:6:6"),
        refused(list[int], list[float], "datasets:6:7"),
        refused(date, datetime, "datasets:6:7"),
        # Restricted types inside other types.
        *(
            fits(outer, outer, "datasets:6:2")
            for inner in (oneof(str, ["a"]), between(int, 0, 1), regex("a+"), Decimal[2], Embedding[2])
            for outer in (inner, Optional[inner], List[inner], Optional[List[Optional[inner]]])
        ),
    ],
)
def test_which_types_may_be_declared(computed: Any, declared: Any, accepted: bool) -> None:
    made = dataset(type("D", (), {"__annotations__": {"x": computed, "at": datetime}, "at": field(timestamp=True)}))
    if accepted:
        assert made.assign(y=col("x").astype(declared)).node_schema.columns["y"] == dtype_of(declared)
    else:
        with pytest.raises(TypeError, match="y is declared"):
            made.assign(y=col("x").astype(declared))


@pytest.mark.spec("datasets:10:2")
def test_select_drop_rename() -> None:
    assert list(columns(Users.select("user", "town"))) == ["user", "town", "since"]
    assert list(columns(Users.select(["town", "user", "town"]))) == ["user", "town", "since"]
    assert list(columns(Users.select(columns=["user", Users.since]))) == ["user", "since"]
    assert list(columns(Orders.select([]))) == ["at"]
    assert list(columns(Users.drop("town", Users.born))) == ["user", "size", "since"]
    renamed = Users.rename({"user": "id", "since": "at", "town": "place"})
    assert list(columns(renamed)) == ["id", "place", "size", "born", "at"]
    assert (keys(renamed), renamed.node_schema.timestamp) == (["id"], "at")
    chained = Users.rename({"town": "c", "size": "town"})
    assert list(columns(chained)) == ["user", "c", "town", "born", "since"]


def test_selecting_everything_warns_and_does_nothing() -> None:
    with pytest.warns(UserWarning, match="no effect"):
        assert Users.select("user", "town", "size", "born") is Users
    # The names have no effect in this case.
    with pytest.warns(UserWarning, match="no effect"):
        assert Users.select("user", "a", "b", "c") is Users


@pytest.mark.spec("datasets:10:1")
def test_dropnull_makes_required() -> None:
    assert columns(Orders.dropnull("shop"))["shop"] == "str"
    assert columns(Orders.dropnull("shop"))["count"] == "Optional[int]"
    everything = columns(Orders.dropnull())
    assert (everything["shop"], everything["count"]) == ("str", "int")
    assert columns(Users.dropnull(columns=[Users.town])) == {**columns(Users), "town": "str"}
    # A step may have an optional key.
    keyed = Orders.groupby("shop").latest().dropnull("shop")
    assert (keys(keyed), columns(keyed)["shop"]) == (["shop"], "str")


@pytest.mark.spec("types:15:4", "datasets:10:2", "datasets:7.6:1", "datasets:7.6:2")
def test_transform_declares_its_columns() -> None:
    assert Users.transform(lambda df: df).node_schema == Users.node_schema
    node = Users.transform(lambda df: df, schema={"x": Optional[float], "since": datetime, "user": int})
    assert columns(node) == {"user": "int", "x": "Optional[float]", "since": "datetime"}
    assert keys(node) == ["user"]
    # The schema of a step is a valid argument; the timestamp keeps its type, whatever the argument says.
    given = {**Users.schema(), "since": int, "more": pd.StringDtype}
    node = Users.transform(lambda df: df, schema=given)
    assert columns(node) == {**columns(Users), "more": "str"}
    operator = node.node_operator
    assert isinstance(operator, Transform)
    assert operator.columns is not None
    assert dict(operator.columns)["since"] == dtype_of(datetime)


@pytest.mark.spec("datasets:10:3")
def test_explode_gives_optional_elements() -> None:
    node = Visits.explode("tags", "marks")
    assert (columns(node)["tags"], columns(node)["marks"]) == ("Optional[str]", "Optional[int]")
    assert node.node_operator == Explode(of=Visits.node_operator, columns=("tags", "marks"))
    assert Visits.explode(["tags"]).node_schema == Visits.explode(columns=[Visits.tags]).node_schema
    assert columns(Visits.dropnull("codes").explode("codes"))["codes"] == "Optional[int]"


@pytest.mark.spec("datasets:10:4")
def test_union_has_the_schema_of_its_sides() -> None:
    assert (Orders + Orders).node_schema == Orders.node_schema
    # The order of the columns doesn't matter.
    turned = (
        Orders.rename({"user": "u"})
        .rename({"u": "user"})
        .transform(len, schema=dict(reversed(Orders.schema().items())))
    )
    assert (Orders + turned).node_schema == Orders.node_schema


@pytest.mark.spec("datasets:10:5", "datasets:7.9:1", "datasets:7.9:2", "datasets:7.9:3")
def test_dedup_keeps_the_schema() -> None:
    day = 86_400_000_000
    for node, by, window in (
        (Orders.dedup(), tuple(Orders.node_schema.values), None),
        (Orders.dedup("user", "shop"), ("user", "shop"), None),
        (Orders.dedup(by="user"), ("user",), None),
        (Orders.dedup(by=[Orders.user, "shop"]), ("user", "shop"), None),
        (Orders.dedup("user", window=Tumbling("1d")), ("user",), HoppingWindow(length_us=day, stride_us=day)),
        (Orders.dedup("user", window=Session("24h")), ("user",), SessionWindow(gap_us=day)),
    ):
        assert node.node_operator == Dedup(of=Orders.node_operator, by=by, window=window)
        assert node.node_schema == Orders.node_schema


@pytest.mark.spec("datasets:10:6", "datasets:10:7")
def test_first_and_latest_make_keys() -> None:
    for node in (Orders.groupby("user", "shop").latest(), Orders.groupby(["user", Orders.shop]).first()):
        assert keys(node) == ["user", "shop"]
        assert "price" in columns(node)
        assert node.node_schema.timestamp == "at"
    assert isinstance(Orders.groupby("user").first().node_operator, First)


@pytest.mark.spec("datasets:10:12")
def test_join_columns() -> None:
    left = Orders.select("user", "price").join(Users, how="left", on=["user"])
    # A left join makes columns optional and removes restrictions.
    assert columns(left) == {
        "user": "int",
        "price": "float",
        "town": "Optional[str]",
        "size": "Optional[str]",
        "born": "Optional[date]",
        "at": "datetime",
    }
    inner = Orders.select("user").join(
        Users, how="inner", left_on=["user"], right_on=["user"], fields=["size", "since", Users.size]
    )
    assert columns(inner) == {"user": "int", "size": "oneof(str, ['s', 'm'])", "since": "datetime", "at": "datetime"}
    with_time = Orders.select("user").join(Users, how="left", on=[Orders.user], fields=["since"])
    assert columns(with_time) == {"user": "int", "since": "Optional[datetime]", "at": "datetime"}
    bounded = Orders.select("user").join(Users, how="inner", on=["user"], within=("1d", "1h"), fields=[])
    assert isinstance(bounded.node_operator, Join)
    assert (bounded.node_operator.within_low_us, bounded.node_operator.within_high_us) == (
        86_400_000_000,
        3_600_000_000,
    )
    assert bounded.node_operator.fields == ("town", "size", "born")
    assert left.node_operator.within_low_us is None


@pytest.mark.spec("datasets:10:13")
def test_a_keyed_left_side_keeps_its_keys() -> None:
    newest = Orders.select("user", "price").groupby("user").latest()
    joined = newest.join(Users, how="left", on=["user"], fields=["town"])
    assert (keys(joined), columns(joined)) == (
        ["user"],
        {"user": "int", "price": "float", "town": "Optional[str]", "at": "datetime"},
    )
    by_shop = Orders.select("user", "shop").groupby("shop").latest().join(Users, how="inner", on=["user"])
    assert keys(by_shop) == ["shop"]
    with_itself = Users.rename({"town": "home"}).join(Users, how="left", on=["user"], fields=["town"])
    assert (columns(with_itself)["home"], columns(with_itself)["town"]) == ("Optional[str]", "Optional[str]")


def test_a_left_join_keeps_the_scale_of_decimals() -> None:
    made = dataset(
        type("P", (), {"__annotations__": {"k": int, "cost": Decimal[2], "t": datetime}, "k": field(key=True)})
    )
    joined = Orders.select("user").join(made, how="left", left_on=["user"], right_on=["k"])
    assert columns(joined)["cost"] == "Optional[Decimal[2]]"


@pytest.mark.spec("datasets:10:14")
def test_changelog_makes_keys_values() -> None:
    node = Users.changelog(delete="gone")
    assert (keys(node), columns(node)) == (
        [],
        {**{k: v for k, v in columns(Users).items() if k != "since"}, "gone": "bool", "since": "datetime"},
    )
    assert node.node_operator == Changelog(of=Users.node_operator, column="gone", marks_inserts=False)
    inserts = Users.changelog(insert="new", whatever=3)  # type: ignore[call-overload]
    assert isinstance(inserts.node_operator, Changelog)
    assert inserts.node_operator.marks_inserts


AGGREGATES: list[tuple[int, Callable[[], Any], dict[str, str]]] = [
    # Datasets 10, the row first.
    (8, lambda: total(Orders), {"user": "int", "total": "float"}),
    (
        9,
        lambda: Orders.groupby("shop").aggregate(n=Count(window=Tumbling("1d"))),
        {"shop": "Optional[str]", "n": "int"},
    ),
    (
        9,
        lambda: Users.groupby("town").aggregate(n=Count(window=Hopping("forever", "1d"))),
        {"town": "Optional[str]", "n": "int"},
    ),
    (10, lambda: Orders.groupby("user").aggregate(n=Count(window=HOUR), emit="final"), {"user": "int", "n": "int"}),
    (
        11,
        lambda: Orders.groupby("user", window=Session("1h")).aggregate(n=Count()),
        {"user": "int", "window": "Window", "n": "int"},
    ),
    (
        11,
        lambda: Orders.groupby("user", window=Hopping("1d", "1h")).aggregate(),
        {"user": "int", "window": "Window"},
    ),
]


@pytest.mark.parametrize(
    ("build", "expected", "terminal"),
    [pytest.param(*case, row == 8, marks=pytest.mark.spec(f"datasets:10:{row}")) for row, *case in AGGREGATES],
)
def test_aggregates(build: Callable[[], Any], expected: dict[str, str], terminal: bool) -> None:
    node = build()
    time = "since" if "town" in expected else "at"
    assert columns(node) == {**expected, time: "datetime"}
    assert node.node_schema.terminal is terminal
    assert keys(node) == [name for name in expected if name in ("user", "shop", "town", "window")]


def test_the_window_of_a_group_may_be_said_again() -> None:
    spoken = Orders.groupby("user", window=Tumbling("1d")).aggregate(n=Count(window=Hopping("24h", "1d")))
    silent = Orders.groupby("user", window=Tumbling("1d")).aggregate(n=Count())
    assert spoken.node_operator == silent.node_operator


def test_forms_of_aggregate() -> None:
    n = Count(window=HOUR, into_field="n")
    forms = [
        Orders.groupby("user").aggregate(n),
        Orders.groupby("user").aggregate([n]),
        Orders.groupby("user").aggregate(n=Count(window=HOUR)),
        # The keyword overrides `into_field`.
        Orders.groupby("user").aggregate(n=Count(window=HOUR, into_field="other")),
    ]
    assert len({form.node_operator for form in forms}) == 1


def test_along_and_emit_are_kept() -> None:
    node = Visits.groupby("user").aggregate(n=Count(window=Tumbling("1d")), along=Visits.due)
    assert isinstance(node.node_operator, Aggregate)
    assert (node.node_operator.along, node.node_operator.emit) == ("due", Emit.EAGER)
    assert node.node_schema.timestamp == "at"


KEYED_VISITS = Visits.groupby("user").latest()


@pytest.mark.parametrize(
    ("build", "warns"),
    [
        (lambda: Users.groupby("town").aggregate(n=Count(window=FOREVER)), True),
        (lambda: Users.groupby("town").aggregate(n=Count(window=HOUR)), True),
        (lambda: Users.groupby("town").aggregate(n=Count(window=Hopping("forever", "1d"))), False),
        (lambda: KEYED_VISITS.groupby("good").aggregate(n=Count(window=HOUR), along="due"), False),
        (lambda: Orders.groupby("user").aggregate(n=Count(window=HOUR)), False),
    ],
)
def test_keyed_inputs_are_deprecated(build: Callable[[], Any], warns: bool) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        build()
    assert [w.category for w in caught] == ([DeprecationWarning] if warns else [])
    assert all(w.filename == __file__ for w in caught)


def test_several_windows_of_one_kind_go_together() -> None:
    node = Orders.groupby("user").aggregate(
        a=Count(window=Tumbling("1d", "1h")), b=Sum(of="price", window=Hopping("2d", "1d", "60m"))
    )
    assert columns(node)["b"] == "float"
    continuous = Orders.groupby("user").aggregate(a=Count(window=Continuous("1d")), b=Count(window=FOREVER))
    assert columns(continuous)["b"] == "int"
