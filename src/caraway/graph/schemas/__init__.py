"""The input and output schemas of each operator, and the checks of them.

The decorators call these functions while a pipeline is defined, and control calls them again on a commit.
"""

from collections.abc import Mapping

from caraway.errors import DefinitionError
from caraway.graph.operators import Input, Join, Operator, Union

# Modules of rules are imported for their effect only: each registers its rules with `step_rule`.
from caraway.graph.schemas import groups, records, steps  # noqa: F401
from caraway.graph.schemas.aggregates import column_of, output_type
from caraway.graph.schemas.groups import WINDOW_KEY, group_keys
from caraway.graph.schemas.joins import join_schema
from caraway.graph.schemas.model import (
    Schema,
    require_not_terminal,
    schema_differences,
    schema_of_dataset,
    step_schema,
)
from caraway.graph.schemas.records import union_schema
from caraway.graph.specs import DatasetSpec
from caraway.graph.trees import datasets_read, is_terminal

__all__ = [
    "WINDOW_KEY",
    "Schema",
    "column_of",
    "datasets_read",
    "group_keys",
    "is_terminal",
    "join_schema",
    "output_type",
    "require_not_terminal",
    "schema_differences",
    "schema_of",
    "schema_of_dataset",
    "step_schema",
    "union_schema",
]


def schema_of(operator: Operator, datasets: Mapping[str, DatasetSpec]) -> Schema:
    """Compute the output schema of an operator tree, which reads `datasets`, and check every step of it.

    Raises:
        DefinitionError: A step doesn't fit its input; the message names the operator, the bad part and what would be
            possible.
        DefinitionTypeError: The same fault, where the specified API raises a TypeError.
    """
    match operator:
        case Input():
            return schema_of_dataset(_dataset(operator.dataset, datasets))
        case Join():
            return join_schema(operator, schema_of(operator.left, datasets), _dataset(operator.right, datasets))
        case Union():
            return union_schema(schema_of(operator.left, datasets), schema_of(operator.right, datasets))
        case _:
            return step_schema(operator, schema_of(operator.of, datasets))


def _dataset(name: str, datasets: Mapping[str, DatasetSpec]) -> DatasetSpec:
    if name not in datasets:
        raise DefinitionError(f"unknown dataset {name}; datasets: {', '.join(datasets) or 'none'}")
    return datasets[name]
