"""Samples of served features: bounded, each row once, none too early, none of an erased key."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from caraway.dataplane.archive.store.tables import ArchiveTable
from caraway.offline.monitoring.skew.sampling import SPAN, Drawn, draw
from tests.unit.offline.monitoring import served

END = 1_000


def record(served_us: int, users: Sequence[int]) -> bytes:
    return served.record(served_us, users, n=[user / 3 for user in users])


def drawn(
    found: ArchiveTable, since: Mapping[int, int], *, before: int = END, most: int = 1_000, erased: str = "none"
) -> Drawn:
    return draw(
        found,
        since,
        found.positions([0, 1]),
        served_before_us=before,
        most=most,
        hides=lambda _commit, inputs, _outputs: erased in inputs,
        chance=random.Random(7),
    )


def test_rows_come_once_and_whole(tmp_path: Path) -> None:
    found = served.table(tmp_path, [(0, 0, record(10, [1, 2])), (1, 0, record(20, [3])), (0, 1, record(30, [4, 5]))])
    first = drawn(found, {})
    assert [(row.partition, row.offset, row.row, row.inputs["A.user"]) for row in first.rows] == [
        (0, 0, 0, 1),
        (0, 0, 1, 2),
        (0, 1, 0, 4),
        (0, 1, 1, 5),
        (1, 0, 0, 3),
    ]
    assert first.until == {0: 2, 1: 1}
    row = first.rows[-1]
    assert (row.served_us, row.at_us, row.branch, row.commit, row.query) == (20, 19, "main", "c", "q20")
    assert row.outputs == {"A.n": 1.0}
    assert drawn(found, first.until) == Drawn((), first.until)
    assert [row.offset for row in drawn(found, {0: 1, 1: 1}).rows] == [1, 1]


def test_rows_wait_until_they_are_old_enough_and_so_do_those_behind_them(tmp_path: Path) -> None:
    # A producer's delay may put an older row behind a newer one.
    messages = [(0, 0, record(10, [1])), (0, 1, record(50, [2])), (0, 2, record(20, [3])), (1, 0, record(60, [4]))]
    found = served.table(tmp_path, messages)
    early = drawn(found, {}, before=40)
    assert [row.inputs["A.user"] for row in early.rows] == [1]
    assert early.until == {0: 1, 1: 0}
    later = drawn(found, early.until, before=60)
    assert [row.inputs["A.user"] for row in later.rows] == [2, 3, 4]
    assert later.until == {0: 3, 1: 1}


@pytest.mark.parametrize("most", [1, 7, 40])
def test_a_part_is_drawn_of_many_rows(tmp_path: Path, most: int) -> None:
    found = served.table(tmp_path, [(0, n, record(n, list(range(10 * n, 10 * n + 10)))) for n in range(4)])
    some = drawn(found, {}, most=most)
    users = [row.inputs["A.user"] for row in some.rows]
    assert len(set(map(str, users))) == len(users) == most
    assert some.until == {0: 4}


def test_erased_rows_are_left_out(tmp_path: Path) -> None:
    found = served.table(tmp_path, [(0, 0, record(1, [1, 2, 3]))])
    assert [row.inputs["A.user"] for row in drawn(found, {}, erased='"A.user":2').rows] == [1, 3]


def test_only_the_newest_of_very_many_messages_are_considered(tmp_path: Path) -> None:
    found = served.table(tmp_path, [(0, 0, record(1, [1])), (0, SPAN, record(2, [2])), (0, SPAN + 5, record(3, [3]))])
    some = drawn(found, {})
    assert [row.inputs["A.user"] for row in some.rows] == [2, 3]
    assert some.until == {0: SPAN + 6}
