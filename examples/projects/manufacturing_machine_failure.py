"""Machines: how they shake and how hot they get, by the programme that they run.

The features plan maintenance, and stop a spindle before its bearing breaks.
"""

from datetime import UTC, datetime
from typing import List, Optional

from caraway.connectors import Webhook, source
from caraway.datasets import Average, Count, Dataset, LastK, Max, Stddev, dataset, field, pipeline
from caraway.dtypes import Continuous, struct
from caraway.expr import col, make_struct, now, var, when
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs

__owner__ = "maintenance@factory.example"
plant = Webhook(name="plant")


@struct
class Spectrum:
    mean: float
    peak: Optional[float]
    samples: int


@struct
class Part:
    name: str
    fitted: datetime


@source(plant.endpoint("readings"), disorder="6h", cdc="append")
@dataset
class Readings:
    machine: str
    vibration: List[float]
    celsius: List[Optional[float]]
    at: datetime


@source(plant.endpoint("machines"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Machines:
    machine: str = field(key=True)
    programme: str
    parts: List[Part]
    changed: datetime


@dataset
class Shakes:
    machine: str
    programme: Optional[str]
    spectrum: Spectrum
    mean: float
    hottest: Optional[float]
    blind: bool
    at: datetime

    @pipeline
    @inputs(Readings, Machines)
    def summarise(cls, readings: Dataset, machines: Dataset):
        shake = col("vibration").list
        warm = col("celsius").list.filter("c", ~var("c").isnull())
        return (
            readings.filter(shake.len() > 0)
            .assign(
                spectrum=make_struct(
                    {
                        "mean": shake.mean().fillnull(0.0),
                        "peak": shake.map("v", var("v").num.abs()).list.max(),
                        "samples": shake.len(),
                    },
                    Spectrum,
                ).astype(Spectrum),
                mean=(shake.sum() / shake.len()).astype(float),
                hottest=warm.list.max().astype(Optional[float]),
                blind=col("celsius").list.hasnull().astype(bool),
            )
            .join(machines, how="left", on=["machine"], fields=["programme"])
            .drop(columns=["vibration", "celsius"])
        )


@dataset(index=True)
class Health:
    machine: str = field(key=True)
    unrest: float
    hottest: Optional[float]
    last: List[Spectrum]
    at: datetime

    @pipeline
    @inputs(Shakes)
    def of_hour(cls, shakes: Dataset):
        hour = Continuous("1h")
        return shakes.groupby("machine").aggregate(
            unrest=Stddev(of="mean", window=hour),
            hottest=Max(of="hottest", window=hour),
            last=LastK(of="spectrum", limit=1, dedup=False, window=hour),
        )


@dataset(index=True)
class Programmes:
    programme: str = field(key=True)
    normal: float
    blind: int
    at: datetime

    @pipeline
    @inputs(Shakes)
    def usual(cls, shakes: Dataset):
        told = shakes.dropnull("programme").assign(
            "unseen", Optional[int], lambda df: df["blind"].astype("Int64").where(df["blind"])
        )
        return told.groupby("programme").aggregate(
            normal=Average(of="mean", window=Continuous("forever")),
            blind=Count(of="unseen", dropnull=True, window=Continuous("forever")),
        )


@featureset
class Machine:
    machine: str
    programme: Optional[str] = F(Machines.programme)
    parts: List[Part] = F(Machines.parts, default=[])
    unrest: float = F(Health.unrest, default=-1.0)
    hottest: Optional[float] = F(Health.hottest)
    last: List[Spectrum] = F(Health.last, default=[])
    peak: Optional[float] = F(col("last").list.at(0).struct.get("peak"))
    normal: float = F(Programmes.normal, default=0.0)
    blind: int = F(Programmes.blind, default=0)
    part_days: List[int] = F(col("parts").list.map("p", now().dt.since(var("p").struct.get("fitted"), unit="day")))
    oldest_part: Optional[int] = F(col("part_days").list.max())
    alarm: bool = F(
        when(col("hottest") > 90.0).then(True).when(col("peak") > col("normal") * 5).then(True).otherwise(False)
    )


def _reading(machine: str, vibration: list[float], celsius: list[float | None], time: str) -> dict:
    return {"machine": machine, "vibration": vibration, "celsius": celsius, "at": f"2026-01-05T{time}:00Z"}


def _machine(machine: str, programme: str, *fitted: str) -> dict:
    parts = [{"name": "bearing", "fitted": datetime.fromisoformat(f"{day}T00:00:00+00:00")} for day in fitted]
    return {"machine": machine, "programme": programme, "parts": parts, "changed": "2026-01-05T00:00:00Z"}


LOGS = [
    ("plant", "machines", [_machine("lathe", "steel", "2025-12-26", "2026-01-01"), _machine("mill", "steel")]),
    (
        "plant",
        "readings",
        [
            _reading("lathe", [0.5, -1.5, 4.0], [40.0, None], "10:00"),  # mean 1, peak 4
            _reading("lathe", [3.0, -9.0, 15.0], [41.5], "10:30"),  # mean 3, peak 15
            _reading("lathe", [], [99.0], "10:40"),
            _reading("mill", [2.0, 2.0], [None], "10:30"),
        ],
    ),
]
ASKS = [
    {
        # Steel: (1 + 3 + 2) / 3. The lathe's bearings are 10 and 4 days old.
        "at": "2026-01-05T10:45:00Z",
        "inputs": {"Machine.machine": ["lathe", "mill", "press"]},
        "outputs": [
            "Machine.unrest",
            "Machine.hottest",
            "Machine.peak",
            "Machine.normal",
            "Machine.blind",
            "Machine.part_days",
            "Machine.oldest_part",
            "Machine.alarm",
        ],
        "expected": {
            "Machine.unrest": [1.0, 0.0, -1.0],
            "Machine.hottest": [41.5, None, None],
            "Machine.peak": [15.0, 2.0, None],
            "Machine.normal": [2.0, 2.0, 0.0],
            "Machine.blind": [2, 2, 0],
            "Machine.part_days": [[10, 4], [], []],
            "Machine.oldest_part": [10, None, None],
            "Machine.alarm": [True, False, False],
        },
    },
    {
        "at": "2026-01-05T10:15:00Z",
        "inputs": {"Machine.machine": ["lathe"]},
        "outputs": ["Machine.last", "Machine.programme"],
        "expected": {"Machine.last": [[{"mean": 1.0, "peak": 4.0, "samples": 3}]], "Machine.programme": ["steel"]},
    },
    {
        "at": None,
        "inputs": {"Machine.machine": ["lathe", "press"]},
        "outputs": ["Machine.parts", "Machine.normal"],
        "expected": {
            "Machine.parts": [
                [
                    {"name": "bearing", "fitted": datetime(2025, 12, 26, tzinfo=UTC)},
                    {"name": "bearing", "fitted": datetime(2026, 1, 1, tzinfo=UTC)},
                ],
                [],
            ],
            "Machine.normal": [2.0, 0.0],
        },
    },
]
