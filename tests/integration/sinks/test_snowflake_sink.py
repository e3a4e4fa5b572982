"""Tables of Snowflake that sinks write: they equal the dataset, have each batch once, and belong to one sink.

The writer speaks by Snowflake's own connector to a server that speaks its protocol over DuckDB.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings

from caraway.dataplane.sinks.changes import Row
from caraway.dataplane.sinks.snowflake import SnowflakeWriter, check
from caraway.dataplane.sinks.writer import Batch, SignIn
from caraway.dtypes.types import BOOL, BYTES, DATE, DATETIME, STRING, DataType, DecimalType, ListType, optional
from caraway.errors import CommitError, UnavailableError
from caraway.graph.connectors import TableConnector
from caraway.graph.plan.model import Column, SinkPlan
from caraway.graph.sources import SinkSpec
from caraway.graph.systems import SecretRef
from tests.services.snowflake import PASSWORD, Gate, running_in_thread, session, system_of
from tests.unit.dataplane.sinks.table_contract import *  # noqa: F403 (the tests of the contract)
from tests.unit.dataplane.sinks.table_contract import BATCHES, check_batches
from tests.unit.dataplane.sinks.world import change, plan_of, row, writing

TABLE = TableConnector(system=system_of(), table="heavy", cursor=None)
SINK = SinkSpec(connector=TABLE, how="incremental", create=True, every_us=1, renames=(("v", "value"),))


@dataclass
class Warehouse:
    """A server of Snowflake's protocol (`Place`)."""

    port: int
    gate: Gate
    made: list[SnowflakeWriter]
    overtaken: str = "another server has written it"

    @property
    def sign_in(self) -> SignIn:
        return SignIn(resolve=str, endpoints={"snow": f"http://127.0.0.1:{self.port}"})

    def plan(self, *, keyed: bool = True) -> SinkPlan:
        return plan_of(sink=SINK, keyed=keyed)

    def writer(self, plan: SinkPlan, name: str = "sink", product: Any = "caraway") -> SnowflakeWriter:
        self.made.append(SnowflakeWriter(writing(plan, name=name, product=product, sign_in=self.sign_in)))
        return self.made[-1]

    def query(self, statement: str) -> list[Any]:
        with session(self.port) as made, made.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def rows(self, *names: str) -> list[tuple[Any, ...]]:
        columns = ", ".join('TO_VARCHAR("AT")' if name == "at" else name.upper() for name in names)
        return self.query(f"SELECT {columns} FROM heavy_main_v3 ORDER BY 1, 2")  # noqa: S608 (constants)

    def hashes(self, product: str) -> list[str]:
        found = self.query(f'SELECT "__{product.upper()}_HASH__" FROM heavy_main_v3')  # noqa: S608 (constants)
        return [digest for (digest,) in found]

    def add_table(self) -> None:
        self.query("CREATE OR REPLACE TABLE heavy_main_v4 (x number)")


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[int, Gate]]:
    with running_in_thread() as found:
        yield found


@pytest.fixture
def place(server: tuple[int, Gate]) -> Iterator[Warehouse]:
    made = Warehouse(*server, [])
    yield made
    clear(made)


def clear(made: Warehouse) -> None:
    for each in made.made:
        each.close()
    for table in ("heavy_main_v3", "heavy_main_v3__caraway_position"):
        made.query(f"DROP TABLE IF EXISTS {table}")


def test_a_batch_may_change_nothing_but_the_position(place: Warehouse) -> None:
    sink = place.writer(place.plan())
    sink.write(Batch([change("a", None, row("a", 1.0), 0)], {0: 1, 1: 0}))
    sink.write(Batch([], {0: 7, 1: 2}))
    assert place.writer(place.plan()).positions() == {0: 7, 1: 2}


# Each statement is a request, so that there are fewer examples than by default.
@pytest.mark.spec("connectors:4.2:4", "connectors:11:12")
@settings(max_examples=8, deadline=None)
@given(batches=BATCHES)
def test_merges_give_the_table_of_the_changes(
    batches: Sequence[Sequence[tuple[str, int | None]]], server: tuple[int, Gate]
) -> None:
    place = Warehouse(*server, [])
    check_batches(place, batches)
    clear(place)


def test_answers_that_are_lost_neither_lose_nor_double_rows(place: Warehouse) -> None:
    plan, random = place.plan(keyed=False), Random(3)
    sink, offset, failures = place.writer(plan), 0, 0
    while offset < 60:
        changes = [change(f"id{offset + n}", None, row("a", float(offset + n)), offset + n) for n in range(5)]
        ends = random.random() < 0.3
        try:
            if ends:
                place.gate.end_sessions()
            else:
                place.gate.cut = random.choice([0, 1, 2])
            sink.write(Batch(changes, {0: offset + 5}))
            offset += 5
        except UnavailableError:
            failures += 1
            place.gate.cut = 0
            sink = place.writer(plan)
            offset = sink.positions().get(0, 0)
    place.gate.cut = 0
    assert failures > 0
    assert place.rows("k", "value") == [("a", float(n)) for n in range(60)]


def test_a_table_of_a_new_sink_stays_its_own_and_one_that_is_dropped_is_written_again(place: Warehouse) -> None:
    old = place.writer(place.plan())
    old.write(Batch([change("a", None, row("a", 1.0), 0)], {0: 1}))
    place.writer(place.plan(), "new").write(Batch([change("b", None, row("b", 2.0, 4), 0)], {0: 1}))
    with pytest.raises(UnavailableError, match="another server has written it"):
        old.write(Batch([], {0: 2}))
    place.query("DROP TABLE heavy_main_v3")
    assert place.writer(place.plan(), "new").positions() == {}


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


def test_all_types_are_written(place: Warehouse) -> None:
    plan = place.plan()
    columns = tuple(Column(name=name, dtype=dtype) for name, dtype, *_ in TYPES)
    schema = replace(plan.topic.schema, columns=(*plan.topic.schema.columns, *columns))
    plan = replace(plan, topic=replace(plan.topic, schema=schema))
    full = Row(5, ("a", float("inf"), None, *(stored for *_, stored, _ in TYPES)))
    place.writer(plan).write(Batch([change("a", None, full, 0)], {0: 1}))
    shown = ", ".join("HEX_ENCODE(RAW)" if n == "raw" else f'CAST("{n.upper()}" AS VARCHAR)' for n, *_ in TYPES)
    (found,) = place.query(f'SELECT VALUE, TO_VARCHAR("AT"), {shown} FROM heavy_main_v3')  # noqa: S608 (constants)
    assert found == (float("inf"), "1970-01-01 00:00:00.000005", *(text for *_, text in TYPES))


def test_a_commit_is_refused_if_the_user_or_the_columns_are_wrong(place: Warehouse) -> None:
    plan = place.plan()
    check(plan, place.sign_in)
    assert place.query("SELECT COUNT(*) FROM information_schema.tables WHERE table_name = 'HEAVY_MAIN_V3'") == [(0,)]
    secret = SecretRef(arn="env:SNOW")
    locked = replace(TABLE, system=system_of(password=secret))
    wrong = replace(place.sign_in, resolve=lambda value: "of-eve" if value is secret else str(value))
    with pytest.raises(CommitError, match="correct the user's name or password") as caught:
        check(replace(plan, sink=replace(SINK, connector=locked)), wrong)
    assert "of-eve" not in str(caught.value)
    assert PASSWORD not in str(caught.value)
    twice = replace(plan, sink=replace(SINK, renames=(("v", "N"),)))
    with pytest.raises(CommitError, match='two columns would have the name "N"; rename one'):
        check(twice, place.sign_in)
