"""Crypto exchange: the last candle of a pair, and how busy its market is, for a bot that quotes prices.

The exchange sends JSON with text for numbers; trades count at the time when they were matched, not when they came in.
"""

import decimal
from datetime import datetime
from typing import List, Optional

import pandas as pd

from caraway.connectors import Kafka, Protobuf, Webhook, ref, source
from caraway.datasets import Count, Dataset, FirstK, LastK, Max, Min, Quantile, Sum, dataset, field, pipeline
from caraway.dtypes import Decimal, Hopping, Tumbling, Window, regex
from caraway.expr import col, from_epoch
from caraway.featuresets import extractor, featureset
from caraway.featuresets import feature as F
from caraway.integrations.aws import Secret
from caraway.lib import bucketize, inputs, outputs

__owner__ = "quotes@exchange.example"

secret = Secret(arn="arn:aws:secretsmanager:eu-central-1:123456789012:secret:quotes")
feed = Webhook(name="trade_feed")
gateway = Kafka(
    name="gateway",
    bootstrap_servers="kafka.exchange.example:9092",
    security_protocol="SASL_PLAINTEXT",
    sasl_mechanism="SCRAM-SHA-512",
    sasl_plain_username="quotes",
    sasl_plain_password=secret["kafka"],
)
protobuf = Protobuf(
    registry="confluent", url="https://schemas.exchange.example", username="quotes", password=secret["registry"]
)
Pair = regex("[A-Z]{3,5}-[A-Z]{3,5}")


@source(
    gateway.topic("trades", format=protobuf),
    disorder="1m",
    cdc="append",
    preproc={"raw": ref("message[json]")},
    env="production",
)
@source(feed.endpoint("trades"), disorder="1m", cdc="append", env="~production")
@dataset
class RawTrades:
    pair: Pair
    raw: str
    received_at: datetime


@dataset
class Trades:
    pair: Pair
    price: Decimal[2]
    quantity: Decimal[8]
    matched_at: datetime
    received_at: datetime = field(timestamp=True)

    @pipeline
    @inputs(RawTrades)
    def read(cls, raw: Dataset):
        def number(path, dtype):
            return col("raw").str.json_extract(path).fillnull("0").str.parse(dtype)

        return raw.assign(
            price=number("$.p", Decimal[2]).astype(Decimal[2]),
            quantity=number("$['q']", Decimal[8]).astype(Decimal[8]),
            matched_at=from_epoch(number("$.T", int), unit="millisecond").astype(datetime),
        ).drop("raw")


@dataset(index=True)
class Candles:
    """The last full minute."""

    pair: Pair = field(key=True)
    opened: List[Decimal[2]]
    closed: List[Decimal[2]]
    high: Optional[Decimal[2]]
    low: Decimal[2]
    volume: Decimal[8]
    received_at: datetime

    @pipeline
    @inputs(Trades)
    def by_minute(cls, trades: Dataset):
        minute = Tumbling("1m")
        return trades.groupby("pair").aggregate(
            opened=FirstK(of="price", limit=1, dedup=False, dropnull=False, window=minute),
            closed=LastK(of="price", limit=1, dedup=False, window=minute),
            high=Max(of="price", window=minute),
            low=Min(of="price", window=minute, default=decimal.Decimal("0.00")),
            volume=Sum(of="quantity", window=minute),
            along="matched_at",
        )


@dataset(index=True)
class Activity:
    """Five minutes, each minute."""

    pair: Pair = field(key=True)
    window: Window = field(key=True)
    trades: int
    median: Optional[float]
    received_at: datetime

    @pipeline
    @inputs(Trades)
    def by_window(cls, trades: Dataset):
        return trades.groupby("pair", window=Hopping("5m", "1m")).aggregate(
            trades=Count(), median=Quantile(of="price", p=0.5, approx=True)
        )


@featureset
class Market:
    pair: Pair
    window: Window
    opened: List[Decimal[2]] = F(Candles.opened, default=[])
    open: Optional[Decimal[2]] = F(col("opened").list.at(0))
    closed: List[Decimal[2]] = F(Candles.closed, default=[])
    close: Optional[Decimal[2]] = F(col("closed").list.at(-1))
    high: Optional[Decimal[2]] = F(Candles.high)
    low: Decimal[2] = F(Candles.low, default=decimal.Decimal("0.00"))
    volume: Decimal[8] = F(Candles.volume, default=decimal.Decimal("0.00000000"))
    trades: int = F(Activity.trades, default=0)
    median: Optional[float] = F(Activity.median)
    falling: bool = F((col("open") != col("close")).fillnull(False))

    @extractor
    @outputs("window")
    def last_window(cls, ts):
        return pd.Series([bucketize(at, ("5m", "1m")) for at in ts], name="window", dtype=object)


def trade(pair, price, quantity, seconds):
    """Make what comes in a second after a trade that was matched so many seconds after noon of January 5."""
    matched_ms = 1767614400000 + seconds * 1000
    raw = f'{{"p": "{price}", "q": "{quantity}", "T": {matched_ms}}}'
    return {"pair": pair, "raw": raw, "received_at": matched_ms + 1000}


ENV = "test"
LOGS = [
    ("trade_feed", "trades", [
        trade("BTC-EUR", "100.50", "0.5", 10),
        trade("BTC-EUR", "101.00", "0.25", 40),
        trade("BTC-EUR", "99.00", "0.00000001", 59),  # received in the next minute
        trade("ETH-EUR", "10.00", "3", 70),
        trade("BTC-EUR", "102.00", "1", 125),
    ]),
]  # fmt: skip
ASKS = [
    {
        "at": "2026-01-05T12:01:30Z",
        "inputs": {"Market.pair": ["BTC-EUR", "ETH-EUR"]},
        "outputs": ["Market.open", "Market.close", "Market.high", "Market.low", "Market.volume", "Market.falling"],
        "expected": {
            "Market.open": [decimal.Decimal("100.50"), None],
            "Market.close": [decimal.Decimal("99.00"), None],
            "Market.high": [decimal.Decimal("101.00"), None],
            "Market.low": [decimal.Decimal("99.00"), decimal.Decimal("0.00")],
            "Market.volume": [decimal.Decimal("0.75000001"), decimal.Decimal("0.00000000")],
            "Market.falling": [True, False],
        },
    },
    *(
        {
            "at": at,
            "inputs": {"Market.pair": ["BTC-EUR", "ETH-EUR"]},
            "outputs": ["Market.trades", "Market.median"],
            "expected": {"Market.trades": trades, "Market.median": medians},
        }
        for at, trades, medians in [
            ("2026-01-05T12:01:30Z", [2, 0], [101.0, None]),
            ("2026-01-05T12:02:30Z", [3, 1], [100.5, 10.0]),
        ]
    ),
]
