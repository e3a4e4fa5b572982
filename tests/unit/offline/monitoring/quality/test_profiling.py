"""Profiles of rows: whatever the batches, those of each hour are what plain Python finds."""

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.compute.profiles.columns import ColumnProfile
from caraway.compute.profiles.kinds import kind_of
from caraway.compute.profiles.tables import DELAY
from caraway.dtypes.instants import instant_us
from caraway.dtypes.types import BOOL, DATE, DATETIME, FLOAT, INT, STRING, DataType, DecimalType, ListType, optional
from caraway.graph.drift import Drift
from caraway.graph.expectations import NO_EXPECTATIONS
from caraway.graph.plan.model import CheckPlan, Column, RecordSchema, TopicKind, TopicPlan
from caraway.graph.specs import Metadata
from caraway.offline.monitoring.drift.datasets import profiled_kinds
from caraway.offline.monitoring.quality.deltas import Deltas
from caraway.offline.monitoring.quality.profiling import MOST_PROFILES, RowProfiles
from tests.parity.profiling import beyond_bounds, exact_parts, value_of
from tests.unit.graph.building import dataset

HOUR_US = 3_600_000_000
NOW_US = instant_us(datetime(2026, 5, 1, 12, 30, tzinfo=UTC))
TYPES: dict[str, DataType] = {
    "user": INT,
    "count": optional(INT),
    "price": optional(FLOAT),
    "fee": optional(DecimalType(2)),
    "name": optional(STRING),
    "good": optional(BOOL),
    "made": optional(DATETIME),
    "day": optional(DATE),
    "many": optional(ListType(INT)),
}
ROWS = st.fixed_dictionaries(
    {
        "user": st.integers(0, 3),
        "count": st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3),
        "price": st.none() | st.floats() | st.integers(-5, 5),
        "fee": st.none() | st.decimals(-1000, 1000, places=2).map(str),
        "name": st.none() | st.text(max_size=3) | st.sampled_from(["a", "b"]),
        "good": st.none() | st.booleans(),
        "made": st.none() | st.integers(-(10**15), 10**15),
        "day": st.none() | st.integers(-1000, 20_000),
        "many": st.none() | st.lists(st.integers(0, 9), max_size=2),
        "at": st.integers(-3 * HOUR_US, HOUR_US).map(lambda ago: NOW_US + ago),
    }
)
Row = dict[str, Any]


def plan(*keys: str) -> CheckPlan:
    spec = dataset("D", {**TYPES, "at": DATETIME}, keys=keys, metadata=Metadata(drift=Drift()))
    columns = tuple(Column(name=name, dtype=dtype) for name, dtype in TYPES.items())
    schema = RecordSchema(
        keys=tuple(c for c in columns if c.name in keys), columns=columns, timestamp="at", fingerprint=7
    )
    topic = TopicPlan(dataset="D", name="t", kind=TopicKind.VERSIONS, schema=schema, disorder_us=0)
    return CheckPlan(dataset=spec, suite=NO_EXPECTATIONS, topic=topic, schema=schema, repeats=False, erased_on="t")


def deltas(check: CheckPlan, rows: list[Row], delay_us: int = 0) -> Deltas:
    times = [row["at"] for row in rows]
    values: list[Sequence[Any]] = [[row[name] for name in TYPES] for row in rows]
    return Deltas(times, values, [at + delay_us for at in times], check.schema)


def by_hour(profiles: RowProfiles) -> dict[tuple[str, int], ColumnProfile]:
    return {(key.column, instant_us(key.hour)): profile for key, profile in profiles.found().items()}


