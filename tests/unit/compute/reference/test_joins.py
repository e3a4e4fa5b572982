from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.compute.reference.changes import SourceChange
from caraway.graph.operators import Input, Join, JoinKind, Latest, Operator
from tests.unit.compute.reference.building import S, engine_of, events, output, row, seconds, side, value_at, versions

Logged = list[dict[str, Any]]
# Each change has a key, a time, a value and whether it is a delete.
Changes = list[tuple[str, int, int, bool]]

KINDS = st.sampled_from(JoinKind)
CHANGES = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(0, 5), st.booleans()), max_size=8)
EVENTS = st.lists(st.builds(row, st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 9)), max_size=6)


def join(
    of: Operator,
    how: JoinKind = JoinKind.LEFT,
    low: int | None = None,
    high: int = 0,
    fields: tuple[str, ...] = ("z",),
) -> Join:
    return Join(
        left=of,
        right="Sides",
        how=how,
        left_on=("k",),
        right_on=("j",),
        within_low_us=None if low is None else low * S,
        within_high_us=high * S,
        fields=fields,
    )


def side_changes(changes: Changes) -> list[SourceChange]:
    return [SourceChange(time_us=t * S, row={"j": k, "z": v}, delete=delete) for k, t, v, delete in changes]


@pytest.mark.spec("datasets:10:join, keyless left")
def test_an_event_is_joined_with_what_holds_at_its_time() -> None:
    rights = [side("a", 1, 2), side("a", 2, 5)]
    lefts = [row("a", 0, 1), row("a", 0, 2), row("a", 0, 4.9), row("a", 0, 5), row("b", 0, 9)]
    expected = [(None, 1), (1, 2), (1, 4.9), (2, 5), (None, 9)]
    assert seconds(output(join(events), Events=lefts, Sides=rights), "z") == expected
    inner = output(join(events, JoinKind.INNER), Events=lefts, Sides=rights)
    assert seconds(inner, "z") == [found for found in expected if found[0] is not None]


@pytest.mark.spec("datasets:10:join, keyless left")
def test_a_right_row_that_was_deleted_by_then_is_no_match() -> None:
    engine = engine_of(join(events), Events=[row("a", 0, 4), row("a", 0, 5)], Sides=[side("a", 1, 2)])
    engine.apply_changes("Sides", side_changes([("a", 5, 0, True)]))
    assert seconds(engine.rows("Out"), "z") == [(1, 4), (None, 5)]


def test_the_bounds_of_within_are_inclusive() -> None:
    operator = join(events, JoinKind.INNER, low=3, high=1)
    lefts = [row("a", at, at) for at in (8, 9, 12, 13, 14)]
    assert seconds(output(operator, Events=lefts, Sides=[side("a", 1, 10)]), "x") == [(9, 9), (12, 12), (13, 13)]


def test_only_the_newest_candidate_is_considered() -> None:
    operator = join(events, JoinKind.INNER, low=5, high=2)
    assert output(operator, Events=[row("a", 0, 10)], Sides=[side("a", 1, 4)]) == []
    engine = engine_of(operator, Events=[row("a", 0, 10)], Sides=[side("a", 1, 9), side("a", 2, 12)])
    # The time is that of the left row, although the matching row came later.
    assert seconds(engine.rows("Out"), "z") == [(2, 10)]
    engine.apply_changes("Sides", side_changes([("a", 12, 0, True)]))
    assert engine.rows("Out") == []


def test_the_right_time_stamp_can_be_had() -> None:
    assert engine_of(join(Latest(of=events, keys=("k",)))).rows("Out") == []
    timed = Join(
        left=Input(dataset="Sides"),
        right="Versions",
        how=JoinKind.LEFT,
        left_on=("j",),
        right_on=("k",),
        within_low_us=None,
        within_high_us=0,
        fields=("x",),
    )
    assert output(timed, Sides=[side("a", 1, 3)], Versions=[row("a", 7, 2)]) == [{"j": "a", "z": 1, "x": 7, "t": 3 * S}]


def test_right_rows_that_arrive_later_correct_the_result() -> None:
    engine = engine_of(join(events), Events=[row("a", 0, 5)])
    assert seconds(engine.rows("Out"), "z") == [(None, 5)]
    engine.append("Sides", [side("a", 1, 4)])
    assert seconds(engine.rows("Out"), "z") == [(1, 5)]
    engine.append("Sides", [side("a", 2, 3), side("a", 3, 6)])
    assert seconds(engine.rows("Out"), "z") == [(1, 5)]


@given(EVENTS, CHANGES, st.none() | st.integers(0, 4), st.integers(0, 3), KINDS)
def test_as_of_join_against_its_definition(
    lefts: Logged, rights: Changes, low: int | None, high: int, how: JoinKind
) -> None:
    engine = engine_of(join(events, how, low, high), Events=lefts)
    engine.apply_changes("Sides", side_changes(rights))
    expected = []
    for left in sorted(lefts, key=lambda r: r["t"]):
        at = left["t"] // S
        candidates = [
            (t, position, v, d) for position, (k, t, v, d) in enumerate(rights) if k == left["k"] and t <= at + high
        ]
        newest = max(candidates, default=None)
        matched = newest is not None and not newest[3] and (low is None or newest[0] >= at - low)
        if matched or how is JoinKind.LEFT:
            expected.append({**left, "z": newest[2] if matched and newest is not None else None})
    assert engine.rows("Out") == expected


@pytest.mark.spec("datasets:10:join, keyed left")
def test_a_join_of_tables_changes_with_either_side() -> None:
    engine = engine_of(join(versions), Versions=[row("a", 1, 2), row("a", 2, 6)], Sides=[side("a", 10, 4)])
    engine.apply_changes("Sides", side_changes([("a", 8, 0, True)]))
    engine.apply_changes("Versions", [SourceChange(time_us=9 * S, row={"k": "a"}, delete=True)])
    assert seconds(engine.rows("Out"), "x", "z") == [(1, None, 2), (1, 10, 4), (2, 10, 6), (2, None, 8)]
    assert [value_at(engine, ("a",), at, "x", "z") for at in (1, 2, 5, 7, 8, 9)] == [
        None,
        (1, None),
        (1, 10),
        (2, 10),
        (2, None),
        None,
    ]


@pytest.mark.spec("datasets:10:join, keyed left")
@given(CHANGES, CHANGES, KINDS)
def test_a_join_of_tables_is_the_join_at_every_time(lefts: Changes, rights: Changes, how: JoinKind) -> None:
    engine = engine_of(join(versions, how))
    engine.apply_changes(
        "Versions", [SourceChange(time_us=t * S, row=row(k, v, t), delete=delete) for k, t, v, delete in lefts]
    )
    engine.apply_changes("Sides", side_changes(rights))
    keys = [("a",), ("b",)]
    for at in range(-1, 11):
        (xs,), left_found = engine.lookup("Versions", keys, at * S, ["x"])
        (zs,), right_found = engine.lookup("Sides", keys, at * S, ["z"])
        values, found = engine.lookup("Out", keys, at * S, ["x", "z"])
        there = [left and (right or how is JoinKind.LEFT) for left, right in zip(left_found, right_found, strict=True)]
        assert found == there
        assert values == [
            [x if f else None for x, f in zip(xs, there, strict=True)],
            [z if f else None for z, f in zip(zs, there, strict=True)],
        ]
    starts = [r["t"] for r in engine.rows("Out") if r["k"] == "a"]
    assert len(starts) == len(set(starts))
