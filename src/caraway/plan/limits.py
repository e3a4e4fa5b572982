"""What the streaming engine can't run yet, refused before anything is planned; the in-process engine runs it all."""

from collections.abc import Iterator, Mapping

from caraway.errors import CommitError
from caraway.graph.operators import Aggregate, Input, Join, Operator
from caraway.graph.schemas import schema_of
from caraway.graph.specs import DatasetSpec, PipelineSpec
from caraway.graph.trees import datasets_read, parents
from caraway.graph.windows import SessionWindow, print_window

# Whole operators, by what the API calls them.
UNSUPPORTED: dict[type, str] = {}


def require_streamable(spec: DatasetSpec, pipeline: PipelineSpec, specs: Mapping[str, DatasetSpec]) -> None:
    """Refuse a pipeline that the streaming engine can't run.

    Raises:
        CommitError: It has such a step; the message names it, the dataset and the pipeline.
    """
    for found in _unsupported(pipeline.operator, specs):
        raise CommitError(
            f"the streaming engine doesn't run {found} yet; dataset {spec.name}, pipeline {pipeline.name}"
        )


def _unsupported(operator: Operator, specs: Mapping[str, DatasetSpec]) -> Iterator[str]:
    for parent in parents(operator):
        yield from _unsupported(parent, specs)
        if isinstance(parent, Aggregate):
            yield "steps behind `aggregate`"
    for name in _reads(operator):
        if any(isinstance(pipeline.operator, Aggregate) for pipeline in specs[name].pipelines):
            yield f"a pipeline that reads {name}, which an aggregate makes,"
    if type(operator) in UNSUPPORTED:
        yield f"`{UNSUPPORTED[type(operator)]}`"
    if isinstance(operator, Join):
        if schema_of(operator.left, specs).keys:
            yield f"`join` with {operator.right} from a keyed left side"
        if operator.right in datasets_read(operator.left):
            yield f"`join` of {operator.right} with itself"
    if isinstance(operator, Aggregate):
        yield from _of_aggregate(operator)


def _reads(operator: Operator) -> tuple[str, ...]:
    """Name the datasets that an operator reads itself. On the topic of an aggregated one are no rows of it."""
    match operator:
        case Input():
            return (operator.dataset,)
        case Join():
            return (operator.right,)
        case _:
            return ()


def _of_aggregate(operator: Aggregate) -> Iterator[str]:
    if isinstance(operator.window, SessionWindow):
        yield f"`groupby(window={print_window(operator.window)})`"
