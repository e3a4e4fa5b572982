"""Tests of each aggregate over random rows against its definition, from first principles."""

import math
import statistics
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from caraway.compute.reference.aggregates.functions import Sample, compiled
from caraway.compute.reference.aggregates.numbers import rounded
from caraway.dtypes.types import DATE, DATETIME, FLOAT, INT, STRING, DataType, DecimalType, ListType, optional
from caraway.graph.aggregates import AggregateFunction
from tests.unit.compute.reference.building import S, dataset, spec_of

F = AggregateFunction

TYPES: dict[str, DataType] = {
    "i": INT,
    "oi": optional(INT),
    "f": FLOAT,
    "of": optional(FLOAT),
    "d": DecimalType(2),
    "od": optional(DecimalType(2)),
    "s": STRING,
    "os": optional(STRING),
    "l": ListType(INT),
    "day": optional(DATE),
    "at": optional(DATETIME),
}
SOURCE = dataset("Source", {**TYPES, "t": DATETIME})

DECIMALS = st.decimals(-1000, 1000, places=2).map(lambda number: f"{number:.2f}")
NUMBERS: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-(2**40), 2**40),
    "oi": st.none() | st.integers(-5, 5),
    "f": st.floats(allow_nan=False, allow_infinity=False),
    "of": st.none() | st.floats(-1e6, 1e6),
    "d": DECIMALS,
    "od": st.none() | DECIMALS,
}
VALUES = {
    **NUMBERS,
    "s": st.sampled_from(["", "a", "b"]),
    "os": st.sampled_from([None, "", "a"]),
    "l": st.lists(st.integers(0, 1), max_size=2),
}


def computed(function: AggregateFunction, of: str, values: list[Any], at_us: int = 0, **parameters: Any) -> Any:
    """Compute an aggregate of values, a microsecond apart."""
    spec = spec_of(function, of, source=SOURCE, **parameters)
    samples = [Sample(position, value) for position, value in enumerate(values)]
    return compiled(spec, TYPES[of])(samples, at_us)


