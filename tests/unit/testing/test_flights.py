"""The definitions of the demo on the mock, with a handful of flights."""

import math
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

from caraway.apps.demo.example import load_example
from caraway.testing import MockClient

NOON = datetime(2013, 5, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def flights() -> ModuleType:
    return load_example().definitions


def departure(number: str, dest: str, delay: int, departed: datetime) -> dict[str, Any]:
    row = {"flight_id": number, "carrier": "UA", "origin": "EWR", "dest": dest, "tailnum": "N1"}
    return {**row, "delay": delay, "departed": departed}


def fly(flights: ModuleType) -> MockClient:
    client = MockClient()
    client.commit("flights", flights.DATASETS, flights.FEATURESETS)

    def log(endpoint: str, *rows: dict[str, Any]) -> None:
        client.log("flights", endpoint, pd.DataFrame(rows))

    log("airports", {"faa": "SFO", "name": "San Francisco", "altitude": 13, "listed": NOON - 24 * HOUR})
    log("planes", {"tailnum": "N1", "built": 2003, "manufacturer": "B", "seats": 99, "listed": NOON - 24 * HOUR})
    weather = {"airport": "EWR", "wind": 12.0, "precipitation": 0.1, "visibility": 9.0}
    log("weather", {**weather, "temperature": 60.0, "measured": NOON - HOUR})
    log("departures", departure("a", "SFO", 30, NOON - 2 * HOUR), departure("b", "SFO", 10, NOON - HOUR / 2))
    plan = {"carrier": "UA", "origin": "EWR", "dest": "SFO", "tailnum": "N1", "distance": 2565}
    log("schedule", {"flight_id": "c", **plan, "due": NOON}, {"flight_id": "d", **plan, "due": NOON + 9 * HOUR})
    return client


def ask(client: MockClient, flights: ModuleType, flight: str, at: datetime) -> dict[str, Any]:
    frame = pd.DataFrame({"Flight.flight_id": [flight], "at": [at]})
    features = client.query_offline([flights.Flight.flight_id], flights.FEATURESETS, "at", frame)
    return {name: features[name].tolist()[0] for name in features}


def test_one_flight_id_gives_all_that_is_known(flights: ModuleType) -> None:
    known = ask(fly(flights), flights, "c", NOON)
    assert (known["Flight.wind"], known["Flight.distance"]) == (12.0, 2565)
    assert (known["Origin.mean_delay_1h"], known["Origin.mean_delay_6h"], known["Origin.departures_1h"]) == (10, 20, 1)
    assert (known["Origin.getting_worse"], known["Origin.max_delay_6h"]) == (False, 30)
    assert (known["Destination.name"], known["Destination.aircraft"]) == ("San Francisco", 1)
    assert (known["Aircraft.age"], known["Aircraft.last_delay"]) == (10, 10)
    assert known["Risk.carrier_late_share_7d"] == 0.5
    points = -2.0 + 0.04 * 10 + 3.0 * 0.5 + 0.01 * 10 + 0.02 * 12.0 - 0.1 * 9.0
    assert known["Risk.score"] == pytest.approx(1.0 / (1.0 + math.exp(-points)))
    assert known["Risk.is_late_risk"] is False


def test_weather_counts_within_six_hours_and_delays_leave_their_window(flights: ModuleType) -> None:
    known = ask(fly(flights), flights, "d", NOON + 9 * HOUR)
    assert (known["Flight.wind"], known["Flight.precipitation"]) == (pd.NA, 0.0)
    assert (known["Origin.mean_delay_6h"], known["Origin.mean_delay_1d"]) == (0.0, 20)


def test_late_weather_corrects_the_join_and_an_aircraft_is_counted_where_it_is(flights: ModuleType) -> None:
    client = fly(flights)
    late = {"airport": "EWR", "temperature": None, "wind": 40.0, "precipitation": 0.0, "visibility": 1.0}
    client.log("flights", "weather", pd.DataFrame([{**late, "measured": NOON - HOUR / 4}]))
    assert ask(client, flights, "c", NOON)["Flight.wind"] == 40.0
    client.log("flights", "departures", pd.DataFrame([departure("e", "BOS", 0, NOON)]))
    assert ask(client, flights, "c", NOON)["Destination.aircraft"] == 0


def test_an_unknown_flight_has_defaults(flights: ModuleType) -> None:
    known = ask(fly(flights), flights, "z", NOON)
    assert (known["Flight.carrier"], known["Flight.distance"], known["Destination.name"]) == (pd.NA, 0, "unknown")
