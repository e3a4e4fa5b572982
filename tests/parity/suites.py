"""Random expectations on the datasets of a case, which depend on the seed and the names of the datasets alone.

So a case that is made smaller keeps the expectations of the datasets and columns that it still has.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

from caraway.dtypes.types import (
    BoolType,
    BytesType,
    DataType,
    FloatType,
    IntType,
    StringType,
    base_type,
)
from caraway.graph.drift import Drift
from caraway.graph.expectations import Expectation, ExpectationSuite
from caraway.graph.specs import DatasetSpec
from caraway.graph.trees import is_terminal
from tests.parity.graphs import REFUSALS, Case, check
from tests.parity.values import TEXTS

#: The share of datasets with expectations, the most of one, and the share of those that look at some rows only.
SHARE, MOST, CONDITIONAL = 0.7, 4, 0.25
#: The share of datasets that are profiled.
PROFILED = 0.5
PATTERNS = ["^[a-z]$", "[A-Z]", "^$", "a|b", "\\W"]

# The name of an expectation and its arguments.
Drawn = tuple[str, dict[str, Any]]


def expected_of(case: Case) -> Case:
    """Return a case whose datasets have random expectations and profiles, unless the graph's rules refuse them."""
    for spec in case.datasets:
        if any(is_terminal(pipeline.operator) for pipeline in spec.pipelines):
            continue
        rng = Random(f"expectations of {case.seed} {spec.name}")
        if rng.random() < SHARE:
            case = _with(case, replace(spec, expectations=suite_of(rng, spec)))
        if rng.random() < PROFILED:
            known = next(one for one in case.datasets if one.name == spec.name)
            case = _with(case, replace(known, metadata=replace(known.metadata, drift=Drift())))
    return case


def _with(case: Case, spec: DatasetSpec) -> Case:
    """Return a case with another definition of a dataset, unless the graph's rules refuse it."""
    longer = replace(case, datasets=tuple(spec if one.name == spec.name else one for one in case.datasets))
    try:
        check(longer)
    except REFUSALS:
        return case
    return longer


def suite_of(rng: Random, spec: DatasetSpec) -> ExpectationSuite:
    """Draw expectations on the columns of a dataset."""
    possible = list(_possible(rng, spec))
    drawn = rng.sample(possible, min(rng.randint(1, MOST), len(possible)))
    ints = [field.name for field in spec.fields if isinstance(field.dtype, IntType)]
    items = []
    for name, arguments in drawn:
        # The conditions of pandas: about a column without nulls, so that plain Python has the same meaning.
        if ints and "column_A" not in arguments and rng.random() < CONDITIONAL:
            arguments["row_condition"] = f"{rng.choice(ints)} > {rng.randrange(-1, 5)}"
        items.append(Expectation(name=name, arguments=json.dumps(arguments, sort_keys=True)))
    return ExpectationSuite(name="drawn", version=1, expectations=tuple(items))


def _possible(rng: Random, spec: DatasetSpec) -> Iterator[Drawn]:
    types = {field.name: field.dtype for field in spec.fields if not field.timestamp}
    for name, dtype in types.items():
        yield rng.choice(["expect_column_values_to_not_be_null", "expect_column_values_to_be_null"]), {"column": name}
        yield from _of_values(rng, name, dtype)
    for kind in (IntType, FloatType, StringType):
        alike = [name for name, dtype in types.items() if _is(dtype, kind)]
        if len(alike) > 1:
            first, second = rng.sample(alike, 2)
            pair = {"column_A": first, "column_B": second}
            yield "expect_column_pair_values_to_be_equal", {**pair, "ignore_row_if": rng.choice(_IGNORED)}
            if kind is not StringType:
                yield "expect_column_pair_values_a_to_be_greater_than_b", {**pair, "or_equal": rng.random() < 0.5}


_IGNORED = ["both_values_are_missing", "either_value_is_missing", "neither"]


def _of_values(rng: Random, name: str, dtype: DataType) -> Iterator[Drawn]:
    own: dict[str, Any] = {"column": name}
    if _is(dtype, IntType):
        low = rng.randrange(-2, 5)
        yield "expect_column_values_to_be_between", {**own, "min_value": low, "max_value": low + rng.randrange(6)}
        yield "expect_column_values_to_be_in_set", {**own, "value_set": rng.sample(range(-2, 9), 4)}
        yield "expect_column_values_to_not_be_in_set", {**own, "value_set": [0, 2**62]}
    elif _is(dtype, FloatType):
        bound = rng.randrange(-999, 999) / 100
        yield "expect_column_values_to_be_between", {**own, "min_value": bound, "strict_min": rng.random() < 0.5}
        yield "expect_column_values_to_be_between", {**own, "max_value": bound, "strict_max": rng.random() < 0.5}
    elif _is(dtype, StringType):
        yield "expect_column_values_to_match_regex", {**own, "regex": rng.choice(PATTERNS)}
        yield "expect_column_values_to_not_match_regex", {**own, "regex": rng.choice(PATTERNS)}
        yield "expect_column_value_lengths_to_be_between", {**own, "min_value": 1, "max_value": rng.randrange(1, 4)}
        yield "expect_column_values_to_be_in_set", {**own, "value_set": rng.sample(TEXTS, 4)}
    elif _is(dtype, BoolType):
        yield "expect_column_values_to_be_in_set", {**own, "value_set": [rng.random() < 0.5]}
    elif _is(dtype, BytesType):
        yield "expect_column_values_to_be_of_type", {**own, "type_": rng.choice(["bytes", "str"])}


def _is(dtype: DataType, kind: type) -> bool:
    return isinstance(base_type(dtype), kind)
