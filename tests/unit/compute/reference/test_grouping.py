"""Tests of whole aggregations: windows, groups, max event time, retractions, several aggregates in one call."""

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.compute.reference.changes import SourceChange
from caraway.dtypes.types import DATETIME, INT, STRING
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.operators import Changelog, Emit, Input
from caraway.graph.windows import ContinuousWindow, HoppingWindow, SessionWindow
from tests.unit.compute.reference.building import (
    FOREVER,
    S,
    aggregate,
    dataset,
    engine_of,
    hopping,
    last,
    output,
    row,
    seconds,
    spec_of,
    value_at,
    versions,
)

F = AggregateFunction
Logged = list[dict[str, Any]]

PLACED = dataset("Placed", {"k": STRING, "x": INT, "at": DATETIME, "t": DATETIME})
PLACED_KEYED = dataset("PlacedKeyed", {"k": STRING, "x": INT, "at": DATETIME, "t": DATETIME}, keys=["k"])

QUARTERS = st.integers(0, 200).map(lambda n: n / 4)
EVENTS = st.lists(st.builds(row, st.sampled_from("ab"), st.integers(0, 5), QUARTERS), max_size=8)
VERSIONS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 40), st.integers(0, 5), st.booleans()), max_size=8)


def over(window: ContinuousWindow | HoppingWindow | None, *functions: AggregateFunction) -> list[AggregateSpec]:
    """Make aggregates of x over a window, each with the name of its function."""
    parameters: dict[AggregateFunction, dict[str, Any]] = {F.LAST_K: {"limit": 9}}
    return [spec_of(f, "x", window, into=f.value, **parameters.get(f, {})) for f in functions]


@pytest.mark.spec("datasets:8.1:Continuous(d)", "datasets:10:aggregate, continuous + eager")
def test_continuous_rows_come_and_go() -> None:
    engine = engine_of(aggregate(*over(last(10), F.COUNT, F.SUM)), Events=[row("a", 1, 2), row("a", 2, 5.5)])
    # The rows include those at which values leave the window, at future times.
    assert seconds(engine.rows("Out"), "count", "sum") == [(1, 1, 2), (2, 3, 5.5), (1, 2, 13), (0, 0, 16.5)]
    times = (1.999999, 2, 5.5, 12.999999, 13, 16.499999, 16.5, 99)
    found = [value_at(engine, ("a",), at, "count") for at in times]
    assert found == [None, (1,), (2,), (2,), (1,), (1,), (0,), (0,)]


NAMED = [F.COUNT, F.SUM, F.LAST_K]
WINDOWS = st.sampled_from(
    [FOREVER, last(3), last(10), hopping(10, 10), hopping(7, 3), hopping(None, 4), hopping(10, 5, 6)]
)


def naive_window(window: ContinuousWindow | HoppingWindow, times: list[int], at_us: int) -> tuple[int, int]:
    """Return the begin, included, and the end, excluded, of the times that a read includes, by the table in 8.1."""
    match window:
        case ContinuousWindow():
            length = window.length_us
            return (-(10**18) if length is None else at_us - length - S + 1), at_us + 1
        case HoppingWindow():
            closed = min(at_us, max(times) - window.lookback_us)
            offset = window.length_us or 0
            end = max(e for n in range(-99, 99) if (e := n * window.stride_us + offset) <= closed)
            return (-(10**18) if window.length_us is None else end - window.length_us), end


@pytest.mark.spec(
    "datasets:8.1:Tumbling(d)",
    "datasets:8.1:Hopping(d, s)",
    'datasets:8.1:Hopping("forever", s)',
    'datasets:8.1:Continuous("forever")',
    "datasets:10:aggregate, discrete",
)
@given(EVENTS, WINDOWS, st.integers(-8, 280).map(lambda n: n / 4))
def test_a_read_against_the_definition_of_its_window(rows: Logged, window: Any, at: float) -> None:
    engine = engine_of(aggregate(*over(window, *NAMED)), Events=rows)
    for key in "ab":
        found = value_at(engine, (key,), at, "count", "sum", "last_k")
        own = sorted((r for r in rows if r["k"] == key), key=lambda r: r["t"])
        begin, end = naive_window(window, [r["t"] for r in rows], round(at * S)) if rows else (0, 0)
        seen = [r["x"] for r in own if begin <= r["t"] < end]
        if found is not None:
            assert found == (len(seen), sum(seen), seen[::-1])
        else:
            # A key exists from its first result on.
            assert not [r for r in own if r["t"] < end]


