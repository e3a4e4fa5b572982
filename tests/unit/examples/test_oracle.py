"""The oracle against cases that were worked out by hand."""

import math
from collections.abc import Hashable, Sequence
from typing import Any

import pandas as pd
import pytest

from examples.flights import oracle

MORNING = pd.Timestamp("2013-01-02T12:00:00Z")


def _departure(minutes: float, delay: int, **columns: Any) -> dict[str, Any]:
    row = {
        "flight_id": "X",
        "carrier": "UA",
        "origin": "EWR",
        "dest": "IAH",
        "tailnum": "N1",
        "delay": delay,
        "departed": MORNING + pd.Timedelta(minutes=minutes),
    }
    return row | columns


def _tables(
    departures: list[dict[str, Any]],
    *,
    weather: Sequence[tuple[float, float | None]] = (),
    tailnum: str | None = "N1",
) -> dict[str, pd.DataFrame]:
    return {
        "schedule": pd.DataFrame(
            [
                {
                    "flight_id": "F",
                    "carrier": "UA",
                    "origin": "EWR",
                    "dest": "IAH",
                    "tailnum": tailnum,
                    "distance": 1400,
                    "due": MORNING,
                }
            ]
        ),
        "departures": pd.DataFrame(departures, columns=list(_departure(0, 0))).sort_values("departed"),
        "weather": pd.DataFrame(
            [
                {
                    "airport": "EWR",
                    "temperature": 40.0,
                    "wind": wind,
                    "precipitation": 0.5,
                    "visibility": 8.0,
                    "measured": MORNING + pd.Timedelta(hours=hours),
                }
                for hours, wind in weather
            ],
            columns=["airport", "temperature", "wind", "precipitation", "visibility", "measured"],
        ),
        "planes": pd.DataFrame(
            [
                {"tailnum": "N1", "built": 1999, "manufacturer": "BOEING", "seats": 149, "listed": MORNING},
                {"tailnum": "N2", "built": None, "manufacturer": "AIRBUS", "seats": 100, "listed": MORNING},
            ]
        ).astype({"built": object}),
        "airports": pd.DataFrame([{"faa": "IAH", "name": "Houston", "altitude": 97, "listed": MORNING}]),
    }


def _features(*args: Any, **kwargs: Any) -> dict[Hashable, Any]:
    return oracle.expected(_tables(*args, **kwargs), ["F"]).iloc[0].to_dict()


def test_windows_reach_back_their_length_and_a_second() -> None:
    features = _features(
        [
            _departure(-60, 10),  # exactly an hour ago: in
            _departure(-60 - 0.9 / 60, 20),  # 0.9 s earlier: still in
            _departure(-60 - 1 / 60, 40),  # a whole second earlier: out of the hour
            _departure(-6 * 60 - 1, 1000),
            _departure(0, 30),  # now: in
            _departure(0.01, 7000),  # the future
        ]
    )
    assert features["Origin.departures_1h"] == 3
    assert features["Origin.mean_delay_1h"] == 20.0
    assert features["Origin.max_delay_1h"] == 30
    assert features["Origin.stddev_delay_1h"] == pytest.approx(math.sqrt(200 / 3), rel=1e-15)
    assert features["Origin.mean_delay_6h"] == 25.0
    assert features["Origin.max_delay_1d"] == 1000
    assert features["Origin.getting_worse"] is False


def test_an_empty_window_has_defaults() -> None:
    features = _features([])
    assert features["Origin.mean_delay_1h"] == 0.0
    assert features["Origin.max_delay_1h"] is None
    assert features["Origin.stddev_delay_1d"] is None
    assert features["Origin.departures_1h"] == 0
    assert features["Risk.carrier_late_share_7d"] == 0.0
    assert features["Aircraft.last_delay"] is None
    assert features["Destination.aircraft"] == 0


def test_late_means_more_than_fifteen_minutes() -> None:
    delays = [15, 16, -3, 200]
    features = _features([_departure(-i, delay, carrier="UA") for i, delay in enumerate(delays)])
    assert features["Risk.carrier_late_share_7d"] == 0.5


def test_the_last_delay_is_the_aircraft_s_own() -> None:
    features = _features([_departure(-90, 4), _departure(-30, 5), _departure(-10, 99, tailnum="N2")])
    assert features["Aircraft.last_delay"] == 5


def test_an_aircraft_that_leaves_again_is_no_longer_there() -> None:
    features = _features(
        [
            _departure(-90, 0, tailnum="N1", dest="IAH"),
            _departure(-80, 0, tailnum="N2", dest="IAH"),
            _departure(-30, 0, tailnum="N1", dest="MIA"),
            _departure(5, 0, tailnum="N3", dest="IAH"),
        ]
    )
    assert features["Destination.aircraft"] == 1


def test_weather_is_the_newest_that_is_not_too_old() -> None:
    assert _features([], weather=[(-2, 5.0), (-1, 7.0), (0.5, 9.0)])["Flight.wind"] == 7.0
    assert _features([], weather=[(0, 5.0)])["Flight.wind"] == 5.0
    assert _features([], weather=[(-6, 5.0)])["Flight.wind"] == 5.0
    stale = _features([], weather=[(-6.001, 5.0)])
    assert stale["Flight.wind"] is None
    assert stale["Flight.precipitation"] == 0.0
    unknown = _features([], weather=[(-2, 5.0), (-1, None)])
    assert unknown["Flight.wind"] is None
    assert unknown["Flight.precipitation"] == 0.5


def test_aircraft_without_year_or_register() -> None:
    assert _features([])["Aircraft.age"] == 14
    no_year = _features([], tailnum="N2")
    assert no_year["Aircraft.age"] is None
    assert no_year["Aircraft.seats"] == 100
    unlisted = _features([], tailnum="N9")
    assert unlisted["Aircraft.seats"] is None
    assert unlisted["Aircraft.manufacturer"] == "unknown"
    assert _features([], tailnum=None)["Aircraft.tailnum"] is None


def test_the_score_weighs_what_is_known() -> None:
    plain = _features([])
    assert plain["Risk.score"] == pytest.approx(1 / (1 + math.exp(2.0 - 0.2 + 1.0)))
    late = _features([_departure(-1, 200)], weather=[(0, 50.0)])
    points = -2.0 + 0.04 * 120 + 3.0 + 0.01 * 120 + 0.02 * 50 - 0.1 * 8
    assert late["Risk.score"] == pytest.approx(1 / (1 + math.exp(-points)))
    assert late["Risk.is_late_risk"] is True
