"""Video: how much a film holds those who start it, from raw events of players.

The features rank what the start page shows, with attention that fades by half every hour.
"""

from datetime import datetime
from typing import List, Optional

from caraway.connectors import Webhook, source
from caraway.datasets import Average, Count, Dataset, Distinct, ExpDecaySum, dataset, field, pipeline
from caraway.dtypes import Continuous, struct
from caraway.expr import col, from_epoch, lit, when
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs

__owner__ = "startpage@video.example"
players = Webhook(name="players")


@struct
class Progress:
    seconds: int
    of: int
    quality: Optional[str]


@source(players.endpoint("raw"), disorder="6h", cdc="append")
@dataset
class Raw:
    """Events as players send them: text, whatever the version."""

    token: bytes
    payload: str
    progress: Optional[str]
    clock_ms: int
    received: datetime


@dataset
class Views:
    film: str
    kind: str
    viewer: str
    share: Optional[float]
    quality: Optional[str]
    lag_s: int
    received: datetime

    @pipeline
    @inputs(Raw)
    def decode(cls, raw: Dataset):
        decoded = raw.assign(
            film=col("payload").str.json_extract("$.film.id").astype(Optional[str]),
            kind=col("payload").str.json_extract("$.kind").fillnull("ping").str.lower().astype(str),
            viewer=col("payload").str.json_extract("$['viewer']").fillnull("anonymous").astype(str),
            parsed=col("progress").str.parse(Progress).astype(Optional[Progress]),
            lag_s=col("received").dt.since(from_epoch(col("clock_ms"), unit="millisecond")).astype(int),
        ).dropnull("film")
        seconds, length = col("parsed").struct.get("seconds"), col("parsed").struct.get("of")
        return decoded.assign(
            share=when(length > 0).then(seconds / length).otherwise(lit(None)).astype(Optional[float]),
            quality=col("parsed").struct.get("quality").astype(Optional[str]),
        ).drop("token", "payload", "progress", "clock_ms", "parsed")


@dataset(index=True)
class FilmAttention:
    film: str = field(key=True)
    attention: float
    viewers_1d: int
    share_1d: Optional[float]
    qualities: List[Optional[str]]
    mean_lag: float
    received: datetime

    @pipeline
    @inputs(Views)
    def fading(cls, views: Dataset):
        weighed = views.filter(col("kind") != "ping").assign(weight=col("share").fillnull(0.25).astype(float))
        day = Continuous("1d")
        return weighed.groupby("film").aggregate(
            attention=ExpDecaySum(of="weight", half_life="1h", window=day),
            viewers_1d=Count(of="viewer", unique=True, approx=True, window=day),
            share_1d=Average(of="share", window=day, default=None),
            qualities=Distinct(of="quality", unordered=True, window=day),
            mean_lag=Average(of="lag_s", window=day),
        )


@featureset
class Film:
    film: str
    attention: float = F(FilmAttention.attention, default=0.0)
    viewers: int = F(FilmAttention.viewers_1d, default=0)
    share: Optional[float] = F(FilmAttention.share_1d)
    mean_lag: float = F(FilmAttention.mean_lag, default=0.0)
    qualities: Optional[List[Optional[str]]] = F(FilmAttention.qualities)
    any_unknown: bool = F(col("qualities").list.hasnull().fillnull(False))
    score: float = F(col("attention") * col("share").fillnull(0.5) * (col("viewers") + 1).num.sqrt())


def _raw(payload: str, progress: str | None, clock_ms: int, time: str) -> dict:
    return {
        "token": b"\x00\xff",
        "payload": payload,
        "progress": progress,
        "clock_ms": clock_ms,
        "received": f"2026-01-05T{time}Z",
    }


# 2026-01-05 at noon is 1767614400 s after the epoch.
LOGS = [
    (
        "players",
        "raw",
        [
            _raw(
                '{"kind": "WATCH", "film": {"id": "f1"}, "viewer": "v1"}',
                '{"seconds": 60, "of": 120}',
                1767614398000,
                "12:00:00",
            ),
            _raw(
                '{"kind": "watch", "film": {"id": "f1"}, "viewer": "v2"}',
                '{"seconds": 120, "of": 120, "quality": "hd"}',
                1767618000000,
                "13:00:00",
            ),
            _raw('{"kind": "watch", "film": {"id": "f1"}, "viewer": "v1"}', None, 1767618000500, "13:00:01"),
            _raw('{"film": {"id": "f1"}, "viewer": "v9"}', '{"seconds": 1, "of": 0}', 1767618000500, "13:00:02"),
            _raw("broken {", None, 1767618000500, "13:00:03"),
        ],
    )
]
ASKS = [
    {
        # Views of one half, of all, and of nobody knows what, with lags of 2, 0 and 0 whole seconds.
        "at": "2026-01-05T14:00:00Z",
        "inputs": {"Film.film": ["f1", "f2"]},
        "outputs": ["Film.viewers", "Film.share", "Film.mean_lag", "Film.any_unknown"],
        "expected": {
            "Film.viewers": [2, 0],
            "Film.share": [0.75, None],
            "Film.mean_lag": [2 / 3, 0.0],
            "Film.any_unknown": [True, False],
        },
    },
    {
        # At one o'clock sharp: 0.5 / 2 + 1.0 of two viewers, 0.75 of the film on average.
        "at": "2026-01-05T13:00:00Z",
        "inputs": {"Film.film": ["f1", "f2"]},
        "outputs": ["Film.attention", "Film.score"],
        "expected": {"Film.attention": [1.25, 0.0], "Film.score": [1.25 * 0.75 * 3**0.5, 0.0]},
    },
]
