"""The steps that may retract records that they have sent (docs/inside/records.md)."""

from collections.abc import Mapping

from caraway.graph.operators import Aggregate, Changelog, Dedup, First, Join, Operator
from caraway.graph.schemas import schema_of
from caraway.graph.specs import DatasetSpec
from caraway.graph.trees import parents


def revises(operator: Operator, specs: Mapping[str, DatasetSpec]) -> bool:
    """Return whether records of the output of `operator` may be revised or retracted later."""
    match operator:
        case Join() | Changelog() | Dedup() | First():
            return True
        case Aggregate():
            return bool(schema_of(operator.of, specs).keys) or revises(operator.of, specs)
        case _:
            return any(revises(parent, specs) for parent in parents(operator))
