from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from caraway.compute.reference.changes import SourceChange
from caraway.expr.nodes import BinaryOp
from caraway.graph.operators import Changelog, Dedup, Filter, First, Latest, Union
from caraway.graph.windows import SessionWindow
from tests.unit.compute.reference.building import (
    S,
    compared,
    engine_of,
    events,
    hopping,
    output,
    row,
    seconds,
    value_at,
    versions,
)

Logged = list[dict[str, Any]]

KEYS = st.sampled_from("ab")
DISTINCT_TIMES = st.lists(
    st.builds(row, KEYS, st.integers(0, 3), st.integers(0, 30), st.sampled_from([None, 1.5])),
    max_size=8,
    unique_by=lambda r: r["t"],
)


@pytest.mark.spec("datasets:10:union")
def test_union_keeps_duplicates_and_the_left_rows_come_first() -> None:
    fives = Filter(of=events, predicate=compared("x", BinaryOp.GE, 5))
    rows = [row("a", 1, 2), row("a", 5, 2), row("a", 6, 1)]
    assert seconds(output(Union(left=events, right=events), Events=rows), "x") == [
        (6, 1),
        (6, 1),
        (1, 2),
        (5, 2),
        (1, 2),
        (5, 2),
    ]
    assert seconds(output(Union(left=fives, right=events), Events=rows), "x") == [
        (6, 1),
        (6, 1),
        (5, 2),
        (1, 2),
        (5, 2),
    ]


@pytest.mark.spec("datasets:7.9:None", "datasets:10:dedup")
def test_dedup_without_a_window_is_of_one_instant() -> None:
    dedup = Dedup(of=events, by=("k", "y"))
    rows = [row("a", 1, 2), row("a", 2, 2), row("b", 3, 2), row("a", 4, 2.000001), row("a", 5, 2, 1.5)]
    # Nulls are equal values, so the first two rows are equal in `by`. The last row of a group stays.
    assert seconds(output(dedup, Events=rows), "x") == [(2, 2), (3, 2), (5, 2), (4, 2.000001)]


@pytest.mark.spec("datasets:7.9:Tumbling(d)", "datasets:10:dedup")
def test_dedup_in_tumbling_buckets() -> None:
    dedup = Dedup(of=events, by=("k",), window=hopping(10, 10))
    rows = [row("a", 1, 0, 1.5), row("a", 2, 9.999999), row("a", 3, 10), row("b", 4, 5), row("a", 5, -0.000001)]
    # The last row stays as a whole; its null isn't filled from the one before.
    assert seconds(output(dedup, Events=rows), "x", "y") == [
        (5, None, -0.000001),
        (4, None, 5),
        (2, None, 9.999999),
        (3, None, 10),
    ]


@pytest.mark.spec("datasets:7.9:Session(gap)", "datasets:10:dedup")
@given(
    DISTINCT_TIMES,
    st.integers(1, 5),
    st.lists(st.sampled_from([0, 0, 1, -1, 499_999, 500_001]), min_size=8, max_size=8),
)
def test_a_late_row_can_join_sessions(rows: Logged, gap: int, beside_us: list[int]) -> None:
    dedup = Dedup(of=events, by=("k",), window=SessionWindow(gap_us=gap * S))
    rows = [r | {"t": r["t"] + us} for r, us in zip(rows, beside_us, strict=False)]
    expected = []
    for key in "ab":
        own = sorted((r for r in rows if r["k"] == key), key=lambda r: r["t"])
        for one, other in pairwise([*own, None] if own else []):
            if one is not None and (other is None or other["t"] - one["t"] >= gap * S):
                expected.append(one)
    assert output(dedup, Events=rows) == sorted(expected, key=lambda r: r["t"])


