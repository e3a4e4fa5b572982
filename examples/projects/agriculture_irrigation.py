"""Fields: how dry the soil is, what rain is to come, and how far the crop is.

The features decide how many litres a valve lets through tonight.
"""

from datetime import datetime
from typing import Optional

from caraway.connectors import Webhook, source
from caraway.datasets import Average, Count, Dataset, Min, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous, between
from caraway.expr import col, now, when
from caraway.expr import datetime as instant
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import expect_column_values_to_be_between, expectations, inputs

__owner__ = "water@farm.example"
farm = Webhook(name="farm")


@source(farm.endpoint("probes"), disorder="2d", cdc="append")
@dataset
class Probes:
    plot: str
    depth_cm: int
    moisture: Optional[between(float, 0.0, 1.0, strict_min=True)]
    measured: datetime

    @expectations
    def plausible(cls):
        return [expect_column_values_to_be_between(str(cls.depth_cm), min_value=5, max_value=100, mostly=0.95)]


@source(farm.endpoint("forecasts"), disorder="2d", cdc="upsert")
@dataset(index=True)
class Forecasts:
    region: str = field(key=True)
    rain_mm: float
    issued: datetime


@source(farm.endpoint("plots"), disorder="2d", cdc="upsert")
@dataset(index=True)
class Plots:
    plot: str = field(key=True)
    region: str
    crop: Optional[str]
    square_metres: float
    sown: datetime = field(timestamp=True)


@source(farm.endpoint("valves"), disorder="2d", cdc="append")
@dataset
class Valves:
    plot: str
    litres: float
    closed: datetime


@dataset(index=True)
class Soil:
    plot: str = field(key=True)
    shallow: float
    deep: Optional[float]
    driest: Optional[float]
    broken: int
    measured: datetime

    @pipeline
    @inputs(Probes)
    def by_depth(cls, probes: Dataset):
        # The value counts for one of both depths only.
        split = probes.assign(
            shallow=when(col("depth_cm") <= 20).then(col("moisture")).astype(Optional[float]),
            deep=when(col("depth_cm") > 20).then(col("moisture")).astype(Optional[float]),
            unread=when(col("moisture").isnull()).then(1).astype(Optional[int]),
        )
        six_hours = Continuous("6h")
        return split.groupby("plot").aggregate(
            shallow=Average(of="shallow", window=six_hours, default=-1.0),
            deep=Average(of="deep", window=six_hours, default=None),
            driest=Min(of="moisture", window=Continuous("2d")),
            broken=Count(of="unread", window=six_hours, dropnull=True),
        )


@dataset(index=True)
class Watered:
    plot: str = field(key=True)
    per_square_metre: float
    closed: datetime

    @pipeline
    @inputs(Valves, Plots)
    def three_days(cls, valves: Dataset, plots: Dataset):
        return (
            valves.join(plots, how="inner", on=["plot"], fields=["square_metres"])
            .assign(spread=(col("litres") / col("square_metres")).astype(float))
            .groupby("plot")
            .aggregate(per_square_metre=Sum(of="spread", window=Continuous("3d")))
        )


@featureset
class Plot:
    plot: str
    region: str = F(Plots.region, default="")
    crop: str = F(Plots.crop, default="fallow")
    sown: Optional[datetime] = F(Plots.sown)
    rain_mm: float = F(Forecasts.rain_mm, default=0.0)
    shallow: float = F(Soil.shallow, default=-1.0)
    deep: Optional[float] = F(Soil.deep)
    driest: Optional[float] = F(Soil.driest)
    broken: int = F(Soil.broken, default=0)
    watered: float = F(Watered.per_square_metre, default=0.0)
    week: int = F(now().dt.week)
    days_of_season: int = F(now().dt.since(instant(2026, 3, 1, timezone="Europe/Madrid"), unit="day"))
    growth: str = F(
        when(col("sown").isnull())
        .then("none")
        .when(now().dt.since(col("sown"), "day") < 30)
        .then("young")
        .otherwise("grown")
    )
    litres: int = F(
        when((col("shallow") < 0.0) | (col("rain_mm") > 10.0))
        .then(0)
        .when(col("growth") == "young")
        .then(((0.5 - col("shallow")) * 40.0 - col("watered")).ceil())
        .otherwise(((0.5 - col("deep").fillnull(col("shallow"))) * 20.0).floor())
    )


