"""Laws of the charts of pass rates, and of explanations that are cut to fit a page."""

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from caraway.apps.server.console.charts import (
    BOTTOM,
    HEIGHT,
    LEFT,
    LINE_HEIGHT,
    LINE_POINTS,
    LINE_WIDTH,
    MAX_POINTS,
    TOP,
    WIDTH,
    ceiling_of,
    chart_of,
    line_of,
    oldest_of,
    spread_of,
)
from caraway.apps.server.console.explanations import shortened
from caraway.compute.profiles.tables import profiled
from caraway.compute.why.showing import Line
from caraway.observations.figures import share
from tests.effort import examples

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
HOURS = st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 50), st.integers(0, 50)), unique_by=lambda one: one[0])


def series(hours: list[tuple[int, int, int]]) -> list[dict[str, Any]]:
    return [
        {"start": (BEGIN + timedelta(hours=hour)).isoformat(), "evaluated": rows, "failed": min(rows, failed)}
        for hour, rows, failed in sorted(hours)
    ]


@given(HOURS, st.floats(0, 1))
@settings(max_examples=examples(300))
def test_a_chart_has_all_rows_and_stays_within_its_axes(hours: list[tuple[int, int, int]], mostly: float) -> None:
    given_series = series(hours)
    chart = chart_of(given_series, mostly)
    rows = sum(one["evaluated"] for one in given_series)
    if chart is None:
        assert rows == 0
        return
    assert sum(point.evaluated for point in chart.points) == rows
    assert sum(point.failed for point in chart.points) == sum(one["failed"] for one in given_series)
    assert len(chart.points) <= MAX_POINTS
    assert [point.start for point in chart.points] == sorted(point.start for point in chart.points)
    places = [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", chart.line)]
    assert len(places) == len(chart.points)
    # The rates and the expected one are between the ends of the axis, and a rate that is lower isn't drawn higher.
    assert all(LEFT <= x <= WIDTH and TOP - 0.1 <= y <= HEIGHT - BOTTOM + 0.1 for x, y in places)
    assert TOP - 0.1 <= chart.threshold <= HEIGHT - BOTTOM + 0.1
    by_rate = sorted(zip((point.rate for point in chart.points), (y for _, y in places), strict=True))
    heights = [y for _, y in by_rate]
    assert heights == sorted(heights, reverse=True)
    assert len(chart.marks) == sum(point.rate < mostly for point in chart.points)


def test_the_line_of_a_chart_is_interrupted_where_there_are_no_rows() -> None:
    chart = chart_of(series([(0, 5, 0), (1, 5, 1), (9, 5, 0)]), 0.5)
    assert chart is not None
    assert re.sub(r"[\d. ]+", "", chart.line) == "MhLMh"


@given(st.lists(st.tuples(st.integers(0, 1_440), st.floats(0, 1e6)), unique_by=lambda one: one[0]))
@settings(max_examples=examples(200))
def test_a_line_stays_within_its_frame(minutes: list[tuple[int, float]]) -> None:
    past = [(1.7e9 + 60 * minute, value) for minute, value in sorted(minutes)]
    line = line_of(past)
    assert (line is None) == (len(past) < 2)
    if line is not None:
        places = [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", line.path)]
        assert len(places) <= LINE_POINTS
        assert all(0 <= x <= LINE_WIDTH and 0 <= y <= LINE_HEIGHT for x, y in places)
        # The greatest value is in the picture, at its height, and what is below the line is closed.
        assert min(y for _, y in places) == round((1 - line.greatest / line.ceiling) * LINE_HEIGHT, 1)
        assert line.area.count("M") == line.area.count("z") == line.path.count("M")
        if past[-1][0] - past[0][0] < 60 * LINE_POINTS:
            assert len(places) == len(past)
            assert line.path.count("L") == sum(b - a == 60 for (a, _), (b, _) in pairwise(past))


@given(st.floats(1e-9, 1e9))
def test_the_top_of_a_line_is_a_round_number(value: float) -> None:
    ceiling = ceiling_of(value)
    assert value <= ceiling < 2.6 * value
    assert f"{ceiling:.0e}"[0] in "125"


def test_the_oldest_of_several_counts_in_each_minute() -> None:
    assert oldest_of([[(60, 1.0), (120, 5.0)], [(120, 2.0), (180, 0.5)]]) == [(60, 1.0), (120, 5.0), (180, 0.5)]


def lines(depth: int = 3) -> st.SearchStrategy[Line]:
    return st.recursive(
        st.builds(Line, st.text(max_size=40)),
        lambda inner: st.builds(Line, st.text(max_size=40), st.lists(inner, max_size=4)),
        max_leaves=30,
    )


def flat(found: list[Line]) -> list[str]:
    return [text for line in found for text in (line.text, *flat(line.below))]


@given(lines(), st.integers(0, 40), st.integers(0, 400), st.integers(1, 50))
@settings(max_examples=examples(300))
def test_an_explanation_is_cut_at_its_end(root: Line, most: int, characters: int, longest: int) -> None:
    every = flat(root.below)
    found = shortened(root, lines=most, characters=characters, longest=longest)
    kept = flat(found.lines)
    assert len(kept) + found.left_out == len(every)
    assert len(kept) <= most
    assert sum(map(len, kept)) <= characters
    cut = [text if len(text) <= longest else f"{text[: longest - 1]}…" for text in every]
    assert kept == cut[: len(kept)]
    if most >= len(every) and characters >= sum(map(len, every)):
        assert found.left_out == 0


@given(st.floats(0, 1))
def test_a_share_below_one_is_never_shown_as_all(value: float) -> None:
    assert (share(value) == "100%") == (value >= 1)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60))
@settings(max_examples=examples(100), deadline=None)
def test_the_bars_of_a_spread_hold_all_numbers(numbers: list[float]) -> None:
    column = profiled([pa.table({"x": numbers})]).columns["x"]
    found = spread_of(column)
    if found is None:
        assert column.quantile(0.01) == column.quantile(0.99)
        return
    heights = [height for _, _, height in found.bars]
    assert min(numbers) <= found.low < found.high <= max(numbers)
    assert (max(heights), min(heights) >= 0) == (LINE_HEIGHT, True)
    assert abs(sum(heights) / LINE_HEIGHT * found.most - 1) < 0.001 * len(heights)
    ends = [(x, x + found.width) for x, _, _ in found.bars]
    assert all(end <= start for (_, end), (start, _) in pairwise(ends))
    assert 0 <= ends[0][0] < ends[-1][1] <= LINE_WIDTH


def test_texts_and_equal_numbers_have_no_spread() -> None:
    columns = profiled(
        [pa.table({"text": ["a", "b"], "same": [1.5, 1.5], "none": pa.array([None, None], pa.float64())})]
    )
    assert [spread_of(column) for column in columns.columns.values()] == [None] * 3