@given(st.integers(-10 * S, 10 * S), st.integers(1, 400), st.integers(1, 2 * S))
@example(begin_us=S // 2, gap=300, less_us=S // 2 - 1)
@example(begin_us=S - 1, gap=1, less_us=S - 1)
def test_dedup_in_sessions_keeps_both_rows_only_if_no_less_than_the_gap_is_between(
    begin_us: int, gap: int, less_us: int
) -> None:
    dedup = Dedup(of=events, by=("k",), window=SessionWindow(gap_us=gap * S))
    one = row("a", 1, 0) | {"t": begin_us}

    def kept_after(distance_us: int) -> list[int]:
        other = row("a", 2, 0) | {"t": begin_us + distance_us}
        return [r["x"] for r in output(dedup, Events=[one, other])]

    assert kept_after(max(0, gap * S - less_us)) == [2]
    assert kept_after(gap * S) == kept_after(gap * S + less_us) == [1, 2]


@given(DISTINCT_TIMES, st.sampled_from([None, hopping(5, 5), SessionWindow(gap_us=3 * S)]))
def test_what_has_no_duplicates_is_left_alone(rows: Logged, window: Any) -> None:
    once = Dedup(of=events, by=("k", "x"), window=window)
    assert output(Dedup(of=once, by=("k", "x"), window=window), Events=rows) == output(once, Events=rows)


@pytest.mark.spec("datasets:10:first")
def test_first_is_the_oldest_row_as_a_whole() -> None:
    engine = engine_of(First(of=events, keys=("k",)), Events=[row("a", 1, 5), row("a", 2, 5, 1.5), row("a", 3, 9)])
    assert seconds(engine.rows("Out"), "x", "y") == [(1, None, 5)]
    assert [value_at(engine, ("a",), at, "x") for at in (4, 5, 100)] == [None, (1,), (1,)]
    engine.append("Events", [row("a", 4, 3)])
    assert [value_at(engine, ("a",), at, "x") for at in (3, 5)] == [(4,), (4,)]


@pytest.mark.spec("datasets:10:latest")
def test_latest_has_a_version_for_each_row() -> None:
    rows = [row("a", 1, 5), row("a", 2, 9), row("a", 3, 7), row("a", 4, 7), row("b", 5, 6)]
    engine = engine_of(Latest(of=events, keys=("k",)), Events=rows)
    assert seconds(engine.rows("Out"), "k", "x") == [("a", 1, 5), ("b", 5, 6), ("a", 4, 7), ("a", 2, 9)]
    assert [value_at(engine, ("a",), at, "x", "t") for at in (4, 6, 7, 9, 20)] == [
        None,
        (1, 5 * S),
        (4, 7 * S),
        (2, 9 * S),
        (2, 9 * S),
    ]


def test_null_is_a_group_of_its_own() -> None:
    engine = engine_of(Latest(of=events, keys=("y",)), Events=[row("a", 1, 5), row("a", 2, 6, 1.5)])
    assert value_at(engine, (None,), 9, "x") == (1,)
    assert value_at(engine, (1.5,), 9, "x") == (2,)


@pytest.mark.spec("datasets:10:changelog")
@pytest.mark.parametrize("marks_inserts", [True, False])
def test_a_changelog_has_both_records_of_an_update_at_the_new_versions_time(marks_inserts: bool) -> None:
    log = Changelog(of=versions, column="mark", marks_inserts=marks_inserts)
    engine = engine_of(log, Versions=[row("a", 1, 5), row("a", 2, 9)])
    engine.apply_changes("Versions", [SourceChange(time_us=12 * S, row={"k": "a"}, delete=True)])
    inserted, deleted = marks_inserts, not marks_inserts
    assert seconds(engine.rows("Out"), "k", "x", "mark") == [
        ("a", 1, inserted, 5),
        ("a", 2, inserted, 9),
        ("a", 1, deleted, 9),
        ("a", 2, deleted, 12),
    ]


@given(st.lists(st.tuples(KEYS, st.integers(0, 9), st.integers(0, 5), st.booleans()), max_size=10))
def test_a_changelog_rebuilds_its_table(changes: list[tuple[str, int, int, bool]]) -> None:
    engine = engine_of(Changelog(of=versions, column="deleted", marks_inserts=False))
    engine.apply_changes(
        "Versions", [SourceChange(time_us=t * S, row=row(k, x, t), delete=delete) for k, t, x, delete in changes]
    )
    log: Logged = engine.rows("Out")
    for at in range(-1, 11):
        live: set[tuple[str, int]] = set()
        for time in sorted({r["t"] for r in log}):
            if time <= at * S:
                here = [r for r in log if r["t"] == time]
                live -= {(r["k"], r["x"]) for r in here if r["deleted"]}
                live |= {(r["k"], r["x"]) for r in here if not r["deleted"]}
        (values,), found = engine.lookup("Versions", [("a",), ("b",)], at * S, ["x"])
        assert live == {(k, x) for k, x, there in zip("ab", values, found, strict=True) if there}
