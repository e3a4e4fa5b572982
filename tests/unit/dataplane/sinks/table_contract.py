"""The contract of all tables that sinks write, whatever writes them.

The tests of a system import all of these tests, and have a fixture `place`. None of them is run here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Protocol

import pytest
from hypothesis import strategies as st

from caraway.dataplane.sinks.changes import Change, Row
from caraway.dataplane.sinks.writer import Batch, SinkWriter
from caraway.errors import UnavailableError
from caraway.graph.plan.model import SinkPlan
from tests.unit.dataplane.sinks.world import change, row

BATCHES = st.lists(
    st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 3)), min_size=1, max_size=6),
    min_size=1,
    max_size=4,
)


__all__ = [
    "test_a_new_sink_of_the_same_name_replaces_rows_and_columns_and_spares_tables_of_others",
    "test_a_table_has_the_rows_and_the_positions_and_takes_a_batch_once",
    "test_changes_that_cancel_each_other_write_no_rows",
    "test_rows_without_keys_have_a_hash_that_tells_equal_rows_apart",
]


class Place(Protocol):
    """A system with tables; the plan of the sink writes v as value."""

    #: The error of a writer whose table another server has written.
    overtaken: str

    def plan(self, *, keyed: bool = True) -> SinkPlan: ...

    def writer(self, plan: SinkPlan, name: str = "sink", product: Any = "caraway") -> SinkWriter: ...

    def rows(self, *names: str) -> list[tuple[Any, ...]]:
        """Return the values of all columns but the hash, by their names; rows are in the order of the first two."""
        ...

    def hashes(self, product: str) -> list[str]:
        """Return the hashes that rows without keys have."""
        ...

    def add_table(self) -> None:
        """Make a table where that of the dataset's version 4 would be."""
        ...


