"""Tables that sinks write in a real Postgres: they equal the dataset, have each batch once, and belong to one sink."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from caraway.dataplane.sinks.changes import Row
from caraway.dataplane.sinks.postgres.writer import PostgresWriter, check
from caraway.dataplane.sinks.writer import Batch, Refusal, SignIn
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
from caraway.errors import CommitError, UnavailableError
from caraway.graph.connectors import TableConnector
from caraway.graph.plan.model import SinkPlan
from caraway.graph.sources import SinkSpec
from caraway.graph.systems import PostgresSystem, SecretRef
from tests.unit.dataplane.sinks.table_contract import check_deaths
from tests.unit.dataplane.sinks.world import change, of_columns, plan_of, row, writing

SIGN_IN = SignIn(resolve=str)


def system_at(url: str) -> PostgresSystem:
    parts = urlsplit(url)
    return PostgresSystem(
        name="own",
        host=parts.hostname or "",
        port=parts.port or 0,
        database=parts.path.lstrip("/"),
        username=parts.username or "",
        password=parts.password or "",
    )


def sink_at(url: str, table: str = "heavy", **changes: Any) -> SinkSpec:
    connector = TableConnector(system=replace(system_at(url), **changes), table=table, cursor=None)
    return SinkSpec(connector=connector, how="incremental", create=True)


@pytest.fixture
def database(postgres: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres, autocommit=True) as connection:
        yield connection


def values(database: psycopg.Connection[Any], table: str = "heavy_main_v3") -> list[tuple[str, float]]:
    return database.execute(sql.SQL("SELECT k, v FROM {} ORDER BY 1, 2").format(sql.Identifier(table))).fetchall()


def opened(plan: SinkPlan, name: str = "sink", **more: Any) -> PostgresWriter:
    found = PostgresWriter(writing(plan, name=name, **more))
    found.positions()
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_table_is_the_dataset_whatever_dies_and_whoever_writes(
    postgres: str, database: psycopg.Connection[Any], seed: int
) -> None:
    def die(writer: PostgresWriter, batch: Batch) -> bool:
        database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        with pytest.raises(UnavailableError, match="Postgres own at"):
            writer.write(batch)
        return False

    plan = plan_of(sink=sink_at(postgres))
    check_deaths(seed, lambda: opened(plan), die, lambda: values(database))


def test_values_of_all_types_arrive(postgres: str, database: psycopg.Connection[Any]) -> None:
    columns: dict[str, DataType] = {
        "id": INT,
        'odd "name" 100%': FLOAT,
        "flag": BOOL,
        "raw": BYTES,
        "day": DATE,
        "seen": DATETIME,
        "price": DecimalType(scale=2),
        "tags": ListType(STRING),
        "scores": MapType(FLOAT),
        "note": optional(STRING),
    }
    sink = replace(sink_at(postgres, '"public"."heavy%"'), renames=(("flag", "is_red"),))
    plan = of_columns(plan_of(sink=sink), columns, ["id", "note"])
    stored = (2**63 - 1, float("-inf"), True, b"\0\xff", 20_000, -1, "12.50", ["ä", ""], {"b": 2.5}, None)
    with closing(opened(plan)) as writer:
        writer.write(Batch([change("x", None, Row(1_700_000_000_000_001, stored), 0)], {0: 1}))
        # A key with a null is a key as any other.
        again = Row(1_700_000_000_000_002, (stored[0], -0.0, *stored[2:]))
        writer.write(Batch([change("x", Row(1, stored), again, 1)], {0: 2}))
    found = database.execute('SELECT * FROM "heavy%_main_v3"')
    assert [each.name for each in found.description or ()] == [
        *("is_red" if name == "flag" else name for name in columns),
        "at",
    ]
    assert found.fetchall() == [
        (
            2**63 - 1,
            0.0,
            True,
            b"\0\xff",
            date(2024, 10, 4),
            datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
            Decimal("12.50"),
            ["ä", ""],
            {"b": 2.5},
            None,
            datetime(2023, 11, 14, 22, 13, 20, 2, UTC),
        )
    ]
    with closing(opened(plan)) as writer:
        writer.write(Batch([change("x", again, None, 2)], {0: 3}))
    assert database.execute('SELECT count(*) FROM "heavy%_main_v3"').fetchone() == (0,)


def test_rows_without_keys_are_appended_and_revised(postgres: str, database: psycopg.Connection[Any]) -> None:
    plan, same = plan_of(sink=sink_at(postgres), keyed=False), row("a", 1.0)
    with closing(opened(plan, product="fennel")) as writer:
        writer.write(Batch([change("id1", None, same, 0), change("id2", None, same, 1)], {0: 2}))
        assert values(database) == [("a", 1.0), ("a", 1.0)]
        other = row("a", 9.0)
        writer.write(Batch([change("id1", same, other, 2), change("id2", same, None, 3)], {0: 4}))
        assert values(database) == [("a", 9.0)]
        # A revision that is taken back within a batch changes nothing.
        writer.write(Batch([change("id1", other, same, 4), change("id1", same, other, 5)], {0: 6}))
        assert values(database) == [("a", 9.0)]
        assert writer.positions() == {0: 6}
    assert database.execute("SELECT length(__fennel_hash__) FROM heavy_main_v3").fetchone() == (32,)


def test_changes_that_postgres_refuses_become_dead_letters_and_the_others_are_written(
    postgres: str, database: psycopg.Connection[Any]
) -> None:
    refused: list[Refusal] = []
    with closing(opened(plan_of(sink=sink_at(postgres)), refuse=refused.extend)) as writer:
        keys = ["a", "b\0", "c", "d", "e" * 1_000_000, "f"]
        database.execute("ALTER TABLE heavy_main_v3 ADD CHECK (k <> 'd')")
        writer.write(Batch([change(key, None, row(key, 1.0), n) for n, key in enumerate(keys)], {0: 6}))
        assert [(each.change.offset, bool(each.reason)) for each in refused] == [(1, True), (3, True), (4, True)]
        assert "0x00" in refused[0].reason
        assert [key for key, _ in values(database)] == ["a", "c", "f"]
        assert writer.positions() == {0: 6}
        # The whole batch is refused, and the sink goes on.
        writer.write(Batch([change("\0", None, row("\0", 1.0), 6)], {0: 7}))
        writer.write(Batch([], {0: 9}))
        assert (len(refused), writer.positions()) == (4, {0: 9})


def test_a_new_sink_replaces_the_rows_of_an_earlier_one_and_spares_other_tables(
    postgres: str, database: psycopg.Connection[Any]
) -> None:
    plan = plan_of(sink=sink_at(postgres))
    with closing(opened(plan)) as writer:
        writer.write(Batch([change("a", None, row("a", 1.0), 0)], {0: 1}))
    with closing(opened(plan, "second")) as writer:
        assert writer.positions() == {}
        # Readers have the earlier rows until there are new ones.
        assert values(database) == [("a", 1.0)]
        writer.write(Batch([change("b", None, row("b", 2.0), 0)], {0: 1}))
        assert values(database) == [("b", 2.0)]
    renamed = replace(plan, sink=replace(plan.sink, renames=(("n", "note"),)))
    with closing(opened(renamed, "third")) as writer:
        writer.write(Batch([change("c", None, row("c", 3.0, 7), 0)], {0: 1}))
    assert database.execute("SELECT k, note FROM heavy_main_v3").fetchall() == [("c", 7)]
    # The first one comes back, by a rollback: its position isn't that of these rows.
    with closing(opened(plan)) as writer:
        assert writer.positions() == {}
    # Somebody removes the table, whose position would otherwise be that of rows which are gone.
    with closing(opened(renamed, "third")) as writer:
        assert writer.positions() == {0: 1}
    database.execute("DROP TABLE heavy_main_v3")
    with closing(opened(renamed, "third")) as writer:
        assert writer.positions() == {}
    database.execute("CREATE TABLE other_main_v3 (k text)")
    other = plan_of(sink=sink_at(postgres, "other"))
    with pytest.raises(UnavailableError, match="no sink of Table has made"):
        PostgresWriter(writing(other))
    with pytest.raises(CommitError, match="no sink of Table has made"):
        check(other, SIGN_IN)


def test_a_sink_that_cannot_be_written_is_refused_with_the_place_and_the_remedy(
    postgres: str, database: psycopg.Connection[Any]
) -> None:
    check(plan_of(sink=sink_at(postgres)), SIGN_IN)
    assert database.execute("SELECT to_regclass('heavy_main_v3')").fetchone() == (None,)

    def refusal(sink: SinkSpec, sign_in: SignIn = SIGN_IN) -> str:
        with pytest.raises((CommitError, UnavailableError)) as caught:
            check(plan_of(sink=sink), sign_in)
        return str(caught.value)

    assert "no schema hidden" in refusal(sink_at(postgres, "hidden.heavy"))
    assert "63 bytes" in refusal(sink_at(postgres, "h" * 60))
    assert "more than a schema" in refusal(sink_at(postgres, "a.b.c"))
    assert "127.0.0.1:1" in refusal(sink_at(postgres), SignIn(resolve=str, endpoints={"own": "127.0.0.1:1"}))
    name = f"reader_{database.info.dbname}"
    database.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'reader-pw'").format(sql.Identifier(name)))
    try:
        text = refusal(sink_at(postgres, username=name, password="reader-pw"))
        assert "needs USAGE and CREATE on the schema public" in text
        secret = SecretRef(arn="env:PW")
        values = {secret: "wrong-password"}
        looked_up = SignIn(resolve=lambda given: values.get(given, given))  # type: ignore[arg-type]
        text = refusal(sink_at(postgres, username=name, password=secret), looked_up)
        assert "wrong-password" not in text
    finally:
        database.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))
