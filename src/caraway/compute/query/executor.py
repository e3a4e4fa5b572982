"""The execution of query plans.

A `QueryEngine` belongs to one version of the graph. It makes a plan once for each combination of inputs and outputs,
and compiles it into functions over columns. A request only calls these functions, and never reads the graph.
"""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, assert_never

from caraway.compute.query.aliases import compile_alias
from caraway.compute.query.batch import Batch, LaterRun, Run
from caraway.compute.query.catalog import Catalog
from caraway.compute.query.datasets import DatasetLookups, keyed_dataset, read_rows
from caraway.compute.query.event_times import with_event_times
from caraway.compute.query.expressions import compile_expressions
from caraway.compute.query.functions import compile_function
from caraway.compute.query.inputs import Table, cast_input, input_columns
from caraway.compute.query.lookups import compile_lookup
from caraway.compute.query.model import (
    AliasStep,
    ExpressionStep,
    Instants,
    LookupStep,
    PythonStep,
    QueryPlan,
    QueryReader,
    Step,
    TypedColumn,
)
from caraway.compute.query.planner import plan_query
from caraway.compute.query.rounds import rounds
from caraway.dtypes.instants import instant_us
from caraway.dtypes.sizes import MAX_KEPT, Count, check_answer, count_of
from caraway.dtypes.types import FLOAT, STRING, DataType, base_type, is_optional, optional, strip_optional, type_name
from caraway.dtypes.values import Convert, to_json
from caraway.errors import InvalidInputError

# At most this many plans are cached for one version of the graph. An application uses a handful. The bound keeps a
# client that asks for ever new combinations of features from filling the memory.
MAX_PLANS = 1_000

Answer = dict[str, list[object]]
StoredColumns = dict[str, list[object]]
Shown = Callable[[list[object]], list[object]]
CompilePython = Callable[[PythonStep, Callable[[PythonStep, bool], DatasetLookups]], Run | LaterRun]
# A stage of a plan: first the steps that run in this process, one after the other, and then the steps that wait for
# another process or server, side by side.
Stage = tuple[tuple[Run, ...], tuple[LaterRun, ...]]

# The conversion that `to_json` returns for types whose stored form is JSON already. Columns of these types aren't
# converted.
AS_STORED = to_json(STRING)