@given(EVENTS, WINDOWS)
def test_the_stored_frame_says_what_reads_say(rows: Logged, window: Any) -> None:
    engine = engine_of(aggregate(*over(window, *NAMED)), Events=rows)
    stored: Logged = engine.rows("Out")
    assert [r["t"] for r in stored] == sorted(r["t"] for r in stored)
    for at in {0, *(r["t"] + d for r in stored for d in (-1, 0, 1))}:
        for key in "ab":
            columns = ["count", "sum", "last_k", "t"]
            values, found = engine.lookup("Out", [(key,)], at, columns)
            newest = [r for r in stored if r["k"] == key and r["t"] <= at]
            assert found == [bool(newest)]
            assert [v[0] for v in values] == ([newest[-1][c] for c in columns] if newest else [None] * 4)


@pytest.mark.spec("datasets:10:aggregate, continuous + eager")
@given(VERSIONS, st.sampled_from([FOREVER, last(5), last(12)]))
def test_a_keyed_input_takes_back_what_ends(changes: list[tuple[str, int, int, bool]], window: Any) -> None:
    engine = engine_of(aggregate(*over(window, *NAMED), of=versions, keys=["x"]))
    engine.apply_changes(
        "Versions", [SourceChange(time_us=t * S, row=row(k, x, t), delete=delete) for k, t, x, delete in changes]
    )
    for at in range(0, 60, 3):
        columns, found = engine.lookup("Versions", [("a",), ("b",)], at * S, ["x", "t"])
        live = sorted((t, k, x) for k, x, t, there in zip("ab", *columns, found, strict=True) if there)
        length = window.length_us
        for value in range(6):
            seen = [x for t, _, x in live if x == value and (length is None or at * S < t + length + S)]
            result = value_at(engine, (value,), at, "count", "sum", "last_k")
            assert result == (len(seen), sum(seen), seen) or (result is None and not seen)


def test_a_retraction_takes_back_its_own_row_and_an_older_value_comes_back() -> None:
    newest = spec_of(F.LAST_K, "x", FOREVER, into="l", limit=2)
    engine = engine_of(aggregate(newest, of=versions, keys=["y"]))
    # The values are equal, and yet the deleted row must go, not another one of the same value.
    engine.append("Versions", [row("p", 7, 1), row("q", 8, 2), row("r", 7, 3)])
    assert value_at(engine, (None,), 3, "l") == ([7, 8],)
    engine.apply_changes("Versions", [SourceChange(time_us=4 * S, row={"k": "r"}, delete=True)])
    assert value_at(engine, (None,), 4, "l") == ([8, 7],)
    engine.apply_changes("Versions", [SourceChange(time_us=5 * S, row={"k": "p"}, delete=True)])
    assert value_at(engine, (None,), 5, "l") == ([8],)


@pytest.mark.spec("datasets:10:aggregate, discrete")
@given(VERSIONS, st.integers(1, 7))
def test_an_unbounded_hop_is_the_table_just_before_its_end(
    changes: list[tuple[str, int, int, bool]], stride: int
) -> None:
    engine = engine_of(aggregate(*over(hopping(None, stride), *NAMED), of=versions, keys=["x"]))
    logged = [SourceChange(time_us=t * S, row=row(k, x, t), delete=delete) for k, t, x, delete in changes]
    engine.apply_changes("Versions", logged)
    # The changelog has the inserts and deletes that the aggregation sees.
    log = engine_of(Changelog(of=versions, column="deleted", marks_inserts=False))
    log.apply_changes("Versions", logged)
    seen_us = [r["t"] for r in cast("Logged", log.rows("Out"))]
    max_event_time = max(seen_us, default=0) // S
    for at in range(0, 50, 3):
        end = min(at, max_event_time) // stride * stride
        columns, found = engine.lookup("Versions", [("a",), ("b",)], end * S - 1, ["x", "t", "k"])
        live = sorted((t, k, x) for x, t, k, held in zip(*columns, found, strict=True) if held)
        for value in range(6):
            seen = [x for _, _, x in live if x == value]
            result = value_at(engine, (value,), at, "count", "sum", "last_k")
            assert result == (len(seen), sum(seen), seen) or (result is None and not seen)


