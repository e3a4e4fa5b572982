"""The explanation of a feature: the query is computed for one row, step by step, and its reads are explained."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import orjson

from caraway.compute.query.batch import Batch
from caraway.compute.query.catalog import Catalog
from caraway.compute.query.executor import CompiledPlan, CompilePython, QueryEngine
from caraway.compute.query.explain import explain as explain_plan
from caraway.compute.query.functions import compile_function
from caraway.compute.query.model import Instants, LookupStep, QueryReader, Rows
from caraway.compute.query.rounds import added
from caraway.compute.query.rounds import read as columns_read
from caraway.compute.why.lookups import Asked, Listing, LookupExplained, explain_lookup, json_of
from caraway.compute.why.model import Check, Lookup, Step, Why, shown_time
from caraway.compute.why.parts import Hidden, Histories, Key, all_shown
from caraway.dtypes.types import DataType
from caraway.errors import CarawayError, InvalidInputError

# The query of one feature may read at most this many rows. A value for which an extractor reads more can't be
# explained.
MAX_LOOKUPS = 1_000

_KINDS = {"index read": "lookup"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The question why a feature has its value.

    Attributes:
        feature: The full name of the feature.
        inputs: The values that the caller gives, by the full names of features, as a query takes them.
        at_us: The time as of which it is asked in microseconds; None for now.
        listing: The choice of the parts that are listed.
        as_known: True if the records have only what was known at that time; it is told, not done.
        branch: The branch, to be told.
    """

    feature: str
    inputs: Mapping[str, object]
    at_us: int | None = None
    listing: Listing = field(default_factory=Listing)
    as_known: bool = False
    branch: str = ""


class Recorder(QueryReader):
    """Reads through another reader, and notes what was read."""

    def __init__(self, reader: QueryReader) -> None:
        """Read through `reader`."""
        self._reader = reader
        self.reads: list[Asked] = []

    def read(self, source: str, keys: Sequence[Key], at_us: Instants, columns: Sequence[str], /) -> Rows:
        """Read rows, and note them; see `caraway.compute.query.model.Reader.read`.

        Raises `InvalidInputError` if a query has read too many rows.
        """
        values, found = self._reader.read(source, keys, at_us, columns)
        times = [at_us] * len(keys) if isinstance(at_us, int) else at_us
        if len(self.reads) + len(keys) > MAX_LOOKUPS:
            raise InvalidInputError(
                f"more than {MAX_LOOKUPS:,} rows are read for this value, which is too many to explain"
            )
        for place, (key, time_us) in enumerate(zip(keys, times, strict=True)):
            row = {name: column[place] for name, column in zip(columns, values, strict=True)}
            self.reads.append(Asked(source, tuple(key), time_us, row, found[place]))
        return values, found


class PartsReader(QueryReader):
    """Answers the reads of a query from what the parts of each read give."""

    def __init__(self) -> None:
        """Know no rows yet."""
        self._rows: dict[str, tuple[Mapping[str, object], bool]] = {}

    def add(self, dataset: str, key: Key, at_us: int, values: Mapping[str, object], *, found: bool) -> None:
        """Add a row; values of rows that are known already are added to them."""
        name = _name(dataset, key, at_us)
        known = self._rows.get(name, ({}, found))[0]
        self._rows[name] = {**known, **values}, found

    def read(self, source: str, keys: Sequence[Key], at_us: Instants, columns: Sequence[str], /) -> Rows:
        """Read rows; see `query.model.Reader`. Raises `InvalidInputError` for a row that isn't known."""
        times = [at_us] * len(keys) if isinstance(at_us, int) else at_us
        values: list[list[object]] = [[] for _ in columns]
        found: list[bool] = []
        for key, time_us in zip(keys, times, strict=True):
            row = self._rows.get(_name(source, key, time_us))
            if row is None:
                raise InvalidInputError(f"a second run of the query reads another row of {source}: {key!r}")
            for name, column in zip(columns, values, strict=True):
                if name not in row[0]:
                    raise InvalidInputError(f"the parts of {source} don't tell {name}")
                column.append(row[0][name])
            found.append(row[1])
        return values, found


