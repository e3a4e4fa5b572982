"""Random functions of a frame: some that the tracer can tell as expressions, and some that only Python runs."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pandas as pd

from caraway.dtypes.types import BOOL, FLOAT, INT, STRING, DataType, base_type, is_optional, optional
from caraway.graph.capture.shipping import python_function
from caraway.graph.operators import AssignFunction, FilterFunction, Operator, Transform
from caraway.graph.tracing.frames import trace_column, trace_filter

Function = Callable[[pd.DataFrame], Any]


def filter_by_function(rng: Random, of: Operator, columns: Mapping[str, DataType]) -> Operator:
    """Filter by a function; often one that is null for some rows, which counts as false."""
    name = rng.choice(list(columns))
    if base_type(columns[name]) in {INT, FLOAT} and rng.random() < 0.7:
        function = rng.choice([_above(name, rng.randrange(-3, 6)), _opaquely_above(name, rng.randrange(-3, 6))])
    else:
        function = rng.choice([_known(name), _opaquely_known(name)])
    traced = trace_filter(function, columns) if rng.random() < 0.7 else None
    return FilterFunction(of=of, function=python_function("parity", function), traced=traced)


def assign_by_function(rng: Random, of: Operator, columns: Mapping[str, DataType], into: str) -> Operator:
    """Assign a column of a function's values, of the type of the column that it is made of."""
    name = rng.choice(list(columns))
    made: Mapping[DataType, list[Function]] = {
        INT: [_minus(name, rng.randrange(9)), _opaquely_minus(name, rng.randrange(9))],
        FLOAT: [_third(name), _filled(name)],
        STRING: [_upper(name), _opaquely_doubled(name)],
    }
    base = base_type(columns[name])
    dtype, functions = (base, made[base]) if base in made else (BOOL, [_known(name), _opaquely_known(name)])
    function = rng.choice(functions)
    if dtype is not BOOL and is_optional(columns[name]):
        dtype = optional(dtype)
    traced = trace_column(function, columns, dtype) if rng.random() < 0.7 else None
    return AssignFunction(of=of, column=into, dtype=dtype, function=python_function("parity", function), traced=traced)


def transform_by_function(rng: Random, of: Operator, columns: Mapping[str, DataType], into: str) -> Operator:
    """Add a column by a function of the whole frame."""
    function = _with_flag(rng.choice(list(columns)), into)
    return Transform(of=of, function=python_function("parity", function), columns=(*columns.items(), (into, BOOL)))


def _above(name: str, bound: int) -> Function:
    return lambda frame: frame[name] > bound


def _opaquely_above(name: str, bound: int) -> Function:
    # A branch on a value can't be traced.
    return lambda frame: frame[name].map(lambda value: not pd.isna(value) and value > bound)


def _known(name: str) -> Function:
    return lambda frame: frame[name].notna()


def _opaquely_known(name: str) -> Function:
    return lambda frame: pd.Series([value is not None and value is not pd.NA for value in frame[name]], dtype="bool")


def _minus(name: str, number: int) -> Function:
    return lambda frame: frame[name] - number


def _opaquely_minus(name: str, number: int) -> Function:
    return lambda frame: frame[name].map(lambda value: value if pd.isna(value) or value < 0 else value - number)


def _third(name: str) -> Function:
    return lambda frame: frame[name] / 3


def _filled(name: str) -> Function:
    return lambda frame: frame[name].fillna(0.5)


def _upper(name: str) -> Function:
    return lambda frame: frame[name].str.upper()


def _opaquely_doubled(name: str) -> Function:
    return lambda frame: frame[name].map(lambda value: value if pd.isna(value) else value + value)


def _with_flag(name: str, into: str) -> Function:
    return lambda frame: frame.assign(**{into: frame[name].isna()})
