"""The former module of aggregates; new code imports them from `caraway.datasets`."""

# Compatibility only.
from caraway.datasets import (
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

__all__ = [
    "AggregateType",
    "Average",
    "Count",
    "Distinct",
    "ExpDecaySum",
    "FirstK",
    "LastK",
    "Max",
    "Min",
    "Quantile",
    "Stddev",
    "Sum",
]
