"""Path templates, beside regular expressions and Python's own `strftime` as oracles."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from caraway.connectors.s3_paths import parse_path
from caraway.dataplane.sources.files.templates import Interval, Template, Wanted
from caraway.dtypes.instants import instant_us, to_datetime

NAMES = st.sampled_from(["a", "b", "x.json", "y.csv.gz", "day=1"])
PARTS = st.lists(st.sampled_from(["a", "b", "*", "**", "day=1"]), max_size=4)
LAST = st.sampled_from(["*", "**", "*.json", "*.gz", "x.json", "a"])


def pattern_of(segments: list[str]) -> re.Pattern[str]:
    """Return the regular expression of a template, over a key with a slash before each segment."""
    expressions = {"*": "(/[^/]*)", "**": "(/[^/]*)*"}
    last = segments[-1]
    made = "".join(expressions.get(segment, f"/{re.escape(segment)}") for segment in segments[:-1])
    if last == "**":
        made += "(/[^/]*)+"
    elif last.startswith("*."):
        made += f"/[^/]*{re.escape(last[1:])}"
    else:
        made += expressions.get(last, f"/{re.escape(last)}")
    return re.compile(made)


@given(parts=PARTS, last=LAST, key=st.lists(NAMES, min_size=1, max_size=6))
def test_a_key_matches_as_a_regular_expression_says(parts: list[str], last: str, key: list[str]) -> None:
    segments = [*parts, last]
    found = Template("/".join(segments)).match(key)
    assert (found is not None) == (pattern_of(segments).fullmatch("/" + "/".join(key)) is not None)


@given(parts=PARTS, last=LAST, key=st.lists(NAMES, min_size=1, max_size=6))
def test_each_folder_of_a_matching_key_may_lead_to_it(parts: list[str], last: str, key: list[str]) -> None:
    template = Template("/".join([*parts, last]))
    if template.match(key) is not None:
        assert all(template.may_lead(key[:depth], Wanted()) for depth in range(len(key)))


UNITS = {
    "%Y": timedelta(days=365),
    "%Y/%m": timedelta(days=28),
    "%Y-%m-%d": timedelta(days=1),
    "%Y/%j": timedelta(days=1),
    "%y%m%d/%H": timedelta(hours=1),
    "y=%Y/m=%m/d=%d/h=%H": timedelta(hours=1),
    "%Y%m%d/%H%M": timedelta(minutes=1),
    "%Y%m%d/at-%I%p/%M-%S": timedelta(seconds=1),
}
FORMS = st.sampled_from(sorted(UNITS))
# Two digits of a year mean 1969 to 2068.
TIMES = st.integers(0, 97 * 365 * 86_400_000_000).map(to_datetime)


@given(at=TIMES, form=st.sampled_from(sorted(UNITS)))
@example(at=datetime(2024, 2, 29, 23, 59, 59, tzinfo=UTC), form="y=%Y/m=%m/d=%d/h=%H")
@example(at=datetime(2023, 12, 31, tzinfo=UTC), form="%Y/%j")
def test_the_interval_of_a_path_has_the_time_that_wrote_it(at: datetime, form: str) -> None:
    found = Template(f"{form}/*").match([*at.strftime(form).split("/"), "file"])
    assert found is not None
    assert found.interval is not None
    assert found.interval.begin_us <= instant_us(at) < found.interval.end_us
    length = found.interval.end_us - found.interval.begin_us
    assert UNITS[form] <= timedelta(microseconds=length) <= UNITS[form] * 1.11
    # Its ends are written otherwise.
    for other in (found.interval.begin_us - 1, found.interval.end_us):
        text = to_datetime(other).strftime(form)
        assert text != at.strftime(form)


@given(
    at=TIMES, form=st.sampled_from(sorted(UNITS)), offset=st.integers(-(10**14), 10**14), spread=st.integers(0, 10**9)
)
def test_no_file_and_no_folder_with_a_wanted_row_is_left_out(at: datetime, form: str, offset: int, spread: int) -> None:
    key = [*at.strftime(form).split("/"), "file"]
    row = instant_us(at)
    template = Template(f"{form}/**")
    for wanted in (
        Wanted(since_us=row, spread_us=spread),
        Wanted(until_us=row + 1, spread_us=spread),
        Wanted(since_us=row - abs(offset), until_us=row + abs(offset) + 1),
    ):
        found = template.match(key)
        assert found is not None
        assert wanted.may_have(found.interval)
        assert all(template.may_lead(key[:depth], wanted) for depth in range(len(key)))


@pytest.mark.parametrize(
    ("suffix", "key"),
    [
        ("%d/*", "05/f"),  # no year
        ("%Y/%d/*", "2024/05/f"),  # no month
        ("%Y/%W/*", "2024/12/f"),  # a week lies in two months
        ("%Y/%m/%d/%I/*", "2024/05/01/11/f"),  # in the morning or in the evening
        ("%Y/x/%Y/*", "2024/x/2025/f"),  # which of them
        ("*/*", "2024/f"),
    ],
)
def test_a_path_without_one_time_has_no_interval_or_a_coarser_one(suffix: str, key: str) -> None:
    found = Template(suffix).match(key.split("/"))
    assert found is not None
    day = Interval(instant_us(datetime(2024, 5, 1, tzinfo=UTC)), instant_us(datetime(2024, 5, 2, tzinfo=UTC)))
    assert found.interval == (day if "%I" in suffix else None)


@pytest.mark.parametrize(("suffix", "key"), [("%Y/%m/%d/*", "2023/02/29/f"), ("%Y/*", "abc/f"), ("%m/*", "13/f")])
def test_what_is_no_time_does_not_match(suffix: str, key: str) -> None:
    assert Template(suffix).match(key.split("/")) is None


def test_partitions_outside_of_the_wanted_times_are_left_out() -> None:
    path = parse_path("raw/%Y/%m/*.csv")
    template = Template(path.suffix)
    wanted = Wanted(since_us=instant_us(datetime(2024, 3, 1, tzinfo=UTC)))
    months = [f"{month:02}" for month in range(1, 13)]
    assert [month for month in months if template.may_lead(["2024", month], wanted)] == months[2:]
    assert not template.may_lead(["2023"], wanted)
    spread = Wanted(since_us=wanted.since_us, spread_us=86_400_000_000)
    assert [month for month in months if template.may_lead(["2024", month], spread)] == months[1:]
