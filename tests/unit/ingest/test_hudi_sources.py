"""Hudi tables as sources: recorded tables, which Hudi has written, and their timelines.

`tests/services/hudi_recording.py` wrote them. Random changes are in `tests/integration/sources/test_hudi.py`.
"""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from caraway.dtypes.types import INT
from caraway.errors import UnavailableError
from caraway.expr import col
from caraway.graph.sources import Cdc, Computed
from caraway.graph.specs import FieldSpec
from caraway.ingest.marks import expanded
from caraway.ingest.sources.files.stored import StoredFile
from caraway.ingest.sources.hudi import rows
from caraway.ingest.sources.hudi.timeline import Timeline, recent_of, timeline_of, unread
from tests.unit.ingest.hudi_source import HudiSource, Recorded, applied, chosen
from tests.unit.ingest.lake import EVENTS, EVERY_US, rows_of

TABLES = ("cow6", "mor8")
Change = Mapping[str, Any]


@pytest.fixture(params=TABLES)
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Recorded:
    return Recorded(tmp_path, request.param)


def test_each_instant_is_the_state_that_hudi_reads(recorded: Recorded) -> None:
    recorded.hide(1)
    source = HudiSource(recorded.path)
    state: dict[int, dict[str, Any]] = {}
    for number in range(len(recorded.instants)):
        recorded.show(number, number + 1)
        applied(state, rows_of(source.drain(rows=2)))
        assert state == recorded.content(number)
    assert len(recorded.instants) > 3


def test_a_reader_that_ends_at_any_row_goes_on_behind_it(recorded: Recorded) -> None:
    recorded.hide(1)
    source = HudiSource(recorded.path)
    first = source.drain()
    recorded.show(1)
    begin = source.position
    whole = [(batch.mark(at), row) for batch in [*first, *source.drain()] for at, row in enumerate(rows_of([batch]))]
    for most in (1, 2, 3):
        source.position = {}
        recorded.hide(1)
        found: list[tuple[str, Any]] = []
        for show in (False, True):
            if show:
                recorded.show(1)
            reading = True
            while reading:
                opened = source.seek()
                batch = opened.poll(rows=most, size=1 << 22, timeout_s=EVERY_US)
                opened.close()
                if batch is None:
                    continue
                marks = [batch.mark(at) for at in range(len(batch.rows))]
                assert not any(map(opened.is_ahead, marks))
                assert batch.run is not None
                if marks:
                    assert list(expanded(batch.run(0, len(marks)))) == marks
                found += zip(marks, rows_of([batch]), strict=True)
                source.position = batch.position
                reading = batch.position["reading"]
        assert found == whole
    assert len({mark for mark, _ in whole}) == len(whole) > 8
    assert begin["done"] == recorded.instants[0]


def test_rows_that_were_only_written_anew_do_not_come_again(recorded: Recorded) -> None:
    recorded.hide(1)
    source = HudiSource(recorded.path, cdc=Cdc.APPEND, dataset=EVENTS)
    before: Counter[str] = Counter()
    for number in range(len(recorded.instants)):
        recorded.show(number, number + 1)
        now = Counter(repr(each) for each in recorded.content(number).values())
        assert Counter(repr(chosen(each)) for each in rows_of(source.drain())) == now - before
        before = now


def test_a_delete_has_the_time_at_which_its_instant_completed(recorded: Recorded) -> None:
    recorded.hide(2)
    source = HudiSource(recorded.path)
    source.drain()
    recorded.show(2, 3)
    completed = next(file for file in recorded.files(2) if file.suffix in {".commit", ".deltacommit"})
    os.utime(completed, ns=(0, 1_700_000_000_123_000_000))
    batches = source.drain()
    (change,) = rows_of(batches)
    assert (change["op"], change["before"]["k"]) == ("d", 2)
    assert change["source"] == {"ts_ms": 1_700_000_000_123}
    origin = batches[0].origin(0)
    assert origin["instant"] == recorded.instants[2]
    assert str(origin["file"]).endswith(".parquet")


def test_nothing_behind_an_instant_under_way_is_read(recorded: Recorded) -> None:
    recorded.hide(1)
    source = HudiSource(recorded.path)
    source.drain()
    recorded.show(1)
    completed = next(file for file in recorded.files(1) if file.suffix in {".commit", ".deltacommit"})
    completed.rename(recorded.away / completed.name)
    assert rows_of(source.drain()) == []
    (recorded.away / completed.name).rename(completed)
    state = recorded.content(0)
    applied(state, rows_of(source.drain()))
    assert state == recorded.content(-1)


def test_a_table_without_an_instant_is_read_from_its_first_one_on(recorded: Recorded) -> None:
    recorded.hide(0)
    source = HudiSource(recorded.path)
    assert rows_of(source.drain()) == []
    recorded.show(0, 1)
    assert [each["op"] for each in rows_of(source.drain())] == ["r"] * 6


def archived(recorded: Recorded) -> None:
    for number in range(2):
        for file in recorded.files(number):
            file.unlink()


