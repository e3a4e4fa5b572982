"""Expression steps of many rows, and of expressions that only polars can evaluate."""

from collections.abc import Sequence

import polars as pl

from caraway.compute.query.batch import Batch, Run
from caraway.compute.query.checking import checked
from caraway.compute.query.model import Computed, ExpressionStep
from caraway.compute.query.series import put_series, series_of
from caraway.dtypes.types import is_optional
from caraway.dtypes.values import restriction
from caraway.errors import InvalidInputError
from caraway.expr.polars.compiler import compile_as, reason_of
from caraway.expr.polars.values import INSTANT, from_polars
from caraway.expr.scalars.scope import NOW

# The name of a column beside those of the features. The space makes the name differ from every feature's name.
ROW = "__caraway row"


def compile_polars(step: ExpressionStep, features: Sequence[Computed]) -> Run:
    """Return the function that adds some columns of an expression step to a batch, by polars."""
    schema = {bare: dtype for bare, _, dtype in step.inputs}
    compiled = [
        compile_as(feature.expr, feature.dtype, schema, now=pl.col(NOW)).alias(feature.column) for feature in features
    ]
    roots = {name for expr in compiled for name in expr.meta.root_names()}
    inputs = [item for item in step.inputs if item[0] in roots]
    checks = [(feature, restriction(feature.dtype)) for feature in features]
    needs_now = NOW in roots

    def run(batch: Batch) -> None:
        columns = [series_of(batch, name, dtype).alias(bare) for bare, name, dtype in inputs]
        if needs_now:
            columns.append(pl.Series(NOW, batch.instants(), dtype=pl.Int64).cast(INSTANT))
        if not columns:
            # A column with a value for each row makes polars repeat constants as often.
            columns.append(pl.Series(ROW, range(batch.rows), dtype=pl.Int64))
        try:
            frame = pl.DataFrame(columns).with_columns(compiled)
        except InvalidInputError as error:
            raise InvalidInputError(reason_of(error)) from None
        for feature, check in checks:
            series = frame[feature.column]
            if check is None and (is_optional(feature.dtype) or not series.null_count()):
                put_series(batch, feature.column, series, feature.dtype)
            else:
                batch.columns[feature.column] = checked(from_polars(series, feature.dtype), feature, check)

    return run