def placed(k: str, x: int, at: float, t: float) -> dict[str, Any]:
    return {"k": k, "x": x, "at": round(at * S), "t": round(t * S)}


def test_along_takes_the_place_of_the_time_stamp() -> None:
    summed = aggregate(*over(hopping(10, 10), F.SUM, F.LAST_K), of=Input(dataset="Placed"), along="at")
    rows = [placed("a", 1, 9, 100), placed("a", 2, 5, 200), placed("a", 3, 12, 0)]
    engine = engine_of(summed, [PLACED], Placed=rows)
    assert seconds(engine.rows("Out"), "sum", "last_k") == [(3, [1, 2], 10)]
    continuous = aggregate(*over(FOREVER, F.SUM), of=Input(dataset="Placed"), along="at")
    assert seconds(output(continuous, [PLACED], Placed=rows), "sum") == [(2, 5), (3, 9), (6, 12)]


def test_along_of_a_keyed_input_is_taken_back_when_the_row_is_deleted() -> None:
    summed = aggregate(*over(FOREVER, F.SUM), of=Input(dataset="PlacedKeyed"), keys=["x"], along="at")
    engine = engine_of(summed, [PLACED_KEYED])
    engine.append("PlacedKeyed", [placed("a", 1, 3, 5), placed("a", 2, 50, 10), placed("a", 3, 1, 20)])
    assert seconds(engine.rows("Out"), "x", "sum") == [(3, 3, 1), (1, 1, 3), (1, 0, 10)]
    # The row's time is after its end, so it never counts.
    assert value_at(engine, (2,), 99, "sum") is None


@pytest.mark.spec('datasets:10:aggregate, emit="final"')
def test_final_results_are_a_table_that_steps_can_follow() -> None:
    counted = aggregate(*over(hopping(10, 10), F.COUNT), emit=Emit.FINAL)
    assert output(counted, Events=[row("a", 1, 3), row("a", 1, 12)]) == [{"k": "a", "count": 1, "t": 10 * S}]
    total = aggregate(
        AggregateSpec(function=F.SUM, into="all", of="count", window=hopping(None, 10), default=None, dtype=INT),
        of=counted,
        keys=["k"],
    )
    engine = engine_of(total, Events=[row("a", 1, 3), row("a", 1, 12), row("a", 1, 13), row("a", 1, 25)])
    # The first count ends at 20, where the second begins; no bucket after that has ended.
    assert seconds(engine.rows("Out"), "all") == [(1, 20)]
    engine.append("Events", [row("a", 1, 35)])
    assert seconds(engine.rows("Out"), "all") == [(1, 20), (2, 30)]


def test_each_aggregate_of_a_call_has_its_own_window() -> None:
    specs = [
        spec_of(F.COUNT, "x", last(2), into="short"),
        spec_of(F.LAST_K, "x", last(5), into="long", limit=3),
        spec_of(F.SUM, "x", FOREVER, into="all"),
    ]
    rows = output(aggregate(*specs), Events=[row("a", 1, 0), row("a", 2, 4)])
    assert seconds(rows, "short", "long", "all") == [
        (1, [1], 1, 0),
        (0, [1], 1, 3),
        (1, [2, 1], 3, 4),
        (1, [2], 3, 6),
        (0, [2], 3, 7),
        (0, [], 3, 10),
    ]


def test_a_column_without_a_value_yet_shows_that_of_nothing() -> None:
    specs = [spec_of(F.COUNT, "x", hopping(10, 10), into="day"), spec_of(F.MAX, "x", hopping(4, 2), into="hop")]
    rows = output(aggregate(*specs), Events=[row("a", 3, 1), row("z", 0, 30)])
    assert [r for r in seconds(rows, "k", "day", "hop") if r[0] == "a"] == [
        ("a", 0, 3, 2),
        ("a", 0, None, 6),
        ("a", 1, None, 10),
        ("a", 0, None, 20),
    ]


