"""Caraway: an open real-time feature platform."""

from typing import TYPE_CHECKING

from caraway.process.deferred import deferred

if TYPE_CHECKING:
    from caraway import client, connectors
    from caraway.client import Client
    from caraway.client.charts import plot_distributions, plot_drift, plot_freshness
    from caraway.client.desk import training_set
    from caraway.client.plotting import feature_history, plot_features
    from caraway.client.profiling import drift, profile
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
else:
    __getattr__, __dir__ = deferred(
        "caraway",
        {
            "AggregateType": "caraway.datasets:AggregateType",
            "Average": "caraway.datasets:Average",
            "Client": "caraway.client:Client",
            "Count": "caraway.datasets:Count",
            "Dataset": "caraway.datasets:Dataset",
            "Distinct": "caraway.datasets:Distinct",
            "F": "caraway.featuresets:feature",
            "FirstK": "caraway.datasets:FirstK",
            "LastK": "caraway.datasets:LastK",
            "Max": "caraway.datasets:Max",
            "Min": "caraway.datasets:Min",
            "Stddev": "caraway.datasets:Stddev",
            "Sum": "caraway.datasets:Sum",
            "client": "caraway.client",
            "connectors": "caraway.connectors",
            "dataset": "caraway.datasets:dataset",
            "drift": "caraway.client.profiling:drift",
            "extractor": "caraway.featuresets:extractor",
            "feature": "caraway.featuresets:feature",
            "feature_history": "caraway.client.plotting:feature_history",
            "featureset": "caraway.featuresets:featureset",
            "field": "caraway.datasets:field",
            "meta": "caraway.lib:meta",
            "pipeline": "caraway.datasets:pipeline",
            "plot_distributions": "caraway.client.charts:plot_distributions",
            "plot_drift": "caraway.client.charts:plot_drift",
            "plot_features": "caraway.client.plotting:plot_features",
            "plot_freshness": "caraway.client.charts:plot_freshness",
            "profile": "caraway.client.profiling:profile",
            "training_set": "caraway.client.desk:training_set",
            # Packages that are imported when they are first accessed as attributes of `caraway`.
            "datasets": "caraway.datasets",
            "dtypes": "caraway.dtypes",
            "errors": "caraway.errors",
            "expr": "caraway.expr",
            "featuresets": "caraway.featuresets",
            "lib": "caraway.lib",
        },
    )

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
    "drift",
    "extractor",
    "feature",
    "feature_history",
    "featureset",
    "field",
    "meta",
    "pipeline",
    "plot_distributions",
    "plot_drift",
    "plot_features",
    "plot_freshness",
    "profile",
    "training_set",
]
