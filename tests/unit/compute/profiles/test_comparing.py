"""Drift: no alarm without a shift beyond the stated rate, and planted shifts are found."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caraway.compute.profiles.comparing import DriftReport, compared
from caraway.compute.profiles.distances import Distance
from caraway.compute.profiles.tables import DELAY, Profile, profiled
from caraway.errors import InvalidInputError
from caraway.graph.drift import Drift
from tests.effort import examples

US = 1_000_000
# Every difference that chance doesn't explain is an alarm, however small it is.
ANY = Drift(psi=0, ks=0, mean=0, missing=0, categories=0)


def rows(
    seed: int, count: int, *, mean: float = 0.0, city: float = 0.0, missing: float = 0.1, late_s: float = 0.0
) -> pa.Table:
    """Return rows of a numeric feature, one with heavy tails, one with ties, one of categories, and times."""
    chance = np.random.default_rng(seed)
    events = chance.integers(0, 3_600 * US, count)
    delay_us = ((chance.exponential(2.0, count) + late_s) * US).astype(np.int64)
    cities = chance.choice(["Bonn", "Bern", "Brno", "Bari", "Brest"], count, p=[0.5, 0.3, 0.15, 0.04, 0.01])
    cities = np.where(chance.random(count) < city, "Basel", cities)
    spend = pa.array(chance.normal(100 + 15 * mean, 15, count), mask=chance.random(count) < missing)
    return pa.table(
        {
            "spend": spend,
            "amount": chance.lognormal(0, 2, count),
            "visits": chance.poisson(0.7, count),
            "city": cities,
            "at": pa.array(events, pa.timestamp("us", "UTC")),
            "ingested": pa.array(events + delay_us, pa.timestamp("us", "UTC")),
        }
    )


def profile(table: pa.Table) -> Profile:
    return profiled(table.to_batches(1_000), delay=("at", "ingested"))


@pytest.fixture(scope="module")
def reference() -> Profile:
    return profile(rows(1_000_000, 20_000))


def alarms(report: DriftReport) -> dict[str, set[Distance]]:
    found: dict[str, set[Distance]] = {}
    for shift in report.shifts:
        if shift.drifted:
            found.setdefault(shift.column, set()).add(shift.distance)
    return found


@pytest.mark.parametrize("count", [30, 3_000])
def test_a_hundred_samples_without_a_shift_give_no_alarm(reference: Profile, count: int) -> None:
    # Also without thresholds the expected number of alarms is below 0.1.
    for seed in range(examples(100)):
        assert alarms(compared(reference, profile(rows(seed, count)), thresholds=ANY)) == {}, seed


Plant = Callable[[int], pa.Table]


@pytest.mark.parametrize(
    ("plant", "column", "distances"),
    [
        (lambda seed: rows(seed, 3_000, mean=0.8), "spend", {Distance.MEAN, Distance.KS, Distance.PSI}),
        (lambda seed: rows(seed, 3_000, city=0.1), "city", {Distance.NEW}),
        (lambda seed: rows(seed, 3_000, missing=0.2), "spend", {Distance.MISSING}),
        (lambda seed: rows(seed, 3_000, late_s=2.0), DELAY, {Distance.KS, Distance.PSI}),
    ],
    ids=["mean", "category", "missing", "delay"],
)
def test_planted_shifts_are_found_in_one_window(
    reference: Profile, plant: Plant, column: str, distances: set[Distance]
) -> None:
    for seed in range(examples(10)):
        found = alarms(compared(reference, profile(plant(seed))))
        assert found.keys() == {column}
        assert found[column] >= distances


def test_a_category_that_vanishes_is_found(reference: Profile) -> None:
    table = rows(3, 3_000)
    without = table.filter(pa.compute.not_equal(table["city"], "Brno"))
    assert alarms(compared(reference, profile(without))).keys() == {"city"}
    assert Distance.VANISHED in alarms(compared(reference, profile(without)))["city"]


def test_a_small_shift_is_no_alarm_though_chance_does_not_explain_it(reference: Profile) -> None:
    shifted = profile(rows(4, 20_000, mean=0.2))
    ks = next(s for s in compared(reference, shifted).shifts if (s.column, s.distance) == ("spend", Distance.KS))
    assert 0 < ks.at_least < ks.value < 0.1
    assert not compared(reference, shifted)
    assert alarms(compared(reference, shifted, thresholds={"spend": Drift(ks=0.05)})) == {"spend": {Distance.KS}}
    assert not compared(reference, profile(rows(4, 3_000, mean=2)), thresholds={"spend": Drift(**_NEVER)})


_NEVER = dict.fromkeys(("psi", "ks", "mean", "missing", "categories"), float("inf"))


def asked_again(seed: int) -> pa.Table:
    """Return 5,000 rows of twenty keys, whose values don't change."""
    chance = np.random.default_rng(seed)
    keys = chance.integers(0, 20, 5_000)
    return pa.table({"user": keys, "score": chance.normal(0, 1, 20)[keys], "note": keys % 3 == 0})


