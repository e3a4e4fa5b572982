"""Tests of mistakes in datasets, lookups and pipelines: their exceptions, and the facts in the messages."""

# Type checkers see classes where decorators make datasets, and the tests pass wrong arguments.
# mypy: disable-error-code="arg-type, attr-defined, misc, operator, type-arg, valid-type, call-overload, dict-item"
from collections.abc import Callable
from datetime import date, datetime
from typing import Any, Optional, Union

import pandas as pd
import pytest

from caraway.datasets import Average, Count, ExpDecaySum, dataset, field, index, on_demand, pipeline
from caraway.dtypes import struct
from caraway.expr import col, lit
from caraway.lib import (
    expect_column_values_to_not_be_null,
    expectations,
    inputs,
    meta,
)
from tests.unit.datasets.shop import FOREVER, HOUR, KEYED, Orders, Users, body, derive, derived, total
from tests.unit.refusals import ROW, check, mistakes_of

mistake = mistakes_of("datasets")

WITH_KEY = {"k": field(key=True)}
TS = pd.Series(pd.to_datetime(["2024-01-01"], utc=True))


@struct
class A:
    x: int


@struct
class B:
    x: int


def make(annotations: dict[str, Any], values: dict[str, Any] | None = None, **flags: Any) -> Callable[[], Any]:
    return lambda: dataset(**flags)(body(annotations, **(values or {})))


def twice_declared() -> None:
    @dataset
    class Bad:
        x: int
        x: str  # type: ignore[no-redef]  # noqa: PIE794 (that is the mistake)
        at: datetime


def expecting(method: Callable[..., Any], **more: Any) -> Callable[[], Any]:
    return make(KEYED, {"check": expectations(method), **more})


def lookup(on: Any, *args: Any, ts: Any = TS, **keys: Any) -> Callable[[], Any]:
    return lambda: on.lookup(ts, *args, **keys)


ONE = pd.Series([1])


