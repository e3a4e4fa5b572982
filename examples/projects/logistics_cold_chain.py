"""Cold chain: shipments that get too warm, by the limits of what is in them.

The features decide whether a box of vaccine or fish is accepted at the door.
"""

from datetime import datetime
from typing import Optional

from caraway.connectors import Webhook, eval, source
from caraway.datasets import Average, Count, Dataset, Max, dataset, field, pipeline
from caraway.dtypes import Continuous, Session, between
from caraway.expr import col
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs

__owner__ = "quality@coldchain.example"
loggers = Webhook(name="loggers")


@source(
    loggers.endpoint("readings"),
    disorder="7d",
    cdc="append",
    preproc={"celsius": eval(((col("fahrenheit") - 32.0) / 1.8).num.round(1), schema={"fahrenheit": float})},
    where=eval(col("battery") >= 5),
)
@dataset
class Readings:
    shipment: int
    celsius: float
    battery: between(int, 0, 100)
    at: datetime


@source(loggers.endpoint("limits"), disorder="7d", cdc="upsert")
@dataset(index=True)
class Limits:
    shipment: int = field(key=True)
    product: str
    max_celsius: float
    since: datetime


@source(loggers.endpoint("doors"), disorder="7d", cdc="append")
@dataset
class Doors:
    shipment: int
    opened_by: str
    opened: datetime


@dataset(index=True)
class LastDoors:
    number: int = field(key=True)
    opened_by: str
    opened: datetime

    @pipeline
    @inputs(Doors)
    def newest(cls, doors: Dataset):
        return doors.rename({"shipment": "number"}).groupby("number").latest()


@dataset
class Warm:
    """Readings above the limit, with who had opened the door in the quarter of an hour before."""

    shipment: int
    excess: float
    opened_by: Optional[str]
    at: datetime

    @pipeline
    @inputs(Readings, Limits, LastDoors)
    def above(cls, readings: Dataset, limits: Dataset, doors: Dataset):
        return (
            readings.join(limits, how="inner", on=["shipment"], fields=["max_celsius"])
            .assign(excess=(col("celsius") - col("max_celsius")).astype(float))
            .filter(col("excess") > 0.0)
            .join(doors, how="left", left_on=["shipment"], right_on=["number"], within=("15m", "0s"))
            .select("shipment", "excess", "opened_by")
        )


@dataset(index=True)
class Excursions:
    shipment: int = field(key=True)
    excursions: int
    worst: Optional[float]
    at: datetime

    @pipeline
    @inputs(Warm)
    def count(cls, warm: Dataset):
        # Warm readings less than 30 minutes apart are one excursion, however long; worst of its end.
        ends = warm.dedup(by=["shipment"], window=Session("30m"))
        return ends.groupby("shipment").aggregate(
            excursions=Count(window=Continuous("forever")), worst=Max(of="excess", window=Continuous("forever"))
        )


@dataset(index=True)
class Causes:
    shipment: int = field(key=True)
    by_nobody: int
    mean_excess: float
    at: datetime

    @pipeline
    @inputs(Warm)
    def unexplained(cls, warm: Dataset):
        alone = warm.filter(col("opened_by").isnull())
        return alone.groupby("shipment").aggregate(
            by_nobody=Count(window=Continuous("2d")), mean_excess=Average(of="excess", window=Continuous("2d"))
        )


@featureset
class Shipment:
    shipment: int
    product: Optional[str] = F(Limits.product)
    excursions: int = F(Excursions.excursions, default=0)
    worst: Optional[float] = F(Excursions.worst)
    unexplained: int = F(Causes.by_nobody, default=0)
    mean_excess: float = F(Causes.mean_excess, default=0.0)
    accept: bool = F((col("excursions") < 2) & (col("worst").fillnull(0.0) <= 4.0))


def _reading(shipment: int, fahrenheit: float, time: str, battery: int = 80) -> dict:
    return {"shipment": shipment, "fahrenheit": fahrenheit, "battery": battery, "at": f"2026-06-01T{time}:00Z"}


LOGS = [
    (
        "loggers",
        "limits",
        [{"shipment": n, "product": "vaccine", "max_celsius": 8.0, "since": "2026-06-01T00:00:00Z"} for n in (1, 2)],
    ),
    ("loggers", "doors", [{"shipment": 1, "opened_by": "driver", "opened": "2026-06-01T09:50:00Z"}]),
    (
        "loggers",
        "readings",
        [
            _reading(1, 41.0, "09:00"),  # 5 degrees
            _reading(1, 50.0, "10:00"),  # 10, the door was opened ten minutes before
            _reading(1, 51.8, "10:20"),  # 11, the same excursion, by now without a reason
            _reading(1, 48.2, "12:00"),  # 9, another one
            _reading(1, 68.0, "12:10", battery=3),  # not to be trusted
            _reading(2, 50.0, "10:00"),  # 10
            _reading(3, 99.5, "10:00"),  # without a limit
        ],
    ),
]
ASKS = [
    {
        "at": "2026-06-01T13:00:00Z",
        "inputs": {"Shipment.shipment": [1, 2, 3]},
        "outputs": [
            "Shipment.product",
            "Shipment.excursions",
            "Shipment.worst",
            "Shipment.unexplained",
            "Shipment.mean_excess",
            "Shipment.accept",
        ],
        "expected": {
            "Shipment.product": ["vaccine", "vaccine", None],
            "Shipment.excursions": [2, 1, 0],
            "Shipment.worst": [3.0, 2.0, None],
            "Shipment.unexplained": [2, 1, 0],
            "Shipment.mean_excess": [2.0, 2.0, 0.0],
            "Shipment.accept": [False, True, True],
        },
    },
    {
        # After two days nothing is left of the recent part.
        "at": "2026-06-03T12:00:01Z",
        "inputs": {"Shipment.shipment": [1]},
        "outputs": ["Shipment.excursions", "Shipment.unexplained", "Shipment.mean_excess"],
        "expected": {"Shipment.excursions": [2], "Shipment.unexplained": [0], "Shipment.mean_excess": [0.0]},
    },
]
