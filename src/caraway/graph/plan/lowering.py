"""Pipelines with steps behind an aggregate, cut into several: each job ends where rows come out of an index.

Aggregates are computed in an index, which writes the rows that jobs read to a topic. Therefore the part of a pipeline
up to such an aggregate becomes an internal dataset, which users don't see. An internal dataset is named after its
content, so pipelines that begin with the same aggregate share its job, topics and index, also across branches and
commits. The cut costs nothing, since the job ends there anyway, and no data is computed again when another pipeline
begins or ceases to use the aggregate (decision 19).
"""

from collections.abc import Mapping
from dataclasses import replace

from caraway.graph.fingerprints import dataset_fingerprint
from caraway.graph.operators import Aggregate, Input, Operator
from caraway.graph.schemas import schema_of
from caraway.graph.specs import DatasetSpec, FieldSpec, PipelineSpec
from caraway.graph.trees import datasets_read, with_parents

# An internal dataset's name consists of the aggregated dataset's name, this separator and a hash of the definition.
INTERNAL = "/"
HASH_DIGITS = 12


def lowered(spec: DatasetSpec, specs: Mapping[str, DatasetSpec]) -> tuple[DatasetSpec, ...]:
    """Return the internal datasets that a dataset reads, then the dataset itself, reading from them.

    Args:
        spec: The dataset.
        specs: All datasets of its operator tree, by name.
    """
    if not spec.pipelines:
        return (spec,)
    # A commit carries only the pipeline that its environment selects, so there is no second one.
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
    """Return the tree with an input in place of each aggregate that steps follow; add the datasets to `internal`."""

    def parent(before: Operator) -> Operator:
        cut = _cut(before, spec, specs, internal)
        if not isinstance(cut, Aggregate):
            return cut
        known = {**specs, **{made.name: made for made in internal}}
        made = _dataset(cut, spec, known)
        # Both sides of a union may begin with the same aggregate, for which one dataset is enough.
        if made.name not in known:
            internal.append(made)
        return Input(dataset=made.name)

    return with_parents(operator, parent)


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
