import json
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest

from examples.flights import data

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    return data.load(months=1)


def _flights(**columns: object) -> pd.DataFrame:
    row = {
        "year": 2013,
        "month": 1,
        "day": 1,
        "sched_dep_time": 515,
        "dep_delay": 2.0,
        "carrier": "UA",
        "flight": 1545,
        "tailnum": "N14228",
        "origin": "EWR",
        "dest": "IAH",
        "distance": 1400,
    }
    return pd.DataFrame([row | columns])


@pytest.mark.parametrize(
    ("month", "day", "clock", "utc"),
    [
        (1, 1, 515, "2013-01-01T10:15:00Z"),
        (7, 1, 515, "2013-07-01T09:15:00Z"),
        (1, 31, 2400, "2013-02-01T05:00:00Z"),
        (3, 9, 2359, "2013-03-10T04:59:00Z"),
        (3, 10, 300, "2013-03-10T07:00:00Z"),
    ],
)
def test_local_clock_times_become_utc(month: int, day: int, clock: int, utc: str) -> None:
    assert data.due(_flights(month=month, day=day, sched_dep_time=clock)).tolist() == [pd.Timestamp(utc)]


def test_a_departure_happens_when_the_aircraft_left() -> None:
    late = data.departures(_flights(sched_dep_time=2350, dep_delay=70.0)).iloc[0]
    assert late["departed"] == pd.Timestamp("2013-01-02T06:00:00Z")
    assert late["delay"] == 70


def test_a_flight_that_never_left_is_scheduled_only() -> None:
    cancelled = _flights(dep_delay=None, tailnum=None)
    assert data.departures(cancelled).empty
    scheduled = data.schedule(cancelled).iloc[0]
    assert scheduled["tailnum"] is None
    assert scheduled["flight_id"] == "UA1545-EWR-2013-01-01"


def test_the_conversion_agrees_with_the_source_s_own(tables: dict[str, pd.DataFrame]) -> None:
    flights = pd.read_csv(data.find_folder() / "flights.csv.zip")
    theirs = pd.to_datetime(flights["time_hour"], utc=True) + pd.to_timedelta(flights["minute"], unit="m")
    assert (data.due(flights) == theirs).all()
    assert len(tables["schedule"]) == 27_004


def test_flight_ids_are_unique_over_the_year() -> None:
    assert data.load(months=12)["schedule"]["flight_id"].is_unique


def test_no_aircraft_leaves_twice_at_once(tables: dict[str, pd.DataFrame]) -> None:
    assert not tables["departures"].duplicated(["tailnum", "departed"]).any()


def test_unknown_values_are_null_in_json(tables: dict[str, pd.DataFrame]) -> None:
    for table in tables.values():
        rows = table.astype(object).to_dict("records")
        json.dumps(rows, default=str, allow_nan=False)
    assert tables["planes"]["built"].isna().sum() == 70


@pytest.mark.parametrize("size", [1, 7, 5000])
def test_slices_hold_each_event_once_and_in_order(tables: dict[str, pd.DataFrame], size: int) -> None:
    few = {endpoint: table.head(300) for endpoint, table in tables.items()}
    slices = list(data.in_event_order(few, size))
    for endpoint, table in few.items():
        parts = [piece[endpoint] for piece in slices if endpoint in piece]
        pd.testing.assert_frame_equal(pd.concat(parts), table)
    ends = [
        (
            min(rows[data.EVENT_TIME[endpoint]].min() for endpoint, rows in piece.items()),
            max(rows[data.EVENT_TIME[endpoint]].max() for endpoint, rows in piece.items()),
        )
        for piece in slices
    ]
    assert all(before[1] <= after[0] for before, after in pairwise(ends))


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"lacks flights.csv.zip, weather.csv, planes.csv, airports.csv"):
        data.find_folder(tmp_path)
