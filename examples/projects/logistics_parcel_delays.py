"""Parcels: where each one was seen last, and whether it will miss its day.

The features decide whom customer service writes to before they ask, and which depots get help.
"""

from datetime import date, datetime
from typing import Optional

import pandas as pd

from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, dataset, field, pipeline
from caraway.dtypes import Decimal, Tumbling, oneof, regex
from caraway.expr import col, now
from caraway.featuresets import extractor, featureset
from caraway.featuresets import feature as F
from caraway.lib import inputs, meta, outputs

post = Webhook(name="post")
Parcel = regex("[A-Z]{2}[0-9]{4}")


@meta(owner="scans@post.example", tags=["scans"])
@source(post.endpoint("scans"), disorder="3d", cdc="append")
@dataset
class Scans:
    parcel: Parcel
    depot: str
    step: oneof(str, ["accepted", "sorted", "out", "delivered"])
    scanned: datetime


@meta(owner="orders@post.example")
@source(post.endpoint("promises"), disorder="3d", cdc="upsert")
@dataset(index=True)
class Promises:
    parcel: Parcel = field(key=True)
    kilos: Decimal[3]
    due: date
    promised: datetime


@meta(owner="scans@post.example")
@dataset(index=True)
class LastScans:
    parcel: Parcel = field(key=True)
    depot: str
    step: oneof(str, ["accepted", "sorted", "out", "delivered"])
    scanned: datetime

    @pipeline
    @inputs(Scans)
    def newest(cls, scans: Dataset):
        return scans.groupby("parcel").latest()


@meta(owner="service@post.example")
@dataset(index=True)
class Progress:
    """The promise and the last scan side by side; changes with either of them."""

    parcel: Parcel = field(key=True)
    kilos: Decimal[3]
    due: date
    depot: Optional[str]
    step: Optional[str]
    scanned: Optional[datetime]
    promised: datetime

    @pipeline
    @inputs(Promises, LastScans)
    def beside(cls, promises: Dataset, scans: Dataset):
        return promises.join(scans, how="left", on=["parcel"], fields=["depot", "step", "scanned"])


@meta(owner="scans@post.example")
@dataset(index=True)
class DepotDays:
    depot: str = field(key=True)
    yesterday: int
    scanned: datetime

    @pipeline
    @inputs(Scans)
    def volume(cls, scans: Dataset):
        return (
            scans.dedup(by=["parcel", "depot"], window=Tumbling("1d"))
            .groupby("depot")
            .aggregate(yesterday=Count(window=Tumbling("1d")))
        )


@meta(owner="service@post.example")
@featureset
class DepotState:
    depot: str
    yesterday: int = F(DepotDays.yesterday, default=0)


@meta(owner="service@post.example")
@featureset
class ParcelState:
    parcel: str
    due: Optional[date] = F(Progress.due)
    depot: str = F(Progress.depot, default="nowhere")
    step: Optional[str] = F(Progress.step)
    scanned: Optional[datetime] = F(Progress.scanned)
    silent_hours: int = F(now().dt.since(col("scanned"), unit="hour").fillnull(-1))
    overdue: bool

    @extractor
    @inputs("due", "step")
    @outputs("overdue")
    def is_overdue(cls, ts, due, step):
        days = pd.to_datetime(due.astype(object)).dt.date
        late = [not pd.isna(day) and now.date() > day for now, day in zip(ts, days, strict=True)]
        under_way = step.astype("string").fillna("") != "delivered"
        return (pd.Series(late) & under_way.astype(bool)).rename("overdue")


def _scan(parcel: str, depot: str, step: str, time: str) -> dict:
    return {"parcel": parcel, "depot": depot, "step": step, "scanned": f"2026-04-{time}:00Z"}


def _promise(parcel: str, kilos: float, day: int, time: str) -> dict:
    return {"parcel": parcel, "kilos": kilos, "due": date(2026, 4, day), "promised": f"2026-04-{time}:00Z"}


LOGS = [
    (
        "post",
        "promises",
        [
            _promise("AT0001", 1.25, 3, "01T08:00"),
            _promise("AT0002", 0.5, 2, "01T08:00"),
            _promise("AT0002", 0.5, 1, "02T10:00"),
        ],
    ),
    (
        "post",
        "scans",
        [
            _scan("AT0001", "Linz", "accepted", "01T10:00"),
            _scan("AT0001", "Linz", "sorted", "01T12:00"),
            _scan("AT0002", "Linz", "accepted", "01T13:00"),
            _scan("AT0001", "Wien", "out", "02T09:00"),
            _scan("AT0001", "Wien", "delivered", "04T11:00"),
        ],
    ),
]
ASKS = [
    {
        # The promise for AT0002 was moved from the 2nd to the 1st at ten o'clock, so it is late by now.
        "at": "2026-04-02T12:30:00Z",
        "inputs": {"ParcelState.parcel": ["AT0001", "AT0002", "AT0003"]},
        "outputs": ["ParcelState.due", "ParcelState.depot", "ParcelState.silent_hours", "ParcelState.overdue"],
        "expected": {
            "ParcelState.due": [date(2026, 4, 3), date(2026, 4, 1), None],
            "ParcelState.depot": ["Wien", "Linz", "nowhere"],
            "ParcelState.silent_hours": [3, 23, -1],
            "ParcelState.overdue": [False, True, False],
        },
    },
    {
        "at": "2026-04-01T09:00:00Z",
        "inputs": {"ParcelState.parcel": ["AT0001", "AT0002"]},
        "outputs": ["ParcelState.due", "ParcelState.step", "ParcelState.overdue"],
        "expected": {
            "ParcelState.due": [date(2026, 4, 3), date(2026, 4, 2)],
            "ParcelState.step": [None, None],
            "ParcelState.overdue": [False, False],
        },
    },
    {
        # Of the 1st: two parcels in Linz, however often they were scanned. Wien has the 2nd only.
        "at": "2026-04-02T12:00:00Z",
        "inputs": {"DepotState.depot": ["Linz", "Wien"]},
        "outputs": ["DepotState.yesterday"],
        "expected": {"DepotState.yesterday": [2, 0]},
    },
    {
        "at": None,
        "inputs": {"ParcelState.parcel": ["AT0001"]},
        "outputs": ["ParcelState.step", "ParcelState.overdue"],
        "expected": {"ParcelState.step": ["delivered"], "ParcelState.overdue": [False]},
    },
]
