"""Shopping cart: should the shop offer free shipping before this cart is left?

Carts are rows of a database whose changes are captured; what was taken out again tells as much as what is in.
"""

from datetime import datetime

from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous
from caraway.expr import col, when
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs

__owner__ = "checkout@shop.example"

database = Webhook(name="shop_database")


@source(database.endpoint("cart_lines"), disorder="1h", cdc="debezium")
@dataset
class CartLines:
    line: str = field(key=True)
    cart: int
    pieces: int
    cents: int
    changed_at: datetime


@dataset(online=True, offline=False)
class CartTotals:
    """What is in a cart; only asked for live, so no history of it is kept."""

    cart: int = field(key=True)
    lines: int
    cents: int
    changed_at: datetime

    @pipeline
    @inputs(CartLines)
    def total(cls, lines: Dataset):
        ever = Continuous("forever")
        return (
            lines.assign(cents=(col("pieces") * col("cents")).astype(int))
            .groupby("cart")
            .aggregate(lines=Count(window=ever), cents=Sum(of="cents", window=ever))
        )


@dataset(index=True)
class CartEdits:
    """Lines that were changed or taken out within the hour."""

    cart: int = field(key=True)
    edits_1h: int
    given_up_cents_1h: int
    changed_at: datetime

    @pipeline
    @inputs(CartLines)
    def count(cls, lines: Dataset):
        hour = Continuous("1h")
        return (
            lines.changelog(delete="replaced")
            .filter(col("replaced"))
            .assign(cents=(col("pieces") * col("cents")).astype(int))
            .groupby("cart")
            .aggregate(edits_1h=Count(window=hour), given_up_cents_1h=Sum(of="cents", window=hour))
        )


@featureset
class Cart:
    cart: int
    lines: int = F(CartTotals.lines, default=0)
    cents: int = F(CartTotals.cents, default=0)
    missing_cents: int = F(when(col("cents") < 2000).then(2000 - col("cents")).otherwise(0))


@featureset
class Doubt:
    cart: int = F(Cart.cart)
    edits_1h: int = F(CartEdits.edits_1h, default=0)
    given_up_cents_1h: int = F(CartEdits.given_up_cents_1h, default=0)


A = {"line": "a", "cart": 1, "pieces": 1, "cents": 1000, "changed_at": "2026-01-05T10:00:00Z"}
B = {"line": "b", "cart": 1, "pieces": 2, "cents": 250, "changed_at": "2026-01-05T10:01:00Z"}
MORE_B = {**B, "pieces": 3, "changed_at": "2026-01-05T10:05:00Z"}
C = {"line": "c", "cart": 2, "pieces": 1, "cents": 9900, "changed_at": "2026-01-05T10:06:00Z"}
# The changes of a row must come in their order: a delete ends what is there.
ORDERED = True
LOGS = [
    ("shop_database", "cart_lines", [
        {"op": "r", "before": None, "after": A, "ts_ms": 1767607200000},
        {"op": "c", "before": None, "after": B, "ts_ms": 1767607260000},
        {"op": "u", "before": B, "after": MORE_B, "ts_ms": 1767607500000},
        {"op": "c", "before": None, "after": C, "ts_ms": 1767607560000},
        {"op": "d", "before": A, "after": None, "ts_ms": 1767607620000},  # 10:07
    ]),
]  # fmt: skip
ASKS = [
    {
        "at": None,
        "inputs": {"Cart.cart": [1, 2, 3]},
        "outputs": ["Cart.lines", "Cart.cents", "Cart.missing_cents", "Doubt.edits_1h"],
        "expected": {
            "Cart.lines": [1, 1, 0],
            "Cart.cents": [750, 9900, 0],
            "Cart.missing_cents": [1250, 0, 2000],
            "Doubt.edits_1h": [0, 0, 0],
        },
    },
    *(
        {
            "at": at,
            "inputs": {"Cart.cart": [1, 2]},
            "outputs": ["Doubt.edits_1h", "Doubt.given_up_cents_1h"],
            "expected": {"Doubt.edits_1h": [edits, 0], "Doubt.given_up_cents_1h": [cents, 0]},
        }
        for at, edits, cents in [
            ("2026-01-05T10:04:59Z", 0, 0),
            ("2026-01-05T10:06:00Z", 1, 500),
            ("2026-01-05T10:08:00Z", 2, 1500),
            ("2026-01-05T11:06:00Z", 1, 1000),
        ]
    ),
]
