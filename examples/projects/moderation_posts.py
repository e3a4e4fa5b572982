"""Content moderation: is a post removed, shown to a moderator, or left alone?

Scores come from models; the verdict is made while the post streams in, and what an author did before is known.
"""

from datetime import datetime
from typing import Dict, List, Optional

from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, Max, dataset, field, pipeline
from caraway.dtypes import Continuous, struct
from caraway.expr import col, repeat, var, when
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import expect_column_value_lengths_to_be_between, expectations, inputs

__owner__ = "moderation@forum.example"

forum = Webhook(name="forum")


@struct
class Verdict:
    """What shall happen to a post, and how sure we are."""

    action: str
    score: float
    link: Optional[str]


@struct
class WeightedTag:
    """A tag, as the model of the next step wants it."""

    tag: str
    weight: float


@source(forum.endpoint("posts"), disorder="1h", cdc="append")
@dataset
class Posts:
    post: int
    author: str
    text: str
    tags: List[str]
    scores: Dict[str, float]
    image: Optional[bytes]  # SHA-256 of it
    posted_at: datetime

    @expectations
    def posts_are_short(cls):
        return [expect_column_value_lengths_to_be_between(column=str(cls.text), min_value=1, max_value=5000)]


@source(forum.endpoint("images"), disorder="1d", cdc="upsert")
@dataset(index=True)
class KnownImages:
    image: bytes = field(key=True)
    label: str
    listed_at: datetime


@dataset
class JudgedPosts:
    post: int
    author: str
    image: Optional[bytes]
    verdict: Verdict
    tags: List[WeightedTag]
    posted_at: datetime

    @pipeline
    @inputs(Posts)
    def judge(cls, posts: Dataset):
        toxic = col("scores").dict.get("toxic", 0.0)
        shouting = (col("text").str.upper() == col("text")) & (col("text").str.len() > 5)
        words = col("text").str.split(" ")
        links = words.list.filter("word", var("word").str.startswith("http") | var("word").str.endswith(".biz"))
        action = when(toxic > 0.9).then("remove").when((toxic > 0.5) | shouting).then("review").otherwise("leave")
        return posts.assign(
            verdict=Verdict.expr(action=action, score=toxic, link=links.list.at(0)).astype(Verdict),
            tags=WeightedTag.zip(tag=col("tags"), weight=repeat(0.5, col("tags").list.len())).astype(List[WeightedTag]),
        ).drop("text", "scores")


@dataset(index=True)
class PostVerdicts:
    """The verdict on the newest text of a post."""

    post: int = field(key=True)
    author: str
    image: Optional[bytes]
    verdict: Verdict
    tags: List[WeightedTag]
    posted_at: datetime

    @pipeline
    @inputs(JudgedPosts)
    def newest(cls, posts: Dataset):
        return posts.groupby("post").latest()


@dataset(index=True)
class AuthorRecords:
    author: str = field(key=True)
    bad_30d: int
    worst_30d: float
    posted_at: datetime

    @pipeline
    @inputs(JudgedPosts)
    def by_author(cls, posts: Dataset):
        month = Continuous("30d")
        return (
            posts.filter(col("verdict").struct.get("action") != "leave")
            .assign(score=col("verdict").struct.get("score").astype(float))
            .groupby("author")
            .aggregate(bad_30d=Count(window=month), worst_30d=Max(of="score", window=month, default=0.0))
        )


@featureset
class Post:
    post: int
    author: Optional[str] = F(PostVerdicts.author)
    verdict: Optional[Verdict] = F(PostVerdicts.verdict)
    action: str = F(col("verdict").struct.get("action").fillnull("leave"))
    link: Optional[str] = F(col("verdict").struct.get("link"))
    tags: List[WeightedTag] = F(PostVerdicts.tags, default=[])
    image: Optional[bytes] = F(PostVerdicts.image)
    known_as: str = F(KnownImages.label, default="new")


@featureset
class Author:
    author: Optional[str] = F(Post.author)
    bad_30d: int = F(AuthorRecords.bad_30d, default=0)
    worst_30d: float = F(AuthorRecords.worst_30d, default=0.0)
    percent: str = F((col("worst_30d") * 100).round().num.to_string().str.concat("%"))


LOGS = [
    ("forum", "images", [{"image": b"\x00\xff", "label": "banned", "listed_at": "2026-01-01"}]),
    ("forum", "posts", [
        {"post": 1, "author": "eve", "text": "BUY NOW at cheap.biz", "tags": ["ad", "new"], "scores": {"toxic": 0.25},
         "image": b"\x00\xff", "posted_at": "2026-01-05T10:00:00Z"},
        {"post": 2, "author": "eve", "text": "YOU LIAR", "tags": [], "scores": {}, "image": None,
         "posted_at": "2026-01-05T11:00:00Z"},
        {"post": 2, "author": "eve", "text": "you liar", "tags": [], "scores": {"toxic": 0.75, "spam": 0.1},
         "image": None, "posted_at": "2026-01-05T11:05:00Z"},
        {"post": 3, "author": "dan", "text": "I hate http://you", "tags": [], "scores": {"toxic": 1.0},
         "image": b"\x01", "posted_at": "2026-01-05T12:00:00Z"},
    ]),
]  # fmt: skip
ASKS = [
    {
        "at": "2026-01-06T00:00:00Z",
        "inputs": {"Post.post": [1, 2, 3, 4]},
        "outputs": ["Post.action", "Post.link", "Post.known_as", "Author.bad_30d", "Author.percent"],
        "expected": {
            "Post.action": ["leave", "review", "remove", "leave"],
            "Post.link": ["cheap.biz", None, "http://you", None],
            "Post.known_as": ["banned", "new", "new", "new"],
            "Author.bad_30d": [2, 2, 1, 0],
            "Author.percent": ["75%", "75%", "100%", "0%"],
        },
    },
    {
        "at": "2026-01-05T11:02:00Z",
        "inputs": {"Post.post": [1, 2]},
        "outputs": ["Post.verdict", "Post.tags", "Post.image"],
        "expected": {
            "Post.verdict": [{"action": "leave", "score": 0.25, "link": "cheap.biz"},
                             {"action": "review", "score": 0.0, "link": None}],
            "Post.tags": [[{"tag": "ad", "weight": 0.5}, {"tag": "new", "weight": 0.5}], []],
            "Post.image": [b"\x00\xff", None],
        },
    },
]  # fmt: skip