@dataclass(frozen=True, slots=True)
class CompiledPlan:
    """A plan with its functions.

    `runs_user_code` is true if the plan calls a Python extractor, which may be slow. `asks_others` is true if other
    servers may own shards of the index. `stages` are the same steps in an order for async callers, who await the steps
    that wait for another process or server. `counts` are the counts of the outputs that may have large values.
    """

    plan: QueryPlan
    steps: tuple[Run | LaterRun, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[tuple[str, Shown | None, bool, DataType | None], ...]
    output_names: tuple[str, ...]
    counts: tuple[tuple[str, Count], ...]
    runs_user_code: bool
    asks_others: bool = False

    def compute(self, batch: Batch) -> None:
        """Add the columns of all steps to a batch that holds the inputs.

        Raises:
            InvalidInputError: A feature that may not be null is null, or a read lacks its index.
            ExtractorError: User code failed.
        """
        if batch.rows:
            for step in self.steps:
                step(batch)

    async def compute_async(self, batch: Batch) -> None:
        """Add the columns of all steps without blocking the event loop; see `compute`."""
        for here, elsewhere in self.stages if batch.rows else ():
            for step in here:
                step(batch)
            if len(elsewhere) == 1:
                await elsewhere[0].later(batch)
            elif elsewhere:
                # If a step fails, the others still run to their end. Cancelling a step that calls a user's function
                # would end the process in which the function runs, and a new process would have to be started for later
                # requests.
                ended = await asyncio.gather(*(step.later(batch) for step in elsewhere), return_exceptions=True)
                for error in ended:
                    if error is not None:
                        raise error

    def run(self, data: Table, at: Instants | None = None) -> Answer:
        """Compute the outputs for rows or columns of input features, as of now or `at` the instant of each row.

        The outputs are returned by full name, in the order wanted, as JSON can hold them.

        Raises:
            InvalidInputError: The data doesn't fit the inputs, or a feature that may not be null is null.
            ExtractorError: User code failed.
        """
        return self.answer(self.evaluate(data, at))

    def columns(self, data: Table, at: Instants | None = None) -> StoredColumns:
        """Compute the outputs as `run` does, and return them in stored form."""
        return self.stored(self.evaluate(data, at))

    def evaluate(self, data: Table, at: Instants | None = None) -> Batch:
        """Compute all columns, including those between inputs and outputs; see `run`."""
        batch = self.batch(data, at)
        self.compute(batch)
        self.check(batch)
        return batch

    async def evaluate_async(self, data: Table, at: Instants | None = None) -> Batch:
        """Compute all columns without blocking the event loop; see `run`."""
        batch = self.batch(data, at)
        await self.compute_async(batch)
        self.check(batch)
        return batch

    def batch(self, data: Table, at: Instants | None = None) -> Batch:
        """Return the inputs in `data` as a batch; see `run`."""
        columns, rows = input_columns(self.plan.inputs, data)
        if not isinstance(at, int | None) and len(at) != rows:
            raise InvalidInputError(f"timestamps: there are {len(at)}, but {rows} rows")
        return Batch(columns, rows, time.time_ns() // 1000 if at is None else at, at is not None)

    def check(self, batch: Batch) -> None:
        """Raise `InvalidInputError` if an output that isn't optional is null."""
        if batch.rows:
            for name, _, may_be_null, dtype in self.outputs:
                if not may_be_null and None in (column := batch.columns[name]):
                    spelled = "not optional" if dtype is None else type_name(dtype)
                    raise InvalidInputError(f"{name} is {spelled}, but row {column.index(None)} is null")

    def check_size(self, batch: Batch) -> None:
        """Raise `TooLargeError` if the outputs have too many bytes for an answer, before they are converted."""
        if batch.rows and self.counts:
            check_answer(self.counts, batch.columns)

    def stored(self, batch: Batch) -> StoredColumns:
        """Return the outputs of a computed batch, in stored form."""
        return {name: batch.columns[name] if batch.rows else [] for name in self.output_names}

    def answer(self, batch: Batch) -> Answer:
        """Return the outputs of a computed batch, as JSON can hold them."""
        answer = self.stored(batch)
        for name, convert, _, _ in self.outputs:
            if convert is not None:
                answer[name] = convert(answer[name])
        return answer

    def given(self, batch: Batch) -> Answer:
        """Return the inputs of a batch, as JSON can hold them; those of an unknown type as they were supplied."""
        given: Answer = {}
        for column in self.plan.inputs:
            convert = None if column.dtype is None else _shown(column.dtype)
            values = batch.columns[column.name]
            given[column.name] = values if convert is None else convert(values)
        return given


class QueryEngine:
    """Answers queries and lookups over one version of a graph. Thread safe."""

    def __init__(self, catalog: Catalog, reader: QueryReader, compile_python: CompilePython = compile_function) -> None:
        """Query `catalog`, reading indexes through `reader`; `compile_python` decides where users' functions run."""
        self.catalog = catalog
        self._compile_python = compile_python
        self._reader = reader
        # True if other servers may own shards of the index, so that a read has to wait for them.
        self.asks_others = reader.asks_others
        self._plans: OrderedDict[tuple[tuple[str, ...], tuple[str, ...], bool, bool], CompiledPlan] = OrderedDict()

    def plan(
        self,
        inputs: Sequence[str],
        outputs: Sequence[str],
        *,
        foreign_inputs: bool = False,
        event_times: bool = False,
    ) -> CompiledPlan:
        """Return the compiled plan for a query, made at its first use; see `caraway.compute.query.planner.plan_query`.

        With `event_times` the plan also reads the timestamps of rows; see `caraway.compute.query.event_times`.

        Raises:
            UnknownEntityError: A feature or featureset doesn't exist.
            InvalidInputError: A feature can't be computed from the inputs.
        """
        key = (tuple(inputs), tuple(outputs), foreign_inputs, event_times)
        compiled = self._plans.get(key)
        if compiled is None:
            plan = plan_query(self.catalog, inputs, outputs, foreign_inputs=foreign_inputs)
            if event_times:
                plan = with_event_times(plan, self.catalog)
            steps = tuple(map(self.compile_step, plan.steps))
            compiled = CompiledPlan(
                plan,
                steps,
                stages(plan, steps),
                tuple(map(_output, plan.outputs)),
                tuple(column.name for column in plan.outputs),
                tuple(_counts(plan.outputs)),
                any(isinstance(step, PythonStep) for step in plan.steps),
                self.asks_others and any(isinstance(step, LookupStep) for step in plan.steps),
            )
            # Two threads may both make this plan, which is harmless, since their plans are equal. If there are too many
            # plans, the one that was made first is dropped, even if it is in use; the next query that needs it makes it
            # again.
            self._plans[key] = compiled
            if len(self._plans) > MAX_PLANS:
                self._plans.popitem(last=False)
        return compiled

    def lookup(
        self,
        dataset: str,
        keys: Sequence[Mapping[str, object]],
        fields: Sequence[str],
        timestamps: Sequence[object] | None = None,
    ) -> tuple[list[bool], Answer]:
        """Look up rows of a dataset by key, as of now or at `timestamps`; returns values as JSON can hold them.

        Raises:
            UnknownEntityError: There is no such dataset.
            InvalidInputError: Keys, fields or timestamps don't fit the dataset.
            TooLargeError: The rows have too many bytes.
        """
        spec = keyed_dataset(
            self.catalog,
            dataset,
            tuple(dict.fromkeys(name for row in keys for name in row)) or self.catalog.dataset(dataset).keys,
        )
        types = {field.name: field.dtype for field in spec.fields}
        columns = {}
        for name in spec.keys:
            for number, row in enumerate(keys):
                if name not in row:
                    raise InvalidInputError(f"lookup in {dataset}: row {number} has no value for key {name!r}")
            columns[name] = cast_input(name, optional(types[name]), [row[name] for row in keys])
        if timestamps is not None and len(timestamps) != len(keys):
            raise InvalidInputError(f"timestamps: there are {len(timestamps)}, but {len(keys)} rows of keys")
        at = time.time_ns() // 1000 if timestamps is None else parse_instants(timestamps)
        rows = read_rows(self.catalog, self._reader, spec, columns, at=at, fields=fields, past=timestamps is not None)
        fields_read = [(name, *_field(dtype)) for name, dtype in rows.fields]
        columns = {name: column for (name, _, _), column in zip(fields_read, rows.columns, strict=True)}
        check_answer([(name, count) for name, _, count in fields_read if count is not None], columns)
        return rows.found, {name: [convert(value) for value in columns[name]] for name, convert, _ in fields_read}

    def compile_step(self, step: Step) -> Run | LaterRun:
        """Return the function that adds the columns of a step to a batch."""
        match step:
            case LookupStep():
                return compile_lookup(step, self._reader)
            case AliasStep():
                return compile_alias(step)
            case ExpressionStep():
                return compile_expressions(step)
            case PythonStep():
                return self._compile_python(step, self._provider)
            case _:
                assert_never(step)

    def _provider(self, step: PythonStep, past: bool) -> DatasetLookups:  # noqa: FBT001 (the type of `MakeProvider`)
        return DatasetLookups(
            self.catalog,
            self._reader,
            extractor=f"{step.featureset}.{step.extractor}",
            allowed=step.datasets,
            past=past,
        )


def stages(plan: QueryPlan, steps: Sequence[Run | LaterRun]) -> tuple[Stage, ...]:
    """Return the functions of a plan's steps in stages; the steps to be awaited are those that are a `LaterRun`."""
    remote = {number: step for number, step in enumerate(steps) if isinstance(step, LaterRun)}
    return tuple(
        (tuple(steps[number] for number in found.here), tuple(remote[number] for number in found.elsewhere))
        for found in rounds(plan.steps, remote)
    )


def _output(column: TypedColumn) -> tuple[str, Shown | None, bool, DataType | None]:
    if column.dtype is None:
        return column.name, None, True, None
    return column.name, _shown(column.dtype), is_optional(column.dtype), column.dtype


def _counts(outputs: Sequence[TypedColumn]) -> Iterator[tuple[str, Count]]:
    for column in outputs:
        # An output without a type is an input as it came, which the bound of a body's bytes bounds.
        if column.dtype is not None and (count := count_of(column.dtype)) is not None:
            yield column.name, count


@lru_cache(maxsize=MAX_KEPT)
def _field(dtype: DataType) -> tuple[Convert, Count | None]:
    """Return the conversion of a field's value to JSON, and the count of its values."""
    return to_json(optional(dtype)), count_of(dtype)


def _shown(dtype: DataType) -> Shown | None:
    """Return the conversion of a column to JSON; None if its stored values are JSON already."""
    convert = to_json(strip_optional(dtype))
    if convert is AS_STORED:
        return None

    def each(column: list[object]) -> list[object]:
        return [None if value is None else convert(value) for value in column]

    def floats(column: list[Any]) -> list[object]:
        # Nearly always all values are finite numbers, which need no conversion.
        return column if None not in column and all(map(math.isfinite, column)) else each(column)

    return floats if base_type(dtype) == FLOAT else each


def parse_instants(values: Sequence[object]) -> list[int]:
    """Parse timestamps of a request (ISO text or epoch numbers) to microseconds.

    Raises `InvalidInputError` if a value isn't an instant.
    """
    parsed: list[int] = []
    for row, value in enumerate(values):
        try:
            parsed.append(instant_us(value))
        except InvalidInputError as error:
            raise InvalidInputError(f"timestamps, row {row}: {error}") from None
    return parsed
