"""Datasets, their pipelines and aggregates."""

from caraway.datasets.aggregates import AggregateType, Average, Count, Max, Min, Stddev, Sum
from caraway.datasets.dataset import Dataset, dataset, index
from caraway.datasets.fields import Field, field
from caraway.datasets.pipelines import Pipeline, pipeline

__all__ = [
    "AggregateType",
    "Average",
    "Count",
    "Dataset",
    "Field",
    "Max",
    "Min",
    "Pipeline",
    "Stddev",
    "Sum",
    "dataset",
    "field",
    "index",
    "pipeline",
]
