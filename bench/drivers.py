"""The definitions of the benchmark of queries: drivers with ten numbers, a hundred, windows, users' code."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import pandas as pd

from caraway import (
    Average,
    Count,
    F,
    Max,
    Stddev,
    Sum,
    connectors,
    dataset,
    extractor,
    featureset,
    field,
    meta,
    pipeline,
)
from caraway.dtypes import Continuous
from caraway.graph.specs import Graph
from caraway.lib.params import inputs, outputs

ENTITIES = 1_000
OWNER = "bench@caraway.example"
TEN = [f"f{number}" for number in range(10)]
SEVENTY = [f"g{number}" for number in range(70)]
SPANS = ["1h", "6h", "1d", "7d", "30d", "forever"]
FUNCTIONS = {"count": Count, "sum": Sum, "average": Average, "stddev": Stddev, "max": Max}
THIRTY = [f"{name}_{span}" for name in FUNCTIONS for span in SPANS]
# Number of a driver's rides in its windows, if only the hundred features are read.
RIDES_EACH = 20

webhook = connectors.Webhook(name="bench")


def _dataset(name: str, numbers: list[str]) -> Any:
    annotations = {"driver": int, **dict.fromkeys(numbers, float), "at": datetime}
    made = type(
        name,
        (),
        {
            "__annotations__": annotations,
            "__module__": __name__,
            "driver": field(key=True),
            "at": field(timestamp=True),
        },
    )
    source = connectors.source(webhook.endpoint(name.lower()), disorder="1h", cdc="upsert")
    return meta(owner=OWNER)(source(dataset(made, index=True)))


Drivers = _dataset("Drivers", TEN)
Profiles = _dataset("Profiles", SEVENTY)


@meta(owner=OWNER)
@connectors.source(webhook.endpoint("rides"), disorder="1h", cdc="append")
@dataset
class Rides:
    """Rides of drivers."""

    driver: int
    fare: float
    at: datetime = field(timestamp=True)


def _default(name: str) -> Any:
    return {} if name == "count" else {"of": "fare", **({} if name == "sum" else {"default": -1.0})}


def _stats() -> Any:
    @inputs(Rides)
    def aggregate(cls: Any, rides: Any) -> Any:
        del cls
        return rides.groupby("driver").aggregate(
            **{
                f"{name}_{span}": function(window=Continuous(span), **_default(name))
                for name, function in FUNCTIONS.items()
                for span in SPANS
            }
        )

    types = {name: int if name.startswith("count") else float for name in THIRTY}
    made = type(
        "Stats",
        (),
        {
            "__annotations__": {"driver": int, **types, "at": datetime},
            "__module__": __name__,
            "driver": field(key=True),
            "at": field(timestamp=True),
            "aggregate": pipeline(aggregate),
        },
    )
    return meta(owner=OWNER)(dataset(made, index=True))


Stats = _stats()


def _featureset(name: str, features: Mapping[str, Any]) -> Any:
    types = {feature: int if feature == "driver" or feature.startswith("count") else float for feature in features}
    return meta(owner=OWNER)(
        featureset(
            type(
                name,
                (),
                {
                    "__annotations__": {"driver": int, **types},
                    "__module__": __name__,
                    **features,
                },
            )
        )
    )


Driver = _featureset("Driver", {name: F(getattr(Drivers, name), default=-1.0) for name in TEN})
Hundred = _featureset(
    "Hundred",
    {
        **{name: F(getattr(Profiles, name), default=-1.0) for name in SEVENTY},
        **{name: F(getattr(Stats, name), default=0 if name.startswith("count") else -1.0) for name in THIRTY},
    },
)


@meta(owner=OWNER)
@featureset
class Coded:
    """Features that users' code computes: a function that is traced to an expression, and one that isn't."""

    driver: int
    base: float = F(Drivers.f0, default=-1.0)
    doubled: float
    tripled: float

    @extractor
    @inputs("base")
    @outputs("doubled")
    def double(cls, ts: "pd.Series[Any]", base: "pd.Series[Any]") -> "pd.Series[Any]":
        """Return the double."""
        del ts
        return (base * 2).rename("doubled")

    @extractor
    @inputs("base")
    @outputs("tripled")
    def triple(cls, ts: "pd.Series[Any]", base: "pd.Series[Any]") -> "pd.Series[Any]":
        """Return the triple, by a method that isn't traced."""
        del ts
        return base.mul(3).rename("tripled")


def graph() -> Graph:
    """Return all definitions."""
    datasets, featuresets = (Drivers, Profiles, Rides, Stats), (Driver, Hundred, Coded)
    return Graph(datasets=tuple(d.to_spec() for d in datasets), featuresets=tuple(f.to_spec() for f in featuresets))


def rows(numbers: list[str]) -> Iterator[list[Any]]:
    """Yield a row for each driver."""
    return ([driver, *(driver + place / 8 for place in range(len(numbers)))] for driver in range(ENTITIES))
