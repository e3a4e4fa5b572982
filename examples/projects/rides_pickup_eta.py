"""Pick-up times: how far off the promised minutes are, by zone and by hour of the local day.

The features correct the ETA that a rider sees, and say whether a driver tends to come later than promised.
"""

from datetime import datetime
from typing import Optional

import pandas as pd

from caraway.connectors import Webhook, source
from caraway.datasets import Average, Count, Dataset, Max, Quantile, dataset, field, pipeline
from caraway.dtypes import Continuous
from caraway.expr import col, now
from caraway.featuresets import extractor, featureset
from caraway.featuresets import feature as F
from caraway.lib import includes, inputs, outputs

__owner__ = "eta@rides.example"
rides = Webhook(name="rides_eta")


@source(rides.endpoint("pickups"), disorder="1d", cdc="append")
@dataset
class Pickups:
    driver: int
    zone: str
    promised_min: float
    requested: datetime
    picked_up: datetime = field(timestamp=True)


@dataset(index=True)
class ZoneHours:
    zone: str = field(key=True)
    local_hour: int = field(key=True)
    late_mean: Optional[float]
    late_p80: Optional[float]
    trips: int
    picked_up: datetime

    @pipeline
    @inputs(Pickups)
    def lateness(cls, pickups: Dataset):
        waited = col("picked_up").dt.since(col("requested"), unit="second") / 60
        return (
            pickups.assign(
                late_min=(waited - col("promised_min")).astype(float),
                local_hour=col("requested").dt.with_tz("Europe/Vienna").hour.astype(int),
            )
            .groupby("zone", "local_hour")
            .aggregate(
                late_mean=Average(of="late_min", window=Continuous("4w"), default=None),
                late_p80=Quantile(of="late_min", p=0.8, approx=True, window=Continuous("4w")),
                trips=Count(window=Continuous("4w")),
            )
        )


@dataset(index=True)
class DriverLateness:
    driver: int = field(key=True)
    worst_min: Optional[float]
    picked_up: datetime

    @pipeline
    @inputs(Pickups)
    def worst(cls, pickups: Dataset):
        late = pickups.assign(
            "late_min",
            float,
            lambda df: (df["picked_up"] - df["requested"]).dt.total_seconds() / 60.0 - df["promised_min"].astype(float),
        )
        return late.groupby("driver").aggregate(worst_min=Max(of="late_min", window=Continuous("1w")))


def at_least_one(minutes: pd.Series) -> pd.Series:
    return minutes.clip(lower=1.0)


@featureset
class Pickup:
    zone: str
    driver: int
    promised_min: float
    local_hour: int = F(now().dt.with_tz("Europe/Vienna").hour)
    late_mean: float = F(ZoneHours.late_mean, default=0.0)
    late_p80: Optional[float] = F(ZoneHours.late_p80)
    worst_min: Optional[float] = F(DriverLateness.worst_min)
    eta_min: float
    eta_text: str = F(col("eta_min").num.round(0).num.to_string().str.concat(" min"))

    @extractor
    @includes(at_least_one)
    @inputs("promised_min", "late_mean")
    @outputs("eta_min")
    def correct(cls, ts, promised, late):
        return at_least_one(promised.astype(float) + late.astype(float)).rename("eta_min")


def _pickup(driver: int, zone: str, promised: float, requested: str, picked_up: str) -> dict:
    times = {"requested": f"2026-07-06T{requested}Z", "picked_up": f"2026-07-06T{picked_up}Z"}
    return {"driver": driver, "zone": zone, "promised_min": promised, **times}


LOGS = [
    (
        "rides_eta",
        "pickups",
        [
            _pickup(1, "centre", 4.0, "06:10:00", "06:16:00"),  # 8 h in Vienna's summer, 2 minutes late
            _pickup(2, "centre", 5.0, "06:20:00", "06:24:00"),  # 1 minute early
            _pickup(2, "centre", 3.0, "06:40:00", "06:48:00"),  # 5 minutes late
            _pickup(1, "centre", 3.0, "09:00:00", "09:03:30"),  # 11 h, half a minute late
        ],
    )
]
ASKS = [
    {
        # A day later at 06:30 UTC it is 8 h again: the mean of 2, -1, 5 is 2; the element at floor(0.8 * 3) is 5.
        "at": "2026-07-07T06:30:00Z",
        "inputs": {"Pickup.zone": ["centre", "suburb"], "Pickup.driver": [2, 9], "Pickup.promised_min": [6.0, 0.25]},
        "outputs": ["Pickup.local_hour", "Pickup.late_p80", "Pickup.worst_min", "Pickup.eta_min", "Pickup.eta_text"],
        "expected": {
            "Pickup.local_hour": [8, 8],
            "Pickup.late_p80": [5.0, None],
            "Pickup.worst_min": [5.0, None],
            "Pickup.eta_min": [8.0, 1.0],
            "Pickup.eta_text": ["8 min", "1 min"],
        },
    },
    {
        "at": "2026-07-07T09:00:00Z",
        "inputs": {"Pickup.zone": ["centre"], "Pickup.driver": [1], "Pickup.promised_min": [2.0]},
        "outputs": ["Pickup.late_mean", "Pickup.worst_min", "Pickup.eta_min"],
        "expected": {"Pickup.late_mean": [0.5], "Pickup.worst_min": [2.0], "Pickup.eta_min": [2.5]},
    },
]
