"""What the features must be: the same questions answered from the raw frames with plain pandas and Python.

Nothing of Caraway is used here. Each function looks at a flight's due time and at what had happened by then.
"""

import math
from collections import Counter
from collections.abc import Hashable, Mapping
from statistics import pstdev
from typing import Any

import numpy as np
import pandas as pd

HOUR = pd.Timedelta("1h")
# A row counts in a window of d until d + 1 s after it, exclusive.
GRACE = pd.Timedelta("1s")
WEATHER_VALID_FOR = pd.Timedelta("6h")
WINDOWS = {"1h": HOUR, "6h": 6 * HOUR, "1d": 24 * HOUR}


def expected(tables: Mapping[str, pd.DataFrame], flight_ids: list[str]) -> pd.DataFrame:
    """Compute all features of the given flights, each as of the time when it is due; null is None.

    Args:
        tables: The events by endpoint, as `data.load` gives them.
        flight_ids: Which flights.

    Returns:
        A row for each flight, in the given order, a column for each feature (`Featureset.feature`).
    """
    flights = tables["schedule"].set_index("flight_id").loc[flight_ids].reset_index()
    blocks = [
        _flight(flights, tables["weather"]),
        _origin(flights, tables["departures"]),
        _destination(flights, tables["departures"], tables["airports"]),
        _aircraft(flights, tables["departures"], tables["planes"]),
        _carrier(flights, tables["departures"]),
    ]
    features = pd.concat(blocks, axis=1).astype(object)
    features["Risk.score"] = [_score(row) for row in features.to_dict("records")]
    features["Risk.is_late_risk"] = features["Risk.score"] > 0.5
    return pd.DataFrame({name: list(map(_plain, column)) for name, column in features.items()}, dtype=object)


def _flight(flights: pd.DataFrame, weather: pd.DataFrame) -> pd.DataFrame:
    reports = {airport: group.reset_index(drop=True) for airport, group in weather.groupby("airport")}
    rows = []
    for flight in flights.to_dict("records"):
        report = _newest(reports.get(flight["origin"]), "measured", flight["due"])
        if report is not None and report["measured"] < flight["due"] - WEATHER_VALID_FOR:
            report = None
        rows.append(
            {
                "Flight.flight_id": flight["flight_id"],
                "Flight.carrier": flight["carrier"],
                "Flight.origin": flight["origin"],
                "Flight.dest": flight["dest"],
                "Flight.tailnum": flight["tailnum"],
                "Flight.distance": flight["distance"],
                "Flight.temperature": report["temperature"] if report is not None else None,
                "Flight.wind": report["wind"] if report is not None else None,
                "Flight.precipitation": report["precipitation"] if report is not None else 0.0,
                "Flight.visibility": report["visibility"] if report is not None else None,
            }
        )
    return pd.DataFrame(rows, dtype=object)


def _origin(flights: pd.DataFrame, departures: pd.DataFrame) -> pd.DataFrame:
    history = dict(iter(departures.groupby("origin")))
    rows = []
    for flight in flights.to_dict("records"):
        row: dict[str, Any] = {"Origin.origin": flight["origin"]}
        delays = {
            name: _window(history.get(flight["origin"]), flight["due"], length) for name, length in WINDOWS.items()
        }
        for name, values in delays.items():
            row[f"Origin.mean_delay_{name}"] = sum(values) / len(values) if values else 0.0
            row[f"Origin.max_delay_{name}"] = max(values) if values else None
            row[f"Origin.stddev_delay_{name}"] = pstdev(values) if values else None
        row["Origin.departures_1h"] = len(delays["1h"])
        row["Origin.getting_worse"] = row["Origin.mean_delay_1h"] > row["Origin.mean_delay_6h"]
        rows.append(row)
    return pd.DataFrame(rows, dtype=object)


