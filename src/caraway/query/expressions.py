"""Expression steps: features computed from others of their featureset."""

from collections.abc import Callable, Sequence

import polars as pl

from caraway.dtypes.types import (
    BetweenType,
    DataType,
    OneOfType,
    RegexType,
    is_optional,
    strip_optional,
    type_name,
)
from caraway.dtypes.values import cast
from caraway.errors import InvalidInputError
from caraway.expr.nodes import Now, Ref
from caraway.expr.polars.compiler import compile_as, reason_of
from caraway.expr.polars.values import INSTANT, from_polars, to_polars
from caraway.expr.printer import print_node
from caraway.expr.references import walk
from caraway.expr.scalars.compiler import compile_scalar
from caraway.expr.scalars.scope import NOW, Row, Scalar
from caraway.query.batch import Batch, Run
from caraway.query.model import Computed, ExpressionStep

# A column beside those of the features, whose names are identifiers.
ROW = "__caraway row"

# Up to so many rows plain Python is faster. Measured with one to six features: a row takes it 1 to 1.5 us a feature, a
# step of polars 80 to 200 us and little more for 100 rows; they meet between 100 and 130 rows, on a quiet machine.
FEW_ROWS = 64

Check = Callable[[object], object]


def compile_expressions(step: ExpressionStep) -> Run:
    """Make the function that adds the columns of an expression step to a batch.

    For few rows plain Python computes one value after the other, for more polars does; both give the same.
    """
    schema = {bare: dtype for bare, _, dtype in step.inputs}
    scalars = [(feature, compile_scalar(feature.expr, feature.dtype, schema)) for feature in step.features]
    by_scalars = [(feature, scalar) for feature, scalar in scalars if scalar is not None]
    by_polars = [feature for feature, scalar in scalars if scalar is None]
    many = _compile_polars(step, step.features)
    few = [_compile_scalars(step, by_scalars)] if by_scalars else []
    if by_polars:
        few.append(_compile_polars(step, by_polars) if by_scalars else many)

    def run(batch: Batch) -> None:
        if batch.rows > FEW_ROWS:
            many(batch)
        else:
            for part in few:
                part(batch)

    return run


def _compile_scalars(step: ExpressionStep, features: Sequence[tuple[Computed, Scalar]]) -> Run:
    nodes = [node for feature, _ in features for node in walk(feature.expr)]
    read = {node.name for node in nodes if isinstance(node, Ref)}
    inputs = [(bare, name) for bare, name, _ in step.inputs if bare in read]
    needs_now = any(isinstance(node, Now) for node in nodes)
    compiled = [(feature, scalar, _restriction(feature.dtype)) for feature, scalar in features]

    def run(batch: Batch) -> None:
        columns = [(bare, batch.columns[name]) for bare, name in inputs]
        rows: list[Row] = [{bare: column[place] for bare, column in columns} for place in range(batch.rows)]
        if needs_now:
            for row, instant in zip(rows, batch.instants(), strict=True):
                row[NOW] = instant
        for feature, scalar, check in compiled:
            batch.columns[feature.column] = _checked([scalar(row) for row in rows], feature, check)

    return run


def _compile_polars(step: ExpressionStep, features: Sequence[Computed]) -> Run:
    schema = {bare: dtype for bare, _, dtype in step.inputs}
    compiled = [
        compile_as(feature.expr, feature.dtype, schema, now=pl.col(NOW)).alias(feature.column) for feature in features
    ]
    roots = {name for expr in compiled for name in expr.meta.root_names()}
    inputs = [item for item in step.inputs if item[0] in roots]
    checks = [(feature, _restriction(feature.dtype)) for feature in features]
    needs_now = NOW in roots

    def run(batch: Batch) -> None:
        columns = [to_polars(bare, batch.columns[name], dtype) for bare, name, dtype in inputs]
        if needs_now:
            columns.append(pl.Series(NOW, batch.instants(), dtype=pl.Int64).cast(INSTANT))
        if not columns:
            # A constant is repeated for each row of what stands beside it.
            columns.append(pl.Series(ROW, range(batch.rows), dtype=pl.Int64))
        try:
            frame = pl.DataFrame(columns).with_columns(compiled)
        except InvalidInputError as error:
            raise InvalidInputError(reason_of(error)) from None
        for feature, check in checks:
            values = from_polars(frame[feature.column], feature.dtype)
            batch.columns[feature.column] = _checked(values, feature, check)

    return run


def _restriction(dtype: DataType) -> Check | None:
    """Return what raises for a value outside a restricted type; None for a type without restriction."""
    inner = strip_optional(dtype)
    return cast(inner) if isinstance(inner, (BetweenType, OneOfType, RegexType)) else None


def _checked(values: list[object], feature: Computed, check: Check | None) -> list[object]:
    if not is_optional(feature.dtype) and None in values:
        raise InvalidInputError(
            f"{feature.column} is declared {type_name(feature.dtype)}, but {print_node(feature.expr)} is null in row "
            f"{values.index(None)}"
        )
    if check is not None:
        for row, value in enumerate(values):
            if value is not None:
                try:
                    check(value)
                except InvalidInputError as error:
                    raise InvalidInputError(
                        f"{feature.column} = {print_node(feature.expr)}, row {row}: {error}"
                    ) from None
    return values
