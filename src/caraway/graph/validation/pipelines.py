"""Checks of pipelines: their environments, their inputs, and the schema of their output."""

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import combinations

from caraway.errors import CommitError, CommitTypeError, DefinitionError, DefinitionTypeError, InvalidExprException
from caraway.graph.envs import common_env
from caraway.graph.schemas import schema_differences, schema_of, schema_of_dataset
from caraway.graph.specs import DatasetSpec, PipelineSpec
from caraway.graph.trees import datasets_read, is_terminal
from caraway.graph.validation.scope import CheckedGraph


def one_pipeline_runs(scope: CheckedGraph) -> None:
    """Check that, of several pipelines, each has an environment, and no environment selects two."""
    for dataset in scope.graph.datasets:
        if len(dataset.pipelines) < 2:
            continue
        for pipeline in dataset.pipelines:
            if not pipeline.env:
                raise CommitError(
                    f"dataset {dataset.name} has several pipelines; {pipeline.name} needs an env to be told from the "
                    "others"
                )
        for first, second in combinations(dataset.pipelines, 2):
            env = common_env(first.env, second.env)
            if env is not None:
                raise CommitError(
                    f'dataset {dataset.name}: pipelines {first.name} and {second.name} both run in env "{env}"; one '
                    "pipeline can in an environment"
                )


def pipelines_have_no_cycle(scope: CheckedGraph) -> None:
    """Check that no dataset is computed from itself."""
    needs = {d.name: {name for p in d.pipelines for name in datasets_read(p.operator)} for d in scope.graph.datasets}
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        raise CommitError(f"datasets are computed from each other in a circle: {' <- '.join(error.args[1])}") from None


def inputs_are_there(scope: CheckedGraph) -> None:
    """Check that all datasets that pipelines read are in the commit."""
    for name in dict.fromkeys(name for _, pipeline in _pipelines(scope) for name in _needed(pipeline)):
        if name in scope.datasets or scope.may_be_elsewhere(name):
            continue
        users = [f"{d.name}.{p.name}" for d, p in _pipelines(scope) if name in _needed(p)]
        kind = "pipelines" if len(users) > 1 else "pipeline"
        verb = "need" if len(users) > 1 else "needs"
        raise CommitError(f"{kind} {', '.join(users)} {verb} dataset {name}, {scope.remedy(name)}")


def pipelines_fit(scope: CheckedGraph) -> None:
    """Check that each step of a pipeline fits, and that its output is what the dataset declares."""
    for dataset, pipeline in _pipelines(scope):
        if all(name in scope.datasets for name in _needed(pipeline)):
            _check_pipeline(scope, dataset, pipeline)


def _check_pipeline(scope: CheckedGraph, dataset: DatasetSpec, pipeline: PipelineSpec) -> None:
    where = f"pipeline {dataset.name}.{pipeline.name}"
    for name in datasets_read(pipeline.operator):
        if name not in pipeline.inputs:
            raise CommitError(
                f"{where}: reads {name}, which is not among its inputs: {', '.join(pipeline.inputs) or 'none'}"
            )
        if any(is_terminal(p.operator) for p in scope.datasets[name].pipelines):
            raise CommitTypeError(
                f"{where}: input {name} is an aggregate over continuous windows; nothing can be computed from it"
            )
    try:
        output = schema_of(pipeline.operator, scope.datasets)
    except DefinitionTypeError as error:
        raise CommitTypeError(f"{where}: {error}") from error
    except (DefinitionError, InvalidExprException) as error:
        raise CommitError(f"{where}: {error}") from error
    if problems := schema_differences(output, schema_of_dataset(dataset)):
        raise CommitTypeError(f"{where}: the output is not what dataset {dataset.name} declares: {'; '.join(problems)}")


def _pipelines(scope: CheckedGraph) -> Iterator[tuple[DatasetSpec, PipelineSpec]]:
    for dataset in scope.graph.datasets:
        for pipeline in dataset.pipelines:
            yield dataset, pipeline


def _needed(pipeline: PipelineSpec) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*pipeline.inputs, *datasets_read(pipeline.operator))))


PIPELINE_CHECKS = (one_pipeline_runs, pipelines_have_no_cycle, inputs_are_there, pipelines_fit)
