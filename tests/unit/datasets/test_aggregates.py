"""Tests of aggregates: output types, stored defaults and parameters."""

# Type checkers see classes where decorators make datasets.
# mypy: disable-error-code="arg-type, attr-defined, misc, union-attr"
import copy
import dataclasses
import math
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal as Number
from typing import Any

import pytest

from caraway.datasets import (
    AggregateType,
    Average,
    Count,
    Distinct,
    ExpDecaySum,
    FirstK,
    LastK,
    Max,
    Min,
    Quantile,
    Stddev,
    Sum,
    Variance,
)
from caraway.dtypes.types import type_name
from caraway.graph.aggregates import AggregateSpec
from caraway.graph.operators import Aggregate
from tests.unit.datasets.shop import HOUR, Orders, Visits


def spec_of(aggregate: AggregateType, on: Any) -> AggregateSpec:
    operator = on.groupby("user").aggregate(x=aggregate).node_operator
    assert isinstance(operator, Aggregate)
    return operator.aggregates[0]


def case(row: int, aggregate: AggregateType, on: Any, dtype: str, default: object) -> Any:
    return pytest.param(aggregate, on, dtype, default, marks=pytest.mark.spec(f"datasets:9:{row}"))


ENDS: dict[str, Any] = {"limit": 3, "dedup": True, "window": HOUR}


@pytest.mark.parametrize(
    ("aggregate", "on", "dtype", "default"),
    [
        case(1, Count(window=HOUR), Orders, "int", 0),
        case(1, Count(of="shop", unique=True, approx=True, window=HOUR), Orders, "int", 0),
        case(1, Count(of="tags", unique=True, approx=True, window=HOUR), Visits, "int", 0),
        case(1, Count(of="counts", unique=True, approx=True, dropnull=False, window=HOUR), Visits, "int", 0),
        case(1, Count(of="seen", dropnull=True, window=HOUR), Visits, "int", 0),
        case(2, Sum(of="price", window=HOUR), Orders, "float", 0.0),
        case(2, Sum(of="count", window=HOUR), Orders, "int", 0),
        case(2, Sum(of="cost", window=HOUR), Orders, "Decimal[2]", "0.00"),
        # Restricted types sum up to their base type.
        case(2, Sum(of="stars", window=HOUR), Orders, "int", 0),
        case(2, Sum(of="level", window=HOUR), Visits, "int", 0),
        case(2, Sum(of="ratio", window=HOUR), Visits, "float", 0.0),
        case(3, Average(of="count", window=HOUR), Orders, "float", 0.0),
        case(3, Average(of="cost", window=HOUR, default=3), Orders, "float", 3.0),
        case(3, Average(of="price", window=HOUR, default=math.inf), Orders, "float", math.inf),
        case(3, Average(of="price", window=HOUR, default=None), Orders, "Optional[float]", None),
        case(4, Min(of="day", window=HOUR, default=date(1970, 1, 3)), Orders, "date", 2),
        # A datetime is accepted for a date.
        case(4, Min(of="day", window=HOUR, default=datetime(1970, 1, 3, 5, tzinfo=UTC)), Orders, "date", 2),
        case(4, Max(of="due", window=HOUR), Visits, "Optional[datetime]", None),
        case(4, Max(of="seen", window=HOUR, default=datetime(1970, 1, 1, 0, 0, 1)), Visits, "datetime", 1_000_000),  # noqa: DTZ001 (read as UTC)
        case(4, Max(of="stars", window=HOUR, default=1.0), Orders, "int", 1),
        case(4, Max(of="price", window=HOUR, default=1), Orders, "float", 1.0),
        case(4, Max(of="price", window=HOUR, default=Number("1.5")), Orders, "float", 1.5),
        case(4, Min(of="cost", window=HOUR, default=1), Orders, "Decimal[2]", "1.00"),
        case(4, Min(of="cost", window=HOUR, default=1.5), Orders, "Decimal[2]", "1.50"),
        case(4, Min(of="cost", window=HOUR), Orders, "Optional[Decimal[2]]", None),
        case(5, Stddev(of="price", window=HOUR), Orders, "float", -1.0),
        case(5, Stddev(of="price", window=HOUR, default=None), Orders, "Optional[float]", None),
        case(5, Variance(of="cost", window=HOUR), Orders, "float", -1.0),
        case(5, Variance(of="price", window=HOUR, default=None), Orders, "Optional[float]", None),
        case(6, Quantile(of="count", p=0.5, approx=True, window=HOUR), Orders, "Optional[float]", None),
        case(6, Quantile(of="cost", p=1, approx=True, default=0, window=HOUR), Orders, "float", 0.0),
        case(7, Distinct(of="shop", unordered=True, window=HOUR), Orders, "List[Optional[str]]", None),
        case(7, Distinct(of="shop", unordered=True, dropnull=True, window=HOUR), Orders, "List[str]", None),
        case(7, Distinct(of="zip", unordered=True, window=HOUR), Visits, "List[regex('[0-9]+')]", None),
        case(7, Distinct(of="cost", unordered=True, window=HOUR), Orders, "List[Decimal[2]]", None),
        case(8, LastK(of="count", **ENDS), Orders, "List[Optional[int]]", None),
        case(8, LastK(of="count", dropnull=True, **ENDS), Orders, "List[int]", None),
        case(8, LastK(of="place", **ENDS), Visits, "List[Place]", None),
        case(9, FirstK(of="seen", dropnull=True, **ENDS), Visits, "List[datetime]", None),
        case(9, FirstK(of="tags", dropnull=False, **ENDS), Visits, "List[List[str]]", None),
        case(10, ExpDecaySum(of="cost", half_life="1d", window=HOUR), Orders, "float", 0.0),
        case(10, ExpDecaySum(of="count", half_life="1d", window=HOUR), Orders, "float", 0.0),
    ],
)
def test_output_types_and_defaults(aggregate: AggregateType, on: Any, dtype: str, default: object) -> None:
    spec = spec_of(aggregate, on)
    assert (type_name(spec.dtype), spec.default) == (dtype, default)
    assert type(spec.default) is type(default)


