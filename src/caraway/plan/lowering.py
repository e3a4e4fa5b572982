"""Pipelines with steps behind an aggregate, cut into several: each job ends where rows come out of an index.

Aggregates come into being in an index, which writes the rows that others read to a topic. So what stands before such a
point becomes a dataset of its own, which no user sees.
"""

from collections.abc import Mapping
from dataclasses import replace

from caraway.graph.operators import Aggregate, Input, Join, Operator, Union
from caraway.graph.schemas import schema_of
from caraway.graph.specs import DatasetSpec, FieldSpec, PipelineSpec
from caraway.graph.trees import datasets_read


def lowered(spec: DatasetSpec, specs: Mapping[str, DatasetSpec]) -> tuple[DatasetSpec, ...]:
    """Return a dataset as it is run, behind the internal ones that it reads; `specs` has all that are in its tree."""
    if not spec.pipelines:
        return (spec,)
    # A commit carries the pipelines that its environment selects: one.
    pipeline = spec.pipelines[0]
    internal: list[DatasetSpec] = []
    operator = _cut(pipeline.operator, spec, specs, internal)
    if not internal:
        return (spec,)
    inputs = datasets_read(operator)
    return (*internal, replace(spec, pipelines=(replace(pipeline, operator=operator, inputs=inputs),)))


def _cut(
    operator: Operator, spec: DatasetSpec, specs: Mapping[str, DatasetSpec], internal: list[DatasetSpec]
) -> Operator:
    """Put an input in the place of each aggregate that steps follow."""

    def parent(before: Operator) -> Operator:
        cut = _cut(before, spec, specs, internal)
        if not isinstance(cut, Aggregate):
            return cut
        known = {**specs, **{made.name: made for made in internal}}
        made = _dataset(cut, f"{spec.name}/{len(internal) + 1}", spec, known)
        # Both branches of a union may begin with one aggregate.
        same = next((other for other in internal if other.pipelines[0].operator == cut), None)
        if same is None:
            internal.append(made)
        return Input(dataset=(same or made).name)

    match operator:
        case Input():
            return operator
        case Union():
            return replace(operator, left=parent(operator.left), right=parent(operator.right))
        case Join():
            return replace(operator, left=parent(operator.left))
        case _:
            return replace(operator, of=parent(operator.of))


def _dataset(operator: Aggregate, name: str, spec: DatasetSpec, specs: Mapping[str, DatasetSpec]) -> DatasetSpec:
    schema = schema_of(operator, specs)
    fields = tuple(
        FieldSpec(name=column, dtype=dtype, key=column in schema.keys, timestamp=column == schema.timestamp)
        for column, dtype in schema.columns.items()
    )
    pipeline = PipelineSpec(name=spec.pipelines[0].name, inputs=datasets_read(operator), operator=operator)
    return DatasetSpec(
        name=name, version=1, history_us=spec.history_us, fields=fields, index=None, pipelines=(pipeline,)
    )
