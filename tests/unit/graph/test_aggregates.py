"""Every aggregate function has a row of traits, and the row agrees with the class by which users name the function."""

import dataclasses
from dataclasses import replace
from typing import Any

import pytest

from caraway.datasets import aggregates
from caraway.datasets.aggregates import AggregateType
from caraway.dtypes.types import FLOAT
from caraway.graph.aggregates import (
    TRAITS,
    AggregateFunction,
    AggregateSpec,
    Keeps,
    ResultType,
    defaults_if_unseen,
    kept_for,
)

F = AggregateFunction
SPEC = AggregateSpec(function=F.SUM, into="a", of="x", window=None, default=1.5, dtype=FLOAT)
VALUES_IF = {(F.COUNT, "unique"), (F.LAST_K, "dedup"), (F.FIRST_K, "dedup")}
COMMON = {"function", "into", "of", "window", "default", "dtype"}
CLASSES: list[AggregateType] = [
    aggregates.Count(),
    aggregates.Sum(of="x"),
    aggregates.Average(of="x"),
    aggregates.Min(of="x"),
    aggregates.Max(of="x"),
    aggregates.Stddev(of="x"),
    aggregates.Variance(of="x"),
    aggregates.Quantile(of="x", p=0.5, approx=True),
    aggregates.Distinct(of="x", unordered=True),
    aggregates.LastK(of="x", limit=1, dedup=False),
    aggregates.FirstK(of="x", limit=1, dedup=False, dropnull=False),
    aggregates.ExpDecaySum(of="x", half_life="1s"),
]


def test_every_function_has_a_row_and_a_class() -> None:
    assert list(TRAITS) == list(F)
    assert [given.function for given in CLASSES] == list(F)


def test_every_parameter_of_a_spec_is_in_a_row() -> None:
    fields = {field.name for field in dataclasses.fields(AggregateSpec)} - COMMON
    assert {name for traits in TRAITS.values() for name in traits.parameters} == fields


@pytest.mark.parametrize("given", CLASSES, ids=lambda given: given.function)
def test_a_row_agrees_with_the_class(given: AggregateType) -> None:
    traits = TRAITS[given.function]
    assert traits.parameters == given.parameters().keys()
    assert traits.default_if_unseen == any(field.name == "default" for field in dataclasses.fields(given))


@pytest.mark.parametrize("function", F)
def test_a_row_agrees_with_itself(function: AggregateFunction) -> None:
    traits = TRAITS[function]
    assert (traits.values is not None) == (traits.keeps is Keeps.VALUES or traits.values_if is not None)
    assert traits.values_if is None or traits.values_if in traits.parameters
    # A list has an order, which its use of single values determines, and its default is the empty list.
    assert traits.result is not ResultType.LIST_OF_COLUMN or (traits.values and not traits.default_if_unseen)


@pytest.mark.parametrize("function", F)
@pytest.mark.parametrize("parameter", ["unique", "dedup"])
def test_a_parameter_makes_a_function_keep_values(function: AggregateFunction, parameter: str) -> None:
    traits, spec = TRAITS[function], replace(SPEC, function=function)
    assert kept_for(spec) is traits.keeps
    given: dict[str, Any] = {parameter: True}
    changed = kept_for(replace(spec, **given))
    assert changed is (Keeps.VALUES if (function, parameter) in VALUES_IF else traits.keeps)


def test_the_default_of_some_functions_stands_for_a_key_never_seen() -> None:
    specs = [replace(SPEC, function=function, into=function.value) for function in F]
    with_default = {F.AVERAGE, F.MIN, F.MAX, F.STDDEV, F.VARIANCE, F.QUANTILE}
    assert defaults_if_unseen(specs) == {function.value: 1.5 for function in with_default}
    assert defaults_if_unseen([replace(spec, default=None) for spec in specs]) == {}
