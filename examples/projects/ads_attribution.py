"""Attribution: which channel gets the credit for an order, and how much does it earn?

The last touch within a week before the order counts; an order without one came by itself.
"""

from datetime import datetime
from typing import List

from caraway.connectors import S3, BigQuery, Kinesis, Snowflake, Webhook, at_timestamp, sink, source
from caraway.datasets import Average, Count, Dataset, LastK, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous, Session
from caraway.expr import col
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.integrations.aws import Secret
from caraway.lib import inputs

__owner__ = "attribution@ads.example"

tracker = Webhook(name="tracker")
aws = Secret(arn="arn:aws:secretsmanager:eu-central-1:123456789012:secret:ads")
clickstream = Kinesis(name="clickstream", role_arn="arn:aws:iam::123456789012:role/clicks").stream(
    "arn:aws:kinesis:eu-central-1:123456789012:stream/touches", at_timestamp("2025-06-01"), "json"
)
warehouse = BigQuery(name="orders", project_id="shop", dataset_id="sales", service_account_key=aws["bigquery"])
reports = Snowflake(
    name="reports",
    account="ads",
    db_name="marketing",
    username=aws["user"],
    password=aws["password"],
    warehouse="small",
    schema="public",
    role="writer",
)


@source(clickstream, disorder="1d", cdc="append", env="production")
@source(tracker.endpoint("touches"), disorder="1d", cdc="append", env="~production")
@dataset
class Touches:
    user: int
    channel: str
    at: datetime


@source(warehouse.table("orders", cursor="at"), disorder="1d", cdc="append", every="10m", env="production")
@source(tracker.endpoint("orders"), disorder="1d", cdc="append", env="~production")
@dataset
class Orders:
    order: str
    user: int
    cents: int
    at: datetime


@dataset(index=True)
class LastTouches:
    """The newest touch at any time: each is a version of the user's row."""

    user: int = field(key=True)
    channel: str
    at: datetime

    @pipeline
    @inputs(Touches)
    def newest(cls, touches: Dataset):
        return touches.groupby("user").latest()


@sink(reports.table("attributed"), how="incremental", every="1d", renames={"cents": "amount"}, env="production")
@sink(S3(name="archive").bucket("orders", prefix="attributed", format="delta"), how="incremental", env="production")
@dataset
class AttributedOrders:
    order: str
    user: int
    cents: int
    channel: str
    at: datetime

    @pipeline
    @inputs(Orders, LastTouches)
    def last_touch(cls, orders: Dataset, touches: Dataset):
        joined = orders.join(touches, how="left", on=["user"], within=("7d", "0s"))
        return joined.assign(channel=col("channel").fillnull("direct").astype(str))


@dataset(index=True)
class ChannelEarnings:
    channel: str = field(key=True)
    orders_30d: int
    cents_30d: int
    mean_30d: float
    at: datetime

    @pipeline
    @inputs(AttributedOrders)
    def by_channel(cls, orders: Dataset):
        month = Continuous("30d")
        return orders.groupby("channel").aggregate(
            orders_30d=Count(window=month),
            cents_30d=Sum(of="cents", window=month),
            mean_30d=Average(of="cents", window=month),
        )


@dataset(index=True)
class Paths:
    """The way of a user: touches of one channel in a row within half an hour are one."""

    user: int = field(key=True)
    path: List[str]
    touches: int
    at: datetime

    @pipeline
    @inputs(Touches)
    def by_user(cls, touches: Dataset):
        ever = Continuous("forever")
        visits = touches.dedup(by=["user", "channel"], window=Session("30m"))
        return visits.groupby("user").aggregate(
            path=LastK(of="channel", limit=3, dedup=False, window=ever), touches=Count(window=ever)
        )


@featureset
class Channel:
    channel: str
    orders_30d: int = F(ChannelEarnings.orders_30d, default=0)
    cents_30d: int = F(ChannelEarnings.cents_30d, default=0)
    mean_30d: float = F(ChannelEarnings.mean_30d, default=0.0)


@featureset
class User:
    user: int
    path: List[str] = F(Paths.path, default=[])
    touches: int = F(Paths.touches, default=0)
    newest: str = F(col("path").list.at(0).fillnull("none"))


ENV = "test"
LOGS = [
    ("tracker", "touches", [
        {"user": 1, "channel": "email", "at": "2026-01-01T10:00:00Z"},
        {"user": 1, "channel": "search", "at": "2026-01-03T09:00:00Z"},
        {"user": 1, "channel": "search", "at": "2026-01-03T09:10:00Z"},
        {"user": 1, "channel": "search", "at": "2026-01-03T09:40:00Z"},
    ]),
    ("tracker", "orders", [
        {"order": "o1", "user": 1, "cents": 500, "at": "2026-01-02T12:00:00Z"},
        {"order": "o2", "user": 1, "cents": 700, "at": "2026-01-03T12:00:00Z"},
        {"order": "o3", "user": 1, "cents": 900, "at": "2026-01-11T12:00:00Z"},
        {"order": "o4", "user": 2, "cents": 100, "at": "2026-01-03T12:00:00Z"},
        {"order": "o5", "user": 1, "cents": 300, "at": "2026-01-10T09:40:00Z"},
    ]),
]  # fmt: skip
# o5 comes a week to the second after the last touch, o3 later: that is direct, as is o4 of a user without touches.
ASKS = [
    {
        "at": "2026-01-12T00:00:00Z",
        "inputs": {"Channel.channel": ["email", "search", "direct", "tv"]},
        "outputs": ["Channel.orders_30d", "Channel.cents_30d", "Channel.mean_30d"],
        "expected": {
            "Channel.orders_30d": [1, 2, 2, 0],
            "Channel.cents_30d": [500, 1000, 1000, 0],
            "Channel.mean_30d": [500.0, 500.0, 500.0, 0.0],
        },
    },
    {  # Ten minutes apart is one visit, thirty are two.
        "at": "2026-01-12T00:00:00Z",
        "inputs": {"User.user": [1, 2]},
        "outputs": ["User.path", "User.touches", "User.newest"],
        "expected": {"User.path": [["search", "search", "email"], []], "User.touches": [3, 0],
                     "User.newest": ["search", "none"]},
    },
]  # fmt: skip
