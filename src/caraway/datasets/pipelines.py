"""`@pipeline`, which computes a dataset from others."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, overload

from caraway.datasets.groups import GroupBy
from caraway.datasets.nodes import Node, including
from caraway.errors import CarawayError, DefinitionError, DefinitionTypeError
from caraway.graph.capture.code_text import source_text
from caraway.graph.capture.includes import included
from caraway.graph.envs import EnvSelector, selector
from caraway.graph.schemas import datasets_read, schema_differences
from caraway.graph.specs import PipelineSpec
from caraway.lib.metadata import documented, get_metadata
from caraway.lib.params import INPUTS_ATTRIBUTE


@dataclass(frozen=True, slots=True)
class Built:
    """A pipeline as a value, and the differences between its output and the dataset."""

    spec: PipelineSpec
    problems: list[str]


class Pipeline:
    """A function of a dataset's class body that builds an operator tree from its inputs."""

    def __init__(self, function: Callable[..., Any], env: EnvSelector) -> None:
        self.function = function
        self.name = function.__name__
        self.__doc__ = function.__doc__
        self.env = selector(env, f"pipeline {self.name}")
        self.inputs: tuple[Any, ...] = getattr(function, INPUTS_ATTRIBUTE, ())
        _check_signature(self)

    def build(self, dataset: Node, dataset_name: str) -> "Built":
        """Run the function once and compare its result with the dataset; an error names dataset and pipeline."""
        where = f"pipeline {dataset_name}.{self.name}"
        helpers = tuple(dict.fromkeys([*included(self), *included(self.function)]))
        try:
            with including(helpers):
                result = self.function(dataset, *self.inputs)
        except CarawayError as error:
            # Only the text of the exception is changed before it is raised again, so that the traceback ends at the
            # user's line.
            error.args = (f"{where}: {error}",)
            raise
        if isinstance(result, GroupBy):
            raise DefinitionError(f"{where} returns a bare groupby; first(), latest() or aggregate(...) must follow")
        if not isinstance(result, Node):
            raise DefinitionError(f"{where} returns {type(result).__name__}; it must return the last step")
        names = tuple(dict.fromkeys(item.fqn() for item in self.inputs))
        for name in sorted(datasets_read(result.node_operator)):
            if name not in names:
                raise DefinitionError(f"{where} reads {name}, which is not among its @inputs: {', '.join(names)}")
        spec = PipelineSpec(
            name=self.name,
            inputs=names,
            operator=result.node_operator,
            env=self.env,
            source_code=source_text(self.function),
            metadata=documented(get_metadata(self) or get_metadata(self.function), self.function),
        )
        differences = schema_differences(result.node_schema, dataset.node_schema)
        return Built(spec, [f"{where}: {difference}" for difference in differences])


@overload
def pipeline(function: Callable[..., Any]) -> Pipeline: ...
@overload
def pipeline(*, env: EnvSelector = None) -> Callable[[Callable[..., Any]], Pipeline]: ...
def pipeline(
    function: Callable[..., Any] | None = None, *, env: EnvSelector = None
) -> Pipeline | Callable[[Callable[..., Any]], Pipeline]:
    """Declare a pipeline: a function that takes `cls` and the datasets named by `@inputs`, and returns the last step.

    Args:
        function: The function, if the decorator stands bare.
        env: The environments in which the pipeline runs; all by default.

    Raises:
        DefinitionTypeError: The first parameter isn't `cls`, `@inputs` is missing, or an input can't be one.
    """
    if function is None:
        # The call checks `env`, so that a wrong one is refused at the decorator's line, before the function is defined.
        selector(env, "pipeline")
        return lambda decorated: Pipeline(decorated, env)
    if not callable(function):
        raise DefinitionTypeError(f"@pipeline goes onto a function, not {type(function).__name__} {function!r}")
    return Pipeline(function, env)


def _check_signature(pipeline: Pipeline) -> None:
    where = f"pipeline {pipeline.name}"
    parameters = list(inspect.signature(pipeline.function).parameters)
    if not parameters or parameters[0] != "cls":
        found = parameters[0] if parameters else "nothing"
        raise DefinitionTypeError(f"{where}: the first parameter is cls, not {found}")
    if not pipeline.inputs:
        raise DefinitionTypeError(f"{where} has no @inputs; name its datasets, below @pipeline")
    for position, given in enumerate(pipeline.inputs):
        item: object = given
        parameter = parameters[position + 1] if position + 1 < len(parameters) else f"number {position + 1}"
        if not isinstance(item, Node) or not hasattr(item, "node_spec"):
            raise DefinitionTypeError(f"{where}: input {parameter} is a dataset, not {type(item).__name__} {item!r}")
        if given.is_terminal:
            raise DefinitionTypeError(
                f"{where}: input {given.fqn()} is computed by an aggregate over continuous windows, whose values are "
                "computed when they are read; no pipeline can read it"
            )