def _destination(flights: pd.DataFrame, departures: pd.DataFrame, airports: pd.DataFrame) -> pd.DataFrame:
    register = airports.set_index("faa")
    rows: dict[int, dict[str, object]] = {}
    # One walk through time: where each aircraft went last, and how many that makes for each airport.
    where: dict[str, str] = {}
    aircraft: Counter[str] = Counter()
    events = iter(departures.to_dict("records"))
    event = next(events, None)
    for flight in flights.sort_values("due", kind="stable").reset_index().to_dict("records"):
        while event is not None and event["departed"] <= flight["due"]:
            if event["tailnum"] in where:
                aircraft[where[event["tailnum"]]] -= 1
            where[event["tailnum"]] = event["dest"]
            aircraft[event["dest"]] += 1
            event = next(events, None)
        known = flight["dest"] in register.index
        rows[flight["index"]] = {
            "Destination.faa": flight["dest"],
            "Destination.dest": flight["dest"],
            "Destination.name": register.loc[flight["dest"], "name"] if known else "unknown",
            "Destination.altitude": register.loc[flight["dest"], "altitude"] if known else None,
            "Destination.aircraft": aircraft[flight["dest"]],
        }
    return pd.DataFrame([rows[index] for index in flights.index], dtype=object)


def _aircraft(flights: pd.DataFrame, departures: pd.DataFrame, planes: pd.DataFrame) -> pd.DataFrame:
    register = planes.set_index("tailnum")
    history = {tailnum: group.reset_index(drop=True) for tailnum, group in departures.groupby("tailnum")}
    rows = []
    for flight in flights.to_dict("records"):
        known = flight["tailnum"] in register.index
        built = register.loc[flight["tailnum"], "built"] if known else None
        last = _newest(history.get(flight["tailnum"]), "departed", flight["due"])
        rows.append(
            {
                "Aircraft.tailnum": flight["tailnum"],
                "Aircraft.built": built,
                "Aircraft.seats": register.loc[flight["tailnum"], "seats"] if known else None,
                "Aircraft.manufacturer": register.loc[flight["tailnum"], "manufacturer"] if known else "unknown",
                "Aircraft.age": flight["due"].year - built if built is not None else None,
                "Aircraft.last_delay": last["delay"] if last is not None else None,
            }
        )
    return pd.DataFrame(rows, dtype=object)


def _carrier(flights: pd.DataFrame, departures: pd.DataFrame) -> pd.DataFrame:
    history = dict(iter(departures.groupby("carrier")))
    rows = []
    for flight in flights.to_dict("records"):
        delays = _window(history.get(flight["carrier"]), flight["due"], 7 * 24 * HOUR)
        late = sum(delay > 15 for delay in delays)
        rows.append(
            {
                "Risk.carrier": flight["carrier"],
                "Risk.carrier_late_share_7d": late / len(delays) if delays else 0.0,
            }
        )
    return pd.DataFrame(rows, dtype=object)


def _score(features: Mapping[Hashable, Any]) -> float:
    """Repeat the extractor's sum, one flight at a time."""

    def number(name: str, otherwise: float) -> float:
        value = features[name]
        return otherwise if value is None or pd.isna(value) else float(value)

    points = (
        -2.0
        + 0.04 * min(max(number("Origin.mean_delay_1h", 0.0), -10.0), 120.0)
        + 3.0 * number("Risk.carrier_late_share_7d", 0.0)
        + 0.01 * min(max(number("Aircraft.last_delay", 0.0), -10.0), 120.0)
        + 0.02 * number("Flight.wind", 10.0)
        - 0.1 * min(number("Flight.visibility", 10.0), 10.0)
    )
    return 1.0 / (1.0 + math.exp(-points))


def _window(history: pd.DataFrame | None, at: pd.Timestamp, length: pd.Timedelta) -> list[int]:
    """Give the delays of the departures in the window that ends at `at`."""
    if history is None:
        return []
    times = history["departed"]
    first = times.searchsorted(at - length - GRACE, side="right")
    end = times.searchsorted(at, side="right")
    return history["delay"].iloc[first:end].tolist()


def _newest(history: pd.DataFrame | None, time: str, at: pd.Timestamp) -> pd.Series | None:
    """Give the newest row at or before `at`."""
    if history is None:
        return None
    end = history[time].searchsorted(at, side="right")
    return history.iloc[end - 1] if end else None


def _plain(value: object) -> object:
    """Give a value as Python's own; null is None."""
    value = value.item() if isinstance(value, np.generic) else value
    return None if value is None or value is pd.NA or value != value else value  # noqa: PLR0124 (NaN)
