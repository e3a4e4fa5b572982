"""Datasets, their pipelines and aggregates."""

from caraway.datasets import aggregates
from caraway.datasets.aggregates import *
from caraway.datasets.dataset import Dataset, dataset, index
from caraway.datasets.fields import Field, field
from caraway.datasets.groups import GroupBy
from caraway.datasets.legacy import OnDemand, Summary, Visitor, on_demand
from caraway.datasets.pipelines import Pipeline, pipeline
from caraway.graph.operators import Aggregate, Dedup, Explode, Filter, First, Join, Transform
from caraway.graph.operators import Union as Union_

__all__ = [
    "Aggregate",
    "Dataset",
    "Dedup",
    "Explode",
    "Field",
    "Filter",
    "First",
    "GroupBy",
    "Join",
    "OnDemand",
    "Pipeline",
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
__all__ += aggregates.__all__
