from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.dtypes.instants import iso_instant
from caraway.errors import InvalidInputError
from caraway.expr.functions.chrono_reading import MONTHS, reader, reading_pattern
from caraway.expr.functions.chrono_writing import writer


def read(format: str, text: str, timezone: str = "UTC") -> str:  # noqa: A002
    return iso_instant(reader(format, timezone)(text))


@pytest.mark.spec("types:12.2.1:1")
@pytest.mark.parametrize(
    ("format", "text", "expected"),
    [
        ("%Y-%m-%d %H:%M:%S", "2021-02-03 04:05:06", "2021-02-03T04:05:06Z"),
        ("%d.%m.%y %I:%M %p", "03.02.21 12:30 AM", "2021-02-03T00:30:00Z"),
        ("%d.%m.%y %I:%M %p", "03.02.21 12:30 pm", "2021-02-03T12:30:00Z"),
        ("%y", "69", "2069-01-01T00:00:00Z"),
        ("%y", "70", "1970-01-01T00:00:00Z"),
        ("%Y %j", "2024 366", "2024-12-31T00:00:00Z"),
        ("%b %e, %Y", "fEB  3, 2021", "2021-02-03T00:00:00Z"),
        ("%B %d %Y", "February 3 2021", "2021-02-03T00:00:00Z"),
        ("%B %d %Y", "Feb 3 2021", "2021-02-03T00:00:00Z"),
        ("%a %F", "Wed 2021-02-03", "2021-02-03T00:00:00Z"),
        ("%A %F", "WEDNESDAY 2021-02-03", "2021-02-03T00:00:00Z"),
        ("%s", "1612324800", "2021-02-03T04:00:00Z"),
        ("%s", "-1", "1969-12-31T23:59:59Z"),
        ("%F", "2021-02-03", "2021-02-03T00:00:00Z"),
        ("%D %T", "02/03/21 04:05:06", "2021-02-03T04:05:06Z"),
        ("%Y%%", "2021%", "2021-01-01T00:00:00Z"),
        ("%FT%T%.fZ", "2021-02-03T04:05:06.1Z", "2021-02-03T04:05:06.100000Z"),
        ("%FT%T%.fZ", "2021-02-03T04:05:06Z", "2021-02-03T04:05:06Z"),
        ("%FT%T%.3f", "2021-02-03T04:05:06.123456789", "2021-02-03T04:05:06.123456Z"),
        ("%T %F %3f", "04:05:06 2021-02-03 007", "2021-02-03T04:05:06.007000Z"),
        ("%Y %6f", "2021 000001", "2021-01-01T00:00:00.000001Z"),
        ("%Y %9f", "2021 123456789", "2021-01-01T00:00:00.123456Z"),
        # Plain %f counts nanoseconds.
        ("%Y.%f", "2021.123456", "2021-01-01T00:00:00.000123Z"),
    ],
)
def test_directives(format: str, text: str, expected: str) -> None:  # noqa: A002
    assert read(format, text) == expected


@pytest.mark.spec("types:12.2.1:3")
@pytest.mark.parametrize("text", ["2021-02-03 04 +0530", "2021-02-03 04 +05:30"])
def test_an_offset_in_the_text_wins(text: str) -> None:
    assert read("%F %H %z", text, "America/New_York") == "2021-02-02T22:30:00Z"


@pytest.mark.spec("types:12.2.1:3")
@pytest.mark.parametrize("offset", ["Z", "+05", "+05:99", "+25:00", "0530", "EST"])
def test_what_is_no_offset(offset: str) -> None:
    with pytest.raises(InvalidInputError, match="is no datetime in the format"):
        read("%F %H %z", f"2021-02-03 04 {offset}")
    assert read("%F %HZ", "2021-02-03 04Z") == "2021-02-03T04:00:00Z"


@pytest.mark.spec("types:12.2.1:4")
def test_without_offset_the_zone_holds() -> None:
    assert read("%F %H", "2021-02-03 04", "America/New_York") == "2021-02-03T09:00:00Z"
    assert read("%F %H", "2021-07-03 04", "US/Eastern") == "2021-07-03T08:00:00Z"


@pytest.mark.spec("types:12.2.1:5")
def test_missing_fields_are_the_first_ones() -> None:
    assert read("%Y", "2021") == "2021-01-01T00:00:00Z"
    assert read("%Y-%m", "2021-03") == "2021-03-01T00:00:00Z"
    assert read("%F %H", "2021-03-04 05") == "2021-03-04T05:00:00Z"


