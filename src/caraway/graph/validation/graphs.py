"""Validation of a whole graph before it is committed. Client and control run the same checks."""

from collections.abc import Callable

from caraway.errors import CommitError
from caraway.graph.envs import is_selected
from caraway.graph.merging import without_deleted
from caraway.graph.specs import Entity, Graph
from caraway.graph.validation.datasets import DATASET_CHECKS, expectations_are_sound, profiled_rows_exist
from caraway.graph.validation.entities import ENTITY_CHECKS
from caraway.graph.validation.featuresets import FEATURESET_CHECKS
from caraway.graph.validation.pipelines import PIPELINE_CHECKS
from caraway.graph.validation.scope import CheckedGraph

Check = Callable[[CheckedGraph], None]

CHECKS: tuple[Check, ...] = (
    *ENTITY_CHECKS,
    *DATASET_CHECKS,
    *PIPELINE_CHECKS,
    expectations_are_sound,
    profiled_rows_exist,
    *FEATURESET_CHECKS,
)


def validate(graph: Graph, *, partial: bool = False) -> None:
    """Check a graph, already filtered by the environment of the commit (`caraway.graph.envs.for_env`).

    Entities that are marked as deleted are left out first.

    Args:
        graph: Datasets and featuresets.
        partial: True if the graph will be laid over another graph, which may have entities that this one lacks.

    Raises:
        CommitError: A check fails; the message names the entities and what would be right.
        CommitTypeError: The same fault, where the specified API raises a TypeError.
    """
    entities: tuple[Entity, ...] = (*graph.datasets, *graph.featuresets)
    deleted = frozenset(entity.name for entity in entities if entity.metadata.deleted)
    scope = CheckedGraph(without_deleted(graph), partial, deleted)
    for check in CHECKS:
        check(scope)


def validate_placement(graph: Graph, env: str | None) -> None:
    """Check the rule that needs the definitions of all environments together: sinks against sources.

    Args:
        graph: Datasets and featuresets as defined, with the parts of all environments.
        env: Environment of the commit.

    Raises:
        CommitError: A dataset with a source, whatever its environment, has a sink that is selected.
    """
    for dataset in without_deleted(graph).datasets:
        if dataset.sources and any(is_selected(sink.env, env) for sink in dataset.sinks):
            raise CommitError(
                f"dataset {dataset.name} has a source and a sink; only what a pipeline computes can go to a sink. "
                "Put the sink onto a dataset that a pipeline makes of this one"
            )
