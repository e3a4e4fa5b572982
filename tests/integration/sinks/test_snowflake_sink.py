"""Tables of Snowflake that sinks write: they equal the dataset, have each batch once, and belong to one sink.

The writer speaks by Snowflake's own connector to a server that speaks its protocol over DuckDB.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caraway.dtypes.types import BOOL, BYTES, DATE, DATETIME, STRING, DataType, DecimalType, ListType, optional
from caraway.errors import CommitError, UnavailableError
from caraway.graph.connectors import TableConnector
from caraway.graph.sources import SinkSpec
from caraway.graph.systems import SecretRef
from caraway.plan.model import Column, SinkPlan
from caraway.sinks.changes import Change, Row
from caraway.sinks.snowflake import SnowflakeWriter, check
from caraway.sinks.writer import Batch, SignIn
from tests.services.snowflake import PASSWORD, Gate, running_in_thread, session, system_of
from tests.unit.sinks.world import plan_of, writing

TABLE = TableConnector(system=system_of(), table="heavy", cursor=None)
SINK = SinkSpec(connector=TABLE, how="incremental", create=True, every_us=1, renames=(("v", "value"),))


@dataclass
class Warehouse:
    port: int
    gate: Gate
    made: list[SnowflakeWriter]

    @property
    def sign_in(self) -> SignIn:
        return SignIn(resolve=str, endpoints={"snow": f"http://127.0.0.1:{self.port}"})

    def writer(self, plan: SinkPlan, name: str = "sink") -> SnowflakeWriter:
        self.made.append(SnowflakeWriter(writing(plan, name=name, sign_in=self.sign_in)))
        return self.made[-1]

    def query(self, statement: str) -> list[Any]:
        with session(self.port) as made, made.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def rows(self, columns: str = "K, VALUE") -> list[Any]:
        return self.query(f"SELECT {columns} FROM heavy_main_v3 ORDER BY 1, 2")  # noqa: S608 (constants)


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[int, Gate]]:
    with running_in_thread() as found:
        yield found


@pytest.fixture
def warehouse(server: tuple[int, Gate]) -> Iterator[Warehouse]:
    made = Warehouse(*server, [])
    yield made
    clear(made)


def clear(made: Warehouse) -> None:
    for each in made.made:
        each.close()
    for table in ("heavy_main_v3", "heavy_main_v3__caraway_position"):
        made.query(f"DROP TABLE IF EXISTS {table}")


def row(key: str, value: float, note: int | None = None, time: int = 1) -> Row:
    return Row(time, (key, value, note))


def change(key: str, before: Row | None, after: Row | None, offset: int) -> Change:
    return Change(key.encode(), before, after, 1, 0, offset)


def test_a_table_has_the_rows_and_the_positions_and_takes_a_batch_once(warehouse: Warehouse) -> None:
    plan = plan_of(sink=SINK)
    first = warehouse.writer(plan)
    assert first.positions() == {}
    made = [change(key, None, row(key, 1.0), number) for number, key in enumerate("abc")]
    stale = warehouse.writer(plan)
    first.write(Batch(made, {0: 3, 1: 0}))
    with pytest.raises(UnavailableError, match="another server has written it"):
        stale.write(Batch(made, {0: 3, 1: 0}))
    second = warehouse.writer(plan)
    assert second.positions() == {0: 3, 1: 0}
    changed = [change("a", row("a", 1.0), None, 3), change("b", row("b", 1.0), row("b", 2.0, 5, 7), 4)]
    second.write(Batch([*changed, change("b", row("b", 2.0), row("b", 3.0), 5)], {0: 6, 1: 0}))
    assert warehouse.rows("K, VALUE, N") == [("b", 3.0, None), ("c", 1.0, None)]
    # A batch may change nothing but the position.
    second.write(Batch([], {0: 7, 1: 2}))
    assert warehouse.writer(plan).positions() == {0: 7, 1: 2}


# Each statement is a request, so that there are fewer examples than by default.
@pytest.mark.spec("connectors:4.2:4", "connectors:11:12")
@settings(max_examples=8, deadline=None)
@given(
    batches=st.lists(
        st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 3)), min_size=1, max_size=6),
        min_size=1,
        max_size=4,
    )
)
def test_merges_give_the_table_of_the_changes(
    batches: Sequence[Sequence[tuple[str, int | None]]], server: tuple[int, Gate]
) -> None:
    warehouse = Warehouse(*server, [])
    sink, table, offset = warehouse.writer(plan_of(sink=SINK)), dict[str, Row](), 0
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
    assert warehouse.rows() == sorted((key, each.values[1]) for key, each in table.items())
    clear(warehouse)


def test_rows_without_keys_have_a_hash_that_tells_equal_rows_apart(warehouse: Warehouse) -> None:
    sink = warehouse.writer(plan_of(sink=SINK, keyed=False))
    same = row("a", 1.0)
    sink.write(Batch([change("id1", None, same, 0), change("id2", None, same, 1)], {0: 2}))
    sink.write(Batch([change("id3", None, row("b", 1.0), 2)], {0: 3}))
    hashes = [digest for (digest,) in warehouse.query('SELECT "__CARAWAY_HASH__" FROM heavy_main_v3')]
    assert len(set(hashes)) == 3
    assert all(len(digest) == 32 for digest in hashes)
    # A revision replaces the row, a retraction removes it, and a row that is as before stays.
    there_and_back = [change("id2", same, row("c", 1.0), 5), change("id2", row("c", 1.0), same, 6)]
    changes = [change("id1", same, row("a", 9.0), 3), change("id3", row("b", 1.0), None, 4), *there_and_back]
    sink.write(Batch(changes, {0: 7}))
    assert warehouse.rows() == [("a", 1.0), ("a", 9.0)]


def test_answers_that_are_lost_neither_lose_nor_double_rows(warehouse: Warehouse) -> None:
    plan, random = plan_of(sink=SINK, keyed=False), Random(3)
    sink, offset, failures = warehouse.writer(plan), 0, 0
    while offset < 60:
        changes = [change(f"id{offset + n}", None, row("a", float(offset + n)), offset + n) for n in range(5)]
        ends = random.random() < 0.3
        try:
            if ends:
                warehouse.gate.end_sessions()
            else:
                warehouse.gate.cut = random.choice([0, 1, 2])
            sink.write(Batch(changes, {0: offset + 5}))
            offset += 5
        except UnavailableError:
            failures += 1
            warehouse.gate.cut = 0
            sink = warehouse.writer(plan)
            offset = sink.positions().get(0, 0)
    warehouse.gate.cut = 0
    assert failures > 0
    assert warehouse.rows() == [("a", float(n)) for n in range(60)]


def test_a_new_sink_of_the_same_name_replaces_the_rows_and_spares_tables_of_others(warehouse: Warehouse) -> None:
    plan = plan_of(sink=SINK)
    warehouse.writer(plan).write(Batch([change("a", None, row("a", 1.0), 0)], {0: 1}))
    renamed = replace(plan, sink=replace(SINK, renames=(("v", "value"), ("n", "note"))))
    new = warehouse.writer(renamed, "new")
    assert new.positions() == {}
    new.write(Batch([change("b", None, row("b", 2.0, 4), 0)], {0: 1}))
    assert warehouse.rows("K, VALUE, NOTE") == [("b", 2.0, 4)]
    with pytest.raises(UnavailableError, match="another server has written it"):
        warehouse.made[0].write(Batch([], {0: 2}))
    warehouse.query("CREATE OR REPLACE TABLE heavy_main_v4 (x number)")
    with pytest.raises(UnavailableError, match="no sink of Table has made"):
        warehouse.writer(replace(plan, dataset=replace(plan.dataset, version=4)))
    # A table that somebody has dropped is written from the beginning.
    warehouse.query("DROP TABLE heavy_main_v3")
    assert warehouse.writer(renamed, "new").positions() == {}


TYPES: list[tuple[str, DataType, Any, Any]] = [
    # Column, type, stored value, value in Snowflake as text.
    ("flag", BOOL, True, "true"),
    ("raw", BYTES, b"\x00\xff", "00FF"),
    ("day", DATE, 19782, "2024-02-29"),
    ("stamped", DATETIME, -500_000, "1969-12-31 23:59:59.5"),
    ("exact", DecimalType(2), "1234567890.55", "1234567890.55"),
    ("items", ListType(of=STRING), ["a", "b'c"], """["a","b'c"]"""),
    ("nothing", optional(STRING), None, None),
    ("name", STRING, "Ünï\U0001f41d", "Ünï\U0001f41d"),
]


def test_all_types_are_written(warehouse: Warehouse) -> None:
    plan = plan_of(sink=SINK)
    columns = tuple(Column(name=name, dtype=dtype) for name, dtype, *_ in TYPES)
    schema = replace(plan.topic.schema, columns=(*plan.topic.schema.columns, *columns))
    plan = replace(plan, topic=replace(plan.topic, schema=schema))
    full = Row(5, ("a", float("inf"), None, *(stored for *_, stored, _ in TYPES)))
    warehouse.writer(plan).write(Batch([change("a", None, full, 0)], {0: 1}))
    shown = ", ".join("HEX_ENCODE(RAW)" if n == "raw" else f'CAST("{n.upper()}" AS VARCHAR)' for n, *_ in TYPES)
    (found,) = warehouse.query(f'SELECT VALUE, TO_VARCHAR("AT"), {shown} FROM heavy_main_v3')  # noqa: S608 (constants)
    assert found == (float("inf"), "1970-01-01 00:00:00.000005", *(text for *_, text in TYPES))


def test_a_commit_is_refused_if_the_user_or_the_columns_are_wrong(warehouse: Warehouse) -> None:
    plan = plan_of(sink=SINK)
    check(plan, warehouse.sign_in)
    assert warehouse.query("SELECT COUNT(*) FROM information_schema.tables WHERE table_name = 'HEAVY_MAIN_V3'") == [
        (0,)
    ]
    secret = SecretRef(arn="env:SNOW")
    locked = replace(TABLE, system=system_of(password=secret))
    wrong = replace(warehouse.sign_in, resolve=lambda value: "of-eve" if value is secret else str(value))
    with pytest.raises(CommitError, match="correct the user's name or password") as caught:
        check(replace(plan, sink=replace(SINK, connector=locked)), wrong)
    assert "of-eve" not in str(caught.value)
    assert PASSWORD not in str(caught.value)
    twice = replace(plan, sink=replace(SINK, renames=(("v", "N"),)))
    with pytest.raises(CommitError, match='two columns would have the name "N"; rename one'):
        check(twice, warehouse.sign_in)
