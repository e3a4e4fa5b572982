"""Operators with expressions, which polars computes: filter and assign."""

from collections.abc import Callable, Mapping, Sequence

import polars as pl

from caraway.compute.reference.operators.columns import assigned, keep
from caraway.compute.reference.tables import Table, Version
from caraway.dtypes import types as t
from caraway.dtypes.values import restriction
from caraway.errors import InvalidInputError
from caraway.expr.polars.compiler import compile_as, reason_of
from caraway.expr.polars.values import from_polars, to_polars
from caraway.expr.printer import print_node
from caraway.graph.operators import Assign, AssignedColumn, Filter
from caraway.graph.schemas import Schema

# A column of row numbers that is selected beside the expressions. Without it, polars would return one value, and not
# one for each row, if all expressions are constants.
ROW = "__caraway row"

# Computes a column of values for each expression.
Evaluate = Callable[[Sequence[Version]], list[list[object]]]


def compile_filter(operator: Filter, before: Schema) -> Callable[[Table], Table]:
    """Return the operator as a function of its input; null counts as false."""
    evaluate = _compile(
        [AssignedColumn(name="filter", dtype=t.optional(t.BOOL), expr=operator.predicate)], before.columns
    )
    keys = tuple(before.keys)
    return lambda table: keep(table, keys, evaluate(table.versions)[0])


def compile_assign(operator: Assign, before: Schema) -> Callable[[Table], Table]:
    """Return the operator as a function of its input; all expressions see the input."""
    evaluate = _compile(operator.columns, before.columns)
    keys, names = tuple(before.keys), [column.name for column in operator.columns]
    checks = [_check(column) for column in operator.columns]

    def run(table: Table) -> Table:
        computed = evaluate(table.versions)
        for check, values in zip(checks, computed, strict=True):
            check(values)
        return assigned(table, keys, names, computed)

    return run


def _compile(columns: Sequence[AssignedColumn], schema: Mapping[str, t.DataType]) -> Evaluate:
    compiled = [
        compile_as(column.expr, column.dtype, schema).alias(str(position)) for position, column in enumerate(columns)
    ]
    roots = [name for name in schema if any(name in expr.meta.root_names() for expr in compiled)]

    def evaluate(versions: Sequence[Version]) -> list[list[object]]:
        rows = pl.Series(ROW, range(len(versions)), dtype=pl.Int64)
        inputs = [to_polars(name, [version.row[name] for version in versions], schema[name]) for name in roots]
        try:
            results = pl.DataFrame([rows, *inputs]).select(pl.col(ROW), *compiled)
        except (pl.exceptions.PolarsError, InvalidInputError) as error:
            spelled = ", ".join(print_node(column.expr) for column in columns)
            raise InvalidInputError(f"{spelled} can't be computed: {reason_of(error)}") from error
        return [from_polars(results[str(position)], column.dtype) for position, column in enumerate(columns)]

    return evaluate


def _check(column: AssignedColumn) -> Callable[[list[object]], None]:
    """Return a function that raises if a value is null or out of bounds although its declared type forbids that."""
    restricted = restriction(column.dtype)
    title = f"assign: column {column.name} is declared {t.type_name(column.dtype)}, but {print_node(column.expr)}"

    def check(values: list[object]) -> None:
        if not t.is_optional(column.dtype) and None in values:
            raise InvalidInputError(f"{title} is null in row {values.index(None)}")
        if restricted is not None:
            for row, value in enumerate(values):
                if value is None:
                    continue
                try:
                    restricted(value)
                except InvalidInputError as error:
                    raise InvalidInputError(f"{title}, row {row}: {error}") from None

    return check
