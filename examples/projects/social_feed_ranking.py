"""A feed: how close a reader is to the authors of the posts that could be shown.

The features rank some dozen candidates at once: one row a reader, lists of posts, authors and weights in it.
"""

from datetime import datetime
from typing import List, Optional

from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous, oneof, struct
from caraway.expr import col, lit, repeat, var, when
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs

__owner__ = "feed@social.example"
app = Webhook(name="social_feed")


@struct
class Ranked:
    post: int
    weight: float


@source(app.endpoint("posts"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Posts:
    post: int = field(key=True)
    author: int
    text: str
    posted: datetime


@source(app.endpoint("reactions"), disorder="1d", cdc="append")
@dataset
class Reactions:
    user: int
    post: int
    kind: oneof(str, ["like", "reply", "hide"])
    at: datetime


@dataset(index=True)
class Affinity:
    user: int = field(key=True)
    author: int = field(key=True)
    weight: float
    at: datetime

    @pipeline
    @inputs(Reactions, Posts)
    def to_author(cls, reactions: Dataset, posts: Dataset):
        weight = when(col("kind") == "like").then(1.0).when(col("kind") == "reply").then(2.5).otherwise(-4)
        return (
            reactions.join(posts, how="inner", on=["post"], fields=["author"])
            .assign(weight=weight.astype(float))
            .groupby("user", "author")
            .aggregate(weight=Sum(of="weight", window=Continuous("30d")))
        )


@dataset(index=True)
class PostReach:
    post: int = field(key=True)
    reactions: int
    hides: int
    at: datetime

    @pipeline
    @inputs(Reactions)
    def counts(cls, reactions: Dataset):
        hidden = reactions.assign(hide=when(col("kind") == "hide").then(1).otherwise(0).astype(int))
        return hidden.groupby("post").aggregate(
            reactions=Count(window=Continuous("7d")), hides=Sum(of="hide", window=Continuous("7d"))
        )


@featureset
class Reader:
    reader: int


@featureset
class Feed:
    reader: int = F(Reader.reader)
    post: List[int]
    author: List[int] = F(Posts.author, default=0)
    user: List[int] = F(repeat(col("reader"), col("post").list.len()))
    weights: List[float] = F(Affinity.weight, default=0.0)
    reactions: List[int] = F(PostReach.reactions, default=0)
    hides: List[Optional[int]] = F(PostReach.hides)
    clamped: List[float] = F(
        col("weights").list.map(
            "w", when(var("w") > 3.0).then(3.0).when(var("w") < -1.0).then(-1.0).otherwise(var("w"))
        )
    )
    ranked: List[Ranked] = F(Ranked.zip(post=col("post"), weight=col("clamped")))
    best: Optional[float] = F(col("clamped").list.max())
    mean_weight: float = F(col("weights").list.mean().fillnull(0.0))
    total_reactions: int = F(col("reactions").list.sum())
    nothing_new: bool = F((col("post").list.len() == 0) | ~col("reactions").list.contains(lit(0)))


def _post(post: int, author: int) -> dict:
    return {"post": post, "author": author, "text": "…", "posted": "2026-01-01T00:00:00Z"}


def _reaction(user: int, post: int, kind: str, day: int) -> dict:
    return {"user": user, "post": post, "kind": kind, "at": f"2026-01-{day:02}T12:00:00Z"}


LOGS = [
    ("social_feed", "posts", [_post(1, 50), _post(2, 50), _post(3, 60), _post(4, 70)]),
    (
        "social_feed",
        "reactions",
        [
            _reaction(9, 1, "like", 5),
            _reaction(9, 2, "reply", 6),
            _reaction(9, 1, "like", 8),
            _reaction(9, 3, "hide", 7),
            _reaction(8, 3, "like", 7),
        ],
    ),
]
ASKS = [
    {
        # Reader 9 gave author 50 1 + 2.5 + 1 points, and hid a post of 60.
        "at": "2026-01-10T00:00:00Z",
        "inputs": {"Reader.reader": [9, 8, 7], "Feed.post": [[2, 3, 4, 99], [3], []]},
        "outputs": [
            "Feed.author",
            "Feed.weights",
            "Feed.hides",
            "Feed.best",
            "Feed.mean_weight",
            "Feed.total_reactions",
            "Feed.nothing_new",
        ],
        "expected": {
            "Feed.author": [[50, 60, 70, 0], [60], []],
            "Feed.weights": [[4.5, -4.0, 0.0, 0.0], [1.0], []],
            "Feed.hides": [[0, 1, None, None], [1], []],
            "Feed.best": [3.0, 1.0, None],
            "Feed.mean_weight": [0.125, 1.0, 0.0],
            "Feed.total_reactions": [3, 2, 0],
            "Feed.nothing_new": [False, True, True],
        },
    },
    {
        # The first like is more than thirty days old: 3.5 points are left for author 50. No reaction is recent.
        "at": "2026-02-05T00:00:00Z",
        "inputs": {"Feed.reader": [9], "Feed.post": [[1, 3]]},
        "outputs": ["Feed.ranked", "Feed.reactions"],
        "expected": {
            "Feed.ranked": [[{"post": 1, "weight": 3.0}, {"post": 3, "weight": -1.0}]],
            "Feed.reactions": [[0, 0]],
        },
    },
    {
        "at": "2026-01-10T00:00:00Z",
        "inputs": {"Reader.reader": [9], "Feed.post": [[3, 1]]},
        "outputs": ["Feed"],
        "expected": {
            "Feed.reader": [9],
            "Feed.post": [[3, 1]],
            "Feed.author": [[60, 50]],
            "Feed.user": [[9, 9]],
            "Feed.weights": [[-4.0, 4.5]],
            "Feed.reactions": [[2, 2]],
            "Feed.hides": [[1, 0]],
            "Feed.clamped": [[-1.0, 3.0]],
            "Feed.ranked": [[{"post": 3, "weight": -1.0}, {"post": 1, "weight": 3.0}]],
            "Feed.best": [3.0],
            "Feed.mean_weight": [0.25],
            "Feed.total_reactions": [4],
            "Feed.nothing_new": [True],
        },
    },
]
