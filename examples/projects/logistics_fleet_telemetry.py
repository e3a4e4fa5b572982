"""Lorries: how they are driven, from what their boxes send every few seconds, some of it twice.

The features decide which driver gets a training, and whether a lorry that speeds right now is called.
"""

from datetime import datetime
from typing import List, Optional

from caraway.connectors import Webhook, source
from caraway.datasets import Average, Count, Dataset, Max, Stddev, dataset, field, pipeline
from caraway.dtypes import Hopping, Tumbling
from caraway.expr import col, var, when
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import includes, inputs

__owner__ = "fleet@lorries.example"
boxes = Webhook(name="boxes")


@source(boxes.endpoint("telemetry"), disorder="1h", cdc="append")
@dataset
class Telemetry:
    message: str
    lorry: str
    kmh: float
    braking: List[float]  # m/s2, some samples a second
    sent: datetime


def in_mph(kmh):
    return kmh * 0.625


@dataset
class Driving:
    lorry: str
    kmh: float
    mph: float
    harsh: Optional[int]
    sent: datetime

    @pipeline
    @inputs(Telemetry)
    @includes(in_mph)
    def once(cls, telemetry: Dataset):
        return (
            telemetry.dedup("message", window=Tumbling("1d"))
            .assign(
                harsh=when(col("braking").list.filter("b", var("b") > 4.0).list.len() > 0).then(1).astype(Optional[int])
            )
            .transform(
                lambda df: df.assign(mph=in_mph(df["kmh"]))[["lorry", "kmh", "mph", "harsh", "sent"]],
                schema={"lorry": str, "kmh": float, "mph": float, "harsh": Optional[int], "sent": datetime},
            )
        )


@dataset(index=True)
class Style:
    lorry: str = field(key=True)
    top_kmh: Optional[float]
    top_mph: float
    unsteadiness: float
    harsh: int
    sent: datetime

    @pipeline
    @inputs(Driving)
    def by_lorry(cls, driving: Dataset):
        hours = Hopping("2h", "30m")
        return driving.groupby("lorry").aggregate(
            top_kmh=Max(of="kmh", window=hours),
            top_mph=Max(of="mph", window=hours, default=0.0),
            unsteadiness=Stddev(of="kmh", window=hours, default=0.0),
            harsh=Count(of="harsh", dropnull=True, window=hours),
        )


@dataset(index=True)
class Speeding:
    """Lorries whose last full half hour was too fast; those that slow down disappear."""

    lorry: str = field(key=True)
    kmh: float
    excess: float
    sent: datetime

    @pipeline
    @inputs(Driving)
    def too_fast(cls, driving: Dataset):
        return (
            driving.groupby("lorry")
            .aggregate(kmh=Average(of="kmh", window=Tumbling("30m"), default=0.0), emit="final")
            .filter(col("kmh") > 85.0)
            .assign(excess=(col("kmh") - 80.0).astype(float))
        )


@featureset
class Lorry:
    lorry: str
    top_kmh: Optional[float] = F(Style.top_kmh)
    top_mph: float = F(Style.top_mph, default=0.0)
    unsteadiness: float = F(Style.unsteadiness, default=0.0)
    harsh: int = F(Style.harsh, default=0)
    excess: float = F(Speeding.excess, default=0.0)
    training: bool = F((col("harsh") >= 2) | (col("unsteadiness") > 20.0))


def _sent(message: str, lorry: str, kmh: float, braking: list[float], time: str) -> dict:
    return {"message": message, "lorry": lorry, "kmh": kmh, "braking": braking, "sent": f"2026-05-04T{time}:00Z"}


LOGS = [
    (
        "boxes",
        "telemetry",
        [
            _sent("m1", "L1", 80.0, [0.5, 4.5], "08:05"),
            _sent("m1", "L1", 80.0, [0.5, 4.5], "08:07"),  # sent again
            _sent("m2", "L1", 96.0, [], "08:20"),
            _sent("m3", "L1", 64.0, [5.0], "08:50"),
            _sent("m4", "L2", 72.0, [1.0], "08:25"),
            _sent("m5", "L2", 72.0, [1.0], "09:10"),
        ],
    )
]
ASKS = [
    {
        # The half hour until 08:30: L1 drove 80 and 96.
        "at": "2026-05-04T08:30:00Z",
        "inputs": {"Lorry.lorry": ["L1", "L2", "L3"]},
        "outputs": ["Lorry.top_kmh", "Lorry.top_mph", "Lorry.unsteadiness", "Lorry.harsh", "Lorry.excess"],
        "expected": {
            "Lorry.top_kmh": [96.0, 72.0, None],
            "Lorry.top_mph": [60.0, 45.0, 0.0],
            "Lorry.unsteadiness": [8.0, 0.0, 0.0],
            "Lorry.harsh": [1, 0, 0],
            "Lorry.excess": [8.0, 0.0, 0.0],
        },
    },
    {
        # Until 09:00 it braked harshly twice, and is not too fast any more.
        "at": "2026-05-04T09:20:00Z",
        "inputs": {"Lorry.lorry": ["L1"]},
        "outputs": ["Lorry.top_kmh", "Lorry.harsh", "Lorry.excess", "Lorry.training"],
        "expected": {"Lorry.top_kmh": [96.0], "Lorry.harsh": [2], "Lorry.excess": [0.0], "Lorry.training": [True]},
    },
]
