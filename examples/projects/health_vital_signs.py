"""Wards: vital signs of patients, as monitors and nurses record them.

The features make an early warning score that calls a doctor; it must not be fooled by a sensor that fell off.
"""

from datetime import UTC, datetime
from typing import Optional

import pandas as pd

from caraway.connectors import Webhook, source
from caraway.datasets import Average, Count, Dataset, Max, Min, dataset, field, pipeline
from caraway.dtypes import Continuous, between, oneof
from caraway.expr import col, now, when
from caraway.featuresets import extractor, featureset
from caraway.featuresets import feature as F
from caraway.lib import inputs, meta, outputs, secrets

__owner__ = "ward@hospital.example"
ward = Webhook(name="ward")


@source(ward.endpoint("monitors"), disorder="1h", cdc="append")
@dataset
class Monitors:
    bed: int
    sign: oneof(str, ["pulse", "oxygen", "breaths"])
    value: Optional[float]
    at: datetime


@source(ward.endpoint("nurses"), disorder="1h", cdc="append")
@dataset
class Nurses:
    bed: int
    pulse: int
    breaths: int
    at: datetime


@source(ward.endpoint("stays"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Stays:
    bed: int = field(key=True)
    patient: int
    age: between(int, 0, 120)
    oxygen_given: bool
    since: datetime


@dataset
class Signs:
    """A row for each value, wherever it came from."""

    patient: int
    sign: str
    value: float
    at: datetime

    @pipeline
    @inputs(Monitors, Nurses, Stays)
    def all_of_them(cls, monitors: Dataset, nurses: Dataset, stays: Dataset):
        measured = monitors.dropnull("value").assign(sign=col("sign").astype(str))
        pulses = nurses.assign(
            sign=when(col("pulse") > 0).then("pulse").otherwise("none").astype(str), value=col("pulse").astype(float)
        )
        breaths = nurses.transform(
            lambda df: pd.DataFrame(
                {"bed": df["bed"], "sign": "breaths", "value": df["breaths"].astype("Float64"), "at": df["at"]}
            ),
            schema={"bed": int, "sign": str, "value": float, "at": datetime},
        )
        everything = measured + pulses.drop("pulse", "breaths") + breaths
        return (
            everything.filter((col("value") > 0.0) & (col("sign") != "none"))
            # Who lies in the bed now? The next patient doesn't inherit the values.
            .join(stays, how="inner", on=["bed"], fields=["patient"])
            .dedup()
            .drop("bed")
        )


@dataset(index=True)
class Vitals:
    patient: int = field(key=True)
    pulse: Optional[float]
    pulse_high: Optional[float]
    oxygen_low: Optional[float]
    breaths: Optional[float]
    values: int
    at: datetime

    @pipeline
    @inputs(Signs)
    def by_patient(cls, signs: Dataset):
        wide = signs.assign(
            pulse=when(col("sign") == "pulse").then(col("value")).astype(Optional[float]),
            oxygen=when(col("sign") == "oxygen").then(col("value")).astype(Optional[float]),
            breaths=when(col("sign") == "breaths").then(col("value")).astype(Optional[float]),
        )
        quarter, hour = Continuous("15m"), Continuous("1h")
        return wide.groupby("patient").aggregate(
            pulse=Average(of="pulse", window=quarter, default=None),
            pulse_high=Max(of="pulse", window=hour),
            oxygen_low=Min(of="oxygen", window=hour),
            breaths=Average(of="breaths", window=quarter, default=None),
            values=Count(window=quarter),
        )


@featureset
class Bed:
    bed: int
    patient: Optional[int] = F(Stays.patient)
    age: Optional[between(int, 0, 120)] = F(Stays.age)
    oxygen_given: bool = F(Stays.oxygen_given, default=False)
    since: Optional[datetime] = F(Stays.since)
    hours_here: Optional[int] = F(now().dt.since(col("since"), unit="hour"))


@meta(owner="models@hospital.example", description="Early warning", tags=["clinical"])
@featureset
class EarlyWarning:
    patient: Optional[int] = F(Bed.patient)
    pulse: Optional[float] = F(Vitals.pulse)
    pulse_high: Optional[float] = F(Vitals.pulse_high)
    oxygen_low: Optional[float] = F(Vitals.oxygen_low)
    breaths: Optional[float] = F(Vitals.breaths)
    values: int = F(Vitals.values, default=0)
    of_pulse: int = F(
        when(col("pulse").isnull())
        .then(0)
        .when(col("pulse") >= 131.0)
        .then(3)
        .when(col("pulse") > 110.0)
        .then(2)
        .otherwise(0)
    )
    of_oxygen: int = F(
        when(col("oxygen_low").fillnull(100.0) <= 91.0).then(3).when(col("oxygen_low") < 96.0).then(1).otherwise(0)
    )
    of_breaths: int = F(when(col("breaths").fillnull(16.0) >= 25).then(3).otherwise(0))
    score: int
    call_doctor: bool = F(col("score") >= 5)
    ticket: str

    @extractor
    @inputs("of_pulse", "of_oxygen", "of_breaths", Bed.oxygen_given, Bed.age)
    @outputs("score")
    def add_up(cls, ts, pulse, oxygen, breaths, given, age):
        old = (age.astype("Int64").fillna(0) >= 80).astype("int64")
        total = (
            pulse.astype("int64") + oxygen.astype("int64") + breaths.astype("int64") + 2 * given.astype("int64") + old
        )
        return total.rename("score")

    @extractor
    @inputs("patient")
    @outputs("ticket")
    def name_ticket(cls, ts, patient):
        station = secrets.get("station")
        return pd.Series(["" if pd.isna(p) else f"{station}-{int(p)}" for p in patient], name="ticket", dtype="object")


def _monitor(bed: int, sign: str, value: float | None, time: str) -> dict:
    return {"bed": bed, "sign": sign, "value": value, "at": f"2026-01-05T{time}:00Z"}


def _stay(bed: int, patient: int, age: int, time: str, *, oxygen_given: bool = False) -> dict:
    return {"bed": bed, "patient": patient, "age": age, "oxygen_given": oxygen_given, "since": f"2026-01-{time}:00Z"}


SECRETS = {"station": "3B"}
LOGS = [
    (
        "ward",
        "stays",
        [
            _stay(1, 700, 84, "04T22:00"),
            _stay(2, 701, 40, "05T06:00", oxygen_given=True),
            _stay(1, 702, 30, "05T09:00"),
        ],
    ),
    (
        "ward",
        "monitors",
        [
            _monitor(1, "pulse", 140.0, "08:00"),
            _monitor(1, "pulse", 140.0, "08:00"),  # sent twice
            _monitor(1, "pulse", None, "08:05"),
            _monitor(1, "oxygen", 90.0, "08:05"),
            _monitor(2, "oxygen", 95.0, "08:05"),
            _monitor(2, "pulse", 0.0, "08:06"),  # it fell off
        ],
    ),
    (
        "ward",
        "nurses",
        [
            {"bed": 1, "pulse": 130, "breaths": 24, "at": "2026-01-05T08:10:00Z"},
            {"bed": 2, "pulse": 70, "breaths": 28, "at": "2026-01-05T08:10:00Z"},
        ],
    ),
]
ASKS = [
    {
        # Bed 1: pulse (140 + 130) / 2 is 3 points, oxygen 3, age 1. Bed 2: oxygen 1, breaths 3, given oxygen 2.
        "at": "2026-01-05T08:12:00Z",
        "inputs": {"Bed.bed": [1, 2, 3]},
        "outputs": [
            "EarlyWarning.pulse",
            "EarlyWarning.oxygen_low",
            "EarlyWarning.breaths",
            "EarlyWarning.values",
            "EarlyWarning.score",
            "EarlyWarning.call_doctor",
            "EarlyWarning.ticket",
        ],
        "expected": {
            "EarlyWarning.pulse": [135.0, 70.0, None],
            "EarlyWarning.oxygen_low": [90.0, 95.0, None],
            "EarlyWarning.breaths": [24.0, 28.0, None],
            "EarlyWarning.values": [4, 3, 0],
            "EarlyWarning.score": [7, 6, 0],
            "EarlyWarning.call_doctor": [True, True, False],
            "EarlyWarning.ticket": ["3B-700", "3B-701", ""],
        },
    },
    {
        # Another patient lies in bed 1 by now, of whom nothing is known.
        "at": "2026-01-05T09:05:00Z",
        "inputs": {"Bed.bed": [1, 2]},
        "outputs": ["Bed.patient", "Bed.hours_here", "EarlyWarning.pulse_high", "EarlyWarning.score"],
        "expected": {
            "Bed.patient": [702, 701],
            "Bed.hours_here": [0, 3],
            "EarlyWarning.pulse_high": [None, 70.0],
            "EarlyWarning.score": [0, 3],
        },
    },
    {
        "at": None,
        "inputs": {"Bed.bed": [1, 2, 3]},
        "outputs": ["Bed.age", "Bed.oxygen_given", "Bed.since", "EarlyWarning.patient", "EarlyWarning.values"],
        "expected": {
            "Bed.age": [30, 40, None],
            "Bed.oxygen_given": [False, True, False],
            "Bed.since": [datetime(2026, 1, 5, 9, tzinfo=UTC), datetime(2026, 1, 5, 6, tzinfo=UTC), None],
            "EarlyWarning.patient": [702, 701, None],
            "EarlyWarning.values": [0, 0, 0],
        },
    },
]