def rolled_back(recorded: Recorded) -> None:
    for file in recorded.files(1):
        file.unlink()


def cleaned(recorded: Recorded) -> None:
    (base,) = recorded.path.glob(f"*_{recorded.instants[0]}.parquet")
    base.unlink()


def of_other_version(recorded: Recorded) -> None:
    set_property(recorded, "hoodie.table.version", "9")


def of_other_format(recorded: Recorded) -> None:
    set_property(recorded, "hoodie.table.base.file.format", "ORC")


def set_property(recorded: Recorded, name: str, value: str) -> None:
    file = recorded.path / ".hoodie" / "hoodie.properties"
    lines = [line for line in file.read_text().splitlines() if not line.startswith(f"{name}=")]
    file.write_text("\n".join([*lines, f"{name}={value}"]))


@pytest.mark.parametrize(
    ("shown", "damage", "message"),
    [
        (
            2,
            archived,
            "the instant .*, which was read last, isn't on the timeline any more: instants were arch.*rai",
        ),
        (
            2,
            rolled_back,
            "the instant .*, which was read last, is gone, since the table was rolled back or rest",
        ),
        (1, of_other_version, "has the version 9, 6 and 8 can be read; write it with"),
        (
            1,
            of_other_format,
            "has hoodie.table.base.file.format=ORC, which can't be read; write a new table wit",
        ),
    ],
)
def test_a_history_with_gaps_and_what_can_not_be_read_right_are_errors(
    recorded: Recorded, shown: int, damage: Callable[[Recorded], None], message: str
) -> None:
    recorded.hide(shown)
    source = HudiSource(recorded.path)
    source.drain()
    recorded.show(shown)
    damage(recorded)
    with pytest.raises(UnavailableError, match=f"Files files, folder .*, Hudi table .*{message}"):
        source.drain()


def test_files_that_the_cleaner_has_removed_are_an_error_with_its_remedy(recorded: Recorded) -> None:
    recorded.hide(1)
    source = HudiSource(recorded.path)
    source.drain()
    recorded.show(1)
    cleaned(recorded)
    with pytest.raises(UnavailableError, match=r"gone, since the cleaner has removed them before.*\(hoodie\.cleaner\."):
        source.drain()


def test_files_that_are_removed_while_they_are_read_are_an_error(recorded: Recorded) -> None:
    recorded.hide(1)
    source = HudiSource(recorded.path)
    assert len(source.first(2)) == 2
    cleaned(recorded)
    with pytest.raises(UnavailableError, match="the cleaner has removed files of the instant"):
        source.drain()


def test_rows_as_of_an_instant_are_not_looked_for_while_they_are_cleaned(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, "mor8")
    source = HudiSource(recorded.path)
    (recorded.timeline / "99990101000000000.clean.inflight").touch()
    with pytest.raises(UnavailableError, match="is being cleaned while its rows as of the instant"):
        source.drain()
    # One that was asked for before the instant removes only what had been replaced by then.
    (recorded.timeline / "99990101000000000.clean.inflight").rename(
        recorded.timeline / "20000101000000000.clean.inflight"
    )
    assert len(rows_of(source.drain())) == len(recorded.content(-1))


def test_merged_rows_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(tmp_path, "mor8")
    monkeypatch.setattr(rows, "MAX_MERGED_ROWS", 3)
    with pytest.raises(
        UnavailableError, match=r"has more than 3 rows or .* bytes of values, which aren't merged; let the writer"
    ):
        HudiSource(recorded.path).drain()
    monkeypatch.setattr(rows, "MAX_MERGED_BYTES", 100)
    with pytest.raises(UnavailableError, match=r"bytes, 100 can be merged; compact the table"):
        HudiSource(recorded.path).drain()


def test_merging_by_code_that_is_not_known_is_refused(tmp_path: Path) -> None:
    for number, (name, value) in enumerate(
        [("hoodie.compaction.payload.class", "com.example.Mine"), ("hoodie.record.merge.mode", "CUSTOM")]
    ):
        (tmp_path / str(number)).mkdir()
        recorded = Recorded(tmp_path / str(number), "mor8")
        set_property(recorded, name, value)
        with pytest.raises(UnavailableError, match="which isn't known here; write it with hoodie"):
            HudiSource(recorded.path).drain()


def test_a_table_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"Hudi table rows isn't there: there is no rows/\.hoodie/hoodie\.prop"):
        HudiSource(tmp_path / "rows").open().peek(1)


