"""Operators with users' functions of a pandas frame: filter, assign and transform."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd

from caraway.compute.reference.operators.columns import assigned, keep
from caraway.compute.reference.tables import Relation, Table, Version
from caraway.dtypes.series import from_series, to_series
from caraway.dtypes.types import DataType, is_optional, strip_optional, type_name
from caraway.dtypes.values import cast, is_null
from caraway.errors import InvalidInputError
from caraway.graph.functions import PythonFunction
from caraway.graph.operators import AssignFunction, FilterFunction, Transform
from caraway.graph.schemas import Schema

BOOLEAN_COLUMNS = frozenset({"bool", "boolean", "bool[pyarrow]"})

# Columns in stored form, all of one length.
Columns = Mapping[str, Sequence[object]]
# Functions that call a user's function with a frame, given as columns and the number of rows. A `ColumnCall` returns
# one column, a `FrameCall` several.
ColumnCall = Callable[[Columns, int], list[object]]
FrameCall = Callable[[Columns, int], dict[str, list[object]]]


def compile_filter_function(operator: FilterFunction, before: Schema) -> Callable[[Table], Table]:
    """Return the operator as a function of its input; null counts as false."""
    call, keys = filter_call(operator, before), tuple(before.keys)

    def run(table: Table) -> Table:
        if not table.versions:
            return table
        return keep(table, keys, call(_columns(table, before), len(table.versions)))

    return run


def compile_assign_function(operator: AssignFunction, before: Schema) -> Callable[[Table], Table]:
    """Return the operator as a function of its input; a scalar result becomes the value of every row."""
    call, keys = assign_call(operator, before), tuple(before.keys)

    def run(table: Table) -> Table:
        if not table.versions:
            return table
        values = call(_columns(table, before), len(table.versions))
        return assigned(table, keys, (operator.column,), (values,))

    return run


def compile_transform(operator: Transform, before: Schema) -> Callable[[Table], Table]:
    """Return the operator as a function of its input.

    A user's function that changes a key or time stamp, or the order of rows, is an error.
    """
    call, keys = transform_call(operator, before), tuple(before.keys)

    def run(table: Table) -> Table:
        if not table.versions:
            return table
        columns = call(_columns(table, before), len(table.versions))
        return Relation(
            keys,
            [
                Version(dict(zip(columns, values, strict=True)), begin_us, end_us)
                for (_, begin_us, end_us), *values in zip(table.versions, *columns.values(), strict=True)
            ],
        )

    return run


def filter_call(operator: FilterFunction, before: Schema) -> ColumnCall:
    """Return the function that computes for each row whether a filter keeps it; the streaming engine uses it, too.

    The returned function raises `InvalidInputError` if the user's function fails or returns something invalid; so do
    those of `assign_call` and `transform_call`.
    """
    call = _caller("filter", operator.function, before.columns)
    return lambda columns, rows: _verdicts(_column("filter", call(columns, rows), rows))


def assign_call(operator: AssignFunction, before: Schema) -> ColumnCall:
    """Return the function that computes the values of an assigned column."""
    title = f"assign: column {operator.column}"
    call = _caller(title, operator.function, before.columns)

    def values(columns: Columns, rows: int) -> list[object]:
        result = _column(title, call(columns, rows), rows)
        try:
            return from_series(result, operator.dtype)
        except InvalidInputError as error:
            raise InvalidInputError(f"{title} {error}") from error

    return values


def transform_call(operator: Transform, before: Schema) -> FrameCall:
    """Return the function that computes all columns of a transform."""
    call = _caller("transform", operator.function, before.columns)
    fixed = (*before.keys, before.timestamp)
    declared = dict(operator.columns) if operator.columns is not None else dict(before.columns)
    schema = {name: before.columns[name] if name in fixed else dtype for name, dtype in declared.items()}
    source = "schema=" if operator.columns is not None else "its input, as there is no schema="

    def values(columns: Columns, rows: int) -> dict[str, list[object]]:
        frame = _frame(call(columns, rows), schema, source, rows)
        made = {name: _cast(frame[name], name, dtype) for name, dtype in schema.items()}
        for name in fixed:
            _require_same(name, made[name], columns[name])
        return made

    return values


def _columns(table: Table, before: Schema) -> dict[str, list[object]]:
    return {name: [version.row[name] for version in table.versions] for name in before.columns}


def _caller(title: str, function: PythonFunction, schema: Mapping[str, DataType]) -> Callable[[Columns, int], Any]:
    """Return a call of a user's function with columns as a frame; the function is unpickled once, when first needed."""

    @cache
    def loaded() -> Callable[[pd.DataFrame], Any]:
        return cloudpickle.loads(function.pickled)  # type: ignore[no-any-return]

    def call(columns: Columns, rows: int) -> Any:
        index = pd.RangeIndex(rows)
        # No other call gets this frame, so the maps in it are plain dicts (`seal=dict`), which the function may change.
        frame = pd.DataFrame(
            {name: to_series(columns[name], dtype, name=name, index=index, seal=dict) for name, dtype in schema.items()}
        )
        try:
            return loaded()(frame)
        except (Exception, SystemExit) as error:
            raise InvalidInputError(
                f"{title}: its function {function.name} raised {type(error).__name__}: {error}"
            ) from error

    return call