def test_rows_of_few_keys_give_no_alarm_if_the_keys_are_known() -> None:
    known, unknown = 0, 0
    for seed in range(20):
        tables = [asked_again(2 * seed), asked_again(2 * seed + 1)]
        known += bool(compared(*(profiled([table], keys=["user"]) for table in tables), thresholds=ANY))
        unknown += bool(compared(*(profiled([table]) for table in tables), thresholds=ANY))
    assert known == 0
    # As if each row were of a key of its own, the samples seem to differ in each case.
    assert unknown == 20


values = st.lists(st.one_of(st.none(), st.floats(-5, 5), st.just(float("inf")), st.just(float("nan"))), max_size=40)
texts = st.lists(st.one_of(st.none(), st.sampled_from("abc")), max_size=40)


def small(numbers: list[float | None], words: list[str | None]) -> Profile:
    made = profiled([pa.table({"n": pa.array(numbers, pa.float64())})])
    made.merge(profiled([pa.table({"w": pa.array(words, pa.string())})]))
    return made


@settings(max_examples=60)
@given(values, values, texts, texts)
def test_laws_of_distances(
    one: list[float | None], other: list[float | None], some: list[str | None], more: list[str | None]
) -> None:
    a, b = small(one, some), small(other, more)
    assert all(shift.at_least == 0 for shift in compared(a, a, thresholds=ANY).shifts)
    assert all(
        shift.value == pytest.approx(0, abs=1e-9)
        for shift in compared(a, a).shifts
        if shift.distance not in {Distance.NEW, Distance.VANISHED}
    )
    forth, back = compared(a, b, thresholds=ANY), compared(b, a, thresholds=ANY)
    for shift in forth.shifts:
        assert 0 <= shift.at_least <= shift.value or shift.distance is Distance.PSI
        assert shift.value < float("inf")
    symmetric = {Distance.KS, Distance.MISSING}
    assert {(s.column, s.distance): s.value for s in forth.shifts if s.distance in symmetric} == {
        (s.column, s.distance): pytest.approx(s.value) for s in back.shifts if s.distance in symmetric
    }


def test_columns_without_a_counterpart_are_named() -> None:
    one = profiled([pa.table({"a": [1], "b": [1], "c": [1]})])
    other = profiled([pa.table({"b": ["x"], "c": [1], "d": [1]})])
    assert compared(one, other).unmatched == ("a", "b", "d")
    with pytest.raises(InvalidInputError, match="between 0 and 1, not 2"):
        compared(one, other, false_alarms=2)


def test_a_report_is_shown_with_what_has_drifted_first(reference: Profile) -> None:
    report = compared(reference, profile(rows(5, 3_000, city=0.3)))
    assert report.drifted == ("city",)
    shown = report._repr_html_()
    assert shown.index("Basel") < shown.index("spend")
    frame = report.to_pandas()
    assert set(frame.columns) >= {"column", "distance", "value", "at_least", "threshold", "drifted", "note"}
    assert frame[frame.drifted].column.unique().tolist() == ["city"]
    assert repr(report) == "<drift: city>"