def test_when_all_has_gone_the_key_stays() -> None:
    specs = over(last(5), F.MIN, F.AVERAGE, F.STDDEV)
    engine = engine_of(aggregate(*specs), Events=[row("a", 0, 1)])
    assert value_at(engine, ("a",), 6.5, "min", "average", "stddev") == (0, 0.0, 0.0)
    assert value_at(engine, ("a",), 7, "min", "average", "stddev", "t") == (None, None, None, 7 * S)


def test_keys_of_equal_hashes_are_different_keys() -> None:
    source = dataset("Flags", {"flag": INT, "t": DATETIME})
    engine = engine_of(
        aggregate(spec_of(F.COUNT, into="n"), of=Input(dataset="Flags"), keys=["flag"]),
        [source],
        Flags=[{"flag": -1, "t": 0}, {"flag": -2, "t": 0}, {"flag": -1, "t": 0}],
    )
    assert value_at(engine, (-1,), 0, "n") == (2,)
    assert value_at(engine, (-2,), 0, "n") == (1,)


def windows_of(rows: Logged, *columns: str) -> list[tuple[Any, ...]]:
    """Return the begins and ends of windows in seconds, and some columns."""
    return [(*(bound / S for bound in r["window"]), *(r[name] for name in columns)) for r in rows]


@pytest.mark.spec("datasets:10:groupby(window).aggregate")
def test_each_bucket_is_a_key() -> None:
    counted = aggregate(spec_of(F.COUNT, None, None, into="n"), window=hopping(10, 10))
    engine = engine_of(counted, Events=[row("a", 1, 3), row("a", 2, 9), row("a", 3, 12), row("b", 4, 55)])
    # An empty bucket follows each run of buckets with rows.
    assert windows_of(engine.rows("Out"), "k", "n", "t") == [
        (0, 10, "a", 2, 10 * S),
        (10, 20, "a", 1, 20 * S),
        (20, 30, "a", 0, 30 * S),
    ]
    assert value_at(engine, ("a", [0, 10 * S]), 9.9, "n") is None
    assert value_at(engine, ("a", [0, 10 * S]), 10, "n", "window") == (2, [0, 10 * S])
    assert value_at(engine, ("a", [0, 10 * S]), 99, "n") == (2,)


def test_buckets_of_keys_wait_for_the_lookback() -> None:
    counted = aggregate(spec_of(F.COUNT, None, None, into="n"), window=hopping(10, 10, 5))
    engine = engine_of(counted, Events=[row("a", 1, 3), row("c", 1, 12), row("b", 1, 24)])
    assert windows_of(engine.rows("Out"), "n") == [(0, 10, 1)]
    engine.append("Events", [row("b", 1, 25)])
    # Among rows of one time the one with the greater key comes last, as on topics.
    assert windows_of(engine.rows("Out"), "k", "n") == [(0, 10, "a", 1), (10, 20, "a", 0), (10, 20, "c", 1)]


@pytest.mark.spec("datasets:8.1:Session(g)", "datasets:10:groupby(window).aggregate")
def test_sessions_are_keys_and_have_aggregates() -> None:
    specs = [spec_of(F.COUNT, None, None, into="n"), spec_of(F.LAST_K, "x", None, into="l", limit=9)]
    operator = aggregate(*specs, window=SessionWindow(gap_us=5 * S))
    engine = engine_of(operator, Events=[row("a", 1, 0), row("a", 2, 12.5), row("b", 3, 3)])
    assert windows_of(engine.rows("Out"), "k", "n", "l") == [
        (0, 0.000001, "a", 1, [1]),
        (3, 3.000001, "b", 1, [3]),
        (12, 12.000001, "a", 1, [2]),
    ]
    # The session is visible from its end on, before the gap has passed.
    assert value_at(engine, ("a", [0, 1]), 0.000001, "n") == (1,)
    assert value_at(engine, ("a", [0, 1]), 0, "n") is None
    # A late row merges two sessions, and the merged one replaces both.
    engine.append("Events", [row("a", 7, 5), row("a", 8, 9)])
    assert windows_of(engine.rows("Out"), "k", "n", "l") == [
        (3, 3.000001, "b", 1, [3]),
        (0, 12.000001, "a", 4, [2, 8, 7, 1]),
    ]
    assert value_at(engine, ("a", [0, 1]), 99, "n") is None