@given(st.lists(st.lists(ROWS, max_size=10), max_size=3))
def test_batches_of_rows_have_the_profiles_of_all_rows(batches: list[list[Row]]) -> None:
    check, profiles = plan(), RowProfiles(plan(), math.inf)
    for batch in batches:
        profiles.add(deltas(check, batch, 2_500_000), NOW_US)
    rows = [row for batch in batches for row in batch if row["at"] <= NOW_US]
    found = by_hour(profiles)
    hours = {row["at"] // HOUR_US * HOUR_US for row in rows}
    assert found.keys() == {(name, hour) for name in (*TYPES, DELAY) for hour in hours}
    for (name, hour), profile in found.items():
        own = [row for row in rows if row["at"] // HOUR_US * HOUR_US == hour]
        assert profile.rows == len(own)
        if name == DELAY:
            assert (profile.least, profile.greatest, profile.mean) == (2.5, 2.5, 2.5)
            continue
        values = [row[name] for row in own]
        exact = exact_parts(kind_of(TYPES[name]), values)
        assert repr({what: value_of(profile, what) for what in exact}) == repr(exact), name
        assert beyond_bounds(kind_of(TYPES[name]), values, profile) == "", name


def test_a_row_less_is_seen() -> None:
    check, profiles = plan(), RowProfiles(plan(), math.inf)
    row = {**dict.fromkeys(TYPES), "user": 1, "price": 2.5, "at": NOW_US}
    profiles.add(deltas(check, [row, row]), NOW_US)
    (profile,) = (found for (name, _), found in by_hour(profiles).items() if name == "price")
    exact = exact_parts(kind_of(FLOAT), [2.5])
    assert {what: value_of(profile, what) for what in exact} != exact


def test_keys_have_no_profile_and_say_how_often_they_come_again() -> None:
    row = {**dict.fromkeys(TYPES), "at": NOW_US}
    for keys in (("user",), ("user", "name"), ("user", "day")):
        check = plan(*keys)
        profiles = RowProfiles(check, math.inf)
        rows = [{**row, "user": number % 10, "name": "a", "day": 3} for number in range(1_000)]
        # Hashes of equal keys are equal in each batch.
        profiles.add(deltas(check, rows[:500]), NOW_US)
        profiles.add(deltas(check, rows[500:]), NOW_US)
        found = by_hour(profiles)
        assert {name for name, _ in found} == {*TYPES, DELAY} - {*keys}
        worth = next(iter(found.values())).worth
        # The ten keys come a hundred times each, so a row says as much as a hundredth of one.
        assert worth == pytest.approx(0.01, rel=0.5)
    assert next(iter(by_hour(full := _filled(plan())).values())).worth == 1.0
    assert not full.is_full


def _filled(check: CheckPlan) -> RowProfiles:
    profiles = RowProfiles(check, math.inf)
    profiles.add(deltas(check, [{**dict.fromkeys(TYPES), "user": 1, "at": NOW_US}]), NOW_US)
    return profiles


def test_erase_keys_and_timestamps_have_no_profile() -> None:
    check = plan()
    hidden = [replace(item, erase_key=item.name == "name") for item in check.dataset.fields]
    check = replace(check, dataset=replace(check.dataset, fields=tuple(hidden)))
    assert profiled_kinds(check).keys() == {*TYPES, DELAY} - {"name"}


def test_hours_before_the_newest_row_are_forgotten_and_erased_rows_left_out() -> None:
    check, profiles = plan(), RowProfiles(plan(), 2 * 3600)
    rows = [{**dict.fromkeys(TYPES), "user": 1, "at": NOW_US - hours * HOUR_US} for hours in (5, 4, 0, 1, 3)]
    profiles.add(deltas(check, rows[:2]), NOW_US)
    assert len({hour for _, hour in by_hour(profiles)}) == 2
    profiles.add(deltas(check, rows[2:]), NOW_US, np.array([True, False, True]))
    hour = NOW_US // HOUR_US * HOUR_US
    assert {found for _, found in by_hour(profiles)} == {hour}
    # A late row of an hour that is kept still counts.
    profiles.add(deltas(check, rows[3:]), NOW_US)
    assert {found for _, found in by_hour(profiles)} == {hour, hour - HOUR_US}
    profiles.clear()
    assert profiles.found() == {}


def test_many_hours_are_recorded_before_they_take_much_memory() -> None:
    check, profiles = plan(), RowProfiles(plan(), math.inf)
    hours = MOST_PROFILES // len(profiled_kinds(check)) + 1
    rows = [{**dict.fromkeys(TYPES), "user": 1, "at": NOW_US - n * HOUR_US} for n in range(hours)]
    profiles.add(deltas(check, rows), NOW_US)
    assert profiles.is_full
    # Python has no datetime of such an instant.
    profiles.clear()
    profiles.add(deltas(check, [{**dict.fromkeys(TYPES), "user": 1, "at": -(2**62)}]), NOW_US)
    assert profiles.found() == {}