@pytest.mark.parametrize(
    ROW,
    [
        # 2.1
        mistake(make(KEYED, version="2"), TypeError, "Bad|version|'2'", "2.1:1"),
        mistake(make(KEYED, history=5), TypeError, "Bad|history|int 5", "2.1:2"),
        mistake(make(KEYED, history="5x"), ValueError, "Bad|history|x", "2.1:2"),
        mistake(make(KEYED, index=True), ValueError, "Bad|no keys", "2.1:3"),
        mistake(make(KEYED, online=True), ValueError, "Bad|no keys", "2.1:4"),
        mistake(make(KEYED, offline=True), ValueError, "Bad|no keys", "2.1:5"),
        mistake(make(KEYED, WITH_KEY, index=True, online=True), ValueError, "Bad|False", "2.1b:6"),
        mistake(make(KEYED, WITH_KEY, index=True, offline=True), ValueError, "Bad|False", "2.1b:6"),
        mistake(make(KEYED, WITH_KEY, online=True, offline=True), ValueError, "Bad", "2.1b:9"),
        mistake(lambda: dataset(total), TypeError, "class|function"),
        # 2.2
        mistake(lambda: index(body(KEYED)), ValueError, "onto a dataset", "2.2:1"),
        mistake(
            lambda: index(dataset(index=True)(body(KEYED, **WITH_KEY))), ValueError, "Bad|indexed already", "2.2:2"
        ),
        mistake(lambda: index(index(dataset(body(KEYED, **WITH_KEY)))), ValueError, "Bad", "2.2:2"),
        mistake(lambda: index(dataset(body(KEYED))), ValueError, "Bad|no keys", "2.2:3"),
        mistake(lambda: index(offline="1d"), ValueError, '"forever"|None|1d', "2.2:4"),
        mistake(lambda: index(type="secondary"), ValueError, '"primary"|secondary', "2.2:5"),
        # 2.3
        mistake(lambda: field(erase_key=True, timestamp=True), ValueError, "erase key", "2.3:1"),
        mistake(lambda: field(key=True, timestamp=True), ValueError, "key and timestamp", "2.3:2"),
        mistake(lambda: field().meta(deleted=True), ValueError, "deleted"),
        mistake(lambda: field().meta(deprecated=True), ValueError, "deprecated"),
        mistake(lambda: field().meta(owner="nobody"), ValueError, "nobody|email"),
        mistake(make({"at": datetime}, WITH_KEY), ValueError, "Bad|k has no type"),
        # 2.4
        mistake(make({"k": int}), ValueError, "Bad|timestamp", "2.4:1"),
        mistake(make({"k": Optional[datetime]}), ValueError, "Bad|timestamp", "2.4:1"),
        mistake(make({"k": datetime}, WITH_KEY), ValueError, "Bad|timestamp"),
        mistake(make({"a": datetime, "b": datetime}), ValueError, "Bad|a, b|mark one", "2.4:1"),
        mistake(
            make({"a": datetime, "b": datetime}, {"a": field(timestamp=True), "b": field(timestamp=True)}),
            ValueError,
            "Bad|a, b",
            "2.4:1",
        ),
        mistake(make({"a": date}, {"a": field(timestamp=True)}), ValueError, "Bad|a is date", "2.4:1"),
        mistake(make({"k": Optional[int], "at": datetime}, WITH_KEY), ValueError, "Bad|key k|Optional[int]", "2.4:2"),
        mistake(
            make({"cls": int, "fqn": int, "fields": int, "at": datetime}), Exception, "Bad|cls, fqn, fields;", "2.4:3"
        ),
        mistake(twice_declared, Exception, "Bad|x is declared twice", "2.4:4"),
        mistake(make({"x": Union[A, B], "at": datetime}), TypeError, "Bad|field x|A or B", "2.4:5"),
        mistake(make({"x": list[A | B], "at": datetime}), TypeError, "Bad|field x|A or B", "2.4:5"),
        mistake(make({"x": Union[int, str], "at": datetime}), ValueError, "Bad|field x", "2.4:6"),
        mistake(make({"x": Any, "at": datetime}), ValueError, "Bad|field x|Any", "2.4:6"),
        mistake(make({"x": dict[int, str], "at": datetime}), ValueError, "Bad|field x|keys", "2.4:6"),
        mistake(make({"x": "Missing", "at": datetime}), ValueError, "Bad|field x|Missing"),
        mistake(lambda: Users.depth, AttributeError, "Users|depth|town"),
        # 2.6, and 8.1 of the connectors
        mistake(
            expecting(lambda cls: [], other=expectations(lambda cls: [])),
            ValueError,
            "Bad|check, other",
            "connectors:8.1:4",
        ),
        mistake(expecting(lambda cls, rows: []), ValueError, "Bad|cls, rows", "connectors:8.1:5"),
        mistake(expecting(meta(owner="a@b.de")(lambda cls: [])), ValueError, "Bad|@meta", "connectors:8.1:6"),
        mistake(expecting(lambda cls: None), TypeError, "Bad|NoneType", "connectors:8.1:10"),
        mistake(
            lambda: derived({"compute": (lambda cls, o: total(o), (Orders,))}, {}, check=expectations(lambda cls: [])),
            ValueError,
            "Derived|continuous",
            "connectors:8.1:8",
        ),
        mistake(lambda: on_demand("soon"), ValueError, "soon"),
        # 4
        mistake(lookup(Orders, user=ONE), Exception, "Orders|no keys", "4:1"),
        mistake(lookup(Users, ONE), ValueError, "Users|by name", "4:2"),
        mistake(lookup(Users), ValueError, "Users|key user is missing", "4:3"),
        mistake(lookup(Users, user=[1]), ValueError, "Users|user|list", "4:4"),
        mistake(lookup(Users, ts="2024", user=ONE), ValueError, "Users|ts|str", "4:4"),
        mistake(lookup(Users, ts=ONE, user=ONE), ValueError, "Users|ts|int64", "4:4"),
        mistake(lookup(Users, user=pd.Series([1, 2])), ValueError, "Users|2 rows|ts has 1", "4:5"),
        mistake(lookup(Users, user=ONE, fields=["depth"]), ValueError, "Users|depth|town", "4:9"),
        mistake(lookup(Users, user=ONE, fields="town"), ValueError, "Users|fields|str"),
        mistake(lookup(Users, user=ONE, color=ONE), ValueError, "Users|color", "4:10"),
        mistake(lookup(Users, user=ONE), NotImplementedError, "Users"),
    ],
)
def test_datasets_that_are_refused(call: Callable[[], Any], error: type[Exception], facts: str) -> None:
    check(call, error, facts)


def no_self(orders: Any) -> Any:
    return orders


def returning(build: Callable[..., Any], *given: Any, **annotations: Any) -> Callable[[], Any]:
    return lambda: derive(build, *(given or (Orders,)), **annotations)


TERMINAL = derive(lambda cls, orders: total(orders), Orders)
DECAYING = derive(
    lambda cls, o: o.groupby("user").aggregate(total=ExpDecaySum(of="price", half_life="1h", window=FOREVER)), Orders
)
FINAL = derive(lambda cls, o: o.groupby("user").aggregate(total=Average(of="price", window=HOUR), emit="final"), Orders)


