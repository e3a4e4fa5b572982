"""The values of a tile against a plain list of occurrences, below and above the number that a tile keeps."""

from collections import Counter
from collections.abc import Hashable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.dataplane.index.aggregates.values import Values, ValuesSpec, packed_positions

Occurrence = tuple[int, Hashable, bytes]


def restored(value: Any) -> Hashable:
    found: Hashable = value
    return found


FULL = ValuesSpec(firsts=True, lasts=True, counted=True, number=float, restore=restored)
MOST = 4

occurrences = st.lists(
    st.tuples(st.integers(0, 20), st.none() | st.integers(-3, 3), st.binary(min_size=2, max_size=2)),
    unique_by=lambda o: (o[0], o[2]),
)


def values_of(items: list[Occurrence], most: int | None = None) -> Values:
    values = Values(FULL, most)
    values.add(items)
    return values


def packed(values: Values, most: int | None = None) -> Values:
    read = Values(FULL, most)
    read.merge_packed(values.pack())
    return read


def state(values: Values) -> object:
    sketch = values.sketch
    beyond = None if sketch is None else (sketch.registers, sketch.bins, sketch.nulls)
    return values.counts, values.firsts, values.lasts, beyond


@given(occurrences, occurrences)
def test_merged_values_are_those_of_all_occurrences(left: list[Occurrence], right: list[Occurrence]) -> None:
    right = [(time + 30, value, order) for time, value, order in right]
    for most in (None, MOST):
        merged = values_of(left, most)
        merged.merge(values_of(right, most))
        assert state(merged) == state(values_of(left + right, most))
        read = packed(values_of(left, most), most)
        read.merge_packed(values_of(right, most).pack())
        assert state(read) == state(merged)


@given(occurrences)
def test_results_of_few_values_are_exact(items: list[Occurrence]) -> None:
    values = packed(values_of(items))
    present = sorted(value for _, value, _ in items if isinstance(value, int))
    assert values.counts == Counter(value for _, value, _ in items)
    assert values.distinct(nulls=True) == len({value for _, value, _ in items})
    assert values.distinct(nulls=False) == len(set(present))
    for p in (0.0, 0.3, 0.5, 1.0):
        wanted = float(present[min(len(present) - 1, int(p * len(present)))]) if present else None
        assert values.quantile(p) == wanted
    in_order = sorted((time, order, value) for time, value, order in items)
    firsts = {value: (time, order) for time, order, value in reversed(in_order)}
    lasts = {value: (time, order) for time, order, value in in_order}
    data = values.pack()
    assert list(packed_positions(FULL, data, newest_first=False) or ()) == sorted(
        ((p, v) for v, p in firsts.items()), key=lambda i: i[0]
    )
    assert list(packed_positions(FULL, data, newest_first=True) or ()) == sorted(
        ((p, v) for v, p in lasts.items()), key=lambda i: i[0], reverse=True
    )


@given(occurrences, st.randoms(use_true_random=False))
def test_values_that_are_taken_away_were_never_there(items: list[Occurrence], rng: Any) -> None:
    gone = [item for item in items if rng.random() < 0.5]
    left = [item for item in items if item not in gone]
    for most in (None, MOST):
        values = values_of(items, most)
        stale = values.subtract(values_of(gone, most), len(left))
        assert stale == values.stale
        if stale:
            values.clear()
            values.add(left)
        elif values.sketch is not None:
            # Registers can't forget a value, so a sketch that isn't stale hasn't lost any.
            assert not gone
        assert values.counts == (Counter(value for _, value, _ in left) if values.sketch is None else {})
        if values.sketch is None:
            assert state(values) == state(values_of(left, None))


def test_a_sketch_replaces_too_many_values() -> None:
    values = values_of([(n, n % 1000, b"") for n in range(5000)], 256)
    assert values.counts == {}
    assert packed_positions(FULL, values.pack(), newest_first=False) is None
    assert packed_positions(FULL, values.pack(), newest_first=True) is None
    assert values.distinct(nulls=True) == pytest.approx(1000, rel=0.05)
    assert values.quantile(0.5) == pytest.approx(500, rel=0.01)
    assert values.weight > 4


def test_bins_forget_without_being_made_anew() -> None:
    spec = ValuesSpec(firsts=False, lasts=False, counted=False, number=float, restore=restored)
    items = [(n, n, b"") for n in range(1000)]
    values, gone = Values(spec, 256), Values(spec, 256)
    values.add(items)
    gone.add(items[:500])
    assert not values.subtract(gone, 500)
    assert values.quantile(0.0) == pytest.approx(500, rel=0.01)


def test_what_was_not_kept_can_not_be_read() -> None:
    spec = ValuesSpec(firsts=True, lasts=False, counted=False, number=None, restore=restored)
    values = Values(spec, 1)
    values.add([(n, n, b"") for n in range(3)])
    with pytest.raises(RuntimeError, match="the number of distinct values wasn't kept"):
        values.distinct(nulls=True)
    with pytest.raises(RuntimeError, match="quantiles weren't kept"):
        values.quantile(0.5)