def explain(
    catalog: Catalog,
    reader: QueryReader,
    histories: Histories,
    question: Question,
    *,
    compile_python: CompilePython = compile_function,
    hidden: Hidden = all_shown,
) -> Why:
    """Explain the value of a feature.

    Args:
        catalog: The graph.
        reader: Reads the datasets, as the query of the feature does.
        histories: The records of the datasets.
        question: The question.
        compile_python: Decides where users' functions run.
        hidden: Returns why a dataset, or a field of one, isn't shown.

    Raises:
        UnknownEntityError: There is no such feature.
        InvalidInputError: The inputs don't fit, or the feature can't be computed from them.
        ExtractorError: A user's function failed.
    """
    recorder = Recorder(reader)
    plan = QueryEngine(catalog, recorder, compile_python).plan(list(question.inputs), [question.feature])
    if plan.output_names != (question.feature,):
        raise InvalidInputError(
            f"why: {question.feature} is a featureset; name one of its features: {', '.join(plan.output_names)}"
        )
    data: dict[str, object] = {name: [value] for name, value in question.inputs.items()}
    at_us = time.time_ns() // 1000 if question.at_us is None else question.at_us
    batch = plan.batch(data, [at_us])
    batch.past = question.at_us is not None
    types = _types(catalog, plan)
    explain_read = partial(explain_lookup, catalog, histories, listing=question.listing, hidden=hidden)
    steps, parts = _explained_steps(catalog, plan, batch, recorder, explain_read)
    plan.check(batch)
    again = QueryEngine(catalog, parts, compile_python).plan(list(question.inputs), [question.feature])
    return Why(
        feature=question.feature,
        value=json_of(batch.columns[question.feature][0], types[question.feature]),
        at=shown_time(at_us),
        inputs=_shown(question.inputs, batch, types),
        steps=tuple(steps),
        check=_check(plan, again, batch, data, at_us, past=batch.past),
        as_known=question.as_known,
        branch=question.branch,
        commit=catalog.version,
    )


def _explained_steps(
    catalog: Catalog,
    plan: CompiledPlan,
    batch: Batch,
    recorder: Recorder,
    explain_read: Callable[[Asked], LookupExplained],
) -> tuple[list[Step], PartsReader]:
    """Run the steps of a plan; return them explained, with a reader of what their parts give."""
    types, parts = _types(catalog, plan), PartsReader()
    steps: list[Step] = []
    for told, step, run in zip(explain_plan(plan).steps, plan.plan.steps, plan.steps, strict=True):
        first = len(recorder.reads)
        run(batch)
        lookups: list[Lookup] = []
        for asked in recorder.reads[first:]:
            explained = explain_read(asked)
            known = dict(zip(catalog.dataset(asked.dataset).keys, asked.key, strict=True))
            # If no row was found, the values are the defaults that the query read, since they aren't computed from
            # parts.
            values = (
                {**asked.values, **known, **explained.computed} if not asked.found else {**known, **explained.computed}
            )
            parts.add(asked.dataset, asked.key, asked.at_us, values, found=asked.found)
            lookups.append(explained.lookup)
        steps.append(
            Step(
                number=told.number,
                kind=_KINDS.get(told.kind, told.kind),
                title=told.title,
                details=told.details,
                given=_shown(columns_read(step), batch, types),
                made=_shown(added(step), batch, types),
                lookups=tuple(lookups),
            )
        )
    return steps, parts


def _check(
    plan: CompiledPlan, again: CompiledPlan, batch: Batch, data: Mapping[str, object], at_us: int, *, past: bool
) -> Check:
    """Compute the value once more from the parts, and compare the two."""
    second = again.batch(data, [at_us])
    second.past = past
    try:
        again.compute(second)
    except CarawayError as error:
        return Check(same=None, why=f"it can't be computed from its parts: {error}")
    if bits(plan.answer(batch)) == bits(again.answer(second)):
        return Check(same=True, why="computed from its parts, the value has the same bits")
    if plan.runs_user_code and _same_reads(plan, batch, second):
        return Check(same=False, why="an extractor returns another value when it is called again with the same inputs")
    return Check(same=False, why="computed from its parts, the value differs; please report this")


def _same_reads(plan: CompiledPlan, one: Batch, other: Batch) -> bool:
    """Return whether all lookups of two runs have the same results."""
    steps = [step for step in plan.plan.steps if isinstance(step, LookupStep)]
    names = [feature.column for step in steps for feature in step.features]
    return all(repr(one.columns[name]) == repr(other.columns[name]) for name in names)


def bits(value: object) -> str:
    """Return JSON values as a text that is equal exactly if their bits are."""
    return orjson.dumps(value, default=str).decode()


def _name(dataset: str, key: Key, at_us: int) -> str:
    return repr((dataset, tuple(key), at_us))


def _types(catalog: Catalog, plan: CompiledPlan) -> dict[str, DataType | None]:
    return {**catalog.features, **{column.name: column.dtype for column in plan.plan.inputs}}


def _shown(
    names: Mapping[str, object] | Sequence[str], batch: Batch, types: Mapping[str, DataType | None]
) -> dict[str, object]:
    return {name: json_of(batch.columns[name][0], types.get(name)) for name in names}