def test_a_link_out_of_the_folder_is_not_followed(recorded: Recorded, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    recorded.hide(1)
    (base,) = recorded.path.glob(f"*_{recorded.instants[0]}.parquet")
    base.rename(elsewhere / base.name)
    base.symlink_to(elsewhere / base.name)
    with pytest.raises(UnavailableError, match="leads to another folder, so it isn't read"):
        HudiSource(recorded.path).drain()


@pytest.mark.parametrize("name", ["hoodie.base.path", "hoodie.metadata.enable"])
def test_properties_that_would_lead_elsewhere_are_refused(recorded: Recorded, name: str, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(recorded.path, elsewhere)
    set_property(recorded, name, str(elsewhere) if name == "hoodie.base.path" else "true")
    with pytest.raises(UnavailableError, match=rf"has {name}=.* in .*hoodie\.properties, which isn't read; remove it"):
        HudiSource(recorded.path).drain()


def test_a_column_that_is_missing_is_an_error(recorded: Recorded) -> None:
    dataset = replace(EVENTS, fields=(*EVENTS.fields, FieldSpec(name="weight", dtype=INT)))
    source = HudiSource(recorded.path, cdc=Cdc.APPEND, dataset=dataset)
    with pytest.raises(UnavailableError, match="no column weight, which field weight needs; columns: at, k, n, ot"):
        source.open().peek(1)


def test_a_peek_shows_rows_and_needs_no_position(recorded: Recorded) -> None:
    found = rows_of([HudiSource(recorded.path).open().peek(4)])
    assert [(each["op"], each["before"]) for each in found] == [("r", None)] * 4


def test_a_computed_key_is_refused(tmp_path: Path) -> None:
    computed = (("k", Computed(by=(col("id") + 1).node, schema=(("id", INT),))),)
    with pytest.raises(UnavailableError, match=r"eval makes the key k, by which the changes of a Hudi table"):
        HudiSource(tmp_path / "rows", source={"preproc": computed}).open()


def test_progress_is_in_bytes(recorded: Recorded) -> None:
    source = HudiSource(recorded.path)
    opened = source.seek()
    assert opened.progress() is None
    assert opened.poll(rows=1, size=1 << 20, timeout_s=0) is not None
    progress = opened.progress()
    assert progress is not None
    assert progress.done == progress.total > 0
    assert opened.lag() is None


def timeline(*names: str, version: int = 8) -> Timeline:
    return timeline_of([StoredFile(f"t/.hoodie/timeline/{name}", 1, 5_000_000) for name in names], version)


def ats(found: Timeline) -> tuple[Sequence[str], Sequence[str]]:
    return [each.at for each in found.done], [each.at for each in found.readable]


A, B, C, D = (f"2024010100000{number}000" for number in range(1, 5))


@pytest.mark.parametrize(
    ("version", "names", "done", "readable"),
    [
        (8, [f"{A}_{B}.commit", f"{A}.commit.requested", f"{A}.inflight"], [A], [A]),
        (6, [f"{A}.commit", f"{B}.deltacommit", f"{B}.deltacommit.inflight"], [A, B], [A, B]),
        # A commit that was asked for earlier blocks those behind it, also if they have completed.
        (8, [f"{A}_{A}.commit", f"{B}.inflight", f"{C}_{D}.commit"], [A, C], [A]),
        (8, [f"{A}_{A}.commit", f"{B}.clustering.requested", f"{C}_{D}.commit"], [A, C], [A]),
        (8, [f"{A}_{A}.deltacommit", f"{B}.compaction.requested", f"{C}_{D}.deltacommit"], [A, C], [A, C]),
        (6, [f"{A}.deltacommit", f"{B}.compaction.requested", f"{C}.deltacommit"], [A, C], [A]),
        (6, [f"{A}.deltacommit", f"{B}.compaction.requested", f"{B}.commit", f"{C}.deltacommit"], *[[A, B, C]] * 2),
        (8, [f"{A}_{C}.replacecommit", f"{B}_{B}.rollback", f"{C}.savepoint", "hoodie.properties"], [A], [A]),
        (6, ["20240101000001.commit", f"{B}.commit"], ["20240101000001", B], ["20240101000001", B]),
        (8, [], [], []),
    ],
)
def test_instants_are_in_the_order_in_which_they_were_asked_for(
    version: int, names: list[str], done: list[str], readable: list[str]
) -> None:
    assert ats(timeline(*names, version=version)) == (done, readable)


def test_cleaners_under_way_are_known() -> None:
    found = timeline(f"{A}.clean.requested", f"{A}_{B}.clean", f"{B}.clean.inflight", f"{C}.clean.requested")
    assert (set(found.cleans), set(found.cleaned)) == ({B, C}, {A})


def test_a_compaction_may_complete_long_after_it_was_planned() -> None:
    begun = [f"{A}_{A}.deltacommit", f"{B}.compaction.requested", f"{C}_{C}.deltacommit"]
    recent = recent_of(timeline(*begun), C)
    assert recent == [A, C]
    assert unread(timeline(*begun, f"{B}_{D}.commit"), C, recent, "T") == []


def test_an_instant_that_appears_too_late_is_an_error() -> None:
    before = timeline(f"{A}_{A}.commit", f"{C}_{C}.commit")
    recent = recent_of(before, C)
    assert recent == [A, C]
    now = timeline(f"{A}_{A}.commit", f"{B}_{D}.commit", f"{C}_{C}.commit", f"{D}_{D}.commit")
    with pytest.raises(UnavailableError, match=f"T: the instant {B} has appeared after the later one {C} was read"):
        unread(now, C, recent, "T")
    assert [each.at for each in unread(now, C, recent_of(now, C), "T")] == [D]