@pytest.mark.spec("types:12.2.1:6")
def test_leniency() -> None:
    assert read("%Y-%m-%d", "2021-3-4") == "2021-03-04T00:00:00Z"
    assert read("%Y-%m-%d", " 2021- 3- 4") == "2021-03-04T00:00:00Z"
    # A blank stands for any number of blanks, none included.
    assert read("%F %H", "2021-03-04\t \n05") == read("%F %H", "2021-03-0405") == "2021-03-04T05:00:00Z"
    for text in ("2021-03-04x", "2021-03-04 05", "2021-03-041"):
        with pytest.raises(InvalidInputError, match=f'"{text}" is no datetime in the format "%F": it does not match'):
            read("%F", text)


@pytest.mark.spec("types:12.2.1:7")
def test_a_clock_that_never_or_twice_shows_the_time() -> None:
    with pytest.raises(InvalidInputError, match=r"2021-03-14 02:30:00 does not exist in America/New_York"):
        read("%F %H:%M", "2021-03-14 02:30", "America/New_York")
    with pytest.raises(InvalidInputError, match=r"2021-11-07 01:30:00 is ambiguous in America/New_York"):
        read("%F %H:%M", "2021-11-07 01:30", "America/New_York")
    assert read("%F %H:%M %z", "2021-11-07 01:30 -0500", "America/New_York") == "2021-11-07T06:30:00Z"


@pytest.mark.spec("types:12.2.1:8")
@pytest.mark.parametrize(
    ("format", "text", "reason"),
    [
        ("%F", "", "does not match"),
        ("%F", "2021-02-30", "day is out of range"),
        ("%F", "2021-13-01", "month must be in"),
        ("%Y", "0", "year 0 is out of range"),
        ("%F %H", "2021-01-01 24", "out of range"),
        ("%F %T", "2021-01-01 00:00:60", "out of range"),
        ("%Y %I %p", "2021 13 am", "must be in 1..12"),
        ("%Y %j", "2021 366", "another one"),
        ("%Y %j", "2021 0", "another one"),
        ("%F %j", "2021-02-01 31", "another one"),
        ("%a %F", "Mon 2021-02-03", "is a Wednesday"),
        ("%F %y", "2021-01-01 22", "the years differ"),
        ("%F %H %I %p", "2021-01-01 13 2 pm", "the hours differ"),
        ("%F %H %p", "2021-01-01 13 am", "other half"),
        ("%m %m %Y", "1 2 2021", "does not match"),
        ("%s", "99999999999999", "range of instants"),
        ("%F", "２021-01-01", "does not match"),  # noqa: RUF001 (a digit of another script)
    ],
)
def test_what_does_not_parse_is_named(format: str, text: str, reason: str) -> None:  # noqa: A002
    with pytest.raises(InvalidInputError, match=reason) as caught:
        read(format, text)
    assert f'"{text}" is no datetime in the format "{format}"' in str(caught.value)


def test_a_number_takes_all_digits_that_it_can() -> None:
    # The month is 11, and no digit is left for the day; a pattern that gave a digit back would read 1 and 1.
    assert reading_pattern("%m%d%Y")[1] == ("m", "d", "Y")
    with pytest.raises(InvalidInputError, match="does not match"):
        read("%Y%m%d", "202111")


READABLE = [
    "%F %T",
    "%Y/%j %H:%M:%S",
    "%d %b %Y, %I:%M:%S %p",
    "%A %e %B %Y %T%.f",
    "%D %T%.6f",
    "%s%.f",
    "%F %T%.f %z",
]
STAMPS = st.datetimes(datetime(1970, 1, 1), datetime(2069, 12, 31))  # noqa: DTZ001 (a zone follows)


@given(moment=STAMPS, format=st.sampled_from(READABLE), zone=st.sampled_from(["UTC", "Asia/Kathmandu", "Etc/GMT+5"]))
def test_reading_takes_back_what_writing_gives(moment: datetime, format: str, zone: str) -> None:  # noqa: A002
    wanted = moment if "f" in format else moment.replace(microsecond=0)
    us = (wanted.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // datetime.resolution
    assert reader(format, zone)(writer(format, zone)(us)) == us


@given(
    parts=st.tuples(
        st.integers(1, 9999), st.integers(0, 13), st.integers(0, 32), st.integers(0, 24), st.integers(0, 61)
    ),
    month=st.sampled_from([name[:3] for name in MONTHS]),
    layout=st.sampled_from(["{0:04}-{1:02}-{2:02} {3:02}:{4:02}", "{0}-{1}-{2} {3}:{4}", " {0}- {1}-{2}  {3}: {4}"]),
)
def test_what_chrono_reads_is_read_alike(parts: tuple[int, ...], month: str, layout: str) -> None:
    """Compare with polars, which reads with chrono itself."""
    text = layout.format(*parts)
    native = pl.Series([text]).str.to_datetime("%Y-%m-%d %H:%M", time_unit="us", strict=False).to_physical()[0]
    try:
        ours = reader("%Y-%m-%d %H:%M", "UTC")(text)
    except InvalidInputError:
        ours = None
    assert ours == native
