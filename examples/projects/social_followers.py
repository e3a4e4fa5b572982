"""Followers: how many an account has, how many it follows back, and whether it sounds like spam.

The features decide about the badge of an account, and about holding its posts for review.
"""

from datetime import datetime
from typing import Optional

from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, Min, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous, Hopping
from caraway.expr import col, now, when
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs

__owner__ = "safety@social.example"
app = Webhook(name="social_graph")
EVER = Hopping("forever", "1m")


@source(app.endpoint("follows"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Follows:
    follower: str = field(key=True)
    followee: str = field(key=True)
    active: bool
    at: datetime


@source(app.endpoint("posts"), disorder="1d", cdc="append")
@dataset
class Posts:
    account: str
    text: Optional[str]
    at: datetime


@dataset(index=True)
class Followers:
    account: str = field(key=True)
    followers: int
    first_follow: Optional[datetime]
    at: datetime

    @pipeline
    @inputs(Follows)
    def of_account(cls, follows: Dataset):
        # Who unfollows leaves the table, and the count.
        current = follows.filter(col("active")).rename({"followee": "account"}).assign(since=col("at").astype(datetime))
        return current.groupby("account").aggregate(
            followers=Count(window=EVER), first_follow=Min(of="since", window=EVER)
        )


@dataset(index=True)
class Mutuals:
    account: str = field(key=True)
    friends: int
    at: datetime

    @pipeline
    @inputs(Follows, Follows)
    def both_ways(cls, follows: Dataset, back: Dataset):
        return (
            follows.filter(col("active"))
            .drop("active")
            .join(back, how="inner", left_on=["followee", "follower"], right_on=["follower", "followee"])
            .filter(col("active"))
            .rename({"follower": "account"})
            .groupby("account")
            .aggregate(friends=Count(window=EVER))
        )


@dataset(index=True)
class Tone:
    account: str = field(key=True)
    posts: int
    links: int
    loud: int
    at: datetime

    @pipeline
    @inputs(Posts)
    def of_posts(cls, posts: Dataset):
        text = posts.dropnull("text").filter(col("text").str.len() > 0)
        lower = col("text").str.lower()
        marked = text.assign(
            link=when(lower.str.contains("http://") | lower.str.contains("https://")).then(1).otherwise(0).astype(int),
            loud=when(col("text").str.upper() == col("text")).then(1).otherwise(0).astype(int),
        )
        day = Continuous("1d")
        return marked.groupby("account").aggregate(
            posts=Count(window=day), links=Sum(of="link", window=day), loud=Sum(of="loud", window=day)
        )


@featureset
class Account:
    account: str
    followers: int = F(Followers.followers, default=0)
    first_follow: Optional[datetime] = F(Followers.first_follow)
    friends: int = F(Mutuals.friends, default=0)
    posts: int = F(Tone.posts, default=0)
    links: int = F(Tone.links, default=0)
    loud: int = F(Tone.loud, default=0)
    weeks_seen: int = F(now().dt.since(col("first_follow"), unit="week").fillnull(0))
    spam: bool = F((col("posts") > 1) & (col("links") + col("loud") >= col("posts")) & (col("friends") == 0))


def _follow(follower: str, followee: str, time: str, *, active: bool = True) -> dict:
    return {"follower": follower, "followee": followee, "active": active, "at": f"2026-01-{time}:00Z"}


def _post(account: str, text: str | None, time: str) -> dict:
    return {"account": account, "text": text, "at": f"2026-01-{time}:00Z"}


LOGS = [
    (
        "social_graph",
        "follows",
        [
            _follow("ann", "bob", "05T08:00"),
            _follow("bob", "ann", "05T09:00"),
            _follow("cy", "bob", "05T09:30"),
            _follow("cy", "bob", "06T09:30", active=False),
            _follow("ann", "bob", "07T08:00", active=False),
            _follow("dee", "ann", "08T10:00"),
            _follow("ann", "dee", "08T10:05"),
            _follow("dee", "cy", "20T10:00"),
            _follow("cy", "dee", "20T10:00"),
        ],
    ),
    (
        "social_graph",
        "posts",
        [
            _post("cy", "BUY NOW", "05T10:00"),
            _post("cy", "see HTTPS://pills.example", "05T10:01"),
            _post("cy", None, "05T10:02"),
            _post("ann", "good morning", "05T10:00"),
            _post("ann", "", "05T10:10"),
        ],
    ),
]
ASKS = [
    {
        "at": "2026-01-05T12:00:00Z",
        "inputs": {"Account.account": ["ann", "bob", "cy"]},
        "outputs": ["Account.followers", "Account.friends", "Account.posts", "Account.spam"],
        "expected": {
            "Account.followers": [1, 2, 0],
            "Account.friends": [1, 1, 0],
            "Account.posts": [1, 0, 2],
            "Account.spam": [False, False, True],
        },
    },
    {
        # Cy is gone since half past nine.
        "at": "2026-01-06T12:00:00Z",
        "inputs": {"Account.account": ["bob"]},
        "outputs": ["Account.followers", "Account.friends"],
        "expected": {"Account.followers": [1], "Account.friends": [1]},
    },
    {
        # Ann left bob on the 7th, so he has nobody. She has bob and dee, who is her friend.
        "at": "2026-01-19T12:00:00Z",
        "inputs": {"Account.account": ["ann", "bob"]},
        "outputs": ["Account.followers", "Account.friends", "Account.weeks_seen"],
        "expected": {"Account.followers": [2, 0], "Account.friends": [1, 0], "Account.weeks_seen": [2, 0]},
    },
]