@pytest.mark.parametrize(
    ROW,
    [
        # 5.1
        mistake(lambda: derive(lambda cls: cls), TypeError, "compute|@inputs", "5.1:1"),
        mistake(lambda: inputs(), ValueError, "@inputs()", "5.1:2"),
        mistake(lambda: derive(no_self, Orders), TypeError, "compute|orders|cls", "5.1:3"),
        mistake(lambda: pipeline(inputs(Orders)(lambda: None)), TypeError, "cls|nothing", "5.1:3"),
        mistake(returning(lambda cls, rows: rows, int), TypeError, "compute|rows", "5.1:4"),
        mistake(returning(lambda cls, rows: rows, Orders.drop("day")), TypeError, "compute|rows", "5.1:4"),
        mistake(returning(lambda cls, rows: rows, TERMINAL), TypeError, "compute|Derived", "5.1:5"),
        mistake(returning(lambda cls, rows: rows, DECAYING), TypeError, "compute|Derived", "5.1:5"),
        mistake(returning(lambda cls, rows: rows, FINAL), TypeError, "compute|Derived", "5.1:5"),
        mistake(returning(lambda cls: None), TypeError, "positional", "5.1:6"),
        mistake(returning(lambda cls, a, b: a), TypeError, "positional", "5.1:6"),
        mistake(returning(lambda cls, orders: None), Exception, "Derived.compute|NoneType", "5.1:7"),
        mistake(returning(lambda cls, orders: orders.groupby("user")), Exception, "Derived.compute|groupby", "5.1:8"),
        mistake(returning(lambda cls, orders: 3), Exception, "Derived.compute|int", "5.1:8"),
        mistake(lambda: pipeline(5), TypeError, "@pipeline|int 5"),
        # Errors of steps name dataset and pipeline.
        mistake(returning(lambda cls, o: o.drop("gone")), ValueError, "Derived.compute|drop|gone"),
        mistake(
            returning(lambda cls, o: o.assign(x=col("price").astype(int))),
            TypeError,
            'Derived.compute|assign|column x is declared int|col("price") is float',
        ),
        # These methods don't exist.
        mistake(returning(lambda cls, o: o.summarize()), AttributeError, "summarize"),
        mistake(returning(lambda cls, o: o.groupby("user").window(HOUR)), AttributeError, "window"),
        # 5.1: the right side of a join is an input.
        mistake(
            returning(lambda cls, o: o.select("user").join(Users, how="left", on=["user"])),
            ValueError,
            "Derived.compute|Users|@inputs",
        ),
        # 5.4
        mistake(lambda: pipeline(env=""), ValueError, "env"),
        mistake(lambda: pipeline(env="a b"), ValueError, "a b"),
        mistake(lambda: pipeline(env="~"), ValueError, "~"),
        mistake(lambda: pipeline(env=["~a", "b"]), ValueError, "mixes"),
        # 5.6
        mistake(
            returning(lambda cls, o: o.rename({"at": "t"}).groupby("shop").latest()),
            TypeError,
            "Derived|compute|timestamp is t|key shop (Optional[str])|key user (int)|value total (float)",
            "5.1:9",
        ),
        mistake(
            returning(lambda cls, o: total(o), user=int, total=Optional[float], at=datetime),
            TypeError,
            "total is float in the output, Optional[float] in the dataset",
            "5.1:9",
        ),
        mistake(
            returning(lambda cls, o: o.select("user").groupby("user").latest(), user=float, at=datetime),
            TypeError,
            "key user is int in the output, float in the dataset",
            "5.1:9",
        ),
        # A column is a key on one side and a value on the other; the message has all pipelines.
        mistake(
            lambda: derived(
                {
                    "first": (lambda cls, o: o.select("user"), (Orders,)),
                    "second": (lambda cls, o: total(o), (Orders,)),
                },
                {"user": int, "at": datetime},
            ),
            TypeError,
            "Derived.first: value user (int) of the output|Derived.first: key user (int) of the dataset"
            "|Derived.second: value total (float) of the output",
            "5.1:9",
        ),
    ],
)
def test_pipelines_that_are_refused(call: Callable[[], Any], error: type[Exception], facts: str) -> None:
    check(call, error, facts)


def emit_final(node: Any) -> Any:
    return node.groupby("user").aggregate(total=Count(window=HOUR), emit="final")


def test_what_isnt_terminal_may_be_followed() -> None:
    assert emit_final(Orders).filter(col("total") > 1).assign(x=lit(1).astype(int)).schema()["x"] is pd.Int64Dtype


def test_a_dataset_of_discrete_windows_may_have_expectations() -> None:
    made = dataset(
        body(KEYED, check=expectations(version=3)(lambda cls: [expect_column_values_to_not_be_null(str(cls.k))]))
    )
    suite = made.to_spec().expectations
    assert suite is not None
    assert (suite.name, suite.version) == ("dataset_Bad_expectations", 3)
    assert [e.name for e in suite.expectations] == ["expect_column_values_to_not_be_null"]