def rows_of(read: Iterable[Mapping[str, Any]], names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return what `Place.rows` returns, of the rows of a table."""
    rows = [{name: value for name, value in each.items() if not name.endswith("_hash__")} for each in read]
    assert all(each.keys() == set(names) for each in rows)
    return sorted((tuple(each[name] for name in names) for each in rows), key=lambda each: each[:2])


def values(place: Place) -> list[tuple[Any, ...]]:
    return [each[:2] for each in place.rows("k", "value", "n", "at")]


def test_a_table_has_the_rows_and_the_positions_and_takes_a_batch_once(place: Place) -> None:
    plan = place.plan()
    first = place.writer(plan)
    assert first.positions() == {}
    made = [change(key, None, row(key, 1.0), number) for number, key in enumerate("abc")]
    stale = place.writer(plan)
    first.write(Batch(made, {0: 3, 1: 0}))
    with pytest.raises(UnavailableError, match=place.overtaken):
        stale.write(Batch(made, {0: 3, 1: 0}))
    second = place.writer(plan)
    assert second.positions() == {0: 3, 1: 0}
    changed = [change("a", row("a", 1.0), None, 3), change("b", row("b", 1.0), row("b", 2.0, 5, 7), 4)]
    second.write(Batch([*changed, change("b", row("b", 2.0), row("b", 3.0), 5)], {0: 6, 1: 0}))
    assert [each[:3] for each in place.rows("k", "value", "n", "at")] == [("b", 3.0, None), ("c", 1.0, None)]
    assert place.writer(plan).positions() == {0: 6, 1: 0}


def check_batches(place: Place, batches: Sequence[Sequence[tuple[str, int | None]]]) -> None:
    """Check that batches of any changes give the table of these changes."""
    sink, table, offset = place.writer(place.plan()), dict[str, Row](), 0
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
    assert values(place) == sorted((key, each.values[1]) for key, each in table.items())


@pytest.mark.parametrize("product", ["caraway", "fennel"])
def test_rows_without_keys_have_a_hash_that_tells_equal_rows_apart(place: Place, product: str) -> None:
    sink = place.writer(place.plan(keyed=False), product=product)
    same = row("a", 1.0)
    sink.write(Batch([change("id1", None, same, 0), change("id2", None, same, 1)], {0: 2}))
    sink.write(Batch([change("id3", None, row("b", 1.0), 2)], {0: 3}))
    hashes = place.hashes(product)
    assert len(hashes) == len(set(hashes)) == 3
    assert all(len(each) == 32 for each in hashes)
    # A revision replaces the row, a retraction removes it, and a row that is as before stays.
    there_and_back = [change("id2", same, row("c", 1.0), 5), change("id2", row("c", 1.0), same, 6)]
    changes = [change("id1", same, row("a", 9.0), 3), change("id3", row("b", 1.0), None, 4), *there_and_back]
    sink.write(Batch(changes, {0: 7}))
    assert values(place) == [("a", 1.0), ("a", 9.0)]
    # A revision that is taken back within a batch changes nothing.
    other = row("a", 9.0)
    sink.write(Batch([change("id1", other, same, 7), change("id1", same, other, 8)], {0: 9}))
    assert values(place) == [("a", 1.0), ("a", 9.0)]


def test_a_new_sink_of_the_same_name_replaces_rows_and_columns_and_spares_tables_of_others(place: Place) -> None:
    plan = place.plan()
    old = place.writer(plan)
    old.write(Batch([change("a", None, row("a", 1.0), 0)], {0: 1}))
    renamed = replace(plan, sink=replace(plan.sink, renames=(("v", "value"), ("n", "note"))))
    new = place.writer(renamed, "new")
    assert new.positions() == {}
    new.write(Batch([change("b", None, row("b", 2.0, 7), 0)], {0: 1}))
    with pytest.raises(UnavailableError):
        old.write(Batch([change("a", row("a", 1.0), row("a", 2.0), 1)], {0: 2}))
    assert [each[:3] for each in place.rows("k", "value", "note", "at")] == [("b", 2.0, 7)]
    place.add_table()
    with pytest.raises(UnavailableError, match="no sink of Table has made"):
        place.writer(replace(plan, dataset=replace(plan.dataset, version=4)))


def test_changes_that_cancel_each_other_write_no_rows(place: Place) -> None:
    sink = place.writer(place.plan())
    sink.write(Batch([change("a", None, row("a", 1.0), 0), change("a", row("a", 1.0), None, 1)], {0: 2}))
    assert (values(place), sink.positions()) == ([], {0: 2} if sink.remembers else {})


def check_deaths(
    seed: int,
    opened: Callable[[], Any],
    die: Callable[[Any, Batch], bool],
    read: Callable[[], Sequence[tuple[str, float]]],
) -> None:
    """Check that a table is the dataset after any batches, whatever dies and whoever writes.

    `die` writes a batch while the connection of the writer dies, and returns whether the batch may have been written.
    """
    random, table, offset = Random(seed), dict[str, Row](), 0
    writer, stale = opened(), opened()
    for _ in range(30):
        changes, after_batch = list[Change](), dict(table)
        for _ in range(random.randrange(1, 8)):
            key = f"k{random.randrange(5)}"
            before = after_batch.get(key)
            after = None if random.random() < 0.3 else row(key, float(random.randrange(9)), None, offset)
            offset += 1
            if before is None and after is None:
                continue
            changes.append(change(key, before, after, offset))
            after_batch.pop(key, None)
            if after is not None:
                after_batch[key] = after
        batch = Batch(changes, {0: offset, 1: 0})
        match random.randrange(4):
            case 0:
                # The connection dies at any moment; the next writer sees whether the batch was written.
                may_be_there = die(writer, batch)
                writer.close()
                stale.close()
                # The stale one is connected again, so that it is stopped by the position and not by its connection.
                writer, stale = opened(), opened()
                if may_be_there and writer.positions() == batch.reached:
                    table = after_batch
            case 1:
                writer.write(batch)
                with pytest.raises(UnavailableError):
                    # An owner that was paused writes what it read before.
                    stale.write(Batch([change("stale", None, row("stale", 1.0), offset)], {0: offset, 1: 0}))
                stale.close()
                stale, table = opened(), after_batch
            case _:
                writer.write(batch)
                table = after_batch
        assert read() == sorted((key, each.values[1]) for key, each in table.items())
    writer.close()
    stale.close()
