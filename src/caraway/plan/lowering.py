"""Pipelines with steps behind an aggregate, cut into several: each job ends where rows come out of an index.

Aggregates come into being in an index, which writes the rows that others read to a topic. So what stands before such a
point becomes a dataset of its own, which no user sees. It is named after its content: pipelines that begin with the
same aggregate share its job, topics and index, those of other branches and of later commits too. It costs nothing, as
the cut is there anyway, and nobody's data is computed anew when another pipeline joins in or leaves (decision 19).
"""

from collections.abc import Mapping
from dataclasses import replace

from caraway.graph.fingerprints import dataset_fingerprint
from caraway.graph.operators import Aggregate, Input, Join, Operator, Union
from caraway.graph.schemas import schema_of
from caraway.graph.specs import DatasetSpec, FieldSpec, PipelineSpec
from caraway.graph.trees import datasets_read

# Between the dataset that is aggregated and the hash of all that is done with it.
INTERNAL = "/"
HASH_DIGITS = 12


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
        made = _dataset(cut, spec, known)
        # Both branches of a union may begin with one aggregate.
        if made.name not in known:
            internal.append(made)
        return Input(dataset=made.name)

    match operator:
        case Input():
            return operator
        case Union():
            return replace(operator, left=parent(operator.left), right=parent(operator.right))
        case Join():
            return replace(operator, left=parent(operator.left))
        case _:
            return replace(operator, of=parent(operator.of))


def _dataset(operator: Aggregate, spec: DatasetSpec, specs: Mapping[str, DatasetSpec]) -> DatasetSpec:
    schema = schema_of(operator, specs)
    fields = tuple(
        FieldSpec(name=column, dtype=dtype, key=column in schema.keys, timestamp=column == schema.timestamp)
        for column, dtype in schema.columns.items()
    )
    inputs = datasets_read(operator)
    aggregated = inputs[0].partition(INTERNAL)[0]
    made = DatasetSpec(
        name=aggregated,
        version=1,
        history_us=spec.history_us,
        fields=fields,
        index=None,
        pipelines=(PipelineSpec(name="aggregate", inputs=inputs, operator=operator),),
    )
    return replace(made, name=f"{aggregated}{INTERNAL}{dataset_fingerprint(made).hex()[:HASH_DIGITS]}")
