"""Hudi tables as sources: recorded tables, which Hudi has written, and their timelines.

`tests/services/hudi_recording.py` wrote them; `test_lakes.py` has what holds for all formats. Random changes are in
`tests/integration/sources/test_hudi.py`.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caraway.dataplane.sources.hudi.timeline import recent_of, timeline_of, unread
from caraway.errors import UnavailableError
from caraway.graph.sources import Cdc
from tests.unit.dataplane.sources.hudi_source import HudiSource, Recorded, applied, chosen
from tests.unit.dataplane.sources.lake import EVENTS, rows_of


@pytest.fixture(params=["cow6", "cow8"])
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Recorded:
    return Recorded(tmp_path, request.param)


def test_each_instant_is_the_state_that_hudi_reads_until_one_removes_rows(recorded: Recorded) -> None:
    recorded.hide(1)
    source = HudiSource(recorded.path)
    state: dict[int, dict[str, Any]] = {}
    for number, at in enumerate(recorded.instants[:-1]):
        recorded.show(number, number + 1)
        found = source.drain(rows=2)
        assert {batch.origin(row)["instant"] for batch in found for row in range(len(batch.rows))} <= {at}
        applied(state, rows_of(found))
        assert state == recorded.content(number)
    recorded.show(len(recorded.instants) - 1)
    with pytest.raises(
        UnavailableError,
        match=f"Hudi table {recorded.path.name}: the instant {recorded.instants[-1]} .DELETE. removes rows.*raise the",
    ):
        source.drain()
    # A source that begins anew has the rows that are left.
    source.position, state = {}, {}
    applied(state, rows_of(source.drain()))
    assert state == recorded.content(-1)


def test_rows_that_were_only_written_anew_do_not_come_again(recorded: Recorded) -> None:
    recorded.hide(1)
    source = HudiSource(recorded.path, cdc=Cdc.APPEND, dataset=EVENTS)
    before: Counter[str] = Counter()
    for number in range(len(recorded.instants) - 1):
        recorded.show(number, number + 1)
        now = Counter(repr(each) for each in recorded.content(number).values())
        assert Counter(repr(chosen(each)) for each in rows_of(source.drain())) == now - before
        before = now


def test_nothing_behind_an_instant_under_way_is_read(recorded: Recorded) -> None:
    recorded.hide(1)
    source = HudiSource(recorded.path)
    state: dict[int, dict[str, Any]] = {}
    applied(state, rows_of(source.drain()))
    recorded.show(1, -1)
    completed = recorded.completed(1)
    away = completed.rename(recorded.away / completed.name)
    assert rows_of(source.drain()) == []
    away.rename(completed)
    applied(state, rows_of(source.drain()))
    assert state == recorded.content(-2)


def archived(recorded: Recorded) -> None:
    for number in range(2):
        for file in recorded.files(number):
            file.unlink()


def rolled_back(recorded: Recorded) -> None:
    for file in recorded.files(1):
        file.unlink()


def cleaned(recorded: Recorded, instant: int = -2) -> None:
    (base,) = recorded.path.glob(f"*_{recorded.instants[instant]}.parquet")
    base.unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (archived, "the instant .*, which was read last, isn't on the timeline any more: instants were arch.*raise"),
        (rolled_back, "the instant .*, which was read last, is gone, since the table was rolled back or rest.*raise"),
        (cleaned, r"the cleaner has removed .*parquet before it was read; keep .*\(hoodie\.cleaner\..*raise"),
    ],
)
def test_a_history_with_gaps_is_an_error(recorded: Recorded, damage: Callable[[Recorded], None], message: str) -> None:
    recorded.hide(2)
    source = HudiSource(recorded.path)
    source.drain()
    recorded.show(2, -1)
    damage(recorded)
    with pytest.raises(UnavailableError, match=f"Files files, folder .*, Hudi table .*{message}"):
        source.drain()


def test_files_that_are_removed_while_they_are_read_are_an_error(recorded: Recorded) -> None:
    recorded.hide(1)
    source = HudiSource(recorded.path)
    assert len(source.first(2)) == 2
    cleaned(recorded, 0)
    with pytest.raises(UnavailableError, match=r"the cleaner has removed files of the instant .*raise the version"):
        source.drain()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hoodie.table.type", "MERGE_ON_READ"),
        ("hoodie.table.version", "9"),
        ("hoodie.table.base.file.format", "ORC"),
        ("hoodie.populate.meta.fields", "false"),
        ("hoodie.metadata.enable", "true"),
        # It would lead the library to another folder.
        ("hoodie.base.path", "/elsewhere"),
    ],
)
def test_what_can_not_be_read_right_is_refused_by_a_trial_and_by_a_reader_that_goes_on(
    recorded: Recorded, name: str, value: str
) -> None:
    source = HudiSource(recorded.path)
    source.drain()
    recorded.set_property(name, value)
    for act in (source.drain, lambda: source.open().peek(1)):
        with pytest.raises(
            UnavailableError, match=f"Hudi table {recorded.path.name} (has {name}=|can't be read).*{value}"
        ):
            act()


def test_a_table_that_is_read_with_its_deletes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r'Hudi table rows is read by its upserts only.*use cdc="upsert"'):
        HudiSource(tmp_path / "rows", cdc=Cdc.NATIVE).open()


def test_a_link_out_of_the_folder_is_not_followed(recorded: Recorded, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    recorded.hide(1)
    (base,) = recorded.path.glob(f"*_{recorded.instants[0]}.parquet")
    base.rename(elsewhere / base.name)
    base.symlink_to(elsewhere / base.name)
    with pytest.raises(UnavailableError, match="leads to another folder, so it isn't read"):
        HudiSource(recorded.path).drain()


A, B, C, D = (f"2024010100000{number}000" for number in range(1, 5))


@pytest.mark.parametrize(
    ("names", "done", "readable"),
    [
        ([f"{A}_{B}.commit", f"{A}.commit.requested", f"{A}.inflight"], [A], [A]),
        ([f"{A}.commit", f"{B}.deltacommit", f"{B}.deltacommit.inflight"], [A, B], [A, B]),
        # A commit that was asked for earlier blocks those behind it, also if they have completed.
        ([f"{A}_{A}.commit", f"{B}.inflight", f"{C}_{D}.commit"], [A, C], [A]),
        ([f"{A}_{A}.commit", f"{B}.clustering.requested", f"{C}_{D}.commit"], [A, C], [A]),
        ([f"{A}_{C}.replacecommit", f"{B}_{B}.rollback", f"{C}.clean.inflight", "hoodie.properties"], [A], [A]),
        (["20240101000001.commit", f"{B}.commit"], ["20240101000001", B], ["20240101000001", B]),
        ([], [], []),
    ],
)
def test_instants_are_in_the_order_in_which_they_were_asked_for(
    names: list[str], done: list[str], readable: list[str]
) -> None:
    found = timeline_of(names)
    assert (found.done, found.readable) == (done, readable)


def test_an_instant_that_appears_too_late_is_an_error() -> None:
    recent = recent_of(timeline_of([f"{A}_{A}.commit", f"{C}_{C}.commit"]), C)
    assert recent == [A, C]
    now = timeline_of([f"{A}_{A}.commit", f"{B}_{D}.commit", f"{C}_{C}.commit", f"{D}_{D}.commit"])
    with pytest.raises(UnavailableError, match=f"T: the instant {B} has appeared after the later one {C} was read"):
        unread(now, C, recent, "T")
    assert unread(now, C, recent_of(now, C), "T") == [D]
