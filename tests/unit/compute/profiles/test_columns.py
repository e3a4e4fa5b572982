"""Profiles of columns: exact parts equal those of all values at once, sketches keep their bounds, merging is a law."""

import math
import statistics
from collections import Counter
from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from caraway.compute.profiles.columns import ColumnProfile
from caraway.compute.profiles.kinds import Kind
from caraway.compute.profiles.sketches import Repetition
from caraway.compute.profiles.sums import add_floats
from caraway.compute.profiles.tables import DELAY, Profile, hashed, profiled
from caraway.errors import InvalidInputError
from caraway.process.exact_sums import Moments

numbers = st.lists(st.one_of(st.none(), st.floats(), st.integers(-5, 5).map(float)), max_size=30)
words = st.lists(st.one_of(st.none(), st.sampled_from("abc"), st.text(max_size=80)), max_size=30)


def of_numbers(values: list[float | None]) -> ColumnProfile:
    made = ColumnProfile(Kind.NUMBER)
    made.add(pa.array(values, pa.float64()))
    return made


def of_words(values: list[str | None]) -> ColumnProfile:
    made = ColumnProfile(Kind.CATEGORY)
    made.add(pa.array(values, pa.string()))
    return made


def merged(*profiles: ColumnProfile) -> ColumnProfile:
    made = ColumnProfile(profiles[0].kind)
    for profile in profiles:
        made.merge(profile)
    return made


def exact(profile: ColumnProfile) -> list[object]:
    """Return all of a profile that doesn't depend on the order of its parts: few values make sketches exact, too."""
    quantiles = profile.quantiles and [profile.quantile(share) for share in (0, 0.25, 0.5, 0.9, 1)]
    return [*profile.pack()[:4], quantiles, round(profile.distinct_values, 6), sorted(profile.top(100))]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=60))
@example([5e-324, 1.7976931348623157e308])
@example([0.0, -0.0, 0.1, 0.1, -0.3])
def test_sums_of_columns_have_the_bits_of_sums_of_single_values(values: list[float]) -> None:
    one_by_one, at_once = Moments(), Moments()
    one_by_one.add_floats(values)
    add_floats(at_once, np.array(values, np.float64))
    assert at_once.pack() == one_by_one.pack()


@given(numbers)
@example([math.inf, -math.inf, math.nan, None])
def test_a_profile_of_numbers_is_that_of_the_standard_library(values: list[float | None]) -> None:
    profile = of_numbers(values)
    finite = [value for value in values if value is not None and math.isfinite(value)]
    assert profile.rows == len(values)
    assert profile.nulls == values.count(None)
    assert profile.nans == sum(value is not None and math.isnan(value) for value in values)
    assert profile.infinities == sum(value is not None and math.isinf(value) for value in values)
    assert profile.least == min(finite, default=None)
    assert profile.greatest == max(finite, default=None)
    if finite:
        assert profile.stddev == statistics.pstdev(map(Fraction, finite))
        assert profile.quantile(0.5) == sorted(finite)[math.ceil(0.5 * len(finite)) - 1]
        assert round(profile.distinct_values) == len(set(finite))


@given(words)
def test_a_profile_of_few_words_counts_them(values: list[str | None]) -> None:
    known = Counter(value for value in values if value is not None)
    profile = of_words(values)
    assert sorted(count for _, count in profile.top(100)) == sorted(known.values())
    assert {text for text, _ in profile.top(100) if len(text) < 60} == {text for text in known if len(text) < 60}
    assert profile.nulls == values.count(None)


@pytest.mark.parametrize(("columns", "of"), [(numbers, of_numbers), (words, of_words)], ids=["numbers", "words"])
@given(data=st.data())
def test_merging_is_associative_commutative_and_the_whole(columns: Any, of: Any, data: st.DataObject) -> None:
    parts = data.draw(st.lists(columns, min_size=3, max_size=3))
    a, b, c = map(of, parts)
    whole = exact(of([value for part in parts for value in part]))
    assert exact(merged(merged(a, b), c)) == exact(merged(a, merged(b, c))) == exact(merged(c, b, a)) == whole


@given(numbers, words)
def test_bytes_hold_all_of_a_profile(some_numbers: list[float | None], some_words: list[str | None]) -> None:
    profile = Profile({"n": of_numbers(some_numbers), "w": of_words(some_words)})
    restored = Profile.from_bytes(profile.to_bytes())
    assert {name: exact(column) for name, column in restored.columns.items()} == {
        name: exact(column) for name, column in profile.columns.items()
    }


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.integers(1, 40))
def test_merged_quantiles_of_many_values_keep_the_bound_of_the_sketch(seed: int, parts: int) -> None:
    values = np.random.default_rng(seed).standard_normal(20_000)
    profiles = []
    for part in np.array_split(values, parts):
        profiles.append(ColumnProfile(Kind.NUMBER))
        profiles[-1].add(pa.array(part))
    for order in (profiles, profiles[::-1]):
        profile = merged(*order)
        assert profile.moments.pack() == merged(*profiles).moments.pack()
        ordered = np.sort(values)
        bound = profile.quantiles.normalized_rank_error(True)
        for place in range(0, len(ordered), 500):
            rank = profile.quantiles.get_rank(float(ordered[place]), inclusive=True)
            assert abs(rank - (place + 1) / len(ordered)) <= bound
        assert len(profile.quantiles.serialize()) < 10_000


