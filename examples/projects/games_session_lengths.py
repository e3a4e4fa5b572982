"""Sessions: how long and how often people play, from the events of the game alone.

The features decide when to remind somebody to come back, and when to advise a break.
"""

from datetime import datetime
from typing import List, Optional

from caraway.connectors import Webhook, source
from caraway.datasets import Average, Count, Dataset, Distinct, Max, Sum, dataset, field, pipeline
from caraway.dtypes import Hopping, Session, Window
from caraway.expr import col
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs

__owner__ = "wellbeing@games.example"
game = Webhook(name="sessions")


@source(game.endpoint("events"), disorder="1h", cdc="append")
@dataset
class Events:
    player: str
    screen: str
    device: str
    at: datetime


@dataset(index=True)
class Sessions:
    """One row for each session: it ends after twenty minutes of silence."""

    player: str = field(key=True)
    window: Window = field(key=True)
    events: int
    screens: List[str]
    at: datetime

    @pipeline
    @inputs(Events)
    def split(cls, events: Dataset):
        return events.groupby("player", window=Session("20m")).aggregate(
            events=Count(), screens=Distinct(of="screen", unordered=True)
        )


@dataset(index=True)
class Habits:
    player: str = field(key=True)
    sessions: int
    minutes: int
    longest: Optional[int]
    events: float
    at: datetime

    @pipeline
    @inputs(Sessions)
    def of_player(cls, sessions: Dataset):
        ever = Hopping("forever", "1m")
        length = col("window").struct.get("end").dt.since(col("window").struct.get("begin"), unit="minute")
        return (
            sessions.assign(minutes=length.astype(int))
            .groupby("player")
            .aggregate(
                sessions=Count(window=ever),
                minutes=Sum(of="minutes", window=ever),
                longest=Max(of="minutes", window=ever),
                events=Average(of="events", window=ever),
            )
        )


@dataset(index=True)
class QuarterHours:
    """The quarters of an hour in which a player did anything at all."""

    player: str = field(key=True)
    window: Window = field(key=True)
    at: datetime

    @pipeline
    @inputs(Events)
    def active(cls, events: Dataset):
        return events.groupby("player", window=Hopping("15m", "15m")).aggregate()


@featureset
class Player:
    player: str
    sessions: int = F(Habits.sessions, default=0)
    minutes: int = F(Habits.minutes, default=0)
    longest: Optional[int] = F(Habits.longest)
    events: float = F(Habits.events, default=0.0)
    binge: bool = F(col("longest").fillnull(0) >= 30)


@featureset
class PlayerSession:
    """A session that the caller names."""

    player: str
    window: Window
    events: Optional[int] = F(Sessions.events)
    screens: List[str] = F(Sessions.screens, default=[])
    minutes: int = F(
        col("window").struct.get("end").dt.since_epoch("minute")
        - col("window").struct.get("begin").dt.since_epoch("minute")
    )


@featureset
class Quarter:
    player: str
    window: Window
    seen: Optional[datetime] = F(QuarterHours.at)
    active: bool = F(~col("seen").isnull())


def _event(player: str, screen: str, minute: str) -> dict:
    return {"player": player, "screen": screen, "device": "phone", "at": f"2026-01-05T{minute}:00Z"}


def _window(begin: str, end: str) -> dict:
    return {
        "begin": datetime.fromisoformat(f"2026-01-05T{begin}+00:00"),
        "end": datetime.fromisoformat(f"2026-01-05T{end}+00:00"),
    }


LOGS = [
    (
        "sessions",
        "events",
        [
            _event("ann", "map", "18:00"),
            _event("ann", "shop", "18:20"),  # as long as the gap, so it goes on
            _event("ann", "map", "18:35"),
            _event("bob", "map", "18:10"),
            _event("ann", "map", "19:00"),
            _event("ann", "chat", "19:05"),
            _event("bob", "map", "20:30"),
        ],
    )
]
ASKS = [
    {
        "at": "2026-01-05T20:00:00Z",
        "inputs": {"Player.player": ["ann", "bob", "cy"]},
        "outputs": ["Player.sessions", "Player.minutes", "Player.longest", "Player.events", "Player.binge"],
        "expected": {
            "Player.sessions": [2, 1, 0],
            "Player.minutes": [40, 0, 0],
            "Player.longest": [35, 0, None],
            "Player.events": [2.5, 1.0, 0.0],
            "Player.binge": [True, False, False],
        },
    },
    {
        # A session ends with its last event, and a microsecond.
        "at": "2026-01-05T20:00:00Z",
        "inputs": {
            "PlayerSession.player": ["ann", "ann"],
            "PlayerSession.window": [_window("19:00:00", "19:05:00.000001"), _window("19:00:00", "19:06:00")],
        },
        "outputs": ["PlayerSession.events", "PlayerSession.minutes"],
        "expected": {"PlayerSession.events": [2, None], "PlayerSession.minutes": [5, 6]},
    },
    {
        "at": "2026-01-05T19:00:00Z",
        "inputs": {
            "Quarter.player": ["ann", "bob"],
            "Quarter.window": [_window("18:15:00", "18:30:00"), _window("18:15:00", "18:30:00")],
        },
        "outputs": ["Quarter.active"],
        "expected": {"Quarter.active": [True, False]},
    },
]
