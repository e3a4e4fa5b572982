"""The execution of query plans over columns. Its steps are those of `compute.query`, or the same over series."""

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
import polars as pl

from caraway.compute.query.batch import Batch, LaterRun, Run
from caraway.compute.query.catalog import Catalog
from caraway.compute.query.executor import CompiledPlan, CompilePython, QueryEngine
from caraway.compute.query.inputs import Table
from caraway.compute.query.lookups import key_cast, require_index
from caraway.compute.query.model import AliasStep, ExpressionStep, Instants, LookupStep, PythonStep, Step
from caraway.compute.query.polars_expressions import compile_polars
from caraway.compute.query.series import put_series, series_of
from caraway.dtypes.types import DataType, ListType, is_optional
from caraway.offline.columns import SeriesBatch, SeriesColumns, filled, replaced
from caraway.offline.reader import SeriesReader
from caraway.offline.stopwatch import EXPRESSIONS, EXTRACTORS, LOOKUPS, Stopwatch


class OfflinePlan(CompiledPlan):
    """A plan whose batches keep columns as series."""

    def batch(self, data: Table, at: Instants | None = None) -> Batch:
        """Return the inputs in `data` as a batch; see `CompiledPlan.run`."""
        made = super().batch(data, at)
        return SeriesBatch(SeriesColumns(made.columns), made.rows, made.at, made.past)

    def types(self) -> dict[str, DataType]:
        """Return the types of all columns that are in the graph."""
        found = {column.name: column.dtype for column in self.plan.inputs if column.dtype is not None}
        for step in self.plan.steps:
            match step:
                case LookupStep(each=True):
                    found |= {feature.column: ListType(feature.dtype) for feature in step.features}
                case LookupStep():
                    found |= {feature.column: feature.dtype for feature in step.features}
                case AliasStep():
                    found[step.output] = step.dtype
                case ExpressionStep():
                    found |= {feature.column: feature.dtype for feature in step.features}
                case PythonStep():
                    found |= {name: dtype for name, dtype in step.outputs if name in step.kept}
        return found

    def check(self, batch: Batch) -> None:
        """Raise `InvalidInputError` if an output that isn't optional is null."""
        if isinstance(batch, SeriesBatch) and not any(
            batch.has_null(name) for name, _, may_be_null, _ in self.outputs if not may_be_null
        ):
            return
        super().check(batch)


class OfflineEngine(QueryEngine):
    """Answers offline queries over one version of a graph."""

    def __init__(
        self,
        catalog: Catalog,
        reader: SeriesReader,
        compile_python: CompilePython,
        watch: Stopwatch | None = None,
    ) -> None:
        """Query `catalog`, reading datasets through `reader`; `compile_python` decides where users' functions run.

        `watch` takes the time of each step, if it is given.
        """
        super().__init__(catalog, reader, compile_python)
        self._offline = reader
        self._watch = watch

    def plan(
        self,
        inputs: Sequence[str],
        outputs: Sequence[str],
        *,
        foreign_inputs: bool = False,
        event_times: bool = False,
    ) -> OfflinePlan:
        """Return the compiled plan for a query; see `QueryEngine.plan`."""
        made = super().plan(inputs, outputs, foreign_inputs=foreign_inputs, event_times=event_times)
        return OfflinePlan(**{field.name: getattr(made, field.name) for field in fields(CompiledPlan)})

    def compile_step(self, step: Step) -> Run | LaterRun:
        """Return the function of a step."""
        found = self._compiled(step)
        return found if self._watch is None or isinstance(found, LaterRun) else _timed(self._watch, step, found)

    def _compiled(self, step: Step) -> Run | LaterRun:
        by_values = super().compile_step(step)
        match step:
            case LookupStep(each=False) if all(key_cast(part) is None for part in step.keys):
                return _Lookup(step, self._offline, by_values)
            case AliasStep() if step.input_dtype is not None:
                return _alias(step, by_values)
            case ExpressionStep():
                return compile_polars(step, step.features)
            case _:
                return by_values


def _timed(watch: Stopwatch, step: Step, run: Run) -> Run:
    match step:
        case LookupStep():
            name = LOOKUPS
        case PythonStep():
            name = EXTRACTORS
        case _:
            name = EXPRESSIONS

    def timed(batch: Batch) -> None:
        with watch.step(name):
            run(batch)

    return timed


class _Lookup:
    """The function of a lookup step."""

    def __init__(self, step: LookupStep, reader: SeriesReader, by_values: Run | LaterRun) -> None:
        """Look up by `by_values` what can't be read in columns."""
        self._step = step
        self._reader = reader
        self._by_values = by_values
        self._fields = list(dict.fromkeys(feature.field for feature in step.features))

    def __call__(self, batch: Batch) -> None:
        """Add the step's columns to a batch."""
        step = self._step
        require_index(step.dataset, step.indexed, past=batch.past)
        if not isinstance(batch, SeriesBatch) or not self._reader.has_series(step.dataset, self._fields):
            self._by_values(batch)
            return
        keys = [series_of(batch, part.column, part.key_dtype) for part in step.keys]
        present = pl.Series(np.ones(batch.rows, np.bool_))
        for key in keys:
            present &= key.is_not_null()
        whole = bool(present.all())
        times = np.asarray(batch.instants(), np.int64)
        rows = np.flatnonzero(present.to_numpy())
        asked = keys if whole else [key.gather(rows) for key in keys]
        found = self._reader.read_series(step.dataset, asked, times if whole else times[rows], self._fields)
        if found is None:
            self._by_values(batch)
            return
        for feature in step.features:
            series = found[self._fields.index(feature.field)]
            if not whole:
                # A row without a key gets a null from `gather`. Then `replaced` puts the value of a key without records
                # (`step.absent`) in its place.
                places = pl.Series(np.cumsum(present.to_numpy()) - 1, dtype=pl.Int64).set(~present, None)
                absent = step.absent.get(feature.field)
                series = replaced(series.gather(places), present, absent, feature.dtype)
            if feature.default is not None:
                series = filled(series, feature.default, feature.dtype)
            put_series(batch, feature.column, series.alias(feature.column), feature.dtype)


def _alias(step: AliasStep, by_values: Run | LaterRun) -> Run:
    def run(batch: Batch) -> None:
        if not isinstance(batch, SeriesBatch) or step.input not in batch.columns.series:
            by_values(batch)
            return
        series, _ = batch.columns.series[step.input]
        if step.default is not None:
            series = filled(series, step.default, step.dtype)
        if series.null_count() and not is_optional(step.dtype):
            # `by_values` raises the error that names the row.
            by_values(batch)
            return
        put_series(batch, step.output, series.alias(step.output), step.dtype)
        if step.default is None and step.input in batch.returned:
            batch.returned[step.output] = batch.returned[step.input].rename(step.output)

    return run
