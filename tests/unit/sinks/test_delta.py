"""Delta tables that sinks write: they equal the dataset, have each batch once, and belong to one sink."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.writer import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from caraway.errors import UnavailableError
from caraway.graph.connectors import S3Connector
from caraway.graph.sources import SinkSpec
from caraway.graph.systems import S3System
from caraway.plan.model import SinkPlan
from caraway.sinks import delta
from caraway.sinks.changes import Change, Row
from caraway.sinks.delta import DeltaWriter
from caraway.sinks.writer import Batch
from tests.unit.sinks.world import plan_of, writing

LAKE = S3Connector(system=S3System(name="lake"), bucket="b", prefix="p", format="delta")
SINK = SinkSpec(connector=LAKE, how="incremental", create=True, every_us=1, renames=(("v", "value"),))


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which the tables are, instead of a bucket."""
    found = tmp_path_factory.mktemp("tables")
    monkeypatch.setattr(delta, "address_of", lambda plan: (f"{found}/{plan.target.rpartition('/')[2]}", {}))
    return found


def writer(plan: SinkPlan, name: str = "sink", product: Any = "caraway") -> DeltaWriter:
    return DeltaWriter(writing(plan, name=name, product=product))


def row(key: str, value: float, note: int | None = None, time: int = 1) -> Row:
    return Row(time, (key, value, note))


def change(key: str, before: Row | None, after: Row | None, offset: int) -> Change:
    return Change(key.encode(), before, after, 1, 0, offset)


def read(folder: Path) -> list[dict[str, Any]]:
    (path,) = folder.iterdir()
    return sorted(DeltaTable(str(path)).to_pyarrow_table().to_pylist(), key=lambda each: each["k"])


def values(folder: Path) -> list[tuple[str, float]]:
    return [(each["k"], each["value"]) for each in read(folder)]


@pytest.mark.spec("connectors:4.2:3")
def test_a_table_has_the_rows_and_the_positions_and_takes_a_batch_once(folder: Path) -> None:
    plan = plan_of(sink=SINK)
    first = writer(plan)
    assert first.positions() == {}
    made = [change(key, None, row(key, 1.0), number) for number, key in enumerate("abc")]
    stale = writer(plan)
    first.write(Batch(made, {0: 3, 1: 0}))
    with pytest.raises(UnavailableError):
        stale.write(Batch(made, {0: 3, 1: 0}))
    second = writer(plan)
    assert second.positions() == {0: 3, 1: 0}
    changed = [change("a", row("a", 1.0), None, 3), change("b", row("b", 1.0), row("b", 2.0, 5, 7), 4)]
    second.write(Batch([*changed, change("b", row("b", 2.0), row("b", 3.0), 5)], {0: 6, 1: 0}))
    assert values(folder) == [("b", 3.0), ("c", 1.0)]
    assert read(folder)[0].keys() == {"k", "value", "n", "at"}
    assert writer(plan).positions() == {0: 6, 1: 0}


# Each example writes files, so that there are fewer than by default.
@settings(max_examples=25)
@given(
    batches=st.lists(
        st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 3)), min_size=1, max_size=6),
        min_size=1,
        max_size=4,
    )
)
@pytest.mark.spec("connectors:4.2:3")
def test_merges_give_the_table_of_the_changes(
    batches: Sequence[Sequence[tuple[str, int | None]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = tmp_path_factory.mktemp("tables")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delta, "address_of", lambda _: (f"{found}/table", {}))
        sink, table, offset = writer(plan_of(sink=SINK)), dict[str, Row](), 0
        for batch in batches:
            changes = []
            for key, value in batch:
                before, after = table.get(key), None if value is None else row(key, float(value), time=offset)
                if before is not None or after is not None:
                    changes.append(change(key, before, after, offset))
                offset += 1
                if after is None:
                    table.pop(key, None)
                else:
                    table[key] = after
            sink.write(Batch(changes, {0: offset}))
        assert values(found) == sorted((key, each.values[1]) for key, each in table.items())


@pytest.mark.spec("connectors:4.2:3")
@pytest.mark.parametrize("product", ["caraway", "fennel"])
def test_rows_without_keys_have_a_hash_that_tells_equal_rows_apart(folder: Path, product: str) -> None:
    plan = plan_of(sink=SINK, keyed=False)
    sink = writer(plan, product=product)
    same = row("a", 1.0)
    sink.write(Batch([change("id1", None, same, 0), change("id2", None, same, 1)], {0: 2}))
    sink.write(Batch([change("id3", None, row("b", 1.0), 2)], {0: 3}))
    rows = read(folder)
    name = f"__{product}_hash__"
    assert len({each[name] for each in rows}) == 3
    assert all(len(each[name]) == 32 for each in rows)
    # A revision replaces the row, and a retraction removes it.
    sink.write(Batch([change("id1", same, row("a", 9.0), 3), change("id3", row("b", 1.0), None, 4)], {0: 5}))
    assert sorted(values(folder)) == [("a", 1.0), ("a", 9.0)]
    # A revision that is taken back within a batch changes nothing.
    other = row("a", 9.0)
    sink.write(Batch([change("id1", other, same, 5), change("id1", same, other, 6)], {0: 7}))
    assert sorted(values(folder)) == [("a", 1.0), ("a", 9.0)]


def test_a_new_sink_of_the_same_name_replaces_the_rows_and_spares_tables_of_others(folder: Path) -> None:
    plan = plan_of(sink=SINK)
    writer(plan).write(Batch([change("a", None, row("a", 1.0), 0)], {0: 1}))
    renamed = replace(plan, sink=replace(SINK, renames=(("v", "value"), ("n", "note"))))
    writer(renamed, "new").write(Batch([change("b", None, row("b", 2.0), 0)], {0: 1}))
    assert values(folder) == [("b", 2.0)]
    assert "note" in read(folder)[0]
    write_deltalake(str(folder / "p_main_v4"), pa.table({"x": [1]}))
    with pytest.raises(UnavailableError, match="no sink of Table has made"):
        writer(replace(plan, dataset=replace(plan.dataset, version=4)))


def test_changes_that_cancel_each_other_write_nothing(folder: Path) -> None:
    sink = writer(plan_of(sink=SINK))
    sink.write(Batch([change("a", None, row("a", 1.0), 0), change("a", row("a", 1.0), None, 1)], {0: 2}))
    assert (read(folder), sink.positions()) == ([], {})


def options(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    return delta.address_of(plan_of(sink=SINK))[1]


def test_a_store_without_tls_is_allowed_if_the_environment_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert options("http://127.0.0.1:9000", monkeypatch)["AWS_ALLOW_HTTP"] == "true"
    assert "AWS_ALLOW_HTTP" not in options("https://s3.example.com", monkeypatch)
    assert delta.address_of(plan_of(sink=SINK))[0] == "s3://b/p_main_v3"
