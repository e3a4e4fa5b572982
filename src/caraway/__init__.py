"""Caraway: an open real-time feature platform."""

from caraway import client, connectors
from caraway.client import Client
from caraway.datasets import (
    AggregateType,
    Average,
    Count,
    Dataset,
    Distinct,
    FirstK,
    LastK,
    Max,
    Min,
    Stddev,
    Sum,
    dataset,
    field,
    pipeline,
)
from caraway.featuresets import extractor, feature, featureset
from caraway.lib import meta

F = feature

__all__ = [
    "AggregateType",
    "Average",
    "Client",
    "Count",
    "Dataset",
    "Distinct",
    "F",
    "FirstK",
    "LastK",
    "Max",
    "Min",
    "Stddev",
    "Sum",
    "client",
    "connectors",
    "dataset",
    "extractor",
    "feature",
    "featureset",
    "field",
    "meta",
    "pipeline",
]
