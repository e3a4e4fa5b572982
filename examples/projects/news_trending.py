"""News: which topics readers turn to in this hour, against what they read all day.

The features put a rising topic on the front page, and take a stale one off.
"""

from datetime import datetime
from typing import List, Optional

from caraway.connectors import Webhook, eval, ref, source
from caraway.datasets import Count, Dataset, LastK, dataset, field, pipeline
from caraway.dtypes import Hopping, Tumbling, regex
from caraway.expr import col, when
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import expect_column_value_lengths_to_be_between, expectations, inputs

__owner__ = "frontpage@news.example"
site = Webhook(name="news")


@source(
    site.endpoint("articles"),
    disorder="1d",
    cdc="upsert",
    preproc={
        "headline": ref("title"),
        "topics": eval(col("keywords").str.lower().str.split(","), schema={"keywords": str}),
    },
)
@dataset(index=True)
class Articles:
    slug: regex("[a-z0-9-]+") = field(key=True)
    headline: str
    topics: List[str]
    published: datetime

    @expectations(version=1)
    def headlines(cls):
        return [expect_column_value_lengths_to_be_between(str(cls.headline), min_value=3, max_value=90)]


@source(site.endpoint("clicks"), disorder="1h", cdc="append", where=eval(~col("path").str.endswith("?preview")))
@dataset
class Clicks:
    reader: str
    path: str
    clicked: datetime


@dataset
class Reads:
    topic: str
    slug: str
    clicked: datetime

    @pipeline
    @inputs(Clicks, Articles)
    def of_topics(cls, clicks: Dataset, articles: Dataset):
        reads = clicks.filter(col("path").str.startswith("/news/")).assign(
            slug=col("path").str.split("/").list.at(2).fillnull("none").astype(regex("[a-z0-9-]+"))
        )
        return (
            reads.join(articles, how="inner", on=["slug"], fields=["topics"])
            .explode("topics")
            .dropnull()
            .rename({"topics": "topic"})
            .assign(slug=col("slug").str.lower().astype(str))
            .drop("reader", "path")
        )


@dataset(index=True)
class TopicReads:
    topic: str = field(key=True)
    hour: int
    day: int
    slugs: List[str]
    clicked: datetime

    @pipeline
    @inputs(Reads)
    def windows(cls, reads: Dataset):
        hour, day = Hopping("1h", "10m"), Hopping("1d", "10m")
        return reads.groupby("topic").aggregate(
            hour=Count(window=hour), day=Count(window=day), slugs=LastK(of="slug", limit=2, dedup=True, window=hour)
        )


@dataset(index=True)
class Yesterday:
    """What was read on the last full day, known an hour after it, when the last clicks have come in."""

    topic: str = field(key=True)
    reads: int
    clicked: datetime

    @pipeline
    @inputs(Reads)
    def full_day(cls, reads: Dataset):
        return reads.groupby("topic").aggregate(reads=Count(window=Tumbling("1d", lookback="1h")))


@featureset
class Topic:
    topic: str
    hour: int = F(TopicReads.hour, default=0)
    day: int = F(TopicReads.day, default=0)
    slugs: List[str] = F(TopicReads.slugs, default=[])
    yesterday: Optional[int] = F(Yesterday.reads)
    trend: float = F(when(col("day") == 0).then(0.0).otherwise(col("hour") * 24.0 / col("day")))
    front_page: bool = F((col("trend") > 5.0) & (col("hour") >= 2))


def _article(slug: str, title: str, keywords: str) -> dict:
    return {"slug": slug, "title": title, "keywords": keywords, "published": "2026-01-03T06:00:00Z"}


def _click(path: str, time: str) -> dict:
    return {"reader": "r", "path": path, "clicked": f"2026-01-{time}:00Z"}


LOGS = [
    (
        "news",
        "articles",
        [_article("snow-in-graz", "Snow!", "Weather,graz"), _article("budget-26", "Budget", "politics")],
    ),
    (
        "news",
        "clicks",
        [
            _click("/news/budget-26", "04T12:00"),
            _click("/news/snow-in-graz", "04T23:30"),
            _click("/news/budget-26", "05T08:15"),
            _click("/news/budget-26", "05T11:05"),
            _click("/news/snow-in-graz", "05T11:10"),
            _click("/news/snow-in-graz", "05T11:20"),
            _click("/news/snow-in-graz?preview", "05T11:21"),
            _click("/sport/ski", "05T11:22"),
            _click("/news/budget-26", "05T12:01"),
        ],
    ),
]
ASKS = [
    {
        # The hour and the day until noon. A click of 04T12:00 is within the day: its begin is inclusive.
        "at": "2026-01-05T12:05:00Z",
        "inputs": {"Topic.topic": ["weather", "politics", "graz", "sport"]},
        "outputs": ["Topic.hour", "Topic.day", "Topic.slugs", "Topic.yesterday", "Topic.trend", "Topic.front_page"],
        "expected": {
            "Topic.hour": [2, 1, 2, 0],
            "Topic.day": [3, 3, 3, 0],
            "Topic.slugs": [["snow-in-graz"], ["budget-26"], ["snow-in-graz"], []],
            "Topic.yesterday": [1, 1, 1, None],
            "Topic.trend": [16.0, 8.0, 16.0, 0.0],
            "Topic.front_page": [True, False, True, False],
        },
    }
]