@given(EVENTS, st.integers(1, 12))
def test_sessions_against_their_definition(rows: Logged, gap: int) -> None:
    operator = aggregate(spec_of(F.LAST_K, "x", None, into="l", limit=9), window=SessionWindow(gap_us=gap * S))
    expected = []
    for key in "ab":
        runs: list[Logged] = []
        for r in sorted((r for r in rows if r["k"] == key), key=lambda r: r["t"]):
            if runs and r["t"] // S <= runs[-1][-1]["t"] // S + gap:
                runs[-1].append(r)
            else:
                runs.append([r])
        for run in runs:
            begin, end = run[0]["t"] // S * S, run[-1]["t"] // S * S + 1
            expected.append({"k": key, "window": [begin, end], "l": [r["x"] for r in run][::-1], "t": end})
    found = output(operator, Events=rows)
    assert sorted(found, key=lambda r: (r["k"], r["t"])) == expected


@given(EVENTS, st.integers(1, 6), st.integers(0, 6))
def test_buckets_of_keys_against_their_definition(rows: Logged, stride: int, more: int) -> None:
    window = hopping(stride + more, stride)
    operator = aggregate(spec_of(F.COUNT, None, None, into="n"), window=window)
    counts = {
        (key, end): len([r for r in rows if r["k"] == key and end - stride - more <= r["t"] / S < end])
        for key in "ab"
        for end in range(more % stride, 80, stride)
        if rows and end <= max(r["t"] for r in rows) / S
    }
    expected = sorted((key, end, n) for (key, end), n in counts.items() if n or counts.get((key, end - stride), 0))
    found = output(operator, Events=rows)
    assert sorted((r["k"], r["t"] / S, r["n"]) for r in found) == expected
    assert sorted((r["k"], r["t"] / S) for r in output(aggregate(window=window), Events=rows)) == [
        (key, end) for key, end, n in expected if n
    ]


def test_sessions_without_aggregates() -> None:
    rows = output(aggregate(window=SessionWindow(gap_us=5 * S)), Events=[row("a", 1, 12.75)])
    assert rows == [{"k": "a", "window": [12 * S, 12 * S + 1], "t": 12 * S + 1}]


@pytest.mark.spec("datasets:9:10")
def test_a_decayed_sum_is_a_function_of_the_time_of_the_read() -> None:
    decayed = spec_of(F.EXP_DECAY_SUM, "x", last(20), into="d", half_life_us=5 * S)
    engine = engine_of(aggregate(decayed), Events=[row("a", 8, 0), row("a", 4, 10)])
    assert [value_at(engine, ("a",), at, "d") for at in (20, 0, 5, 10, 15)] == [(1.5,), (8.0,), (4.0,), (6.0,), (3.0,)]
    assert value_at(engine, ("a",), 21, "d", "t") == (4 * 2.0 ** (-11 / 5), 21 * S)
    bucketed = spec_of(F.EXP_DECAY_SUM, "x", hopping(10, 10), into="d", half_life_us=5 * S)
    engine = engine_of(aggregate(bucketed), Events=[row("a", 8, 5), row("z", 0, 12)])
    assert [value_at(engine, ("a",), at, "d") for at in (9, 10, 15)] == [None, (4.0,), (2.0,)]


def test_a_sum_beyond_64_bits_reads_as_null() -> None:
    engine = engine_of(aggregate(*over(FOREVER, F.SUM, F.COUNT)), Events=[row("a", 2**62, 0), row("a", 2**62, 1)])
    assert value_at(engine, ("a",), 0, "sum") == (2**62,)
    with pytest.warns(RuntimeWarning, match="sum: a sum of 9223372036854775808 doesn't fit 64 bits"):
        assert value_at(engine, ("a",), 1, "sum", "count") == (None, 2)
