"""The event times of features, which are those of the rows from which they were looked up or computed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from caraway.compute.query.batch import Batch
from caraway.compute.query.catalog import Catalog
from caraway.compute.query.model import LookedUp, LookupStep, QueryPlan
from caraway.compute.query.rounds import added, read
from caraway.dtypes.types import INT, ListType, optional

# A mark in the names of timestamp columns, by which they differ from features: no feature's name contains it.
MARK = ":"


def is_time_column(name: str) -> bool:
    """Return whether a column of a plan holds timestamps of rows, and no feature."""
    return MARK in name


def with_event_times(plan: QueryPlan, catalog: Catalog) -> QueryPlan:
    """Return a plan whose lookups also read the timestamps of the rows, into columns that are no features."""
    steps = tuple(
        _timed(number, step, catalog) if isinstance(step, LookupStep) else step
        for number, step in enumerate(plan.steps)
    )
    return replace(plan, steps=steps)


def time_columns(plan: QueryPlan) -> Mapping[str, tuple[str, ...]]:
    """Return, for each output of a plan of `with_event_times`, the columns of timestamps of the rows it comes from."""
    found: dict[str, frozenset[str]] = {}
    for step in plan.steps:
        times = frozenset().union(*(found.get(name, frozenset()) for name in read(step)))
        if isinstance(step, LookupStep):
            times |= {step.features[-1].column}
        found.update(dict.fromkeys(added(step), times))
    return {column.name: tuple(sorted(found.get(column.name, frozenset()))) for column in plan.outputs}


def newest(batch: Batch, columns: Sequence[str]) -> list[int | None]:
    """Return for each row the greatest time of some columns, in microseconds; None where no row was found."""
    return [max(_times(batch, columns, row), default=None) for row in range(batch.rows)]


def _times(batch: Batch, columns: Sequence[str], row: int) -> list[int]:
    times: list[int] = []
    for name in columns:
        # A lookup of a list of keys finds a row, and so a timestamp, for each key.
        value = batch.columns[name][row]
        times += [time for time in (value if isinstance(value, list) else [value]) if isinstance(time, int)]
    return times


def _timed(number: int, step: LookupStep, catalog: Catalog) -> LookupStep:
    column = LookedUp(
        column=f"{step.dataset}{MARK}{number}",
        field=catalog.dataset(step.dataset).timestamp,
        dtype=ListType(optional(INT)) if step.each else optional(INT),
        default=None,
    )
    return replace(step, features=(*step.features, column))
