"""The former place of aggregates; new code takes them from `caraway.datasets`."""

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
