"""S3: formats, prefixes, paths and their spread."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.connectors import CSV, S3
from caraway.connectors.s3_paths import ObjectPath, parse_path
from caraway.errors import DefinitionError
from caraway.graph.systems import CSVFormat

LAKE = S3(name="lake")


def row(name: str, table: str = "3.4") -> pytest.MarkDecorator:
    return pytest.mark.spec(f"connectors:{table}:{name}")


FORMATS = [
    pytest.param(
        CSV(), CSVFormat(delimiter=",", headers=None), marks=row('CSV(delimiter=",", headers=None) (default)', "3.3")
    ),
    pytest.param(
        CSV(delimiter="\t", headers=["a", "b"]),
        CSVFormat(delimiter="\t", headers=("a", "b")),
        marks=row('CSV(delimiter=",", headers=None) (default)', "3.3"),
    ),
    pytest.param("csv", CSVFormat(), marks=pytest.mark.spec('connectors:12:S3 format="csv"')),
    pytest.param("json", "json", marks=row('"json"', "3.3")),
    pytest.param("parquet", "parquet", marks=row('"parquet"', "3.3")),
    pytest.param("delta", "delta", marks=row('"delta"', "3.3")),
    pytest.param("hudi", "hudi", marks=row('"hudi"', "3.3")),
]


@pytest.mark.parametrize(("given", "stored"), FORMATS)
def test_formats(given: Any, stored: object) -> None:
    assert LAKE.bucket("b", prefix="p", format=given).spec().format == stored


@pytest.mark.parametrize("wrong", ["JSON", "Csv", "avro", "jsonl", "", 3])
def test_other_formats_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="parquet"):
        LAKE.bucket("b", prefix="p", format=wrong)


def test_settings_of_csv() -> None:
    for wrong in ("", "||"):
        with pytest.raises(ValueError, match="delimiter"):
            CSV(delimiter=wrong)
    with pytest.raises(ValueError, match="headers"):
        CSV(headers="a,b")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="delimiter"):
        LAKE.bucket("b", prefix="p", delimiter=";")  # type: ignore[call-arg]


PATHS = [
    pytest.param("hives/raw/", "hives/raw/", "", marks=row("hives/raw/", "3.4b")),
    pytest.param("hives/one.json", "hives/one.json", "", marks=row("hives/one.json", "3.4b")),
    pytest.param(
        "hives/*/day=%Y-%m-%d/*.json",
        "hives/",
        "*/day=%Y-%m-%d/*.json",
        marks=[row("3", "3.4b"), row("containing %"), row("4")],
    ),
    pytest.param("%Y/%m/%d/**", "", "%Y/%m/%d/**", marks=[row("4", "3.4b"), row("3")]),
    pytest.param("a/b", "a/b", "", marks=row("static")),
    pytest.param("A_z.0=9-", "A_z.0=9-", "", marks=row("static")),
    pytest.param("*", "", "*", marks=row("2")),
    pytest.param("a/*/b/", "a/", "*/b", marks=row("2")),
    pytest.param("**/x", "", "**/x", marks=row("3")),
    pytest.param("a/*.csv.gz", "a/", "*.csv.gz", marks=row("4")),
    pytest.param("wk-%W/%Y%m%d", "", "wk-%W/%Y%m%d", marks=row("containing %")),
    pytest.param("a/%H:%M", "a/", "%H:%M", marks=row("containing %")),
]


@pytest.mark.parametrize(("path", "prefix", "suffix"), PATHS)
def test_paths(path: str, prefix: str, suffix: str) -> None:
    found = parse_path(path)
    assert (found.prefix, found.suffix) == (prefix, suffix)
    made = LAKE.bucket("b", path=path)
    assert (made.path_prefix, made.path_suffix) == (prefix, suffix)
    assert made.spec().suffix == (suffix or None)


REFUSED = [
    pytest.param("/a", marks=row("static")),
    pytest.param("a//b", marks=row("static")),
    pytest.param("a b", marks=row("static")),
    pytest.param("a/$x", marks=row("static")),
    pytest.param("a/ü", marks=row("static")),
    pytest.param("/", marks=row("static")),
    pytest.param("x*", marks=row("2")),
    pytest.param("***", marks=row("3")),
    pytest.param("**.json", marks=row("4")),
    pytest.param("x_*.json", marks=row("4")),
    pytest.param("*.json/a", marks=row("4")),
    pytest.param("*.", marks=row("4")),
    pytest.param("*.j-n", marks=row("4")),
    pytest.param("%q", marks=row("containing %")),
    pytest.param("%s", marks=row("containing %")),
    pytest.param("a%", marks=row("containing %")),
    pytest.param("%Y*", marks=row("containing %")),
    pytest.param("%Y/%q", marks=row("containing %")),
]


@pytest.mark.parametrize("path", REFUSED)
def test_paths_that_are_refused(path: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        parse_path(path)
    assert repr(path) in str(caught.value)
    with pytest.raises(ValueError, match="S3 lake, bucket b"):
        LAKE.bucket("b", path=path)


STATIC = st.from_regex(re.compile(r"[A-Za-z0-9._=-]{1,5}"), fullmatch=True)
WILD = st.sampled_from(["*", "**", "%Y", "day=%d", "%Y-%m-%d"])


@given(st.lists(STATIC, max_size=3), st.lists(STATIC | WILD, max_size=3), st.booleans())
def test_prefix_and_suffix_make_up_the_path(fixed: list[str], rest: list[str], slash: bool) -> None:
    segments = [*fixed, *rest]
    if not segments:
        return
    path = "/".join(segments)
    found = parse_path(path + "/" * slash)
    assert found.prefix + found.suffix == path + "/" * (slash and not found.suffix)
    assert found.prefix == "" or not {"*", "%"} & set(found.prefix)
    assert found.suffix == "" or {"*", "%"} & set(found.suffix.split("/", maxsplit=1)[0])
    assert found.is_temporal == ("%" in path)


def test_what_is_valid_depends_on_no_date() -> None:
    # This time has the longest names of months and days, and a day that other months lack.
    written = datetime(2024, 9, 30, tzinfo=UTC).strftime("%A-%B-%d")
    assert written == "Monday-September-30"
    assert parse_path("%A-%B-%d") == ObjectPath("", "%A-%B-%d", is_temporal=True)


def test_one_of_prefix_and_path() -> None:
    for options in ({}, {"prefix": "", "path": ""}, {"prefix": "a", "path": "b"}):
        with pytest.raises(AttributeError, match="prefix"):
            LAKE.bucket("b", **options)  # type: ignore[arg-type]
    assert LAKE.bucket("b", prefix="a", path="").path_prefix == "a"
    assert LAKE.bucket("b", prefix="/odd as it is").path_prefix == "/odd as it is"
    with pytest.raises(ValueError, match="path="):
        LAKE.bucket("b", prefix="a/*")
    with pytest.raises(TypeError, match="prefix"):
        LAKE.bucket("b", prefix=3)  # type: ignore[arg-type]


def test_spread() -> None:
    assert LAKE.bucket("b", path="%Y/*", spread="1h").spec().spread_us == 3_600_000_000
    with pytest.raises(AttributeError, match="spread"):
        LAKE.bucket("b", prefix="a", spread="1h")
    with pytest.raises(ValueError, match="spread"):
        LAKE.bucket("b", path="%Y", spread="wide")
    with pytest.warns(UserWarning, match="no effect"):
        LAKE.bucket("b", path="a/*", spread="1h")
