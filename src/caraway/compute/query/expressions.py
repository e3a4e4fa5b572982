"""Expression steps, which compute features from others of their featureset."""

from collections.abc import Sequence

from caraway.compute.query.batch import Batch, Run
from caraway.compute.query.checking import checked
from caraway.compute.query.model import Computed, ExpressionStep
from caraway.dtypes.values import restriction
from caraway.expr.nodes import Now, Ref
from caraway.expr.references import walk
from caraway.expr.scalars.compiler import compile_scalar
from caraway.expr.scalars.scope import NOW, Row, Scalar

# Plain Python computes a step for up to this many rows, and polars for more. Measured with one to six features on a
# quiet machine, Python takes 1 to 1.5 us for each feature and row. polars takes 80 to 200 us for a step, and little
# more for 100 rows, so they are equally fast at 100 to 130 rows.
FEW_ROWS = 64


def compile_expressions(step: ExpressionStep) -> Run:
    """Return the function that adds the columns of an expression step to a batch.

    Plain Python computes few rows, value by value, and polars computes more; both compute the same values.
    """
    schema = {bare: dtype for bare, _, dtype in step.inputs}
    scalars = [(feature, compile_scalar(feature.expr, feature.dtype, schema)) for feature in step.features]
    by_scalars = [(feature, scalar) for feature, scalar in scalars if scalar is not None]
    by_polars = [feature for feature, scalar in scalars if scalar is None]
    many = _Many(step)
    few = [_compile_scalars(step, by_scalars)] if by_scalars else []
    if by_polars:
        few.append(_polars_run(step, by_polars) if by_scalars else many)

    def run(batch: Batch) -> None:
        if batch.rows > FEW_ROWS:
            many(batch)
        else:
            for part in few:
                part(batch)

    return run


class _Many:
    """Computes all features of a step by polars, which is compiled at the first batch."""

    def __init__(self, step: ExpressionStep) -> None:
        self._step = step
        self._run: Run | None = None

    def __call__(self, batch: Batch) -> None:
        run = self._run
        if run is None:
            run = self._run = _polars_run(self._step, self._step.features)
        run(batch)


def _polars_run(step: ExpressionStep, features: Sequence[Computed]) -> Run:
    # polars is imported late, because it takes longer to import than all else that a query of a few rows needs. Servers
    # import polars when they start.
    from caraway.compute.query.polars_expressions import compile_polars  # noqa: PLC0415

    return compile_polars(step, features)


def _compile_scalars(step: ExpressionStep, features: Sequence[tuple[Computed, Scalar]]) -> Run:
    nodes = [node for feature, _ in features for node in walk(feature.expr)]
    read = {node.name for node in nodes if isinstance(node, Ref)}
    inputs = [(bare, name) for bare, name, _ in step.inputs if bare in read]
    needs_now = any(isinstance(node, Now) for node in nodes)
    compiled = [(feature, scalar, restriction(feature.dtype)) for feature, scalar in features]

    def run(batch: Batch) -> None:
        columns = [(bare, batch.columns[name]) for bare, name in inputs]
        rows: list[Row] = [{bare: column[position] for bare, column in columns} for position in range(batch.rows)]
        if needs_now:
            for row, instant in zip(rows, batch.instants(), strict=True):
                row[NOW] = instant
        for feature, scalar, check in compiled:
            batch.columns[feature.column] = checked([scalar(row) for row in rows], feature, check)

    return run
