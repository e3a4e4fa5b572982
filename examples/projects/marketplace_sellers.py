"""Sellers on a marketplace: who may keep the badge of a trusted seller?

Buyers edit their reviews, and listings change hands; what counts is what holds at the moment.
"""

from datetime import datetime
from typing import List, Optional

from caraway.connectors import HTTP, Certificate, Mongo, Webhook, sink, source
from caraway.datasets import Average, Count, Dataset, Distinct, Min, dataset, field, pipeline
from caraway.dtypes import Continuous, Hopping, between
from caraway.expr import col
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.integrations.aws import Secret
from caraway.lib import inputs, meta

__owner__ = "trust@market.example"

market = Webhook(name="market")
secret = Secret(arn="arn:aws:secretsmanager:eu-central-1:123456789012:secret:market")
shop = Mongo(name="shop", host="shop.mongodb.example", db_name="shop", username="reader", password=secret["mongo"])
badges = HTTP(name="badges", host="https://badges.market.example", healthz="/ok", ca_cert=Certificate(secret["ca"]))


@source(shop.collection("listings", cursor="changed"), disorder="1d", cdc="upsert", env="production")
@source(market.endpoint("listings"), disorder="1d", cdc="upsert", env="~production")
@dataset
class Listings:
    listing: int = field(key=True)
    seller: int
    # A listing is free, or has a price.
    cents: between(int, 0, 100_000_000, strict_max=True)
    listed_at: datetime


@source(market.endpoint("reviews"), disorder="1d", cdc="upsert")
@dataset
class Reviews:
    order: str = field(key=True)
    listing: int
    stars: between(int, 1, 5)
    written_at: datetime


@meta(description="Reviews with the seller of their listing: both may change")
@dataset(index=True)
class SellerReviews:
    order: str = field(key=True)
    stars: between(int, 1, 5)
    seller: int
    written_at: datetime

    @pipeline
    @inputs(Reviews, Listings)
    def with_seller(cls, reviews: Dataset, listings: Dataset):
        return reviews.join(listings, how="inner", on=["listing"], fields=["seller"]).drop("listing")


@sink(badges.path("/ratings", limit=50, headers={"X-Team": "trust"}), cdc="debezium", env="production")
@dataset(index=True)
class SellerRatings:
    seller: int = field(key=True)
    reviews: int
    mean: float
    worst: int
    written_at: datetime

    @pipeline
    @inputs(SellerReviews)
    def by_seller(cls, reviews: Dataset):
        hourly = Hopping("forever", "1h")
        return (
            reviews.assign(stars=col("stars").astype(int))
            .groupby("seller")
            .aggregate(
                reviews=Count(window=hourly),
                mean=Average(of="stars", window=hourly, default=0.0),
                worst=Min(of="stars", window=hourly, default=0),
            )
        )


@dataset(index=True)
class SellerListings:
    """All listings that a seller has now; one that is sold on leaves the list."""

    seller: int = field(key=True)
    listings: List[int]
    listed_at: datetime

    @pipeline
    @inputs(Listings)
    def by_seller(cls, listings: Dataset):
        return listings.groupby("seller").aggregate(
            listings=Distinct(of="listing", unordered=True, window=Continuous("forever"))
        )


@featureset
class Order:
    order: str
    seller: Optional[int] = F(SellerReviews.seller)


@featureset
class Seller:
    seller: Optional[int] = F(Order.seller)
    reviews: int = F(SellerRatings.reviews, default=0)
    mean: float = F(SellerRatings.mean, default=0.0)
    worst: int = F(SellerRatings.worst, default=0)
    listings: List[int] = F(SellerListings.listings, default=[])
    size: int = F(col("listings").list.len())
    trusted: bool = F((col("reviews") >= 2) & (col("mean") >= 4.0) & (col("worst") > 2))


ENV = "test"
LOGS = [
    ("market", "listings", [
        {"listing": 1, "seller": 5, "cents": 1000, "listed_at": "2026-01-01"},
        {"listing": 2, "seller": 5, "cents": 0, "listed_at": "2026-01-02"},
        {"listing": 1, "seller": 6, "cents": 1500, "listed_at": "2026-01-10"},
    ]),
    ("market", "reviews", [
        {"order": "o1", "listing": 1, "stars": 5, "written_at": "2026-01-03T10:30:00Z"},
        {"order": "o2", "listing": 2, "stars": 2, "written_at": "2026-01-03T11:30:00Z"},
        {"order": "o2", "listing": 2, "stars": 4, "written_at": "2026-01-04T09:30:00Z"},
        {"order": "o3", "listing": 3, "stars": 1, "written_at": "2026-01-04T09:30:00Z"},
        {"order": "o4", "listing": 2, "stars": 1, "written_at": "2026-01-11T10:30:00Z"},
    ]),
]  # fmt: skip
OUTPUTS = ["Seller.reviews", "Seller.mean", "Seller.worst", "Seller.size", "Seller.trusted"]
ASKS = [
    {  # The review of an unknown listing counts for nobody.
        "at": "2026-01-03T13:00:00Z",
        "inputs": {"Seller.seller": [5, 6]},
        "outputs": OUTPUTS,
        "expected": dict(zip(OUTPUTS, [[2, 0], [3.5, 0.0], [2, 0], [2, 0], [False, False]])),
    },
    {  # Two stars have become four.
        "at": "2026-01-04T12:00:00Z",
        "inputs": {"Order.order": ["o1", "o3"]},
        "outputs": ["Order.seller", *OUTPUTS],
        "expected": {"Order.seller": [5, None],
                     **dict(zip(OUTPUTS, [[2, 0], [4.5, 0.0], [4, 0], [2, 0], [True, False]]))},
    },
    {  # Listing 1 and its review have gone to seller 6.
        "at": "2026-01-10T12:00:00Z",
        "inputs": {"Seller.seller": [5, 6]},
        "outputs": OUTPUTS,
        "expected": dict(zip(OUTPUTS, [[1, 1], [4.0, 5.0], [4, 5], [1, 1], [False, False]])),
    },
]  # fmt: skip
