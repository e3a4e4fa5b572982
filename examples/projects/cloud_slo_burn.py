"""Services: how fast they burn what their objective lets them fail.

The features page somebody: when a short and a long window both burn too fast, it is neither a blip nor old news.
"""

import math
from datetime import datetime
from typing import Dict, Optional

from caraway.connectors import Webhook, source
from caraway.datasets import Average, Count, Dataset, Quantile, Stddev, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous, Hopping, between
from caraway.expr import col, when
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs

__owner__ = "sre@cloud.example"
ENV = "prod"

balancers = Webhook(name="balancers")


@source(balancers.endpoint("requests"), disorder="10m", cdc="append", env=["prod", "canary"])
@dataset
class Requests:
    service: str
    status: between(int, 100, 599)
    millis: float
    headers: Dict[str, str]
    at: datetime


@source(balancers.endpoint("objectives"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Objectives:
    service: str = field(key=True)
    good_share: between(float, 0.0, 1.0)
    millis: float
    since: datetime


@dataset
class Outcomes:
    """Whether a request counts as failed; a client's mistake does so outside of production only."""

    service: str
    bad: int
    millis: float
    at: datetime

    @pipeline(env="prod")
    @inputs(Requests, Objectives)
    def in_production(cls, requests: Dataset, objectives: Dataset):
        real = requests.filter(col("headers").dict.get("x-probe", "no") != "yes")
        return (
            real.rename({"millis": "took"})
            .join(objectives, how="left", on=["service"], fields=["millis"])
            .assign(
                bad=when((col("status") >= 500) | (col("took") > col("millis").fillnull(1000.0)))
                .then(1)
                .otherwise(0)
                .astype(int)
            )
            .drop("millis", "status", "headers")
            .rename({"took": "millis"})
        )

    @pipeline(env="~prod")
    @inputs(Requests)
    def elsewhere(cls, requests: Dataset):
        return requests.assign(bad=when(col("status") >= 400).then(1).otherwise(0).astype(int)).drop(
            "status", "headers"
        )


@dataset(index=True)
class Burn:
    service: str = field(key=True)
    bad_5m: int
    all_5m: int
    bad_1h: int
    all_1h: int
    bad_3d: int
    all_3d: int
    at: datetime

    @pipeline
    @inputs(Outcomes)
    def windows(cls, outcomes: Dataset):
        short, long, budget = Continuous("5m"), Continuous("1h"), Continuous("3d")
        return outcomes.groupby("service").aggregate(
            bad_5m=Sum(of="bad", window=short),
            all_5m=Count(window=short),
            bad_1h=Sum(of="bad", window=long),
            all_1h=Count(window=long),
            bad_3d=Sum(of="bad", window=budget),
            all_3d=Count(window=budget),
        )


@dataset(index=True)
class Latency:
    service: str = field(key=True)
    p75: Optional[float]
    mean: Optional[float]
    spread: float
    at: datetime

    @pipeline
    @inputs(Outcomes)
    def dashboard(cls, outcomes: Dataset):
        window = Hopping("10m", "5m", lookback="5m")
        return outcomes.groupby("service").aggregate(
            p75=Quantile(of="millis", p=0.75, approx=True, window=window),
            mean=Average(of="millis", default=None, window=window),
            spread=Stddev(of="millis", default=0.0, window=window),
        )


@featureset
class Service:
    service: str
    good_share: float
    bad_5m: int = F(Burn.bad_5m, default=0)
    all_5m: int = F(Burn.all_5m, default=0)
    bad_1h: int = F(Burn.bad_1h, default=0)
    all_1h: int = F(Burn.all_1h, default=0)
    bad_3d: int = F(Burn.bad_3d, default=0)
    all_3d: int = F(Burn.all_3d, default=0)
    share_5m: float = F(col("bad_5m") / col("all_5m"))  # not a number if there were no requests
    rate_5m: float = F(
        when(col("share_5m").num.is_nan()).then(0.0).otherwise(col("share_5m") / (1.0 - col("good_share")))
    )
    rate_1h: float = F(
        when(col("all_1h") == 0).then(0.0).otherwise(col("bad_1h") / col("all_1h") / (1.0 - col("good_share")))
    )
    hopeless: bool = F(col("rate_5m").num.is_infinite())
    budget_left: float = F(
        when(col("all_3d") == 0).then(1.0).otherwise(1.0 - col("bad_3d") / (col("all_3d") * (1.0 - col("good_share"))))
    )
    page: bool = F((col("rate_5m") > 1.5) & (col("rate_1h") > 1.5))
    p75: Optional[float] = F(Latency.p75)
    mean: Optional[float] = F(Latency.mean)


@featureset
class OnCall:
    service: str = F(Service.service)
    good_share: Optional[between(float, 0.0, 1.0)] = F(Objectives.good_share)
    headline: str = F(
        when(col("good_share").isnull()).then("no objective").otherwise(col("service").str.concat(" has one"))
    )


def _request(service: str, status: int, millis: float, time: str, probe: str | None = None) -> dict:
    headers = {"x-probe": probe} if probe else {"agent": "app"}
    return {"service": service, "status": status, "millis": millis, "headers": headers, "at": f"2026-01-05T{time}:00Z"}


LOGS = [
    (
        "balancers",
        "objectives",
        [{"service": "pay", "good_share": 0.75, "millis": 300.0, "since": "2026-01-01T00:00:00Z"}],
    ),
    (
        "balancers",
        "requests",
        [
            _request("pay", 200, 100.0, "10:10"),
            _request("pay", 200, 200.0, "11:02"),
            _request("pay", 404, 100.0, "11:30"),
            _request("pay", 200, 500.0, "11:56"),  # too slow
            _request("pay", 503, 100.0, "11:57"),
            _request("pay", 503, 100.0, "11:58", probe="yes"),
            _request("web", 200, 1200.0, "11:59"),  # without an objective the limit is a second
        ],
    ),
]
ASKS = [
    {
        # Pay may fail one of four; it failed two of two in five minutes, two of four in the hour, two of five in all.
        # Web may never fail, and did.
        "at": "2026-01-05T12:00:00Z",
        "inputs": {"Service.service": ["pay", "web", "mail"], "Service.good_share": [0.75, 1.0, 0.75]},
        "outputs": ["Service.rate_5m", "Service.rate_1h", "Service.budget_left", "Service.page", "Service.hopeless"],
        "expected": {
            "Service.rate_5m": [4.0, math.inf, 0.0],
            "Service.rate_1h": [2.0, math.inf, 0.0],
            "Service.budget_left": [1.0 - 2 / 1.25, -math.inf, 1.0],
            "Service.page": [True, True, False],
            "Service.hopeless": [False, True, False],
        },
    },
    {
        # The ten minutes until 11:40: one request, of a client that was wrong. What came by 11:59 has closed them.
        "at": "2026-01-05T11:40:00Z",
        "inputs": {"Service.service": ["pay", "web"]},
        "outputs": ["Service.p75", "Service.mean", "OnCall.good_share", "OnCall.headline"],
        "expected": {
            "Service.p75": [100.0, None],
            "Service.mean": [100.0, None],
            "OnCall.good_share": [0.75, None],
            "OnCall.headline": ["pay has one", "no objective"],
        },
    },
]