def _probe(plot: str, depth_cm: int, moisture: float | None, time: str) -> dict:
    return {"plot": plot, "depth_cm": depth_cm, "moisture": moisture, "measured": f"2026-{time}:00Z"}


def _plot(plot: str, region: str, crop: str | None, sown: str) -> dict:
    return {"plot": plot, "region": region, "crop": crop, "square_metres": 200.0, "sown": f"2026-{sown}T00:00:00Z"}


LOGS = [
    (
        "farm",
        "plots",
        [
            _plot("A", "south", "maize", "04-20"),
            _plot("B", "south", None, "03-05"),
            _plot("C", "north", "oats", "03-05"),
        ],
    ),
    (
        "farm",
        "forecasts",
        [
            {"region": "south", "rain_mm": 20.0, "issued": "2026-04-30T06:00:00Z"},
            {"region": "south", "rain_mm": 2.0, "issued": "2026-05-01T06:00:00Z"},
            {"region": "north", "rain_mm": 12.5, "issued": "2026-05-01T06:00:00Z"},
        ],
    ),
    (
        "farm",
        "probes",
        [
            _probe("A", 10, 0.125, "04-30T12:00"),
            _probe("A", 10, 0.25, "05-01T16:00"),
            _probe("A", 20, 0.375, "05-01T18:00"),
            _probe("A", 60, 0.5, "05-01T18:00"),
            _probe("A", 60, None, "05-01T19:00"),
            _probe("B", 10, 0.25, "05-01T18:00"),
            _probe("B", 60, 0.375, "05-01T18:00"),
            _probe("C", 10, 0.25, "05-01T18:00"),
        ],
    ),
    ("farm", "valves", [{"plot": "A", "litres": 300.0, "closed": "2026-04-30T22:00:00Z"}]),
]
ASKS = [
    {
        # A is young: (0.5 - 0.3125) * 40 = 7.5, of which it got 1.5. B is old: (0.5 - 0.375) * 20 = 2.5. C gets rain.
        "at": "2026-05-01T20:00:00Z",
        "inputs": {"Plot.plot": ["A", "B", "C", "D"]},
        "outputs": [
            "Plot.crop",
            "Plot.shallow",
            "Plot.deep",
            "Plot.driest",
            "Plot.broken",
            "Plot.watered",
            "Plot.growth",
            "Plot.litres",
        ],
        "expected": {
            "Plot.crop": ["maize", "fallow", "oats", "fallow"],
            "Plot.shallow": [0.3125, 0.25, 0.25, -1.0],
            "Plot.deep": [0.5, 0.375, None, None],
            "Plot.driest": [0.125, 0.25, 0.25, None],
            "Plot.broken": [1, 0, 0, 0],
            "Plot.watered": [1.5, 0.0, 0.0, 0.0],
            "Plot.growth": ["young", "grown", "grown", "none"],
            "Plot.litres": [6, 2, 0, 0],
        },
    },
    {
        # Nothing was measured for six hours; the driest is of two days. March began at 23 h UTC in Madrid.
        "at": "2026-05-02T01:00:00Z",
        "inputs": {"Plot.plot": ["A"]},
        "outputs": ["Plot.shallow", "Plot.driest", "Plot.week", "Plot.days_of_season"],
        "expected": {"Plot.shallow": [-1.0], "Plot.driest": [0.125], "Plot.week": [18], "Plot.days_of_season": [62]},
    },
]