def test_a_profile_of_many_values_keeps_the_bounds_of_distinct_and_frequent_values() -> None:
    values: list[str | None] = [f"word {number}" for number in range(30_000)]
    values += ["often"] * 5_000 + ["now and then"] * 500
    profile = merged(*(of_words(values[start::7]) for start in range(7)))
    assert abs(profile.distinct_values - 30_002) < 0.1 * 30_002
    counts = dict(profile.top(500))
    assert 0 <= 5_000 - counts["often"] <= 0.007 * len(values)
    assert len(Profile({"w": profile}).to_bytes()) < 20_000


def test_long_texts_are_told_apart_and_take_bounded_space() -> None:
    profile = of_words(["x" * 1_000_000 + "a", "x" * 1_000_000 + "b"])
    assert [count for _, count in profile.top()] == [1, 1]
    assert len(Profile({"w": profile}).to_bytes()) < 1_000


def test_great_ints_are_summed_up_exactly() -> None:
    values = [2**62 + 1, 2**62 + 3, -(2**60) - 1]
    profile = ColumnProfile(Kind.NUMBER)
    profile.add(pa.array(values, pa.int64()))
    profile.add(pa.array([0.5]))
    assert profile.moments.total * Fraction(2) ** profile.moments.exponent == sum(values) + Fraction(1, 2)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([True, None]), Kind.CATEGORY),
        (pa.array(["a", "a"]).dictionary_encode(), Kind.CATEGORY),
        (pa.array([1, 2], pa.int32()), Kind.NUMBER),
        (pa.array(["1.5", None]).cast(pa.decimal128(9, 2)), Kind.NUMBER),
        (pa.array([0, 10**6], pa.timestamp("us", "UTC")), Kind.TIME),
        (pa.array([1, 2], pa.date32()), Kind.TIME),
        (pa.array([[1.0], [1.0], [2.0]]), Kind.OTHER),
        (pa.array([{"a": 1}, None]), Kind.OTHER),
    ],
)
def test_each_type_has_a_kind_and_survives_its_bytes(values: pa.Array, kind: Kind) -> None:
    profile = profiled([pa.table({"c": values}), pa.table({"c": values})])
    column = Profile.from_bytes(profile.to_bytes()).columns["c"]
    assert column.kind is kind
    assert column.rows == 2 * len(values)
    assert column.nulls == 2 * values.null_count
    assert round(column.distinct_values) == len({repr(value) for value in values.drop_null().to_pylist()})


def test_times_have_a_first_and_a_last_one() -> None:
    column = profiled([pa.table({"t": pa.array([5, 3], pa.timestamp("s"))})]).columns["t"]
    assert (column.least, column.greatest) == (3_000_000, 5_000_000)


def test_a_column_of_nulls_suits_every_kind() -> None:
    profile = of_numbers([1.0])
    profile.add(pa.nulls(3))
    assert (profile.rows, profile.nulls) == (4, 3)


def test_the_delay_is_a_column_of_seconds() -> None:
    rows = pa.table(
        {
            "at": pa.array([0, 1_500_000, None], pa.timestamp("us", "UTC")),
            "ingested": pa.array([2_000_000, 2_000_000, 0], pa.timestamp("us", "UTC")),
        }
    )
    column = profiled([rows], delay=("at", "ingested")).columns[DELAY]
    assert (column.least, column.greatest, column.nulls) == (0.5, 2.0, 1)


@given(st.lists(st.integers(0, 10), min_size=1, max_size=300))
def test_repeated_keys_are_worth_fewer_rows(keys: list[int]) -> None:
    repetition = Repetition()
    repetition.add(hashed([str(key).encode() for key in keys]))
    assert 0 < repetition.worth(len(keys)) <= len(keys)


def test_the_worth_of_repeated_keys_is_their_number() -> None:
    same, different = Repetition(), Repetition()
    same.add(hashed([str(row % 50).encode() for row in range(5_000)]))
    different.add(hashed([str(row).encode() for row in range(5_000)]))
    assert same.worth(5_000) == pytest.approx(50, rel=0.6)
    assert different.worth(5_000) == pytest.approx(5_000, rel=0.3)


def test_other_kinds_and_damaged_bytes_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="number values can't take string"):
        of_numbers([]).add(pa.array(["a"]))
    with pytest.raises(InvalidInputError, match=r"column x: .*number.*category"):
        Profile({"x": of_numbers([1.0])}).merge(Profile({"x": of_words(["a"])}))
    with pytest.raises(InvalidInputError, match="no column 'z'; columns: x"):
        profiled([pa.table({"x": [1]})], keys=["z"])
    with pytest.raises(InvalidInputError, match="no profile"):
        Profile.from_bytes(b"\x00garbage")
    with pytest.raises(InvalidInputError, match="format 2"):
        Profile.from_bytes(b"\x92\x02\x80")


@settings(max_examples=300)
@given(st.data())
def test_damaged_bytes_are_refused_or_are_another_profile(data: st.DataObject) -> None:
    whole = bytearray(Profile({"n": of_numbers([1.0, 2.0, None]), "w": of_words(["a", "b", "b"])}).to_bytes())
    for place in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=3)):
        whole[place] = data.draw(st.integers(0, 255))
    # Any other error than this one fails the test, as a crash of the library would.
    with suppress(InvalidInputError):
        Profile.from_bytes(bytes(whole[: data.draw(st.integers(0, len(whole)))]))


def test_a_profile_is_shown_as_a_frame_and_in_a_notebook() -> None:
    profile = profiled([pa.Table.from_pandas(pd.DataFrame({"n": [1.0, 3.0], "w": ["<b>", "<b>"]}))])
    frame = profile.to_pandas()
    assert frame.loc["n", "mean"] == 2.0
    assert frame.loc["w", "top"] == "<b> 2"
    assert "&lt;b&gt; 2" in profile._repr_html_()
    assert repr(profile) == "<profile of 2 columns, 2 rows>"
