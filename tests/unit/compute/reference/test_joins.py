from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from caraway.compute.reference.changes import SourceChange
from caraway.graph.operators import Input, Join, JoinKind, Latest, Operator
from tests.unit.compute.reference.building import S, engine_of, events, output, row, side, versions

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


@pytest.mark.spec("datasets:10:join, keyless left")
@given(EVENTS, CHANGES, st.none() | st.integers(0, 4), st.integers(0, 3), KINDS)
@example([row("a", 0, at) for at in (4, 5, 9, 10)], [("a", 6, 1, False)], 3, 1, JoinKind.INNER)
@example([row("a", 0, 10)], [("a", 9, 1, False), ("a", 12, 0, True)], 5, 2, JoinKind.LEFT)
@example([row("a", 0, at) for at in (1, 2, 5)], [("a", 2, 1, False), ("a", 5, 0, True)], None, 0, JoinKind.LEFT)
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
@given(CHANGES, CHANGES, KINDS)
@example(
    [("a", 2, 1, False), ("a", 6, 2, False), ("a", 9, 0, True)], [("a", 4, 5, False), ("a", 8, 0, True)], JoinKind.LEFT
)
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
