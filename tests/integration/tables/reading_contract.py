"""The contract of tables that are read by a cursor, in all databases and warehouses.

The tests of a warehouse import all of these tests, and have the fixtures `database` and `cursor`. None of them is run
here.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import pytest

from caraway.dtypes.types import STRING, DataType, optional
from caraway.errors import UnavailableError
from tests.integration.tables.systems import PLAIN, Reading, System, field_of
from tests.unit.dataplane.sources.test_sources import letters

__all__ = [
    "test_a_table_whose_columns_change_goes_on",
    "test_an_empty_table_has_no_rows_yet",
    "test_many_rows_come_in_pages_also_those_of_one_value_of_the_cursor",
    "test_rounds_bring_new_late_and_changed_rows_once",
]


class Warehouse(System, Protocol):
    """A warehouse in memory."""

    #: The type of whole numbers.
    whole: str

    def create(self, cursor: str | None = None, more: str = "") -> None:
        """Create the table hives with the columns id, value, at and seen, and more."""
        ...

    def shown(self, columns: str) -> str:
        """Return names of columns as errors show them."""
        ...


def stamp(seconds: float) -> str:
    return f"'2024-05-01 12:{int(seconds) // 60:02}:{seconds % 60:09.6f}'"


def insert(database: System, *rows: tuple[int, int, float | None]) -> None:
    values = ", ".join(f"({n}, {value}, {'NULL' if at is None else stamp(at)}, {stamp(0)})" for n, value, at in rows)
    database.execute(f"INSERT INTO hives VALUES {values}")


def test_rounds_bring_new_late_and_changed_rows_once(database: Warehouse, cursor: str) -> None:
    database.create(cursor)
    insert(database, (1, 10, 1), (2, 20, 2), (2, 20, 2), (3, 30, 100), (4, 40, None))
    reading = Reading(database, "hives")
    worker = reading.worker()
    reading.round(worker)
    assert reading.rows() == [[1, 10], [2, 20], [2, 20], [3, 30]]
    reading.round(worker)
    assert len(reading.rows()) == 4
    # A row that comes late within the disorder, one that comes too late, and a change.
    insert(database, (5, 50, 95.5), (6, 60, 94))
    database.execute("UPDATE hives SET value = 31 WHERE id = 3")
    reading.round(worker)
    assert sorted(reading.rows()[4:]) == [[3, 31], [5, 50]]
    # Another server goes on; nothing comes again.
    worker.stop()
    worker = reading.worker()
    reading.round(worker)
    assert len(reading.rows()) == 6
    assert letters(reading.world) == []


def test_many_rows_come_in_pages_also_those_of_one_value_of_the_cursor(database: Warehouse) -> None:
    database.create()
    insert(database, *[(n, n % 3, n // 400) for n in range(1000)])
    reading = Reading(database, "hives", rows_of_page=70)
    reading.round(reading.worker())
    assert Counter(map(tuple, reading.rows())) == Counter((n, n % 3) for n in range(1000))


def test_a_table_whose_columns_change_goes_on(database: Warehouse) -> None:
    database.create(more=", note varchar, extra varchar")
    database.execute(f"INSERT INTO hives VALUES (1, 10, {stamp(1)}, {stamp(0)}, NULL, NULL)")
    reading = Reading(database, "hives", fields=(*PLAIN, field_of("note", optional(STRING))))
    worker = reading.worker()
    reading.round(worker)
    # A column that nobody reads goes, and another one comes: no row comes again.
    database.execute("ALTER TABLE hives DROP COLUMN extra")
    database.execute(f"ALTER TABLE hives ADD COLUMN more {database.whole}")
    database.execute(f"INSERT INTO hives VALUES (3, 30, {stamp(3)}, {stamp(0)}, NULL, 7)")
    reading.round(worker)
    assert reading.rows() == [[1, 10, None], [3, 30, None]]
    database.execute("ALTER TABLE hives DROP COLUMN note")
    columns = database.shown("id, value")
    with pytest.raises(UnavailableError, match=f"no column note, which field note needs; columns: {columns}"):
        reading.round(worker)
    database.execute("ALTER TABLE hives ADD COLUMN note varchar")
    reading.round(worker)
    assert len(reading.rows()) == 2


def test_an_empty_table_has_no_rows_yet(database: Warehouse) -> None:
    database.create()
    reading = Reading(database, "hives")
    worker = reading.worker()
    reading.round(worker)
    assert reading.rows() == []
    insert(database, (1, 10, None), (2, 20, 1))
    reading.round(worker)
    assert reading.rows() == [[2, 20]]


def check_cursors(database: System, cursors: Sequence[str], later: str, seen: str) -> None:
    """Check that the table, which has no rows, is read in the order of these values, and then of a later one."""
    for number, cursor in enumerate(cursors):
        database.execute(f"INSERT INTO hives VALUES ({number}, 0, {cursor}, {seen})")
    reading = Reading(database, "hives", rows_of_page=2)
    worker = reading.worker()
    reading.round(worker)
    assert sorted(reading.rows()) == [[0, 0], [1, 0], [2, 0]]
    database.execute(f"INSERT INTO hives VALUES (3, 0, {later}, {seen})")
    worker.stop()
    worker = reading.worker()
    reading.round(worker)
    assert sorted(reading.rows()) == [[0, 0], [1, 0], [2, 0], [3, 0]]


def check_types(database: System, cases: Sequence[tuple[str, DataType, *tuple[Any, ...]]]) -> None:
    """Check that the only row of the table has the last value of each case in the field of its name and type."""
    reading = Reading(database, "hives", fields=[field_of(name, dtype) for name, dtype, *_ in cases])
    reading.round(reading.worker())
    assert letters(reading.world) == []
    (row,) = reading.rows()
    assert dict(zip((case[0] for case in cases), row, strict=True)) == {case[0]: case[-1] for case in cases}
    # The next round recognises the row, whatever its types are.
    reading.round(reading.worker())
    assert len(reading.rows()) == 1
