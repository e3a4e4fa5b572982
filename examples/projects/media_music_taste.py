"""Music: what somebody likes lately, as a point in the space of all tracks.

The features rank candidates for the next song, and keep one artist from being played again and again.
"""

from datetime import datetime
from typing import List, Optional

import numpy as np
import pandas as pd

from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, LastK, dataset, field, pipeline
from caraway.dtypes import Continuous, Embedding
from caraway.expr import col
from caraway.featuresets import extractor, featureset
from caraway.featuresets import feature as F
from caraway.lib import inputs, outputs

__owner__ = "recommendations@music.example"
music = Webhook(name="music")


@source(music.endpoint("tracks"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Tracks:
    track: str = field(key=True)
    artist: str
    # learnt from playlists: calm, loud, sad
    vector: Embedding[3]
    published: datetime


@source(music.endpoint("plays"), disorder="1d", cdc="append")
@dataset
class Plays:
    user: int
    track: str
    seconds: int
    at: datetime


@dataset(index=True)
class Taste:
    user: int = field(key=True)
    vectors: List[Embedding[3]]
    tracks: List[str]
    at: datetime

    @pipeline
    @inputs(Plays, Tracks)
    def heard(cls, plays: Dataset, tracks: Dataset):
        # Less than half a minute was a skip.
        heard = plays.filter(col("seconds") >= 30).join(tracks, how="inner", on=["track"], fields=["vector"])
        recent = Continuous("30d")
        return heard.groupby("user").aggregate(
            vectors=LastK(of="vector", limit=2, dedup=False, window=recent),
            tracks=LastK(of="track", limit=3, dedup=True, window=recent),
        )


@dataset(index=True)
class ArtistPlays:
    user: int = field(key=True)
    artist: str = field(key=True)
    plays_1d: int
    at: datetime

    @pipeline
    @inputs(Plays, Tracks)
    def by_artist(cls, plays: Dataset, tracks: Dataset):
        known = plays.join(tracks, how="left", on=["track"], fields=["artist"]).dropnull("artist")
        return known.groupby("user", "artist").aggregate(plays_1d=Count(window=Continuous("1d")))


@featureset
class Listener:
    user: int
    track: List[str] = F(Taste.tracks, default=[])
    artists: List[str] = F(Tracks.artist, default="unknown")
    narrow: bool = F(
        (col("artists").list.len() > 1) & (col("artists").list.at(0) == col("artists").list.at(1)).fillnull(False)
    )


@featureset
class Candidate:
    user: int
    track: str
    artist: Optional[str] = F(Tracks.artist)
    vector: Optional[Embedding[3]] = F(Tracks.vector)
    sharpest: Optional[float] = F(col("vector").list.max())
    plays_1d: int = F(ArtistPlays.plays_1d, default=0)
    likeness: float
    score: float = F(col("likeness") / (1 + col("plays_1d")))

    @extractor(deps=[Taste])
    @inputs("user", "vector")
    @outputs("likeness")
    def compare(cls, ts, user, vector):
        taste, _ = Taste.lookup(ts, user=user, fields=["vectors"])
        products = [
            float(np.dot(np.mean(heard, axis=0), candidate)) if isinstance(heard, list) and heard and not known else 0.0
            for heard, candidate, known in zip(taste["vectors"], vector, vector.isna(), strict=True)
        ]
        return pd.Series(products, name="likeness")


def _track(track: str, artist: str, *vector: float) -> dict:
    return {"track": track, "artist": artist, "vector": list(vector), "published": "2026-01-01T00:00:00Z"}


def _play(user: int, track: str, seconds: int, time: str) -> dict:
    return {"user": user, "track": track, "seconds": seconds, "at": f"2026-01-{time}:00Z"}


LOGS = [
    (
        "music",
        "tracks",
        [
            _track("gymnopedie", "satie", 1.0, 0.0, 0.5),
            _track("gnossienne", "satie", 0.5, 0.0, 1.0),
            _track("thunder", "acdc", 0.0, 1.0, 0.0),
        ],
    ),
    (
        "music",
        "plays",
        [
            _play(1, "gymnopedie", 180, "05T20:00"),
            _play(1, "thunder", 5, "05T20:04"),
            _play(1, "gnossienne", 200, "05T20:05"),
            _play(1, "demo tape", 200, "05T20:09"),
            _play(2, "gnossienne", 90, "05T19:00"),
            _play(2, "thunder", 240, "05T20:00"),
        ],
    ),
]
ASKS = [
    {
        # User 1 stands at the mean of both pieces by Satie, (0.75, 0, 0.75), user 2 at (0.25, 0.5, 0.5).
        "at": "2026-01-05T21:00:00Z",
        "inputs": {
            "Candidate.user": [1, 1, 2, 3],
            "Candidate.track": ["gymnopedie", "thunder", "gymnopedie", "demo tape"],
        },
        "outputs": [
            "Candidate.artist",
            "Candidate.sharpest",
            "Candidate.plays_1d",
            "Candidate.likeness",
            "Candidate.score",
        ],
        "expected": {
            "Candidate.artist": ["satie", "acdc", "satie", None],
            "Candidate.sharpest": [1.0, 1.0, 1.0, None],
            "Candidate.plays_1d": [2, 1, 1, 0],
            "Candidate.likeness": [1.125, 0.0, 0.5, 0.0],
            "Candidate.score": [0.375, 0.0, 0.25, 0.0],
        },
    },
    {
        "at": "2026-01-05T21:00:00Z",
        "inputs": {"Listener.user": [1, 2, 3]},
        "outputs": ["Listener.track", "Listener.artists", "Listener.narrow"],
        "expected": {
            "Listener.track": [["gnossienne", "gymnopedie"], ["thunder", "gnossienne"], []],
            "Listener.artists": [["satie", "satie"], ["acdc", "satie"], []],
            "Listener.narrow": [True, False, False],
        },
    },
    {
        "at": None,
        "inputs": {"Candidate.user": [1, 1], "Candidate.track": ["thunder", "demo tape"]},
        "outputs": ["Candidate.artist", "Candidate.vector"],
        "expected": {"Candidate.artist": ["acdc", None], "Candidate.vector": [[0.0, 1.0, 0.0], None]},
    },
]
