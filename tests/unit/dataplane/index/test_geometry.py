"""The shape of the tile pyramid."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from caraway.dataplane.index.storage.geometry import DEFAULT_GEOMETRY, Geometry

times = st.integers(-(2**63), 2**63 - 1)
shapes = st.builds(Geometry, base_bits=st.integers(1, 30), fan_bits=st.integers(1, 8))


@given(shapes, times, times)
def test_the_root_is_the_lowest_tile_that_holds_both(shape: Geometry, one: int, other: int) -> None:
    low, high = sorted((one, other))
    level = shape.level_of(low, high)
    assert shape.number(level, low) == shape.number(level, high)
    assert level == 0 or shape.number(level - 1, low) != shape.number(level - 1, high)
    first, last = shape.bounds(level, shape.number(level, low))
    assert first <= low <= high <= last


@given(shapes, times, st.integers(1, 8))
def test_a_tile_is_divided_into_its_children(shape: Geometry, time_us: int, level: int) -> None:
    number = shape.number(level, time_us)
    children = shape.children(level, number)
    assert shape.number(level - 1, time_us) in children
    bounds = [shape.bounds(level - 1, child) for child in children]
    assert (bounds[0][0], bounds[-1][1]) == shape.bounds(level, number)
    assert all(left[1] + 1 == right[0] for left, right in pairwise(bounds))


def test_the_highest_level_holds_all_of_time() -> None:
    assert DEFAULT_GEOMETRY.level_of(-(2**63), 2**63 - 1) == 18
    assert DEFAULT_GEOMETRY.bounds(18, 0) == (-(2**63), 2**63 - 1)
