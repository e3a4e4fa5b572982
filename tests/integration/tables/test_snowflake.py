"""Tables of Snowflake, over Snowflake's own connector and a server that speaks its protocol over DuckDB."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from caraway.dataplane.sources.tables.cursor import CursorReader
from caraway.dataplane.sources.tables.snowflake import SnowflakeReader
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
from tests.integration.tables.reading_contract import *  # noqa: F403 (the tests of the contract)
from tests.integration.tables.reading_contract import (
    Wrongs,
    check_cursors,
    check_types,
    insert,
    stamp,
    test_a_changed_password_takes_effect_at_the_next_connection,  # noqa: F401 (a test of the contract)
)
from tests.integration.tables.systems import Reading
from tests.services.snowflake import PASSWORD, Gate, running_in_thread, session, system_of

pytestmark = pytest.mark.spec("connectors:11:12")


class Database:
    """A schema of a Snowflake in memory (`System`)."""

    kind = "Snowflake"
    whole = "number(38,0)"
    at = '"AT"'
    hidden = ("wrong", PASSWORD)
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

    def create(self, cursor: str | None = None, more: str = "", *, key: bool = False) -> None:
        assert not key
        columns = f'id number(38,0), value number(38,0), "AT" {cursor or "timestamp_ntz(9)"}, seen timestamp_ntz{more}'
        self.execute(f"CREATE TABLE hives ({columns})")

    def shown(self, columns: str) -> str:
        return columns.upper()

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


@pytest.fixture(params=["timestamp_ntz(9)", "timestamp_ltz(9)", "timestamp_tz(9)"])
def cursor(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def key() -> bool:
    return False


@pytest.fixture
def wrongs() -> Wrongs:
    return [
        ({"table": "hivs"}, "there is no table hivs that the role READER may see; tables: HIVES"),
        ({"more": {"password": "wrong"}}, "Incorrect username or password .*; correct the user's name or password"),
    ]


def test_times_of_one_microsecond_are_one_value_of_the_cursor(database: Database) -> None:
    database.create()
    for number, digits in enumerate(["000000", "000000001", "000000999", "000001", "000001999"]):
        database.execute(f"INSERT INTO hives VALUES ({number}, 0, '2024-05-01 00:00:00.{digits}', {stamp(0)})")
    reading = Reading(database, "hives", rows_of_page=2)
    reading.round(reading.worker())
    assert sorted(reading.rows()) == [[number, 0] for number in range(5)]


def test_answers_that_are_cut_and_sessions_that_end_lose_and_double_nothing(database: Database) -> None:
    database.create()
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
    database.create(column)
    check_cursors(database, cursors, later, stamp(0))


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
    check_types(database, TYPES)
