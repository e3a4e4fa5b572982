"""Tables of real Postgres and MariaDB servers are read in the order of a cursor."""

import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from typing_extensions import override

from caraway.dataplane.sources.tables.database import Page
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
from caraway.graph.connectors import TableConnector
from caraway.graph.systems import RedshiftSystem
from tests.integration.tables.reading_contract import *  # noqa: F403 (the tests of the contract)
from tests.integration.tables.reading_contract import (
    Wrongs,
    check_cursors,
    check_types,
    insert,
    stamp,
    test_a_changed_password_takes_effect_at_the_next_connection,  # noqa: F401 (a test of the contract)
)
from tests.integration.tables.systems import (
    PLAIN,
    MariaDatabase,
    PostgresDatabase,
    Reading,
    RedshiftDatabase,
    Relational,
    field_of,
)
from tests.services.mariadb import MariaDB
from tests.services.redshift import ROLE, Aws
from tests.unit.dataplane.sources.test_sources import letters


@pytest.fixture(params=["Postgres", "MySQL"])
def database(request: pytest.FixtureRequest) -> Iterator[Relational]:
    """Yield an empty database of each kind."""
    if request.param == "Postgres":
        made: Any = PostgresDatabase(request.getfixturevalue("empty_postgres"))
    else:
        server: MariaDB = request.getfixturevalue("mariadb")
        made = MariaDatabase(server, f"test_{secrets.token_hex(6)}")
    yield made
    made.close()


@pytest.fixture
def cursor() -> str:
    return "timestamp(6) NULL"