def _column(title: str, result: Any, rows: int) -> "pd.Series[Any]":
    """Return the result of a function as a column; a single value for all rows is repeated."""
    if isinstance(result, pd.DataFrame) or result is None:
        raise InvalidInputError(
            f"{title}: its function returned {type(result).__name__}; a Series of {rows} values is expected"
        )
    if isinstance(result, (np.ndarray, pd.api.extensions.ExtensionArray, pd.Index, list, tuple)):
        result = pd.Series(result)
    if not isinstance(result, pd.Series):
        return pd.Series([result] * rows)
    if len(result) != rows:
        raise InvalidInputError(f"{title}: its function returned {len(result)} values for {rows} rows")
    return _aligned(result)


def _verdicts(result: "pd.Series[Any]") -> list[object]:
    values = [None if is_null(value) else value for value in result.tolist()]
    if str(result.dtype) in BOOLEAN_COLUMNS or all(isinstance(value, (bool, np.bool_, type(None))) for value in values):
        return [value is not None and bool(value) for value in values]
    raise InvalidInputError(f"filter: its function returned a column of {result.dtype}; bool is expected")


def _frame(result: object, schema: Mapping[str, DataType], source: str, rows: int) -> pd.DataFrame:
    """Check the shape of what a transform returned."""
    if not isinstance(result, pd.DataFrame):
        raise InvalidInputError(f"transform: its function returned {type(result).__name__}; a DataFrame is expected")
    if len(result) != rows:
        raise InvalidInputError(
            f"transform: its function returned {len(result)} rows for {rows}; it must keep them all"
        )
    if set(result.columns) != set(schema) or len(result.columns) != len(schema):
        raise InvalidInputError(
            f"transform: its function returned the columns {', '.join(map(str, result.columns)) or 'none'}; expected "
            f"are {', '.join(schema)}, those of {source}"
        )
    return result


def _cast(series: "pd.Series[Any]", name: str, dtype: DataType) -> list[object]:
    """Return a column of a transform in stored form; unlike in an assign, values are cast to the column's type."""
    convert = cast(strip_optional(dtype))
    stored: list[object] = []
    for row, value in enumerate(_aligned(series).astype(object).tolist()):
        try:
            stored.append(None if is_optional(dtype) and is_null(value) else convert(value))
        except InvalidInputError as error:
            raise InvalidInputError(f"transform: column {name} ({type_name(dtype)}), row {row}: {error}") from None
    return stored


def _require_same(name: str, found: Sequence[object], wanted: Sequence[object]) -> None:
    for row, (one, other) in enumerate(zip(found, wanted, strict=True)):
        if one != other:
            raise InvalidInputError(
                f"transform: its function changed {name} of row {row}; keys and time stamp stay as they are, and so "
                "does the order of rows"
            )


def _aligned(series: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return values in the rows' order: by label if the labels are 0 to n-1 in any order, otherwise by position."""
    labels = series.index.tolist()
    ordered = list(range(len(labels)))
    if labels == ordered:
        return series
    try:
        permuted = sorted(labels) == ordered
    except TypeError:
        permuted = False
    return series.loc[ordered] if permuted else series.reset_index(drop=True)
