"""Definitions of the tests of the console: the garden, and a feature of a dataset that a job computes."""

# ruff: noqa: ANN001, ANN201 (definitions as users write them)
# mypy: disable-error-code="no-untyped-def, attr-defined, list-item, assignment"

import json
from dataclasses import replace
from datetime import datetime
from typing import Optional

from caraway import Average, F, dataset, featureset, field, meta, pipeline
from caraway.dtypes import Continuous
from caraway.graph.drift import Drift
from caraway.graph.expectations import Expectation, ExpectationSuite
from caraway.graph.specs import (
    DatasetSpec,
    FeaturesetSpec,
    FeatureSpec,
    Graph,
    LookupExtractor,
    Metadata,
    PipelineSpec,
)
from caraway.lib.params import inputs
from tests.unit.compute.query import garden


@meta(owner="ada@example.com", description="How wet each species is kept.", tags=["water"])
@dataset(index=True)
class Wetness:
    species: str = field(key=True)
    mean: float
    at: datetime = field(timestamp=True)

    @pipeline
    @inputs(garden.Readings, garden.Pots)
    def join_pots(cls, readings, pots):
        known = readings.join(pots, how="inner", on=["pot"])
        return known.groupby("species").aggregate(mean=Average(of="moisture", window=Continuous("1d"), default=0.0))


@meta(owner="bob@example.com")
@featureset
class Species:
    species: str
    mean: Optional[float] = F(Wetness.mean).meta(description="Mean <moisture> of a day")


def graph(**tags: tuple[str, ...]) -> Graph:
    """Return the definitions, with tags on datasets."""
    found = garden.graph((*garden.DATASETS, Wetness), (*garden.FEATURESETS, Species))
    datasets = tuple(
        replace(spec, metadata=replace(spec.metadata, tags=tags.get(spec.name, spec.metadata.tags)))
        for spec in found.datasets
    )
    expected = {"Readings": suite("moisture", strict=True), "Pots": suite("size", "species")}
    with_checks = [replace(spec, expectations=expected.get(spec.name)) for spec in datasets]
    return replace(found, datasets=tuple(profiled(spec) if spec.expectations else spec for spec in with_checks))


def profiled(spec: DatasetSpec) -> DatasetSpec:
    """Return a dataset with thresholds of drift."""
    return replace(spec, metadata=replace(spec.metadata, drift=Drift(mean=0.4)))


def suite(*columns: str, strict: bool = False) -> ExpectationSuite:
    """Return expectations of columns: that the first lies within bounds, and that none is null, which may be strict."""
    within = {"column": columns[0], "max_value": 1, "min_value": 0, "mostly": 0.98}
    found = [Expectation(name="expect_column_values_to_be_between", arguments=json.dumps(within))]
    for column in columns:
        arguments = json.dumps({"column": column, **({"strict": True} if strict else {})})
        found.append(Expectation(name="expect_column_values_to_not_be_null", arguments=arguments))
    return ExpectationSuite(name="sane", version=1, expectations=tuple(found))


def large(datasets: int, features: int) -> Graph:
    """Return a graph of so many datasets and features, each dataset but every tenth computed from an earlier one."""
    small = garden.graph()
    source, derived = small.datasets[2], next(spec for spec in small.datasets if spec.name == "Moisture")
    (pipeline,) = derived.pipelines
    about = Metadata(owner="team@example.com", description="A dataset among many others, made by a test.")
    made: list[DatasetSpec] = []
    for number in range(datasets):
        if number % 10 == 0:
            readings = replace(source, name=f"Readings{number:04d}", metadata=about)
            made.append(profiled(replace(readings, expectations=suite(*["moisture"] * 9))))
            continue
        read = made[number - number % 10].name
        tree = replace(pipeline.operator, of=replace(pipeline.operator.of, dataset=read))  # type: ignore[union-attr, arg-type]
        own = PipelineSpec(name="aggregate", inputs=(read,), operator=tree, source_code=pipeline.source_code)
        made.append(replace(derived, name=f"Moisture{number:04d}", pipelines=(own,), metadata=about))
    size = -(-features // datasets)
    field = next(found for found in derived.fields if found.name == "mean")
    sets = []
    for number, spec in enumerate(made):
        name = f"Set{number:04d}"
        names = [f"mean_of_the_moisture_{position}" for position in range(size - 1)]
        extractors = tuple(
            LookupExtractor(
                name=f"lookup_{feature}",
                dataset=spec.name,
                field="mean",
                inputs=(f"{name}.pot",),
                output=f"{name}.{feature}",
            )
            for feature in names
            if spec.pipelines
        )
        listed = (
            FeatureSpec(name="pot", dtype=spec.fields[0].dtype),
            *(FeatureSpec(name=f, dtype=field.dtype) for f in names),
        )
        sets.append(FeaturesetSpec(name=name, features=listed, extractors=extractors, metadata=about))
    return Graph(datasets=tuple(made), featuresets=tuple(sets))