def column_and_values(columns: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[tuple[str, list[Any]]]:
    return st.sampled_from(sorted(columns)).flatmap(
        lambda name: st.tuples(st.just(name), st.lists(columns[name], max_size=10))
    )


def fractions(values: list[Any]) -> list[Fraction]:
    return [Fraction(value) for value in values if value is not None]


def nearest(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


@pytest.mark.spec("datasets:9:1")
@given(st.lists(VALUES["os"], max_size=8))
def test_count(values: list[str | None]) -> None:
    unique = {"approx": True, "unique": True}
    assert computed(F.COUNT, "os", values) == len(values)
    assert computed(F.COUNT, "os", values, dropnull=True) == len([v for v in values if v is not None])
    assert computed(F.COUNT, "os", values, **unique) == len(set(values))
    assert computed(F.COUNT, "os", values, dropnull=True, **unique) == len(set(values) - {None})
    assert compiled(spec_of(F.COUNT), None)([Sample(0, None)] * len(values), 0) == len(values)


@pytest.mark.spec("datasets:9:Sum(of)")
@given(column_and_values(NUMBERS))
def test_sum_is_the_true_sum(drawn: tuple[str, list[Any]]) -> None:
    of, values = drawn
    found, true = computed(F.SUM, of, values), sum(fractions(values), Fraction())
    if of in {"d", "od"}:
        assert found == f"{sum((Decimal(v) for v in values if v is not None), Decimal(0)) + Decimal('0.00')}"
    else:
        assert found == nearest(true)
        assert type(found) is (int if of in {"i", "oi"} else float)


@pytest.mark.spec("datasets:9:Average(of, default=0.0)")
@given(column_and_values(NUMBERS))
def test_average_is_rounded_once(drawn: tuple[str, list[Any]]) -> None:
    of, values = drawn
    numbers = fractions(values)
    expected = float(sum(numbers, Fraction()) / len(numbers)) if numbers else -7.0
    assert computed(F.AVERAGE, of, values, default=-7.0) == expected
    assert (computed(F.AVERAGE, of, values) is None) is (not numbers)


@pytest.mark.spec("datasets:9:Stddev(of, default=-1.0)")
@given(column_and_values(NUMBERS))
def test_stddev_is_that_of_the_population(drawn: tuple[str, list[Any]]) -> None:
    of, values = drawn
    numbers = fractions(values)
    found = computed(F.STDDEV, of, values, default=-1.0)
    if not numbers:
        assert found == -1.0
    elif len(set(numbers)) == 1:
        assert found == 0.0
    else:
        variance = statistics.pvariance(numbers)
        assert found >= 0
        assert abs(Fraction(found) ** 2 - variance) <= variance / 10**12 or variance < Fraction(1, 10**300)


@given(column_and_values(NUMBERS))
def test_variance_is_that_of_the_population_rounded_once(drawn: tuple[str, list[Any]]) -> None:
    of, values = drawn
    numbers = fractions(values)
    assert computed(F.VARIANCE, of, values, default=-1.0) == (rounded(statistics.pvariance(numbers)) if numbers else -1)


@pytest.mark.spec("datasets:9:4")
@given(column_and_values(NUMBERS))
def test_min_and_max(drawn: tuple[str, list[Any]]) -> None:
    of, values = drawn
    numbers = fractions(values)
    for function, pick in ((F.MIN, min), (F.MAX, max)):
        found = computed(function, of, values)
        assert (None if found is None else Fraction(found)) == (pick(numbers) if numbers else None)


@pytest.mark.spec("datasets:9:4")
def test_a_true_extreme_of_zero_is_no_default_and_leading_nulls_are_skipped() -> None:
    assert computed(F.MIN, "oi", [None, 0, 3], default=9) == 0
    assert computed(F.MAX, "oi", [0, -3], default=9) == 0
    assert computed(F.MAX, "oi", [None, None], default=9) == 9
    assert computed(F.MIN, "day", [19_000, None, 18_000]) == 18_000
    assert computed(F.MAX, "at", [None, 5, 7]) == 7
    # Decimals must be compared as numbers, not as text.
    assert computed(F.MAX, "d", ["9.00", "10.00", "-11.00"]) == "10.00"


@pytest.mark.spec("datasets:9:6")
@given(column_and_values(NUMBERS), st.floats(0, 1))
@example(("i", [4, 6]), 1.0)
@example(("f", [-0.0]), 0.5)
def test_quantile_is_an_element(drawn: tuple[str, list[Any]], p: float) -> None:
    of, values = drawn
    numbers = sorted(fractions(values))
    found = computed(F.QUANTILE, of, values, p=p, approx=True)
    expected = float(numbers[min(len(numbers) - 1, math.floor(p * len(numbers)))]) if numbers else None
    # A zero without a sign isn't told from the other one by ==.
    assert repr(found) == repr(expected)


@pytest.mark.spec("datasets:9:7")
@given(column_and_values({name: VALUES[name] for name in ("i", "oi", "s", "os", "od", "l")}))
def test_distinct_has_each_value_once_where_it_came_first(drawn: tuple[str, list[Any]]) -> None:
    of, values = drawn
    expected = [v for position, v in enumerate(values) if v not in values[:position]]
    assert computed(F.DISTINCT, of, values) == expected
    if of.startswith("o"):
        assert computed(F.DISTINCT, of, values, dropnull=True) == [v for v in expected if v is not None]


@pytest.mark.spec("datasets:9:8", "datasets:9:9")
@given(column_and_values(VALUES), st.integers(1, 5), st.booleans(), st.booleans())
def test_last_and_first_k(drawn: tuple[str, list[Any]], limit: int, dedup: bool, dropnull: bool) -> None:
    of, values = drawn
    dropnull = dropnull and of.startswith("o")
    kept = [v for v in values if v is not None or not dropnull]
    for function, oldest_first in ((F.LAST_K, kept[::-1]), (F.FIRST_K, kept)):
        items = oldest_first
        if dedup:
            items = [v for position, v in enumerate(items) if v not in items[:position]]
        assert computed(function, of, values, limit=limit, dedup=dedup, dropnull=dropnull) == items[:limit]


@pytest.mark.spec("datasets:9:10")
@given(column_and_values({name: NUMBERS[name] for name in ("oi", "of", "od")}), st.integers(1, 100))
def test_exp_decay_sum(drawn: tuple[str, list[Any]], half_life: int) -> None:
    of, values = drawn
    spec = spec_of(F.EXP_DECAY_SUM, of, source=SOURCE, half_life_us=half_life * S)
    times = [position * 7 * S + 999_999 for position in range(len(values))]
    at_us = 100 * S
    samples = [Sample(t, v) for t, v in zip(times, values, strict=True)]
    terms = [
        float(Fraction(v)) * 0.5 ** ((at_us - t // S * S) / S / half_life)
        for t, v in zip(times, values, strict=True)
        if v is not None
    ]
    expected = math.fsum(terms)
    found = compiled(spec, TYPES[of])(samples, at_us)
    assert isinstance(found, float)
    assert math.isclose(found, expected if abs(expected) >= math.exp(-25) else 0.0, rel_tol=1e-9, abs_tol=1e-11)


@pytest.mark.spec("datasets:9:10")
def test_a_decayed_sum_halves_and_ends_in_nothing() -> None:
    spec = spec_of(F.EXP_DECAY_SUM, "f", source=SOURCE, half_life_us=10 * S)
    decayed = compiled(spec, FLOAT)
    assert [decayed([Sample(0, 8.0), Sample(0, -4.0)], at * S) for at in (0, 10, 20)] == [4.0, 2.0, 1.0]
    assert decayed([Sample(0, 1.0)], 360 * S) == 2.0**-36
    assert decayed([Sample(0, 1.0)], 370 * S) == 0.0
    assert decayed([], 0) == 0.0


def test_an_infinite_value_stays_infinite_when_its_weight_is_too_small_for_a_float() -> None:
    decayed = compiled(spec_of(F.EXP_DECAY_SUM, "f", source=SOURCE, half_life_us=10 * S), FLOAT)
    later = 20_000 * S
    assert 2.0 ** (-later / (10 * S)) == 0.0
    assert decayed([Sample(0, -math.inf), Sample(0, 5.0)], later) == -math.inf
    assert repr(decayed([Sample(0, -math.inf), Sample(later, math.inf)], later)) == "nan"


SPECIAL = st.sampled_from([math.inf, -math.inf, math.nan, 1.5, -0.0, 0.0])


@given(st.lists(SPECIAL, min_size=1, max_size=5))
def test_infinities_and_nan_add_up_as_they_do(values: list[float]) -> None:
    found, expected = computed(F.SUM, "f", values), sum(values) + 0.0
    assert found == expected or (math.isnan(found) and math.isnan(expected))
    biggest = computed(F.MAX, "f", values)
    if any(math.isnan(v) for v in values):
        assert math.isnan(biggest)
    else:
        assert biggest == max(values)
    assert math.copysign(1.0, computed(F.MIN, "f", [0.0, -0.0])) == 1.0
    if not all(map(math.isfinite, values)):
        assert math.isnan(computed(F.STDDEV, "f", values))
        assert math.isnan(computed(F.VARIANCE, "f", values))


def test_a_sum_of_ints_beyond_64_bits_names_its_column() -> None:
    assert computed(F.SUM, "i", [2**63 - 1, 5, -5]) == 2**63 - 1
    with pytest.warns(RuntimeWarning, match=r"out: a sum of 9223372036854775808 doesn't fit 64 bits"):
        assert computed(F.SUM, "i", [2**63 - 1, 1]) is None
    with pytest.warns(RuntimeWarning, match=r"28 digits of Decimal\[2\]"):
        assert computed(F.SUM, "d", ["99999999999999999999999999.99", "0.01"]) is None
    assert computed(F.SUM, "f", [1.7e308, 1.7e308]) == math.inf


EMPTY: list[tuple[str, AggregateFunction, str, dict[str, Any], object]] = [
    ("1", F.COUNT, "i", {}, 0),
    ("2", F.SUM, "i", {}, 0),
    ("2", F.SUM, "f", {}, 0.0),
    ("2", F.SUM, "od", {}, "0.00"),
    ("3", F.AVERAGE, "i", {"default": 0.0}, 0.0),
    ("3", F.AVERAGE, "i", {}, None),
    ("4", F.MIN, "i", {}, None),
    ("4", F.MAX, "d", {"default": "1.50"}, "1.50"),
    ("5", F.STDDEV, "i", {"default": -1.0}, -1.0),
    ("5", F.STDDEV, "i", {}, None),
    ("5", F.VARIANCE, "i", {"default": -1.0}, -1.0),
    ("5", F.VARIANCE, "i", {}, None),
    ("6", F.QUANTILE, "i", {"p": 0.5}, None),
    ("6", F.QUANTILE, "i", {"p": 0.5, "default": 3.0}, 3.0),
    ("7", F.DISTINCT, "i", {}, []),
    ("8", F.LAST_K, "i", {"limit": 3}, []),
    ("9", F.FIRST_K, "i", {"limit": 3}, []),
    ("10", F.EXP_DECAY_SUM, "i", {"half_life_us": S}, 0.0),
]


@pytest.mark.parametrize(
    ("function", "of", "parameters", "expected"),
    [pytest.param(*case, marks=pytest.mark.spec(f"datasets:9:{line}")) for line, *case in EMPTY],
)
def test_the_value_of_nothing(function: AggregateFunction, of: str, parameters: Any, expected: object) -> None:
    found = computed(function, of, [], **parameters)
    assert found == expected
    assert type(found) is type(expected)
