"""Electricity: what a household draws hour by hour, and how near a transformer is to its limit.

The features forecast the load of the next hour, and find meters that stopped or that were bridged.
"""

import math
from datetime import datetime
from typing import Optional

from caraway.connectors import Webhook, source
from caraway.datasets import Average, Count, Dataset, Max, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous, Hopping, Tumbling
from caraway.expr import col, now, when
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs

__owner__ = "grid@power.example"
meters = Webhook(name="meters")
HOUR = Tumbling("1h")


@source(meters.endpoint("readings"), disorder="1d", cdc="append")
@dataset
class Readings:
    """Energy of a quarter of an hour, stamped with its begin."""

    meter: int
    kwh: Optional[float]
    begin: datetime


@source(meters.endpoint("meters"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Meters:
    meter: int = field(key=True)
    transformer: str
    limit_kw: float
    since: datetime


@dataset(index=True)
class Hours:
    meter: int = field(key=True)
    kwh: float
    readings: int
    begin: datetime

    @pipeline
    @inputs(Readings)
    def hourly(cls, readings: Dataset):
        return readings.groupby("meter").aggregate(
            kwh=Sum(of="kwh", window=HOUR), readings=Count(of="kwh", dropnull=True, window=HOUR)
        )


@dataset(index=True)
class Peaks:
    """Over the hours that a meter had: the highest of a week, and the mean."""

    meter: int = field(key=True)
    peak_7d: float
    mean_7d: float
    begin: datetime

    @pipeline
    @inputs(Hours)
    def of_week(cls, hours: Dataset):
        hours = hours.changelog(delete="replaced").filter(~col("replaced") & (col("readings") > 0))
        return hours.groupby("meter").aggregate(
            peak_7d=Max(of="kwh", window=Continuous("7d"), default=0.0),
            mean_7d=Average(of="kwh", window=Continuous("7d")),
        )


@dataset(index=True)
class Transformers:
    transformer: str = field(key=True)
    kwh: float
    begin: datetime

    @pipeline
    @inputs(Readings, Meters)
    def load(cls, readings: Dataset, meters: Dataset):
        placed = readings.join(meters, how="inner", on=["meter"], fields=["transformer"]).dropnull("kwh")
        return placed.groupby("transformer").aggregate(kwh=Sum(of="kwh", window=Hopping("1h", "15m")))


@featureset
class Meter:
    meter: int
    transformer: Optional[str] = F(Meters.transformer)
    limit_kw: float = F(Meters.limit_kw, default=0.0)
    kwh: float = F(Hours.kwh, default=0.0)
    readings: int = F(Hours.readings, default=0)
    peak: float = F(Peaks.peak_7d, default=0.0)
    mean: float = F(Peaks.mean_7d, default=0.0)
    load: float = F(Transformers.kwh, default=0.0)
    hour_sin: float = F((now().dt.with_tz("Europe/Vienna").hour * (math.pi / 12)).num.sin())
    hour_cos: float = F((now().dt.with_tz("Europe/Vienna").hour * (math.pi / 12)).num.cos())
    log_ratio: float = F(when(col("mean") > 0.0).then((col("kwh") + 1.0).num.log(base=2)).otherwise(0.0))
    silent: bool = F((col("readings") == 0) & (col("peak") > 0.0))
    strained: bool = F((col("load").num.pow(2) > 4.0) & ~col("silent"))


def _reading(meter: int, kwh: float | None, time: str) -> dict:
    return {"meter": meter, "kwh": kwh, "begin": f"2026-01-05T{time}:00Z"}


LOGS = [
    (
        "meters",
        "meters",
        [
            {"meter": 1, "transformer": "T1", "limit_kw": 4.0, "since": "2026-01-01T00:00:00Z"},
            {"meter": 2, "transformer": "T1", "limit_kw": 4.0, "since": "2026-01-01T00:00:00Z"},
        ],
    ),
    (
        "meters",
        "readings",
        [
            _reading(1, 0.5, "09:00"),
            _reading(1, 0.25, "09:15"),
            _reading(1, 0.5, "10:00"),
            _reading(1, None, "10:15"),
            _reading(1, 2.5, "10:45"),
            _reading(2, 0.75, "09:30"),
            _reading(1, 0.5, "11:15"),
        ],
    ),
]
TOLERANCE = 1e-12  # of sine and cosine
ASKS = [
    {
        # Noon in Vienna. Meter 1 had 3.0 from ten to eleven, in two readings, and 0.75 in the hour before.
        "at": "2026-01-05T11:05:00Z",
        "inputs": {"Meter.meter": [1, 2, 3]},
        "outputs": [
            "Meter.kwh",
            "Meter.readings",
            "Meter.peak",
            "Meter.mean",
            "Meter.load",
            "Meter.hour_cos",
            "Meter.log_ratio",
            "Meter.silent",
            "Meter.strained",
        ],
        "expected": {
            "Meter.kwh": [3.0, 0.0, 0.0],
            "Meter.readings": [2, 0, 0],
            "Meter.peak": [3.0, 0.75, 0.0],
            "Meter.mean": [1.875, 0.75, 0.0],
            "Meter.load": [3.0, 3.0, 0.0],
            "Meter.hour_cos": [-1.0, -1.0, -1.0],
            "Meter.log_ratio": [2.0, 0.0, 0.0],
            "Meter.silent": [False, True, False],
            "Meter.strained": [True, False, False],
        },
    },
    {
        # The hour from nine to ten. The transformer's: from a quarter past nine to a quarter past ten.
        "at": "2026-01-05T10:15:00Z",
        "inputs": {"Meter.meter": [1]},
        "outputs": ["Meter.kwh", "Meter.load", "Meter.hour_sin"],
        "expected": {"Meter.kwh": [0.75], "Meter.load": [1.5], "Meter.hour_sin": [math.sin(11 * math.pi / 12)]},
    },
    {
        # The last reading, of a quarter past eleven, closed the hour before it.
        "at": None,
        "inputs": {"Meter.meter": [2, 3]},
        "outputs": ["Meter.transformer", "Meter.limit_kw", "Meter.load"],
        "expected": {"Meter.transformer": ["T1", None], "Meter.limit_kw": [4.0, 0.0], "Meter.load": [2.5, 0.0]},
    },
]