def test_parameters_are_carried() -> None:
    quantile = spec_of(Quantile(of="price", p=0.25, approx=True, window=HOUR), Orders)
    assert (quantile.p, quantile.approx) == (0.25, True)
    last = spec_of(LastK(of="price", limit=2, dedup=True, window=HOUR), Orders)
    assert (last.limit, last.dedup, last.dropnull) == (2, True, False)
    decay = spec_of(ExpDecaySum(of="price", half_life="2h", window=HOUR), Orders)
    assert decay.half_life_us == 7_200_000_000
    # Without unique or dropnull neither the column of a count nor its approx makes a difference.
    assert spec_of(Count(of="gone", approx=True, window=HOUR), Orders) == spec_of(Count(window=HOUR), Orders)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a))])  # noqa: S301 (our own)
def test_aggregates_are_values(duplicate: Any) -> None:
    aggregate = LastK(of=Orders.price, limit=2, dedup=True, window=HOUR)
    assert aggregate.of == "price"
    assert duplicate(aggregate) == aggregate == LastK(of="price", limit=2, dedup=True, window=HOUR)


@pytest.mark.parametrize("kind", [Average, Stddev, Variance, Quantile, Min, Max])
def test_what_an_editor_shows_of_an_aggregate_says_its_value_of_nothing(kind: type[AggregateType]) -> None:
    # The three conventions differ: a number of the aggregate's own, or null.
    default = {field.name: field for field in dataclasses.fields(kind)}["default"].default
    told = "Without any it is null" if default is None else f"Without any it is `default`: {default} unless"
    assert told in (kind.__doc__ or "")
