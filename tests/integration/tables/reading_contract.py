"""The contract of tables that are read by a cursor, in all databases and warehouses.

The tests of a system import these tests, and have the fixtures `database`; `cursor`, a type of the cursor; `key`,
whether tables have primary keys; and `wrongs`, changes of a reading with the errors that they cause. None of the tests
is run here.
"""

import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import pytest

from caraway.dtypes.types import INT, STRING, DataType, optional
from caraway.errors import UnavailableError
from tests.integration.tables.systems import PASSWORD_OF_READER, PLAIN, Reading, System, field_of
from tests.unit.dataplane.sources.test_sources import letters

__all__ = [
    "test_a_sample_says_what_is_wrong",
    "test_a_table_whose_columns_change_goes_on",
    "test_an_empty_table_has_no_rows_yet",
    "test_many_rows_come_in_pages_also_those_of_one_value_of_the_cursor",
    "test_rounds_bring_new_late_and_changed_rows_once",
]

# Each is a change of a reading, with the words of its error.
Wrongs = Sequence[tuple[dict[str, Any], str]]


class Warehouse(System, Protocol):
    """A database with one table.

    Attributes:
        whole: The type of whole numbers.
        at: The name of the cursor in statements.
    """

    whole: str
    at: str

    @property
    def hidden(self) -> Sequence[str]:
        """Texts that no error may show."""
        ...

    def create(self, cursor: str | None = None, more: str = "", *, key: bool = False) -> None:
        """Create the table hives with the columns id, value, at and seen, and more."""
        ...

    def shown(self, columns: str) -> str:
        """Return names of columns as errors show them."""
        ...


def stamp(seconds: float) -> str:
    return f"'2024-05-01 12:{int(seconds) // 60:02}:{seconds % 60:09.6f}'"


def insert(database: Warehouse, *rows: tuple[int, int, float | None]) -> None:
    values = ", ".join(f"({n}, {value}, {'NULL' if at is None else stamp(at)}, {stamp(0)})" for n, value, at in rows)
    database.execute(f"INSERT INTO hives (id, value, {database.at}, seen) VALUES {values}")


def test_rounds_bring_new_late_and_changed_rows_once(database: Warehouse, cursor: str, key: bool) -> None:
    database.create(cursor, key=key)
    # Without a key, rows may be equal.
    equal = [] if key else [(2, 20, 2)]
    insert(database, (1, 10, 1), (2, 20, 2), *equal, (3, 30, 100), (4, 40, None))
    reading = Reading(database, "hives")
    worker = reading.worker()
    reading.round(worker)
    expected = [[1, 10], [2, 20], *([] if key else [[2, 20]]), [3, 30]]
    assert reading.rows() == expected
    reading.round(worker)
    assert reading.rows() == expected
    # A row that comes late within the disorder, one that comes too late, a change and a repeat of the same content.
    insert(database, (5, 50, 95.5), (6, 60, 94))
    database.execute("UPDATE hives SET value = 31 WHERE id = 3")
    database.execute(f"UPDATE hives SET {database.at} = {stamp(101)} WHERE id = 1")
    reading.round(worker)
    assert sorted(reading.rows()[len(expected) :]) == [[1, 10], [3, 31], [5, 50]]
    # Another server goes on; nothing comes again.
    worker.stop()
    worker = reading.worker()
    reading.round(worker)
    assert len(reading.rows()) == len(expected) + 3
    assert letters(reading.world) == []


