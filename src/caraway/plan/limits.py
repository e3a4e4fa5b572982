"""What the streaming engine can't run, refused before anything is planned; the in-process engine runs it all."""

from collections.abc import Collection, Iterator, Mapping

from caraway.errors import CommitError
from caraway.graph.operators import Aggregate, Changelog, Dedup, First, Join, Operator
from caraway.graph.schemas import schema_of
from caraway.graph.specs import DatasetSpec, PipelineSpec
from caraway.graph.trees import datasets_read, parents


def revises(operator: Operator, specs: Mapping[str, DatasetSpec]) -> bool:
    """Tell whether the output of `operator` can take back what it has sent (docs/records.md)."""
    match operator:
        case Join() | Changelog() | Dedup() | First():
            return True
        case Aggregate():
            return bool(schema_of(operator.of, specs).keys) or revises(operator.of, specs)
        case _:
            return any(revises(parent, specs) for parent in parents(operator))


def require_streamable(
    spec: DatasetSpec, pipeline: PipelineSpec, specs: Mapping[str, DatasetSpec], revised: Collection[str]
) -> None:
    """Refuse a pipeline that the streaming engine can't keep exact.

    A table whose rows may be corrected can't be joined with another one: a row that stood for a moment under another
    join key, in a run that a crash ended, would not be heard of there again (decision 8).

    Args:
        spec: The dataset.
        pipeline: Its pipeline.
        specs: All datasets by name.
        revised: Names of those datasets that it reads whose records may be corrected.

    Raises:
        CommitError: It has such a join; the message names it, the dataset and the pipeline.
    """
    for join in _joins(pipeline.operator):
        left = join.left
        if schema_of(left, specs).keys and (
            revises(left, specs) or any(name in revised for name in datasets_read(left))
        ):
            raise CommitError(
                f"dataset {spec.name}, pipeline {pipeline.name}: the streaming engine can't join a table with "
                f"{join.right} if rows of the left side may be corrected, as behind a join, dedup, first, changelog or "
                f"aggregate. Join with {join.right} before that step, while the rows are events"
            )


def _joins(operator: Operator) -> Iterator[Join]:
    for parent in parents(operator):
        yield from _joins(parent)
    if isinstance(operator, Join):
        yield operator
