"""Tables of Snowflake, over Snowflake's own connector and a server that speaks its protocol over DuckDB."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from caraway.dtypes.types import (
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    STRING,
    DataType,
    DecimalType,
    ListType,
    MapType,
    optional,
)
from caraway.errors import UnavailableError
from caraway.graph.systems import SnowflakeSystem
from caraway.ingest.sources.tables.cursor import CursorReader
from caraway.ingest.sources.tables.snowflake import SnowflakeReader
from tests.integration.tables.systems import PASSWORD_OF_READER, PLAIN, Reading, field_of
from tests.services.snowflake import PASSWORD, USER, Gate, running_in_thread, session, system_of
from tests.unit.ingest.test_sources import letters


class Database:
    """A schema of a Snowflake in memory (`System`)."""

    kind = "Snowflake"
    reader: type[CursorReader] = SnowflakeReader

    def __init__(self, port: int, gate: Gate) -> None:
        self.opened: list[CursorReader] = []
        self.port, self.gate = port, gate
        self._session = session(port)

    def execute(self, statement: str) -> list[Any]:
        with self._session.cursor() as cursor:
            return list(cursor.execute(statement).fetchall())  # type: ignore[union-attr]

    def system(self, **more: Any) -> SnowflakeSystem:
        return replace(system_of(), **more)

    @property
    def endpoints(self) -> dict[str, str]:
        return {"snow": f"http://127.0.0.1:{self.port}"}

    def user(self, name: str, password: str) -> None:
        self.gate.passwords[name] = password

    def end_connections(self) -> None:
        self.gate.end_sessions()
        self._session = session(self.port)

    def close(self) -> None:
        for reader in self.opened:
            reader.close()
        self._session.close()


@pytest.fixture
def database() -> Iterator[Database]:
    with running_in_thread() as (port, gate):
        made = Database(port, gate)
        yield made
        made.close()


def create(database: Database, cursor: str = "timestamp_ntz(9)", more: str = "") -> None:
    columns = f'id number(38,0), value number(38,0), "AT" {cursor}, seen timestamp_ntz{more}'
    database.execute(f"CREATE TABLE hives ({columns})")


def stamp(seconds: float) -> str:
    return f"'2024-05-01 12:{int(seconds) // 60:02}:{seconds % 60:09.6f}'"


def insert(database: Database, *rows: tuple[int, int, float | None]) -> None:
    values = ", ".join(f"({n}, {value}, {'NULL' if at is None else stamp(at)}, {stamp(0)})" for n, value, at in rows)
    database.execute(f"INSERT INTO hives VALUES {values}")


@pytest.mark.spec("connectors:11:12")
@pytest.mark.parametrize("cursor", ["timestamp_ntz(9)", "timestamp_ltz(9)", "timestamp_tz(9)"])
def test_rounds_bring_new_late_and_changed_rows_once(database: Database, cursor: str) -> None:
    create(database, cursor)
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


def test_many_rows_come_in_pages_also_those_of_one_value_of_the_cursor(database: Database) -> None:
    create(database)
    database.execute(
        "INSERT INTO hives SELECT n, n % 3, '2024-05-01'::timestamp + floor(n / 400) * interval '1 second', "
        "'2024-05-01'::timestamp FROM (SELECT unnest(range(1000)) AS n)"
    )
    reading = Reading(database, "hives", rows_of_page=70)
    worker = reading.worker()
    reading.round(worker)
    assert Counter(map(tuple, reading.rows())) == Counter((n, n % 3) for n in range(1000))


def test_times_of_one_microsecond_are_one_value_of_the_cursor(database: Database) -> None:
    create(database)
    for number, digits in enumerate(["000000", "000000001", "000000999", "000001", "000001999"]):
        database.execute(f"INSERT INTO hives VALUES ({number}, 0, '2024-05-01 00:00:00.{digits}', {stamp(0)})")
    reading = Reading(database, "hives", rows_of_page=2)
    reading.round(reading.worker())
    assert sorted(reading.rows()) == [[number, 0] for number in range(5)]


def test_answers_that_are_cut_and_sessions_that_end_lose_and_double_nothing(database: Database) -> None:
    create(database)
    insert(database, *[(n, 1, n // 200) for n in range(600)])
    reading = Reading(database, "hives", rows_of_page=50)
    random, worker, ends = Random(7), reading.worker(), 0
    while worker.position.get("most") is not None or not worker.position.get("round"):
        if random.random() < 0.3:
            # The connector repeats a request whose answer was cut.
            database.gate.cut = 1
        elif random.random() < 0.3:
            database.end_connections()
            ends += 1
        try:
            worker.step()
        except UnavailableError as error:
            assert "table hives" in str(error)  # noqa: PT017 (any number of them is right)
        reading.world.now += 0.3
    assert ends > 1
    assert Counter(number for number, _ in reading.rows()) == Counter(range(600))


def test_a_table_whose_columns_change_goes_on(database: Database) -> None:
    create(database, more=", note varchar, extra varchar")
    database.execute(f"INSERT INTO hives VALUES (1, 10, {stamp(1)}, {stamp(0)}, NULL, NULL)")
    reading = Reading(database, "hives", fields=(*PLAIN, field_of("note", optional(STRING))))
    worker = reading.worker()
    reading.round(worker)
    # A column that nobody reads goes, and another one comes: no row comes again.
    database.execute("ALTER TABLE hives DROP COLUMN extra")
    database.execute("ALTER TABLE hives ADD COLUMN more number(38,0)")
    database.execute(f"INSERT INTO hives VALUES (3, 30, {stamp(3)}, {stamp(0)}, NULL, 7)")
    reading.round(worker)
    assert reading.rows() == [[1, 10, None], [3, 30, None]]
    database.execute("ALTER TABLE hives DROP COLUMN note")
    with pytest.raises(UnavailableError, match="no column note, which field note needs; columns: ID, VALUE"):
        reading.round(worker)
    database.execute("ALTER TABLE hives ADD COLUMN note varchar")
    reading.round(worker)
    assert len(reading.rows()) == 2


def test_a_sample_says_what_is_wrong(database: Database) -> None:
    create(database)
    insert(database, (1, 10, 1), (2, 20, 2))
    reading = Reading(database, "hives")
    batch = reading.reader().peek(10)
    assert batch.rows.names() == {"id", "value", "seen"}
    assert len(batch.rows) == 2
    wrongs: list[tuple[dict[str, Any], str]] = [
        ({"table": "hivs"}, "there is no table hivs that the role READER may see; tables: HIVES"),
        ({"cursor": "att"}, "no column att to be the cursor; columns: ID, VALUE, AT, SEEN"),
        ({"fields": (*PLAIN, field_of("honey", INT))}, "no column honey, which field honey needs"),
        ({"table": 'a"b'}, "is no name of a table"),
        ({"more": {"password": "wrong"}}, "Incorrect username or password .*; correct the user's name or password"),
    ]
    for change, expected in wrongs:
        wrong = replace(reading, **change)
        with pytest.raises(UnavailableError, match=expected) as caught:
            wrong.reader().peek(10)
        assert "wrong" not in str(caught.value)
        assert PASSWORD not in str(caught.value)


def test_an_empty_table_has_no_rows_yet(database: Database) -> None:
    create(database)
    reading = Reading(database, "hives")
    worker = reading.worker()
    reading.round(worker)
    assert reading.rows() == []
    insert(database, (1, 10, None), (2, 20, 1))
    reading.round(worker)
    assert reading.rows() == [[2, 20]]


def test_a_changed_password_takes_effect_at_the_next_connection(database: Database) -> None:
    create(database)
    insert(database, (1, 10, 1))
    known = {"password": PASSWORD}
    reading = Reading(
        database,
        "hives",
        more={"username": USER, "password": PASSWORD_OF_READER},
        resolve=lambda value: known["password"] if value is PASSWORD_OF_READER else str(value),
    )
    worker = reading.worker()
    reading.round(worker)
    database.user(USER, "second")
    database.gate.end_sessions()
    with pytest.raises(UnavailableError):
        reading.round(worker)
    with pytest.raises(UnavailableError, match="correct the user's name or password") as caught:
        reading.round(worker)
    assert PASSWORD not in str(caught.value)
    known["password"] = "second"
    reading.round(worker)
    assert reading.rows() == [[1, 10]]


@pytest.mark.parametrize(
    ("column", "cursors", "later"),
    [
        ("number(38,0)", ["1", "2", "5"], "6"),
        ("number(20,2)", ["1.5", "2.25", "3"], "3.01"),
        ("date", ["'2024-04-30'", "'2024-05-01'", "'2024-05-02'"], "'2024-05-02'"),
        ("varchar", ["'2024-05-01T00:00:00Z'", "'2024-05-01T00:00:00.5Z'", "'2024-05-01T00:00:09Z'"],
         "'2024-05-01T00:00:08.25Z'"),
    ],
)  # fmt: skip
def test_cursors_may_be_numbers_days_and_texts(database: Database, column: str, cursors: list[str], later: str) -> None:
    create(database, column)
    for number, cursor in enumerate(cursors):
        database.execute(f"INSERT INTO hives VALUES ({number}, 0, {cursor}, {stamp(0)})")
    reading = Reading(database, "hives", rows_of_page=2)
    worker = reading.worker()
    reading.round(worker)
    assert sorted(reading.rows()) == [[0, 0], [1, 0], [2, 0]]
    database.execute(f"INSERT INTO hives VALUES (3, 0, {later}, {stamp(0)})")
    worker.stop()
    worker = reading.worker()
    reading.round(worker)
    assert sorted(reading.rows()) == [[0, 0], [1, 0], [2, 0], [3, 0]]


TYPES: list[tuple[str, DataType, str, str, Any]] = [
    # Column, type of the field, type of the column, value, stored value.
    ("whole", INT, "number(38,0)", "-7", -7),
    ("big", INT, "number(38,0)", "9223372036854775807", 2**63 - 1),
    ("exact", DecimalType(2), "number(20,2)", "1234567890.55", "1234567890.55"),
    ("number", FLOAT, "number(20,2)", "1.25", 1.25),
    ("double", FLOAT, "float", "0.1", 0.1),
    ("name", STRING, "varchar", "'Ünï\U0001f41d'", "Ünï\U0001f41d"),
    ("flag", BOOL, "boolean", "true", True),
    ("day", DATE, "date", "'2024-02-29'", 19782),
    ("plain", DATETIME, "timestamp_ntz", "'1969-12-31 23:59:59.5'", -500_000),
    ("zoned", DATETIME, "timestamp_tz", "'2024-05-01 12:00:00.25+00:00'", 1_714_564_800_250_000),
    ("local", DATETIME, "timestamp_ltz", "'2024-05-01 12:00:00.25+00:00'", 1_714_564_800_250_000),
    ("late", DATETIME, "timestamp_ntz", "'9999-12-31 00:00:00'", 253_402_214_400_000_000),
    ("hour", STRING, "time", "'10:00:01'", "10:00:01"),
    ("raw", BYTES, "binary", "to_binary('00ff', 'HEX')", b"\x00\xff"),
    ("items", ListType(of=INT), "variant", "parse_json('[1, 2]')", [1, 2]),
    ("named", MapType(of=FLOAT), "object", """parse_json('{"a": 1.5}')""", {"a": 1.5}),
    ("nothing", optional(INT), "number(38,0)", "NULL", None),
]


def test_all_types_become_values_of_fields(database: Database) -> None:
    columns = ", ".join(f'"{name.upper()}" {column}' for name, _, column, *_ in TYPES)
    database.execute(f'CREATE TABLE hives (seen timestamp_ntz, "AT" timestamp_ntz, {columns})')
    database.execute(f"INSERT INTO hives SELECT {stamp(0)}, {stamp(0)}, {', '.join(value for *_, value, _ in TYPES)}")
    reading = Reading(database, "hives", fields=[field_of(name, dtype) for name, dtype, *_ in TYPES])
    reading.round(reading.worker())
    assert letters(reading.world) == []
    (row,) = reading.rows()
    assert dict(zip((case[0] for case in TYPES), row, strict=True)) == {case[0]: case[-1] for case in TYPES}
    # The next round recognises the row, whatever its types are.
    reading.round(reading.worker())
    assert len(reading.rows()) == 1