def test_many_rows_come_in_pages_also_those_of_one_value_of_the_cursor(database: Warehouse, key: bool) -> None:
    database.create(key=key)
    rows = [(number, number % 3, number // 400) for number in range(1000)]
    rows += [] if key else rows[:700]
    insert(database, *rows)
    reading = Reading(database, "hives", rows_of_page=70)
    worker = reading.worker()
    reading.round(worker)
    assert Counter(map(tuple, reading.rows())) == Counter(row[:2] for row in rows)
    insert(database, (1000, 1, 2), (1001, 1, 3))
    reading.round(worker)
    assert sorted(reading.rows())[-2:] == [[1000, 1], [1001, 1]]
    # Nothing is kept open between two pages that others would have to wait for.
    assert len(reading.rows()) == database.execute("SELECT count(*) FROM hives")[0][0] == len(rows) + 2


def test_a_table_whose_columns_change_goes_on(database: Warehouse) -> None:
    database.create(more=", note varchar(20), extra varchar(20)")
    insert(database, (1, 10, 1), (2, 20, 2))
    reading = Reading(database, "hives", fields=(*PLAIN, field_of("note", optional(STRING))))
    worker = reading.worker()
    reading.round(worker)
    # A column that nobody reads goes, and another one comes: no row comes again.
    database.execute("ALTER TABLE hives DROP COLUMN extra")
    database.execute(f"ALTER TABLE hives ADD COLUMN more {database.whole}")
    insert(database, (3, 30, 3))
    reading.round(worker)
    assert reading.rows() == [[1, 10, None], [2, 20, None], [3, 30, None]]
    # A column that is read and goes stops the source until it is back; nothing is lost.
    database.execute("ALTER TABLE hives DROP COLUMN note")
    columns = database.shown("id, value")
    with pytest.raises(UnavailableError, match=f"no column note, which field note needs; columns: {columns}"):
        reading.round(worker)
    database.execute("ALTER TABLE hives ADD COLUMN note varchar(20)")
    insert(database, (5, 50, 5))
    reading.round(worker)
    assert reading.rows()[3:] == [[5, 50, None]]


def test_an_empty_table_has_no_rows_yet(database: Warehouse) -> None:
    database.create()
    reading = Reading(database, "hives")
    worker = reading.worker()
    reading.round(worker)
    assert reading.rows() == []
    insert(database, (1, 10, None), (2, 20, 1))
    reading.round(worker)
    assert reading.rows() == [[2, 20]]


def test_a_sample_says_what_is_wrong(database: Warehouse, wrongs: Wrongs) -> None:
    database.create()
    insert(database, (1, 10, 1), (2, 20, 2))
    reading = Reading(database, "hives")
    batch = reading.reader().peek(10)
    assert batch.rows.names() == {"id", "value", "seen"}
    assert [batch.rows.row(number)["id"] for number in range(len(batch.rows))] == [1, 2]  # type: ignore[index]
    columns = database.shown("id, value, at, seen")
    everywhere: Wrongs = [
        ({"cursor": "att"}, f"no column att to be the cursor; columns: {columns}"),
        ({"fields": (*PLAIN, field_of("honey", INT))}, "no column honey, which field honey needs"),
        ({"table": 'a"b'}, "is no name of a table"),
    ]
    for change, expected in (*everywhere, *wrongs):
        with pytest.raises(UnavailableError, match=expected) as caught:
            replace(reading, **change).reader().peek(10)
        assert [secret for secret in database.hidden if secret in str(caught.value)] == []


def test_a_changed_password_takes_effect_at_the_next_connection(database: Warehouse) -> None:
    database.create()
    insert(database, (1, 10, 1))
    name = f"reader_{secrets.token_hex(4)}"
    database.user(name, "first")
    known = {"password": "first"}
    reading = Reading(
        database,
        "hives",
        more={"username": name, "password": PASSWORD_OF_READER},
        resolve=lambda value: known["password"] if value is PASSWORD_OF_READER else str(value),
    )
    worker = reading.worker()
    reading.round(worker)
    database.user(name, "second")
    database.end_connections()
    with pytest.raises(UnavailableError):
        reading.round(worker)
    with pytest.raises(UnavailableError) as caught:
        reading.round(worker)
    assert "first" not in str(caught.value)
    known["password"] = "second"
    insert(database, (2, 20, 2))
    reading.round(worker)
    assert reading.rows() == [[1, 10], [2, 20]]


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
