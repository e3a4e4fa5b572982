"""Tables of BigQuery, over Google's own library and a server of the tests that speaks its REST protocol over DuckDB."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from caraway.dataplane.sources.tables import bigquery
from caraway.dataplane.sources.tables.bigquery import BigQueryReader
from caraway.dataplane.sources.tables.cursor import CursorReader
from caraway.dataplane.warehouses.bigquery import RETRY
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
from caraway.graph.systems import BigQuerySystem
from tests.integration.tables.reading_contract import *  # noqa: F403 (the tests of the contract)
from tests.integration.tables.reading_contract import Wrongs, check_cursors, check_types, insert, stamp
from tests.integration.tables.systems import PASSWORD_OF_READER, Reading
from tests.services.bigquery import PROJECT, Service, running_in_thread, system_of

pytestmark = pytest.mark.spec("connectors:11:13")


class Database:
    """A dataset of a BigQuery in memory (`System`)."""

    kind = "BigQuery"
    whole = "bigint"
    at = '"at"'
    hidden = ("of-ada", "PRIVATE KEY")
    reader: type[CursorReader] = BigQueryReader

    def __init__(self, service: Service) -> None:
        self.opened: list[CursorReader] = []
        self.service = service
        self.key = service.new_key()

    def execute(self, statement: str) -> list[Any]:
        return self.service.execute(statement)

    def system(self, **more: Any) -> BigQuerySystem:
        return replace(system_of(self.key), **more)

    @property
    def endpoints(self) -> dict[str, str]:
        return {"bq": f"http://127.0.0.1:{self.service.port}"}

    def create(self, cursor: str | None = None, more: str = "", *, key: bool = False) -> None:
        assert not key
        columns = f'id bigint, value bigint, "at" {cursor or "timestamptz"}, seen timestamptz{more}'
        self.execute(f"CREATE TABLE hives ({columns})")

    def shown(self, columns: str) -> str:
        return columns

    def user(self, name: str, password: str) -> None:
        raise NotImplementedError

    def end_connections(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        for reader in self.opened:
            reader.close()
        self.service.close()


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    # Answers of a few rows, as those of BigQuery if rows are large.
    monkeypatch.setattr(bigquery, "ANSWER_ROWS", 90)
    # The library repeats requests at once, instead of after a second and more.
    monkeypatch.setattr(bigquery, "RETRY", RETRY.with_delay(initial=0.001, maximum=0.001))
    with running_in_thread() as service:
        made = Database(service)
        yield made
        made.close()


@pytest.fixture(params=["timestamptz", "timestamp"])
def cursor(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def key() -> bool:
    return False


@pytest.fixture
def wrongs(database: Database) -> Wrongs:
    unknown = json.loads(database.key) | {"private_key_id": "another"}
    cut = json.dumps(json.loads(database.key) | {"private_key": "-----BEGIN PRIVATE KEY-----\nof-ada\n-----END"})
    return [
        ({"table": f"{PROJECT}.bees.hivs"}, "there is no table hivs in my-project.bees; tables: hives"),
        ({"table": "wasps.hives"}, "there is no dataset my-project.wasps; check the names"),
        ({"more": {"dataset_id": "wasps"}, "table": "hives"}, "there is no dataset my-project.wasps; check the names"),
        ({"table": "a.b.c.d"}, "write the table as table, dataset.table or project.dataset.table"),
        ({"more": {"service_account_key": json.dumps(unknown)}}, "invalid_grant.*; the service account's key was refu"),
        ({"more": {"service_account_key": cut}}, "the service account key isn't the JSON of a key"),
        ({"more": {"service_account_key": "[1]"}}, "the service account key isn't the JSON of a key"),
    ]


def test_rounds_look_for_the_greatest_value_from_the_last_one_on(database: Database) -> None:
    database.create()
    insert(database, (1, 10, 1), (2, 20, 100))
    reading = Reading(database, "hives")
    worker = reading.worker()
    reading.round(worker)
    reading.round(worker)
    looked = [statement for statement in database.service.statements if "MAX(" in statement]
    assert ["WHERE" in statement for statement in looked] == [False, True]
    # The row of the greatest value is deleted, and what comes then is older than it was.
    database.execute("DELETE FROM hives WHERE id = 2")
    insert(database, (3, 30, 97))
    reading.round(worker)
    assert reading.rows() == [[1, 10], [2, 20], [3, 30]]


def test_answers_that_are_cut_and_pages_that_expire_lose_and_double_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bigquery, "ANSWER_ROWS", 40)
    database.create()
    insert(database, *[(n, 1, n // 100) for n in range(300)])
    reading = Reading(database, "hives", rows_of_page=50)
    random, worker, errors = Random(7), reading.worker(), Counter[bool]()
    while worker.position.get("most") is not None or not worker.position.get("round"):
        service = database.service
        # The library repeats a request whose answer was cut.
        service.cut, service.is_expired = int(random.random() < 0.2), random.random() < 0.3
        try:
            worker.step()
        except UnavailableError as error:
            assert "table hives" in str(error)  # noqa: PT017 (any number of them is right)
            errors["Invalid page token" in str(error)] += 1
        reading.world.now += 0.3
    assert set(errors) == {True}
    assert Counter(number for number, _ in reading.rows()) == Counter(range(300))


def test_a_result_that_breaks_off_goes_on_in_another_server(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bigquery, "ANSWER_ROWS", 40)
    database.create()
    insert(database, *[(n, 1, n // 3) for n in range(300)])
    reading = Reading(database, "hives", rows_of_page=35)
    worker, steps = reading.worker(), 0
    while worker.position.get("most") is not None or not worker.position.get("round"):
        assert worker.step()
        reading.world.now += 0.01
        steps += 1
        if steps % 4 == 0:
            # Nothing of the old reader is left, as if it had been killed in the middle of a page.
            worker = reading.worker()
    assert steps > 8
    assert Counter(number for number, _ in reading.rows()) == Counter(range(300))


def test_a_changed_key_takes_effect_at_the_next_connection(database: Database) -> None:
    database.create()
    insert(database, (1, 10, 1))
    first = database.service.new_key()
    known = {"key": first}
    reading = Reading(
        database,
        "hives",
        more={"service_account_key": PASSWORD_OF_READER},
        resolve=lambda value: known["key"] if value is PASSWORD_OF_READER else str(value),
    )
    worker = reading.worker()
    reading.round(worker)
    second = database.service.new_key()
    database.service.delete_key(json.loads(first)["private_key_id"])
    with pytest.raises(UnavailableError, match="the service account's key was refused") as caught:
        reading.round(worker)
    assert "PRIVATE KEY" not in str(caught.value)
    known["key"] = second
    insert(database, (2, 20, 2))
    reading.round(worker)
    assert reading.rows() == [[1, 10], [2, 20]]


@pytest.mark.parametrize(
    ("column", "cursors", "later"),
    [
        ("bigint", ["1", "2", "5"], "6"),
        ("decimal(38,9)", ["1.5", "2.25", "3"], "3.01"),
        ("decimal(38,20)", ["1.5", "2.25", "3.00000000000000000001"], "3.00000000000000000002"),
        ("date", ["'2024-04-30'", "'2024-05-01'", "'2024-05-02'"], "'2024-05-02'"),
        ("varchar", ["'2024-05-01T00:00:00Z'", "'2024-05-01T00:00:00.5Z'", "'2024-05-01T00:00:09Z'"],
         "'2024-05-01T00:00:08.25Z'"),
    ],
)  # fmt: skip
def test_cursors_may_be_numbers_days_and_texts(database: Database, column: str, cursors: list[str], later: str) -> None:
    database.create(column)
    check_cursors(database, cursors, later, stamp(0))


TYPES: list[tuple[str, DataType, str, str, Any]] = [
    # Column, type of the field, type of the column in DuckDB, value, stored value.
    ("whole", INT, "bigint", "-7", -7),
    ("big", INT, "bigint", "9223372036854775807", 2**63 - 1),
    ("exact", DecimalType(2), "decimal(38,9)", "1234567890.55", "1234567890.55"),
    ("exacter", DecimalType(20), "decimal(38,20)", "0.00000000000000000001", "0.00000000000000000001"),
    ("number", FLOAT, "decimal(38,9)", "1.25", 1.25),
    ("double", FLOAT, "double", "0.1", 0.1),
    ("name", STRING, "varchar", "'Ünï\U0001f41d'", "Ünï\U0001f41d"),
    ("flag", BOOL, "boolean", "true", True),
    ("day", DATE, "date", "'2024-02-29'", 19782),
    ("plain", DATETIME, "timestamp", "'1969-12-31 23:59:59.5'", -500_000),
    ("zoned", DATETIME, "timestamptz", "'2024-05-01 12:00:00.25+00:00'", 1_714_564_800_250_000),
    ("late", DATETIME, "timestamp", "'9999-12-31 00:00:00'", 253_402_214_400_000_000),
    ("hour", STRING, "time", "'10:00:01'", "10:00:01"),
    ("raw", BYTES, "blob", r"'\x00\xFF'::blob", b"\x00\xff"),
    ("spent", STRING, "interval", "interval '1 day'", "1 day"),
    ("listed", ListType(of=INT), "bigint[]", "[1, 2]", [1, 2]),
    ("times", ListType(of=DATETIME), "timestamp[]", "['1970-01-01 00:00:01'::timestamp]", [1_000_000]),
    ("inside", MapType(of=FLOAT), "struct(a double, b double)", "{'a': 1.5, 'b': 2}", {"a": 1.5, "b": 2.0}),
    ("items", ListType(of=INT), "json", "'[1, 2]'", [1, 2]),
    ("named", MapType(of=FLOAT), "json", """'{"a": 1.5}'""", {"a": 1.5}),
    ("nothing", optional(INT), "bigint", "NULL", None),
    ("no_json", optional(MapType(of=INT)), "json", "'null'", None),
]


@pytest.mark.spec("connectors:6.2b:8")
def test_all_types_become_values_of_fields(database: Database) -> None:
    columns = ", ".join(f'"{name}" {column}' for name, _, column, *_ in TYPES)
    database.execute(f'CREATE TABLE hives (seen timestamp, "at" timestamp, {columns})')
    database.execute(f"INSERT INTO hives SELECT {stamp(0)}, {stamp(0)}, {', '.join(value for *_, value, _ in TYPES)}")
    check_types(database, TYPES)
