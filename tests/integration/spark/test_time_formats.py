"""Tests that Spark reads texts by formats, and knows time zones, as Python does."""

from collections.abc import Mapping, Sequence
from zoneinfo import available_timezones

import polars as pl
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from caraway.dataplane.streams.spark.codec import name
from caraway.dataplane.streams.spark.expressions.instants import local_timestamp
from caraway.dtypes.types import STRING, optional
from caraway.errors import DefinitionError
from caraway.expr.inference import is_timezone
from caraway.expr.nodes import Ref, Strptime
from tests.integration.spark.engines import Table, differing

ZONES = [
    "UTC",
    "America/New_York",
    "Asia/Kathmandu",
    "Europe/Paris",
    "Africa/Monrovia",
    "Etc/GMT+5",
    "Pacific/Apia",
]

READING: dict[str, Sequence[str | None]] = {
    "%Y-%m-%d %H:%M:%S": [
        "2024-02-29 23:59:59", "2023-02-29 00:00:00", "2024-3-1 1:2:3", "2024- 3-1   1:2:3", "0000-01-01 00:00:00",
        # Clocks skip some of these times, and show others twice.
        "2024-03-31 02:30:00", "2024-10-27 02:30:00", "2024-11-03 01:30:00", "2024-03-10 02:00:00",
        "2024-01-01 24:00:00", "2024-01-01 23:59:60", "2024-01-01 00:00:00 ",
        "9999-12-31 23:59:59", "0001-01-01 00:00:00",
    ],
    "%FT%T%.f%z": [
        "2024-01-01T00:00:00+0530", "2024-01-01T00:00:00.123456789-08:00", "2024-01-01T00:00:00.5+00:00",
        "2024-01-01T00:00:00Z", "2024-01-01T00:00:00+0060", "2024-01-01T00:00:00+24:00", "0001-01-01T00:00:00+0100",
    ],
    "%d %b %y, %I:%M %p": [
        "01 Jan 70, 12:00 am", "1 feb 69, 12:30 PM", "31 sep 01, 01:00 AM", "5 MAR 24, 13:00 pm", "5 mar 24, 0:00 pm",
    ],
    "%A %d %B %Y": ["Thursday 29 February 2024", "thu 29 feb 2024", "Friday 29 February 2024"],
    "%Y %j": ["2024 366", "2023 366", "2024 0", "2024 60"],
    "%Y-%j %m/%d": ["2024-60 2/29", "2024-61 2/29"],
    "%Y %y": ["2024 24", "2024 25", "1970 70"],
    "%s": ["0", "-1", "+5", "9223372036854", "9223372036855", "-9223372036855", "99999999999999999999", "1" * 50],
    "%s%.6f": ["1.5", "9223372036854.775807", "9223372036854.775808"],
    "%H:%M %p %Y": ["13:00 PM 2024", "13:00 AM 2024"],
    "%Y%m%d%H%M%S%3f": ["20240229235959123", "20240229235959"],
    "%Y.%f": ["2024.123456", "2024.1"],
    "%%é%Y": ["%é2024", "é2024"],
    "%Y-%m-%d": [None, "", "2024-01-01", "2011-12-30", "2024-01-01\n"],
}  # fmt: skip


WALL_TIMES = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d")
#: The zones whose tables in the JDK differ from those of polars.
NEW_RULES: Mapping[str, str] = {}


# These formats are read in each run, the others hold one unusual rule each.
OFTEN = {"%Y-%m-%d %H:%M:%S", "%FT%T%.f%z", "%d %b %y, %I:%M %p", "%s%.6f", "%Y %j", "%Y-%m-%d"}
RARE = pytest.mark.full(reason="a query of Spark more beside those of the usual formats")


@pytest.mark.parametrize("format_", [pytest.param(each, marks=() if each in OFTEN else RARE) for each in READING])
def test_texts_in_formats(format_: str, spark: SparkSession) -> None:
    # Each zone makes the query longer, so only formats of wall times use all zones.
    zones = ZONES if format_ in WALL_TIMES else ZONES[:1]
    nodes = [Strptime(operand=Ref(name="x"), format=format_, timezone=zone) for zone in zones]
    wrong = differing(Table({"x": (optional(STRING), [*READING[format_], None])}, nodes), spark)
    assert not wrong, f"{len(wrong)} differ\n" + "\n".join(wrong)


@pytest.mark.full(reason="600 zones, which change with the locked libraries only; the usual ones are in each run")
def test_spark_knows_the_time_zones_of_python(spark: SparkSession) -> None:
    """Check that both sides have the same offsets, now and in the past."""
    instants = [0, 1_709_210_096_789_123, 1_730_613_600_000_000, 4_000_000_000_000_000, -1_000_000_000_000_000]
    java = spark._jvm.java.time.ZoneId.getAvailableZoneIds()  # type: ignore[union-attr]
    known = set(java)
    zones = sorted(zone for zone in available_timezones() if is_timezone(zone) and zone in known)
    assert len(zones) > 500
    frame = spark.createDataFrame([(t,) for t in instants], "x long").coalesce(1)
    columns = F.struct(*(local_timestamp(name("x"), zone).cast("long").alias(zone) for zone in zones))
    found = [row[0].asDict() for row in frame.select(columns).collect()]
    utc = pl.Series(instants).cast(pl.Datetime("us", "UTC"))
    wrong = []
    for zone in zones:
        local = utc.dt.convert_time_zone(zone).dt.replace_time_zone(None).cast(pl.Int64) // 1_000_000
        if local.to_list() != [row[zone] for row in found]:
            wrong.append(zone)
    assert set(wrong) <= NEW_RULES.keys()


def test_a_zone_that_java_lacks_is_told(spark: SparkSession) -> None:
    assert spark is not None
    with pytest.raises(DefinitionError, match="Java doesn't know the time zone Mars/Olympus"):
        local_timestamp(F.lit(0), "Mars/Olympus")
