import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.compute.reference.tables import Event, Relation, identity, upserted

# Each change has a key, a time, a value and whether it is a delete; changes are in order of arrival.
CHANGES = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 6), st.integers(0, 2), st.booleans()), max_size=12)


def table(changes: list[tuple[str, int, int, bool]]) -> Relation:
    arrived = [Event({"k": k, "v": v}, t, delete) for k, t, v, delete in changes]
    return upserted(["k"], sorted(arrived, key=lambda event: event.time_us))


@given(CHANGES)
def test_a_key_holds_its_last_change(changes: list[tuple[str, int, int, bool]]) -> None:
    made = table(changes)
    for key in "abc":
        for at, found in zip(times := range(-1, 8), made.find_all([((key,), at) for at in times]), strict=True):
            arrived = [(t, position, v, d) for position, (k, t, v, d) in enumerate(changes) if k == key and t <= at]
            newest = max(arrived, default=None)
            expected = None if newest is None or newest[3] else newest[2]
            assert (None if found is None else found.row["v"]) == expected


@given(CHANGES)
def test_versions_of_a_key_are_disjoint_and_in_order(changes: list[tuple[str, int, int, bool]]) -> None:
    made = table(changes)
    assert [v.begin_us for v in made.versions] == sorted(v.begin_us for v in made.versions)
    for versions in made.by_key.values():
        for one, other in pairwise(versions):
            assert one.end_us is not None
            assert one.begin_us < one.end_us <= other.begin_us


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (-1, -2),
        ("", None),
        ([1], [1, 1]),
        ([[], [1]], [[1], []]),
        ({"a": 1}, {"a": None}),
        ({"a": 1}, {"b": 1}),
        (math.nan, None),
        (math.inf, -math.inf),
        (b"", None),
    ],
)
def test_different_values_have_different_identities(one: Any, other: Any) -> None:
    assert identity(one) != identity(other)


@pytest.mark.parametrize(
    "make",
    [
        lambda: float("nan"),
        lambda: [1.5, float("nan"), None],
        lambda: {"a": [1], "b": {"c": float("nan")}},
        lambda: "text",
        lambda: None,
    ],
)
def test_equal_values_have_one_identity(make: Any) -> None:
    assert identity(make()) == identity(make())
    assert hash(identity(make())) == hash(identity(make()))
