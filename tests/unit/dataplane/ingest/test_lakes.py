"""The contract of sources that are tables of files, whatever their format."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caraway.dataplane.ingest.marks import expanded
from caraway.dataplane.sources.reader import SourceBatch
from caraway.dtypes.types import INT
from caraway.errors import UnavailableError
from caraway.expr import col
from caraway.graph.sources import Cdc, Computed, Ref
from caraway.graph.specs import FieldSpec
from tests.effort import examples
from tests.unit.dataplane.ingest.test_iceberg_sources import CHANGES as ICEBERG_CHANGES
from tests.unit.dataplane.ingest.test_iceberg_sources import Lake as IcebergLake
from tests.unit.dataplane.sources.hudi_source import RecordedSource
from tests.unit.dataplane.sources.lake import EVENTS, EVERY_US, Lake, applied, row, rows_of
from tests.unit.dataplane.sources.test_delta_sources import CHANGES as DELTA_CHANGES
from tests.unit.dataplane.sources.test_delta_sources import Lake as DeltaLake

FORMATS: dict[str, Callable[..., Lake]] = {
    "delta": DeltaLake,
    "iceberg": IcebergLake,
    "hudi6": lambda folder, **more: RecordedSource(folder, "cow6", **more),
    "hudi8": lambda folder, **more: RecordedSource(folder, "cow8", **more),
}


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return FORMATS[request.param](tmp_path)


def keys_of(batches: Iterable[SourceBatch]) -> list[int]:
    """Return the keys of rows that are added, as envelopes or as they are."""
    return [(each.get("after") or each)["k"] for each in rows_of(batches)]


def test_a_table_without_rows_is_read_from_its_first_change_on(lake: Lake) -> None:
    lake.create_empty()
    assert rows_of(lake.drain()) == []
    lake.grow()
    lake.grow()
    found = [*lake.drain(), *lake.drain()]
    assert set(keys_of(found)) == set(range(7))


def test_a_reader_that_ends_at_any_row_goes_on_behind_it_in_the_snapshot_that_it_began(lake: Lake) -> None:
    lake.create_empty()
    lake.grow()
    lake.seek()
    begin = lake.position
    lake.grow()
    batches = [*lake.drain(), *lake.drain()]
    whole = [(batch.mark(at), each) for batch in batches for at, each in enumerate(rows_of([batch]))]
    assert len({mark for mark, _ in whole}) == len(whole)
    keys = keys_of(batches)
    assert (sorted(keys[:6]), 6 in keys[6:]) == (list(range(6)), True)
    for most in (1, 2, 3):
        lake.position = begin
        found: list[tuple[str, Any]] = []
        while len(found) < len(whole):
            opened = lake.seek()
            batch = opened.poll(rows=most, size=1 << 22, timeout_s=EVERY_US)
            opened.close()
            if batch is None:
                continue
            marks = [batch.mark(at) for at in range(len(batch.rows))]
            assert not any(map(opened.is_ahead, marks))
            if marks:
                assert batch.run is not None
                assert list(expanded(batch.run(0, len(marks)))) == marks
            found += zip(marks, rows_of([batch]), strict=True)
            lake.position = batch.position
        assert found == whole


def test_a_peek_shows_rows_and_needs_no_position(lake: Lake) -> None:
    lake.create_empty()
    lake.grow()
    found = lake.open().peek(4)
    assert len(set(keys_of([found]))) == 4
    if lake.cdc is Cdc.NATIVE:
        assert [(each["op"], each["before"]) for each in rows_of([found])] == [("r", None)] * 4


def test_progress_is_in_bytes_and_idle_rounds_are_told(lake: Lake) -> None:
    lake.create_empty()
    lake.grow()
    opened = lake.seek()
    assert opened.progress() is None
    seen = []
    for _ in range(5):
        assert opened.poll(rows=1, size=1 << 20, timeout_s=0) is not None
        progress = opened.progress()
        assert progress is not None
        seen.append(progress.done)
        assert progress.total == lake.bytes()
    assert seen == sorted(seen)
    assert 0 < seen[-1] <= lake.bytes()
    assert opened.lag() is None
    while opened.idle_at() is None:
        opened.poll(rows=10, size=1 << 20, timeout_s=EVERY_US)
    assert opened.lag() == 0


def test_a_table_that_is_not_there_is_refused(lake: Lake) -> None:
    table = f"Files files, folder .*, {lake.format.capitalize()} table {lake.prefix.rstrip('/')} isn't there"
    with pytest.raises(UnavailableError, match=table):
        lake.open().peek(1)


@pytest.mark.parametrize("name", ["iceberg", "hudi8"])
def test_a_column_that_is_missing_is_an_error(tmp_path: Path, name: str) -> None:
    dataset = replace(EVENTS, fields=(*EVENTS.fields, FieldSpec(name="weight", dtype=INT)))
    lake = FORMATS[name](tmp_path, cdc=Cdc.APPEND, dataset=dataset)
    lake.create_empty()
    lake.grow()
    with pytest.raises(UnavailableError, match="no column weight, which field weight needs; columns: at, k, n, ot"):
        lake.open().peek(1)


@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_a_computed_key_by_which_changes_are_known_is_refused(tmp_path: Path, name: str) -> None:
    computed = (("k", Computed(by=(col("id") + 1).node, schema=(("id", INT),))),)
    with pytest.raises(UnavailableError, match=r"eval makes the key k, by which the changes of an? .* table"):
        FORMATS[name](tmp_path, source={"preproc": computed}).open()


@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_a_copied_key_by_which_changes_are_known_is_compared(tmp_path: Path, name: str) -> None:
    lake = FORMATS[name](tmp_path, source={"preproc": (("k", Ref(path=("text",))),)})
    lake.create_empty()
    lake.grow()
    lake.overwrite(row(0, "same"), row(3, "other"))
    lake.drain()
    lake.overwrite({**row(0, "same"), "part": "new"})
    changes = [(each["op"], (each["before"] or each["after"])["text"]) for each in rows_of(lake.drain())]
    assert changes == [("d", "other"), ("c", "same")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "kinds"), [("delta", DELTA_CHANGES), ("iceberg", ICEBERG_CHANGES)])
@settings(max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), rows=st.integers(1, 5), seed=st.integers(0, 10**6))
def test_after_any_changes_the_rows_are_those_of_the_table(
    *, name: str, kinds: Any, data: st.DataObject, rows: int, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    options: dict[str, Any] = {}
    if name == "iceberg":
        cdc = data.draw(st.sampled_from([Cdc.NATIVE, Cdc.UPSERT]))
        options = {"cdc": cdc, "by_catalog": data.draw(st.booleans())}
    lake, number, chance = FORMATS[name](tmp_path_factory.mktemp(name), **options), count(1), Random(seed)
    lake.create_empty()
    lake.grow()
    state: dict[int, dict[str, Any]] = {}
    fields = [each.name for each in lake.dataset.fields]
    for changes in [[], *data.draw(st.lists(st.lists(kinds, max_size=3), min_size=1, max_size=3))]:
        for kind, key in changes:
            lake.change(kind, key, next(number))
        for batch, at in lake.drain_with_crashes(chance, lambda: rows):
            some = rows_of([batch])[at]
            envelope = some if lake.cdc is Cdc.NATIVE else {"op": "c", "before": None, "after": some}
            applied(state, [envelope], lambda values: {field: values[field] for field in fields})
        content = {each["k"]: each for each in lake.content()}
        # Without deletes, rows that were deleted stay, and all others are those of the table.
        assert state == content if lake.cdc is Cdc.NATIVE else content.items() <= state.items()
