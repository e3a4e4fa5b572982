"""Mobile phones: who is about to leave, from calls that drop, data that runs out, and silence.

The features pick the customers who get an offer before they ask for their number to be moved.
"""

from datetime import UTC, datetime
from typing import Dict, Optional

import pandas as pd

from caraway.connectors import Sample, Webhook, source
from caraway.datasets import Average, Count, Dataset, Max, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous, between, oneof, regex
from caraway.expr import col, now, when
from caraway.featuresets import extractor, featureset
from caraway.featuresets import feature as F
from caraway.lib import inputs, meta, outputs

__owner__ = "retention@telecom.example"
network = Webhook(name="network")
Number = regex(r"\+43[0-9]{6,10}")


@source(network.endpoint("calls"), disorder="1d", cdc="append", sample=Sample(1.0, using=["caller"]))
@dataset
class Calls:
    caller: Number
    callee: Number
    seconds: int
    quality: Optional[between(float, 1.0, 5.0)]
    network: oneof(int, [3, 4, 5])
    ended_by: oneof(str, ["caller", "callee", "network"])
    at: datetime


@source(network.endpoint("months"), disorder="3d", cdc="upsert")
@dataset(index=True)
class Contracts:
    customer: Number = field(key=True)
    allowance: Dict[str, int]
    used: Dict[str, int]
    binding_until: datetime
    updated: datetime = field(timestamp=True)


@dataset(index=True)
class CallQuality:
    customer: Number = field(key=True)
    minutes: float
    dropped: int
    quality: Optional[float]
    best_network: Optional[int]
    callees: int
    at: datetime

    @pipeline
    @inputs(Calls)
    def over_a_month(cls, calls: Dataset):
        month = Continuous("30d")
        return (
            calls.assign(
                minutes=(col("seconds") / 60).astype(float),
                dropped=when(col("ended_by") == "network").then(1).otherwise(0).astype(int),
                generation=(col("network") + 0).astype(int),
            )
            .rename({"caller": "customer"})
            .groupby("customer")
            .aggregate(
                minutes=Sum(of="minutes", window=month),
                dropped=Sum(of="dropped", window=month),
                quality=Average(of="quality", window=month, default=None),
                best_network=Max(of="generation", window=month),
                callees=Count(of="callee", unique=True, approx=True, window=month),
            )
        )


@dataset(index=True)
class LastCalls:
    customer: Number = field(key=True)
    seconds: int
    at: datetime

    @pipeline
    @inputs(Calls)
    def last(cls, calls: Dataset):
        return calls.select("caller", "seconds").rename({"caller": "customer"}).groupby("customer").latest()


@featureset
class Customer:
    customer: Number
    used: Optional[Dict[str, int]] = F(Contracts.used)
    allowance: Optional[Dict[str, int]] = F(Contracts.allowance)
    binding_until: Optional[datetime] = F(Contracts.binding_until)
    data_left: Optional[int] = F(col("allowance").dict.get("data_gb") - col("used").dict.get("data_gb", 0))
    roams: bool = F(col("used").dict.contains("roaming_gb").fillnull(False))
    minutes: float = F(CallQuality.minutes, default=0.0)
    dropped: int = F(CallQuality.dropped, default=0)
    quality: Optional[float] = F(CallQuality.quality)
    best_network: Optional[int] = F(CallQuality.best_network)
    callees: int = F(CallQuality.callees, default=0)
    last_call: Optional[datetime] = F(LastCalls.at)
    silent_days: Optional[int] = F(now().dt.since(col("last_call"), unit="day"))
    free_to_go: bool = F((col("binding_until").dt.since(now()) < 0).fillnull(False))
    risk: between(float, 0.0, 1.0) = F().meta(description="rough, between 0 and 1", tags=["model"])

    @extractor(version=2)
    @meta(owner="models@telecom.example")
    @inputs("dropped", "silent_days", "free_to_go", "data_left")
    @outputs("risk")
    def rough_risk(cls, ts, dropped, silent_days, free_to_go, data_left):
        points = (
            0.125 * dropped.astype(float)
            + 0.25 * (silent_days.astype("Float64").fillna(0.0) > 7.0).astype(float)
            + 0.5 * free_to_go.astype(float)
            + 0.25 * (data_left.astype("Float64").fillna(0.0) < 0.0).astype(float)
        )
        return pd.Series(points.clip(0.0, 1.0), name="risk")


def _call(caller: str, callee: str, seconds: int, quality: float | None, ended_by: str, time: str) -> dict:
    row = {
        "caller": caller,
        "callee": callee,
        "seconds": seconds,
        "quality": quality,
        "network": 4,
        "ended_by": ended_by,
    }
    return {**row, "at": f"2026-03-{time}:00Z"}


ANN, BOB, CY = "+436601111", "+436602222", "+436603333"
LOGS = [
    (
        "network",
        "calls",
        [
            _call(ANN, BOB, 90, 4.5, "caller", "01T10:00"),
            _call(ANN, BOB, 30, None, "network", "02T10:00"),
            _call(ANN, CY, 60, 2.0, "network", "03T10:00"),
            _call(BOB, ANN, 600, None, "callee", "14T10:00"),
        ],
    ),
    (
        "network",
        "months",
        [
            {
                "customer": ANN,
                "allowance": {"data_gb": 10},
                "used": {"data_gb": 12, "roaming_gb": 1},
                "binding_until": "2026-03-10T00:00:00Z",
                "updated": "2026-03-04T00:00:00Z",
            },
            {
                "customer": BOB,
                "allowance": {"data_gb": 10},
                "used": {},
                "binding_until": "2027-01-01T00:00:00Z",
                "updated": "2026-03-04T00:00:00Z",
            },
        ],
    ),
]
ASKS = [
    {
        # Ann: two dropped calls, silent for eleven days, free since the 10th, over her data: 0.25 + 0.25 + 0.5 + 0.25.
        "at": "2026-03-15T00:00:00Z",
        "inputs": {"Customer.customer": [ANN, BOB, CY]},
        "outputs": [
            "Customer.minutes",
            "Customer.dropped",
            "Customer.quality",
            "Customer.callees",
            "Customer.data_left",
            "Customer.roams",
            "Customer.silent_days",
            "Customer.free_to_go",
            "Customer.risk",
        ],
        "expected": {
            "Customer.minutes": [3.0, 10.0, 0.0],
            "Customer.dropped": [2, 0, 0],
            "Customer.quality": [3.25, None, None],
            "Customer.callees": [2, 1, 0],
            "Customer.data_left": [-2, 10, None],
            "Customer.roams": [True, False, False],
            "Customer.silent_days": [11, 0, None],
            "Customer.free_to_go": [True, False, False],
            "Customer.risk": [1.0, 0.0, 0.0],
        },
    },
    {
        "at": "2026-03-09T00:00:00Z",
        "inputs": {"Customer.customer": [ANN]},
        "outputs": ["Customer.best_network", "Customer.free_to_go", "Customer.risk"],
        "expected": {"Customer.best_network": [4], "Customer.free_to_go": [False], "Customer.risk": [0.5]},
    },
    {
        "at": None,
        "inputs": {"Customer.customer": [ANN, BOB, CY]},
        "outputs": ["Customer.used", "Customer.data_left", "Customer.last_call"],
        "expected": {
            "Customer.used": [{"data_gb": 12, "roaming_gb": 1}, {}, None],
            "Customer.data_left": [-2, 10, None],
            "Customer.last_call": [datetime(2026, 3, 3, 10, tzinfo=UTC), datetime(2026, 3, 14, 10, tzinfo=UTC), None],
        },
    },
]
