"""Expression steps: features computed by polars from others of their featureset."""

from collections.abc import Callable

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
from caraway.expr.polars.compiler import compile_as
from caraway.expr.polars.values import INSTANT, from_polars, to_polars
from caraway.expr.printer import print_node
from caraway.query.batch import Batch, Run
from caraway.query.model import Computed, ExpressionStep

# Columns beside those of the features, whose names are identifiers.
NOW = "__caraway now"
ROW = "__caraway row"

Check = Callable[[object], object]


def compile_expressions(step: ExpressionStep) -> Run:
    """Make the function that adds the columns of an expression step to a batch."""
    schema = {bare: dtype for bare, _, dtype in step.inputs}
    compiled = [
        compile_as(feature.expr, feature.dtype, schema, now=pl.col(NOW)).alias(feature.column)
        for feature in step.features
    ]
    roots = {name for expr in compiled for name in expr.meta.root_names()}
    inputs = [item for item in step.inputs if item[0] in roots]
    checks = [(feature, _restriction(feature.dtype)) for feature in step.features]
    needs_now = NOW in roots

    def run(batch: Batch) -> None:
        columns = [to_polars(bare, batch.columns[name], dtype) for bare, name, dtype in inputs]
        if needs_now:
            columns.append(pl.Series(NOW, batch.instants(), dtype=pl.Int64).cast(INSTANT))
        if not columns:
            # A constant is repeated for each row of what stands beside it.
            columns.append(pl.Series(ROW, range(batch.rows), dtype=pl.Int64))
        frame = pl.DataFrame(columns).with_columns(compiled)
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
