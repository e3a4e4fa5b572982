"""Surge: how many drivers are free in a zone right now, and how many riders want one.

The features serve the price that an app shows before a rider books: scarce drivers raise it, up to the cap of the zone.
"""

from datetime import datetime

from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, dataset, field, pipeline
from caraway.dtypes import Continuous, between, oneof
from caraway.expr import col, when
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs

__owner__ = "marketplace@rides.example"
rides = Webhook(name="rides_supply")
Multiplier = between(float, 1.0, 5.0)


@source(rides.endpoint("pings"), disorder="1h", cdc="append")
@dataset
class Pings:
    driver: int
    zone: str
    state: oneof(str, ["free", "busy", "off"])
    at: datetime


@source(rides.endpoint("requests"), disorder="1h", cdc="append")
@dataset
class Requests:
    rider: int
    zone: str
    at: datetime


@source(rides.endpoint("zones"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Zones:
    zone: str = field(key=True)
    city: str
    cap: Multiplier
    since: datetime


@dataset(index=True)
class Supply:
    zone: str = field(key=True)
    free_10m: int
    at: datetime

    @pipeline
    @inputs(Pings)
    def free_drivers(cls, pings: Dataset):
        free = pings.filter(col("state") == "free")
        # A driver pings every few seconds and counts once.
        return free.groupby("zone").aggregate(
            free_10m=Count(of="driver", unique=True, approx=True, window=Continuous("10m"))
        )


@dataset(index=True)
class Demand:
    zone: str = field(key=True)
    requests_10m: int
    at: datetime

    @pipeline
    @inputs(Requests)
    def waiting(cls, requests: Dataset):
        return requests.groupby("zone").aggregate(requests_10m=Count(window=Continuous("10m")))


@featureset
class Zone:
    zone: str
    cap: Multiplier = F(Zones.cap, default=1.0)
    free: int = F(Supply.free_10m, default=0)
    requests: int = F(Demand.requests_10m, default=0)
    pressure: float = F(col("requests") / (col("free") + 1))
    surge: float = F(
        when(col("pressure") < 1.0)
        .then(1.0)
        .when(col("pressure") > col("cap"))
        .then(col("cap"))
        .otherwise(col("pressure"))
    )


def _ping(driver: int, state: str, minute: str) -> dict:
    return {"driver": driver, "zone": "centre", "state": state, "at": f"2026-01-05T11:{minute}:00Z"}


LOGS = [
    (
        "rides_supply",
        "zones",
        [
            {"zone": "centre", "city": "Graz", "cap": 1.5, "since": "2026-01-01T00:00:00Z"},
            {"zone": "airport", "city": "Graz", "cap": 3.0, "since": "2026-01-01T00:00:00Z"},
        ],
    ),
    (
        "rides_supply",
        "pings",
        [
            _ping(4, "free", "45"),
            _ping(2, "free", "51"),
            _ping(1, "free", "55"),
            _ping(1, "free", "58"),
            _ping(3, "busy", "59"),
        ],
    ),
    (
        "rides_supply",
        "requests",
        [{"rider": 70 + m, "zone": "centre", "at": f"2026-01-05T11:{m}:00Z"} for m in (52, 53, 56, 58, 59)]
        + [{"rider": 9, "zone": "centre", "at": "2026-01-05T12:00:00Z"}]
        + [{"rider": n, "zone": "airport", "at": f"2026-01-05T11:5{n}:30Z"} for n in (3, 4)],
    ),
]
ASKS = [
    {
        # Centre: drivers 1 and 2 are free, 6 requests, 6 / 3 = 2.0 is above the cap. Airport: 2 requests, nobody free.
        "at": "2026-01-05T12:00:00Z",
        "inputs": {"Zone.zone": ["centre", "airport", "harbour"]},
        "outputs": ["Zone.free", "Zone.requests", "Zone.pressure", "Zone.surge"],
        "expected": {
            "Zone.free": [2, 0, 0],
            "Zone.requests": [6, 2, 0],
            "Zone.pressure": [2.0, 2.0, 0.0],
            "Zone.surge": [1.5, 2.0, 1.0],
        },
    },
    {
        # What was before 11:56 is gone: driver 1 remains (11:58), and 4 requests.
        "at": "2026-01-05T12:06:00Z",
        "inputs": {"Zone.zone": ["centre"]},
        "outputs": ["Zone.free", "Zone.requests"],
        "expected": {"Zone.free": [1], "Zone.requests": [4]},
    },
]
