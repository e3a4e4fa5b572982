"""Datasets, their pipelines and aggregates."""

from caraway.datasets.aggregates import (
    AggregateType,
    Average,
    Count,
    Distinct,
    ExpDecaySum,
    FirstK,
    LastK,
    Max,
    Min,
    Quantile,
    Stddev,
    Sum,
)
from caraway.datasets.dataset import Dataset, dataset, index
from caraway.datasets.fields import Field, field
from caraway.datasets.groups import GroupBy
from caraway.datasets.legacy import OnDemand, Summary, Visitor, on_demand
from caraway.datasets.pipelines import Pipeline, pipeline
from caraway.graph.operators import Aggregate, Dedup, Explode, Filter, First, Join, Transform
from caraway.graph.operators import Union as Union_

__all__ = [
    "Aggregate",
    "AggregateType",
    "Average",
    "Count",
    "Dataset",
    "Dedup",
    "Distinct",
    "ExpDecaySum",
    "Explode",
    "Field",
    "Filter",
    "First",
    "FirstK",
    "GroupBy",
    "Join",
    "LastK",
    "Max",
    "Min",
    "OnDemand",
    "Pipeline",
    "Quantile",
    "Stddev",
    "Sum",
    "Summary",
    "Transform",
    "Union_",
    "Visitor",
    "dataset",
    "field",
    "index",
    "on_demand",
    "pipeline",
]