@pytest.fixture(params=[True, False])
def key(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def wrongs() -> Wrongs:
    return [
        ({"table": "hivs"}, "there is no table .*hivs"),
        ({"more": {"password": "wrong"}}, "(?i)password"),
        ({"more": {"port": 1}}, "(?i)connect"),
        ({"more": {"jdbc_params": "frobnicate=1"}}, "'frobnicate' .* known ones .*connecttimeout"),
        ({"more": {"jdbc_params": "connectTimeout=soon"}}, "connectTimeout of jdbc_params can't be 'soon'"),
    ]


def test_connections_that_are_cut_in_the_middle_of_a_load_lose_and_double_nothing(database: Relational) -> None:
    database.create()
    insert(database, *[(number, 1, number // 1000) for number in range(3000)])
    reading = Reading(database, "hives", rows_of_page=150)
    random, worker, cuts = Random(7), reading.worker(), 0
    while worker.position.get("most") is not None or not worker.position.get("round"):
        if random.random() < 0.3:
            database.end_connections()
            cuts += 1
        try:
            worker.step()
        except UnavailableError as error:
            assert "table hives" in str(error)  # noqa: PT017 (any number of them is right)
        reading.world.now += 0.3
    assert cuts > 3
    assert Counter(number for number, _ in reading.rows()) == Counter(range(3000))


def test_a_column_whose_type_changes_goes_on(database: Relational) -> None:
    database.create(key=True)
    insert(database, (1, 10, 1))
    reading = Reading(database, "hives")
    worker = reading.worker()
    reading.round(worker)
    change = f"ALTER TABLE hives {'ALTER value TYPE' if database.kind == 'Postgres' else 'MODIFY value'}"
    database.execute(f"{change} decimal(20, 0)")
    insert(database, (3, 30, 3))
    reading.round(worker)
    assert reading.rows() == [[1, 10], [3, 30]]
    # A type that doesn't fit makes dead letters of new rows only.
    database.execute(f"{change} varchar(20)")
    database.execute(f"INSERT INTO hives (id, value, at, seen) VALUES (4, 'old', {stamp(4)}, {stamp(0)})")
    reading.round(worker)
    assert len(reading.rows()) == 2
    (letter,) = letters(reading.world)
    assert (letter["row"]["value"], letter["reason"][0]["field"], letter["key"]) == ("old", "value", {"id": "4"})
    assert letter["table"].endswith("table hives")


@pytest.mark.parametrize(
    ("column", "cursors", "later"),
    [
        ("bigint", ["1", "2", "5"], "6"),
        ("numeric(20, 2)", ["1.5", "2.25", "3"], "3.01"),
        ("date", ["'2024-04-30'", "'2024-05-01'", "'2024-05-02'"], "'2024-05-02'"),
        ("varchar(40)", ["'2024-05-01T00:00:00Z'", "'2024-05-01T00:00:00.5Z'", "'2024-05-01T00:00:09Z'"],
         "'2024-05-01T00:00:08.25Z'"),
        ("varchar(40)", ["'2024-05-01'", "'2024-05-02'", "'2024-05-03'"], "'2024-05-04'"),
    ],
)  # fmt: skip
def test_cursors_may_be_numbers_days_and_texts(
    database: Relational, column: str, cursors: list[str], later: str
) -> None:
    database.execute(f"CREATE TABLE hives (id int, value int, at {column}, seen timestamp(6) NULL)")
    check_cursors(database, cursors, later, stamp(0))


def test_a_cursor_that_is_no_time_is_refused(database: Relational) -> None:
    database.execute("CREATE TABLE hives (id int, value int, at varchar(10), seen timestamp(6) NULL, f float)")
    database.execute(f"INSERT INTO hives VALUES (1, 1, 'x1', {stamp(0)}, 0.5)")
    with pytest.raises(UnavailableError, match="cursor at has the value 'x1', which is no time"):
        Reading(database, "hives").reader().peek(1)
    with pytest.raises(UnavailableError, match=r"column f of type .* can't be a cursor; use a column of whole"):
        Reading(database, "hives", cursor="f").reader().peek(1)


def test_names_are_quoted_and_may_be_in_another_case(database: Relational) -> None:
    quoted = '"My hives"'
    database.execute(f'CREATE TABLE {quoted} (id int, "VALUE" int, "the at" timestamp(6) NULL, seen timestamp(6) NULL)')
    database.execute(f"INSERT INTO {quoted} VALUES (1, 2, {stamp(0)}, {stamp(0)})")
    schema = "public" if database.kind == "Postgres" else database.system().database  # type: ignore[attr-defined]
    reading = Reading(database, f"{schema}.{quoted}", cursor="The At")
    worker = reading.worker()
    reading.round(worker)
    assert reading.rows() == [[1, 2]]


COMMON: list[tuple[str, DataType, str, str, Any, Any]] = [
    # Field, type of the field, type of the column in Postgres and MariaDB, value, stored value.
    ("small", INT, "smallint", "smallint", "-7", -7),
    ("big", INT, "bigint", "bigint", "9223372036854775807", 2**63 - 1),
    ("whole", FLOAT, "int", "int", "3", 3.0),
    ("double", FLOAT, "double precision", "double", "0.1", 0.1),
    ("exact", DecimalType(2), "numeric(20, 2)", "decimal(20, 2)", "1234567890.55", "1234567890.55"),
    ("number", FLOAT, "numeric(20, 2)", "decimal(20, 2)", "1.25", 1.25),
    ("name", STRING, "text", "text", "'Ünï\U0001f41d'", "Ünï\U0001f41d"),
    ("fixed", STRING, "varchar(9)", "varchar(9)", "'ab'", "ab"),
    ("flag", BOOL, "boolean", "boolean", "true", True),
    ("day", DATE, "date", "date", "'2024-02-29'", 19782),
    ("stamped", DATETIME, "timestamp", "datetime(6)", "'1969-12-31 23:59:59.5'", -500_000),
    ("zoned", DATETIME, "timestamptz", "timestamp(6)", "'2024-05-01 12:00:00.25'", 1_714_564_800_250_000),
    ("at_day", DATETIME, "date", "date", "'1970-01-02'", 86_400_000_000),
    ("raw", BYTES, "bytea", "varbinary(9)", {"Postgres": r"'\x00ff'", "MySQL": "x'00ff'"}, b"\x00\xff"),
    ("items", ListType(of=INT), "jsonb", "json", "'[1, 2]'", [1, 2]),
    ("named", MapType(of=FLOAT), "json", "json", """'{"a": 1.5}'""", {"a": 1.5}),
    ("nothing", optional(INT), "int", "int", "NULL", None),
]
OWN: dict[str, list[tuple[str, DataType, str, str, Any]]] = {
    "Postgres": [
        ("listed", ListType(of=INT), "int[]", "'{1,2,3}'", [1, 2, 3]),
        ("texts", ListType(of=STRING), "text[]", "'{a,\"b,c\"}'", ["a", "b,c"]),
        ("moods", ListType(of=STRING), "mood[]", "'{calm,angry}'", ["calm", "angry"]),
        ("mood", STRING, "mood", "'calm'", "calm"),
        ("unique_id", STRING, "uuid", "'6BA7B810-9dad-11d1-80b4-00c04fd430c8'", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
        ("address", STRING, "inet", "'10.0.0.1/8'", "10.0.0.1/8"),
        ("spent", STRING, "interval", "'1 day'", "1 day, 0:00:00"),
        ("positive", INT, "natural_number", "5", 5),
    ],
    "MySQL": [
        ("unsigned_small", INT, "tinyint unsigned", "255", 255),
        ("unsigned", DecimalType(0), "bigint unsigned", "18446744073709551615", "18446744073709551615"),
        ("bits", INT, "bit(12)", "b'100000000001'", 2049),
        ("chosen", STRING, "set('a', 'b', 'c')", "'a,c'", "a,c"),
        ("mood", STRING, "enum('calm', 'angry')", "'calm'", "calm"),
        ("since", INT, "year", "2024", 2024),
        ("blob_", BYTES, "blob", "x'00ff'", b"\x00\xff"),
        ("spent", STRING, "time", "'26:00:01'", "1 day, 2:00:01"),
        ("unique_id", STRING, "uuid", "'6ba7b810-9dad-11d1-80b4-00c04fd430c8'", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
    ],
}  # fmt: skip


@pytest.mark.spec("connectors:6.2b:8")
def test_all_types_become_values_of_fields(database: Relational) -> None:
    is_postgres = database.kind == "Postgres"
    cases: list[tuple[str, DataType, str, str, Any]] = [
        (name, dtype, pg if is_postgres else my, value[database.kind] if isinstance(value, dict) else value, stored)
        for name, dtype, pg, my, value, stored in COMMON
    ] + OWN[database.kind]
    if is_postgres:
        database.execute("CREATE TYPE mood AS ENUM ('calm', 'angry'); CREATE DOMAIN natural_number AS int")
    columns = ", ".join(
        f'"{name}" {column}{" NULL" if column.startswith("timestamp") else ""}' for name, _, column, *_ in cases
    )
    database.execute(f"CREATE TABLE hives (seen timestamp(6) NULL, at timestamp(6) NULL, {columns})")
    values = ", ".join(value for *_, value, _ in cases)
    database.execute(f"INSERT INTO hives VALUES ({stamp(0)}, {stamp(0)}, {values})")
    check_types(database, cases)


def test_times_that_are_none_make_dead_letters_and_the_others_go_on(database: Relational) -> None:
    is_postgres = database.kind == "Postgres"
    born, raw_type, raw = ("timestamp", "bytea", r"'\xff'") if is_postgres else ("datetime", "blob", "x'ff'")
    database.create(key=True, more=f", born {born} NULL, weight numeric(9, 2), raw {raw_type}")
    insert(database, (1, 10, 1), (2, 20, 2), (3, 30, 3))
    none = "infinity" if is_postgres else "0000-00-00"
    database.execute(f"UPDATE hives SET born = '{none}', weight = 1.5, raw = {raw} WHERE id = 2")
    more = (("born", DATETIME), ("weight", DecimalType(2)), ("raw", BYTES))
    reading = Reading(database, "hives", fields=(*PLAIN, *(field_of(name, optional(dtype)) for name, dtype in more)))
    worker = reading.worker()
    reading.round(worker)
    assert reading.rows() == [[1, 10, None, None, None], [3, 30, None, None, None]]
    (letter,) = letters(reading.world)
    assert none in letter["reason"][0]["message"]
    assert (letter["key"], letter["row"]["weight"], letter["row"]["raw"]) == ({"id": "2"}, "1.50", {"base64": "/w=="})


def test_values_of_postgres_that_python_lacks_do_not_stop_a_table(empty_postgres: str) -> None:
    values = {"hour": "24:00:00", "zoned": "24:00:00+00", "spent": "100000000 years", "days": "[2024-01-01,infinity)"}
    types = {"hour": "time", "zoned": "timetz", "spent": "interval", "days": "daterange"}
    with closing(PostgresDatabase(empty_postgres)) as database:
        database.create(key=True, more="".join(f", {name} {column}" for name, column in types.items()))
        insert(database, (1, 10, 1), (2, 20, 2))
        for name, value in values.items():
            database.execute(f"UPDATE hives SET {name} = '{value}' WHERE id = 1")
        reading = Reading(database, "hives", fields=(*PLAIN, *(field_of(name, optional(STRING)) for name in values)))
        reading.round(reading.worker())
        texts = ["24:00:00", "24:00:00+00", "100000000 years", "[2024-01-01, infinity)"]
        assert reading.rows() == [[1, 10, *texts], [2, 20, None, None, None, None]]


@pytest.mark.parametrize("key", [True, False])
def test_rows_before_a_time_that_is_none_may_change_while_their_page_is_read(empty_postgres: str, key: bool) -> None:
    """All rows of a page come from one statement, whose rows stay the same."""
    with closing(PostgresDatabase(empty_postgres)) as database:
        database.create(key=key, more=", born timestamptz")
        insert(database, *[(number, 1, number / 10) for number in range(1200)])
        database.execute("UPDATE hives SET born = 'infinity' WHERE id = 1100")
        table = Reading(database, "hives").reader()._database
        shape = table.shape()
        most = table.bounds(shape.columns["at"]).greatest
        columns = ("at", "id", "born")
        pages = table.rows(Page(columns=columns, keys=1 + key, least=None, most=most, after=None, limit=1200))
        found = list(next(pages))
        # Three rows leave the page while it is read, and a new row comes into it.
        database.execute(f"UPDATE hives SET at = {stamp(1000)} WHERE id IN (3, 5)")
        database.execute("DELETE FROM hives WHERE id = 7")
        insert(database, (5000, 1, 0.05))
        found += [row for chunk in pages for row in chunk]
        assert [number for _, number, _ in found] == list(range(1200))
        assert [born for _, _, born in found if born is not None] == ["infinity"]


def test_reading_changes_nothing_and_names_itself(database: Relational) -> None:
    database.create(key=True)
    insert(database, (1, 10, 1))
    reader = Reading(database, "hives").reader()
    reader.peek(1)
    connected: Any = reader._database._connected()  # type: ignore[attr-defined]
    with pytest.raises(Exception, match=r"(?i)read.only"), connected.cursor() as cursor:
        cursor.execute("INSERT INTO hives (id) VALUES (2)")
    reader.close()
    reader.close()


@pytest.mark.spec("connectors:11:4")
def test_redshift_is_read_over_the_protocol_of_postgres(empty_postgres: str) -> None:
    # Postgres stands in for Redshift, with the one function of Redshift's that is called.
    database = RedshiftDatabase(empty_postgres)
    database.execute("CREATE FUNCTION getdate() RETURNS timestamp LANGUAGE sql AS 'SELECT now()::timestamp'")
    database.create()
    # A primary key isn't enforced there.
    insert(database, (1, 10, 1), (1, 10, 1), (2, 20, 1), (3, 30, 100), (4, 40, None))
    reading = Reading(database, "HIVES", rows_of_page=2)
    worker = reading.worker()
    reading.round(worker)
    assert sorted(reading.rows()) == [[1, 10], [1, 10], [2, 20], [3, 30]]
    insert(database, (5, 50, 96))
    reading.round(worker)
    assert reading.rows()[4:] == [[5, 50]]
    with pytest.raises(UnavailableError, match="no table hivs in the schema public that this user may see; tables: h"):
        replace(reading, table="hivs").reader().peek(1)
    database.close()


class _DirectRedshift(RedshiftDatabase):
    """A database that is reached by the address of its definition."""

    endpoints: dict[str, str] = {}  # noqa: RUF012 (never written)

    @override
    def system(self, **more: Any) -> RedshiftSystem:  # type: ignore[override]  # as in its base
        host, port = self.url.hostname, self.url.port
        assert host is not None
        assert port is not None
        return replace(super().system(**more), host=host, port=port)


def test_redshift_is_never_read_in_clear_text_over_a_network(empty_postgres: str) -> None:
    # This server has no TLS, and no endpoint says that the way to it is the operator's own.
    database = _DirectRedshift(empty_postgres)
    with pytest.raises(UnavailableError, match="server does not support SSL, but SSL was required"):
        Reading(database, "hives").reader().peek(1)
    database.close()


@pytest.mark.spec("connectors:11:5")
def test_a_role_gets_access_to_redshift_for_each_connection(
    empty_postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, aws = RedshiftDatabase(empty_postgres), Aws(empty_postgres)
    settings = {"AWS_ENDPOINT_URL": aws.address, "AWS_ACCESS_KEY_ID": "of-server", "AWS_SECRET_ACCESS_KEY": "secret"}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    try:
        database.execute("CREATE FUNCTION getdate() RETURNS timestamp LANGUAGE sql AS 'SELECT now()::timestamp'")
        database.create()
        insert(database, (1, 10, 1))
        by_role = {"username": None, "password": None, "s3_access_role_arn": ROLE}
        reading = Reading(database, "hives", more=by_role)
        worker = reading.worker()
        reading.round(worker)
        assert aws.calls == [("AssumeRole", ROLE, "of-server"), ("GetClusterCredentialsWithIAM", "hives", "of-role")]
        # The connection is lost, and the password that it had is asked for anew.
        database.end_connections()
        insert(database, (2, 20, 2))
        with pytest.raises(UnavailableError):
            reading.round(worker)
        reading.round(worker)
        assert reading.rows() == [[1, 10], [2, 20]]
        assert len(aws.calls) == 4
        wrong = Reading(database, "hives", more={**by_role, "s3_access_role_arn": f"{ROLE}s"})
        expected = r"AWS refuses AssumeRole \(AccessDenied\); .*needs the right redshift:GetClusterCredentialsWithIAM"
        with pytest.raises(UnavailableError, match=expected):
            wrong.reader().peek(1)
    finally:
        aws.close()
        database.close()


def test_a_role_needs_the_address_of_a_cluster() -> None:
    def unreadable(host: str) -> str:
        system = RedshiftSystem(name="db", host=host, port=5439, database="d", schema="public", s3_access_role_arn=ROLE)
        return TableConnector(system=system, table="hives", cursor="at").unreadable()

    assert unreadable("hives.c1abc.eu-west-1.redshift.amazonaws.com") == ""
    assert unreadable("bees.123456789012.eu-west-1.redshift-serverless.amazonaws.com") == ""
    assert "'hives.example.com' isn't the address of a cluster or workgroup" in unreadable("hives.example.com")
