"""Tests of the names that programs import, and of the modules that have them."""

import importlib
from typing import Any

import pytest

import caraway
from caraway import datasets, dtypes

SURFACE = {
    "caraway": "dataset field pipeline Dataset Count Distinct Sum LastK FirstK Min Max Average Stddev AggregateType "
    "featureset extractor meta F client connectors",
    "caraway.featuresets": "featureset Featureset feature Feature extractor Extractor ExtractorType is_valid_feature "
    "is_valid_featureset",
    "caraway.lib": "meta desc inputs outputs includes expectations bucketize secrets",
    "caraway.lib.metadata": "meta desc Metadata get_meta_attr set_meta_attr",
    "caraway.lib.includes": "includes EnvSelector",
    "caraway.lib.params": "inputs outputs",
    "caraway.lib.schema": "between oneof regex struct Window Embedding",
    "caraway.lib.aggregate": "Count Distinct Sum LastK FirstK Min Max Average Stddev Quantile ExpDecaySum "
    "AggregateType",
    "caraway.client": "Client V1_API",
    "caraway.testing": "mock log MockClient InternalTestClient IntegrationClient LocalClient get_extractor_func "
    "almost_equal error_message erase_extractor_pycode erase_operator_pycode",
    "caraway.integrations.aws": "Secret",
}

OF_DATASETS = {
    "caraway.datasets": "dataset field index pipeline Dataset Pipeline Field Count Sum Average Min Max Stddev Quantile "
    "Distinct LastK FirstK ExpDecaySum AggregateType Transform Filter GroupBy Aggregate Join Union_ Dedup Explode "
    "First Visitor Summary on_demand OnDemand",
    "caraway.dtypes": "Continuous Tumbling Hopping Session Window struct Embedding Decimal oneof between regex",
    "caraway.lib": "expect_column_values_to_not_be_null bucketize",
    "caraway.expr": "col lit",
}
ALSO = {"caraway.lib": ["connectors:1:fennel.lib"]}


@pytest.mark.parametrize(
    ("module", "names"),
    [
        *(
            pytest.param(
                module, names.split(), id=module, marks=pytest.mark.spec(f"featuresets:1:{row}", *ALSO.get(module, ()))
            )
            for row, (module, names) in enumerate(SURFACE.items(), start=1)
        ),
        *(
            pytest.param(module, names.split(), id=f"{module} of datasets", marks=pytest.mark.spec(f"datasets:1:{row}"))
            for row, (module, names) in enumerate(OF_DATASETS.items(), start=1)
        ),
    ],
)
def test_the_public_names(module: str, names: list[str]) -> None:
    found = importlib.import_module(module)
    assert [name for name in names if not hasattr(found, name)] == []


def test_former_places_give_the_same_things() -> None:
    aggregate: Any = importlib.import_module("caraway.lib.aggregate")
    schema: Any = importlib.import_module("caraway.lib.schema")
    assert all(getattr(aggregate, name) is getattr(datasets, name) for name in aggregate.__all__)
    assert all(getattr(schema, name) is getattr(dtypes, name) for name in SURFACE["caraway.lib.schema"].split())
    assert caraway.client.V1_API == "/api/v1"
