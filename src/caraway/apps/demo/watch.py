"""The features of the newest flight, queried while events are sent, as a user's program would query them."""

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from caraway.apps.demo.agreement import values
from caraway.apps.demo.example import Flights
from caraway.client import Client
from caraway.errors import RemoteError, UnavailableError
from caraway.process.recurring import Recurring

PAUSE_SECONDS = 0.5
POLL_SECONDS = 0.05
TIMEOUT_SECONDS = 120.0
# The number of flights in one query.
CANDIDATES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """The features of one flight as they were served a moment ago, for the time when it was due."""

    due: pd.Timestamp
    features: dict[str, object]
    seconds: float

    def __str__(self) -> str:
        f = self.features
        parts = (
            f"{_spelled(f['Origin.departures_1h'])} departures in the last hour",
            f"mean delay {_spelled(f['Origin.mean_delay_1h'])} min",
            f"wind {_spelled(f['Flight.wind'])} mph",
            f"aircraft {_spelled(f['Aircraft.age'])} years old and last {_spelled(f['Aircraft.last_delay'])} min late",
            f"risk {_spelled(f['Risk.score'])}",
        )
        return f"{self.due:%d %b %H:%M} {f['Flight.flight_id']}: {', '.join(parts)}   [{1000 * self.seconds:.1f} ms]"


class Watcher(Recurring):
    """Queries the newest flights every half second until it is stopped.

    Attributes:
        reached: The time up to which events have been sent; the replay sets it.
        last: The last answer.
        latencies: The seconds that each query took.
    """

    def __init__(self, flights: Flights, url: str, schedule: pd.DataFrame) -> None:
        """Watch the flights of `schedule`, which is in order of time."""
        client = Client(url)
        super().__init__("watcher", self._watch, PAUSE_SECONDS, finish=client.close)
        self.reached: pd.Timestamp | None = None
        self.last: Sighting | None = None
        self.latencies: list[float] = []
        self._flights = flights
        self._schedule = schedule
        self._client = client
        self._seen = 0

    def _watch(self) -> None:
        # While a part of the stack is restarted, queries fail. If it doesn't come back, the replay raises the error.
        with suppress(UnavailableError, RemoteError):
            if self.reached is not None:
                self.last = self._look(self.reached) or self.last

    def _look(self, reached: pd.Timestamp) -> Sighting | None:
        """Query some flights newer than the last one seen, and return the newest that is served: jobs may lag."""
        end = int(self._schedule["due"].searchsorted(reached, side="right"))
        if end <= self._seen:
            return None
        positions = np.linspace(end - 1, self._seen, CANDIDATES, dtype=int)
        asked = self._schedule.iloc[positions].reset_index(drop=True)
        keys = pd.DataFrame({str(self._flights.key.fqn()): asked["flight_id"]})
        started = time.perf_counter()
        answer = self._client.query([self._flights.key], self._flights.featuresets, keys, timestamps=asked["due"])
        seconds = time.perf_counter() - started
        self.latencies.append(seconds)
        for row, carrier in enumerate(values(answer["Flight.carrier"])):
            if carrier is not None:
                self._seen = int(positions[row])
                features = {str(name): next(values(answer[name].iloc[row : row + 1])) for name in answer.columns}
                return Sighting(due=asked["due"].iloc[row], features=features, seconds=seconds)
        return None


def is_served(flights: Flights, client: Client, flight: "pd.Series[Any]") -> bool:
    """Return whether queries for the time when a flight (a row of the schedule) is due find it."""
    asked = pd.DataFrame({str(flights.key.fqn()): [flight["flight_id"]]})
    served = client.query([flights.key], ["Flight.carrier"], asked, timestamps=pd.Series([flight["due"]]))
    return bool(served["Flight.carrier"].notna().all())


def wait_until_served(flights: Flights, url: str, flight: "pd.Series[Any]") -> float:
    """Wait until queries find a flight; return how many seconds that took.

    Raises `UnavailableError` if they don't find it within two minutes.
    """
    started = time.monotonic()
    with Client(url) as client:
        while time.monotonic() - started < TIMEOUT_SECONDS:
            with suppress(UnavailableError, RemoteError):
                if is_served(flights, client, flight):
                    return time.monotonic() - started
            time.sleep(POLL_SECONDS)
    raise UnavailableError(
        f"flight {flight['flight_id']} is not served {TIMEOUT_SECONDS:.0f} s after it was logged; see `caraway status`"
    )


def _spelled(value: object) -> str:
    match value:
        case None:
            return "?"
        case float():
            return f"{value:.2f}"
        case _:
            return str(value)
