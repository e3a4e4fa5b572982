"""Profiles of served rows: each row once, in its hour, of its feature's kind, and none of an erased key."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from caraway.compute.profiles.columns import ColumnProfile
from caraway.compute.profiles.kinds import Kind
from caraway.dataplane.archive.store.tables import ArchiveTable
from caraway.offline.monitoring.drift.profiling import MAX_ROWS, new_rows, profiles_of, typed
from caraway.state.profiles import HourKey
from tests.unit.offline.monitoring import served

HOUR_US = 3_600 * 1_000_000
KINDS = {"A.n": Kind.NUMBER, "A.city": Kind.CATEGORY}


def record(served_us: int, users: Sequence[int], branch: str = "main") -> bytes:
    halves, cities = [user / 2 for user in users], [f"c{user}" for user in users]
    return served.record(served_us, users, branch=branch, n=halves, city=cities)


def passes(found: ArchiveTable, most: int) -> list[dict[HourKey, ColumnProfile]]:
    """Profile all rows, pass by pass."""
    since: Mapping[int, int] = {}
    made = []
    ends = found.positions([0, 1])
    while any(since.get(partition, 0) < end for partition, end in ends.items()):
        new = new_rows(found, since, ends, most=most)
        assert new.until != since
        made.append(profiles_of(new.rows, lambda _: KINDS, lambda *_: False, ["main", "other"]))
        since = dict(new.until)
    return made


def counts(made: Sequence[Mapping[HourKey, ColumnProfile]]) -> dict[tuple[str, str, int], int]:
    found: dict[tuple[str, str, int], int] = {}
    for profiles in made:
        for key, column in profiles.items():
            at = key.scope, key.column, int(key.hour.timestamp()) // 3600
            found[at] = found.get(at, 0) + column.rows
    return found


@pytest.mark.parametrize(("most", "times"), [(1, 3), (4, 2), (MAX_ROWS, 1)])
def test_each_row_is_profiled_once_in_its_hour_however_many_a_pass_takes(tmp_path: Path, most: int, times: int) -> None:
    messages = [
        (0, 0, record(10, [1, 2, 3])),
        (0, 1, record(HOUR_US + 10, [4])),
        (1, 0, record(HOUR_US + 20, [5, 6])),
        (1, 1, record(20, [7], branch="other")),
        (1, 2, record(30, [8], branch="removed")),
    ]
    found = passes(served.table(tmp_path, messages), most)
    assert counts(found) == {
        (branch, feature, hour): rows
        for (branch, hour), rows in {("main", 0): 3, ("main", 1): 3, ("other", 0): 1}.items()
        for feature in KINDS
    }
    # A message with more rows than a pass takes is taken as a whole.
    assert len(found) == times


def test_profiles_have_the_values_and_the_keys_of_the_rows(tmp_path: Path) -> None:
    (found,) = passes(served.table(tmp_path, [(0, 0, record(10, [1] * 50 + [3] * 50))]), MAX_ROWS)
    hour = datetime(1970, 1, 1, tzinfo=UTC)
    n = found[HourKey(scope="main", column="A.n", kind=Kind.NUMBER, hour=hour)]
    city = found[HourKey(scope="main", column="A.city", kind=Kind.CATEGORY, hour=hour)]
    assert (n.mean, n.least, n.greatest) == (1.0, 0.5, 1.5)
    assert city.top() == [("c1", 50), ("c3", 50)]
    assert n.worth * n.rows == pytest.approx(2)


def test_rows_of_erased_keys_and_of_unknown_commits_are_left_out(tmp_path: Path) -> None:
    rows = new_rows(served.table(tmp_path, [(0, 0, record(10, [1, 22]))]), {}, {0: 1}, most=MAX_ROWS).rows
    kept = profiles_of(rows, lambda _: KINDS, lambda _commit, inputs, _outputs: "22" in inputs, ["main"])
    assert [column.rows for column in kept.values()] == [1, 1]
    assert profiles_of(rows, lambda _: {}, lambda *_: False, ["main"]) == {}


def test_nothing_new_moves_nothing(tmp_path: Path) -> None:
    found = new_rows(served.table(tmp_path, [(0, 0, record(10, [1]))]), {0: 1}, {0: 1}, most=MAX_ROWS)
    assert (len(found.rows), found.until) == (0, {0: 1})


def test_positions_without_rows_are_passed(tmp_path: Path) -> None:
    found = new_rows(served.table(tmp_path, [(0, 0, record(10, [1]))]), {0: 1}, {0: 5}, most=MAX_ROWS)
    assert (len(found.rows), found.until) == (0, {0: 5})
    assert profiles_of(found.rows, lambda _: KINDS, lambda *_: False, ["main"]) == {}


@pytest.mark.parametrize(
    ("values", "kind", "array"),
    [
        ([1, None], Kind.NUMBER, pa.array([1, None])),
        ([1, 2.5, None], Kind.NUMBER, pa.array([1.0, 2.5, None])),
        (["1.50", "NaN", "none"], Kind.NUMBER, pa.array([1.5, math.nan, None])),
        ([2**70], Kind.NUMBER, pa.array([2.0**70])),
        (["a", True, False, 1], Kind.CATEGORY, pa.array(["a", "true", "false", None])),
        (
            ["2026-01-01T00:00:00Z", "2026-01-02", "then"],
            Kind.TIME,
            pa.array([1_767_225_600_000_000, 1_767_312_000_000_000, None], pa.timestamp("us", "UTC")),
        ),
        ([[1, 2], {"b": 1, "a": 2}, None], Kind.OTHER, pa.array([b"[1,2]", b'{"a":2,"b":1}', None])),
    ],
)
def test_values_of_json_have_the_kind_of_their_feature(values: list[Any], kind: Kind, array: pa.Array) -> None:
    found = typed(values, kind)
    assert found.type == array.type
    # NaN isn't equal to itself, so the texts are compared.
    assert str(found) == str(array)
    ColumnProfile(kind).add(found)
