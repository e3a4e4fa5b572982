"""The reader of tables: whatever is inserted, changed, committed late and killed, each version of a row comes once."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caraway.dataplane.addresses.names import name_parts
from caraway.dataplane.ingest.marks import Starts, Written
from caraway.dataplane.sources.reader import SourceBatch
from caraway.dataplane.sources.tables.cursor import CursorReader
from caraway.dataplane.sources.tables.cursors import CursorKind
from caraway.dataplane.sources.tables.database import Bounds, Page, Row, TableColumn, TableShape
from caraway.dtypes.instants import EPOCH
from caraway.dtypes.types import DATETIME, INT
from caraway.errors import UnavailableError
from caraway.graph.connectors import TableConnector
from caraway.graph.plan.model import IngestPlan
from caraway.graph.sources import Cdc, SourceSpec
from tests.effort import examples
from tests.messages import records_of
from tests.unit.dataplane.ingest.contexts import POSTGRES, context_of, ingest_of
from tests.unit.dataplane.sources.test_sources import World, letters
from tests.unit.graph.building import dataset
from tests.unit.leased import KilledError

CONNECTOR = TableConnector(system=POSTGRES, table="events", cursor="at")
DISORDER_S = 5
BEGIN = datetime(2024, 5, 1, tzinfo=UTC)


def plan_of(*, keyed: bool, dtype: Any = DATETIME) -> IngestPlan:
    cdc = Cdc.UPSERT if keyed else Cdc.APPEND
    source = SourceSpec(connector=CONNECTOR, cdc=cdc, disorder_us=DISORDER_S * 1_000_000, every_us=1_000_000)
    columns = {"user": INT, "age": INT, "at": dtype, "seen": DATETIME}
    return ingest_of(dataset("Events", columns, keys=["user"] if keyed else [], timestamp="seen"), source)


@dataclass
class Table:
    """A table in memory, whose rows are those that readers see."""

    columns: dict[str, TableColumn]
    key: tuple[str, ...]
    cursor: str = "at"
    now_us: int | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    #: The order of rows with equal cursors and no key, which may be another one for each statement.
    order: Callable[[list[Any]], list[Any]] = lambda found: found
    statements: list[Page] = field(default_factory=list)
    asked: int = 0

    where = "a table"

    def shape(self) -> TableShape:
        return TableShape(columns=self.columns, primary_key=self.key, folds_case=True, rows=len(self.rows))

    def bounds(self, cursor: TableColumn) -> Bounds:
        self.asked += 1
        values = [row[cursor.name] for row in self.rows if row[cursor.name] is not None]
        return Bounds(greatest=max(values, default=None), now_us=self.now_us, nulls=len(self.rows) - len(values))

    def _rows(self, page: Page) -> Iterator[Sequence[Row]]:
        self.statements.append(page)
        keys = page.columns[: page.keys]
        found = [row for row in self.rows if row[keys[0]] is not None and row[keys[0]] <= page.most]
        if page.after is not None:
            after = tuple(page.after)
            found = [row for row in found if tuple(row[name] for name in keys[: len(after)]) > after]
        elif page.least is not None:
            found = [row for row in found if row[keys[0]] >= page.least]
        found = sorted(self.order(found), key=lambda row: tuple(row[name] for name in keys))[: page.limit]
        chosen = [tuple(row[name] for name in page.columns) for row in found]
        for at in range(0, len(chosen), 3):
            yield chosen[at : at + 3]

    def rows_of(self, page: Page) -> Iterator[Sequence[Row]]:
        return self._rows(page)

    def close(self) -> None:
        pass


class Opened:
    """A connection to the table."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.where = table.where
        self.shape, self.bounds, self.rows, self.close = table.shape, table.bounds, table.rows_of, table.close


def table_of(*, key: bool, kind: CursorKind = CursorKind.TIME) -> Table:
    columns = {
        "user": TableColumn(name="user", type="bigint", kind=CursorKind.NUMBER),
        "age": TableColumn(name="age", type="bigint", kind=CursorKind.NUMBER),
        "at": TableColumn(name="at", type="timestamptz", kind=kind),
        "seen": TableColumn(name="seen", type="timestamptz", kind=CursorKind.TIME),
        "other": TableColumn(name="other", type="text", kind=CursorKind.TEXT),
    }
    return Table(columns, ("user",) if key else ())


class SmallPages(CursorReader):
    """A reader with pages of invented sizes."""

    sizes: Callable[[], int] = lambda: 1000

    def poll(self, *, rows: int, size: int, timeout_s: float) -> SourceBatch | None:
        return super().poll(rows=type(self).sizes(), size=size, timeout_s=timeout_s)


class Blocks(World):
    """A world in which records without keys are in blocks, with a mark for each."""

    def marks(self, starts: Starts, header: str, key: str) -> Written:
        found = super().marks(starts, header, key)
        return frozenset((dataset, mark) for dataset, marks in found for mark in marks.split(","))


@dataclass
class Run:
    """A table and all that outlives a reader."""

    table: Table
    plan: IngestPlan
    world: World = field(default_factory=lambda: Blocks({}))
    sizes: Callable[[], int] = lambda: 1000

    def worker(self) -> Any:
        reader = type("Sized", (SmallPages,), {"sizes": staticmethod(self.sizes)})
        self.world.opens = lambda world, _: reader(  # type: ignore[assignment]
            lambda: Opened(self.table),
            CONNECTOR,
            context_of(self.plan),
            now=lambda: world.now,
            clock=lambda: world.now,
            sleep=world.sleep,
        )
        return self.world.worker(plan=self.plan)

    def rounds(self, worker: Any, count: int) -> None:
        """Run a worker until it has completed some rounds."""
        done = self.table.asked + count
        while self.table.asked < done or worker.position.get("most") is not None:
            self.world.now += 0.01
            assert worker.step()


def row(user: int, age: int, second: int, seen: int = 0) -> dict[str, Any]:
    at = BEGIN + timedelta(seconds=second)
    return {"user": user, "age": age, "at": at, "seen": BEGIN + timedelta(seconds=seen), "other": "x"}


def version(of: Mapping[str, Any]) -> tuple[int, int, int]:
    at = (of["at"] - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return of["user"], of["age"], at


def delivered(run: Run) -> list[tuple[int, int, int]]:
    items = run.world.topics.get(run.plan.topic.name, [])
    values = [msgspec.msgpack.decode(value) for key, item, _ in items for value in records_of(key, item)]
    return [tuple(value[7][:3]) for value in values]


# A step is an insert of a row whose cursor is so many seconds behind the newest one, a change or a delete of a row, or
# work of the reader, which may be killed.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.integers(0, 3), st.integers(0, DISORDER_S)),
        st.tuples(st.just("ahead"), st.integers(0, 3), st.integers(0, 20)),
        st.tuples(st.just("change"), st.integers(0, 30), st.integers(0, DISORDER_S)),
        st.tuples(st.just("delete"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("read"), st.integers(1, 12), st.just(0)),
        st.tuples(st.just("kill"), st.integers(0, 25), st.integers(1, 12)),
        st.tuples(st.just("restart"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


def run_steps(run: Run, steps: Sequence[tuple[str, int, int]], *, keyed: bool) -> Counter[tuple[int, int, int]]:
    """Run steps and then some rounds; return how often each version of a row was there."""
    made: Counter[tuple[int, int, int]] = Counter()
    newest, users, worker = 0, 0, run.worker()
    for name, first, second in steps:
        match name:
            case "insert" | "ahead":
                newest += second if name == "ahead" else 0
                at = newest if name == "ahead" else newest - second
                # With a key, each row is a user; without one, rows may be equal.
                users += 1
                run.table.rows.append(row(users if keyed or run.table.key else first, first, at))
                made[version(run.table.rows[-1])] += 1
            case "change" if run.table.rows and run.table.key:
                # A change moves the cursor of its row ahead of all that were there.
                newest += 1
                old = run.table.rows[first % len(run.table.rows)]
                new = {**old, "age": old["age"] + 10, "at": BEGIN + timedelta(seconds=newest)}
                run.table.rows[first % len(run.table.rows)] = new
                made[version(new)] += 1
            case "delete" if run.table.rows:
                del run.table.rows[first % len(run.table.rows)]
            case "read":
                for _ in range(first):
                    run.world.now += 0.3
                    assert worker.step()
            case "kill":
                run.world.fuse = first
                try:
                    for _ in range(second):
                        run.world.now += 0.3
                        worker.step()
                except KilledError:
                    worker = run.worker()
                run.world.fuse = 10**9
            case "restart":
                worker.stop()
                worker = run.worker()
    run.rounds(worker, 2)
    return made


@pytest.mark.spec("connectors:12:5")
@given(steps=STEPS, key=st.booleans(), seed=st.integers(0, 2**32))
@settings(max_examples=examples(500))
def test_each_version_of_a_row_comes_once(steps: Sequence[tuple[str, int, int]], key: bool, seed: int) -> None:
    random = Random(seed)

    def shuffled(found: list[Any]) -> list[Any]:
        return random.sample(found, len(found))

    run = Run(table_of(key=key), plan_of(keyed=False), sizes=lambda: random.randint(1, 7))
    run.table.order = shuffled
    made = run_steps(run, steps, keyed=False)
    came = Counter(delivered(run))
    assert came <= made
    assert Counter(map(version, run.table.rows)) <= came
    assert letters(run.world) == []
    # The window bounds how much is kept: all rows from the disorder before the last one on.
    newest = max((of["at"] for of in run.table.rows), default=BEGIN)
    window = sum(of["at"] >= newest - timedelta(seconds=DISORDER_S) for of in run.table.rows)
    kept = sum(len(value.partition(b"\n")[2]) // 16 for value in run.world.remembered.values())
    assert kept <= window + len(run.world.remembered) * 7


@given(steps=STEPS, seed=st.integers(0, 2**32))
@settings(max_examples=examples(300))
def test_an_upserted_dataset_has_the_live_rows(steps: Sequence[tuple[str, int, int]], seed: int) -> None:
    random = Random(seed)
    run = Run(table_of(key=True), plan_of(keyed=True), sizes=lambda: random.randint(1, 7))
    gone = [step for step in steps if step[0] != "delete"]
    run_steps(run, gone, keyed=True)
    last = {user: (user, age) for user, age, _ in delivered(run)}
    assert last == {of["user"]: (of["user"], of["age"]) for of in run.table.rows}


EQUAL = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.integers(0, 1), st.integers(0, 1)),
        st.tuples(st.just("ahead"), st.just(0), st.integers(0, 1)),
        st.tuples(st.just("delete"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("read"), st.integers(1, 8), st.just(0)),
        st.tuples(st.just("kill"), st.integers(0, 6), st.integers(1, 12)),
        st.tuples(st.just("restart"), st.just(0), st.just(0)),
    ),
    min_size=10,
    max_size=60,
)


@given(steps=EQUAL, seed=st.integers(0, 2**32))
@settings(max_examples=examples(1000))
def test_equal_rows_of_a_table_without_a_key_come_as_often_as_they_are_there(
    steps: Sequence[tuple[str, int, int]], seed: int
) -> None:
    random = Random(seed)
    run = Run(table_of(key=False), plan_of(keyed=False), sizes=lambda: random.randint(1, 3))
    run.table.order = lambda found: random.sample(found, len(found))
    # Deletes come last: a row that is deleted before the reader has met it may be missed.
    made = run_steps(run, [step for step in steps if step[0] != "delete"], keyed=False)
    assert Counter(delivered(run)) == made


def micros(second: int) -> int:
    return (BEGIN + timedelta(seconds=second) - EPOCH) // timedelta(microseconds=1)


def test_a_source_keeps_the_digests_with_which_it_began() -> None:
    seeds = []
    for _ in range(2):
        run = Run(table_of(key=True), plan_of(keyed=False))
        run.table.rows.append(row(1, 1, 0))
        worker = run.worker()
        assert worker.step()
        assert run.world.saved is not None
        # The seed was saved before any row was read.
        seed = run.world.saved.position["seed"]
        assert run.world.saved.position["round"] == 0
        run.rounds(worker, 1)
        worker.stop()
        worker = run.worker()
        run.rounds(worker, 1)
        assert worker.position["seed"] == seed
        seeds.append(seed)
    assert len(set(seeds)) == 2


def test_a_time_of_the_future_hides_no_rows_of_the_present() -> None:
    run = Run(table_of(key=True), plan_of(keyed=False))
    run.table.now_us = micros(100)
    run.table.rows = [row(1, 1, 99), row(2, 1, 10**9)]
    worker = run.worker()
    run.rounds(worker, 1)
    # The database's clock goes on, and is then set back by an hour.
    for second, now in ((96, 100), (110, 111), (107, 111), (112, -3600)):
        run.table.now_us = micros(now)
        run.table.rows.append(row(second, 1, second))
        run.rounds(worker, 1)
    assert Counter(delivered(run)) == Counter(map(version, run.table.rows))


def test_numbers_are_read_again_from_the_last_one_less_the_overlap() -> None:
    kinds = {"at": TableColumn(name="at", type="bigint", kind=CursorKind.NUMBER)}
    for overlap, expected in ((0, [1, 5]), (3, [1, 4, 5])):
        table = table_of(key=True)
        table.columns |= kinds
        table.rows = [{**row(number, 1, 0), "at": number} for number in (1, 5)]
        plan = plan_of(keyed=False, dtype=INT)
        reader = CursorReader(
            lambda table=table: Opened(table),  # type: ignore[misc]
            CONNECTOR,
            context_of(plan, integer_overlap=overlap),
            now=lambda: 0.0,
        )
        found: list[object] = []
        reader.seek({}, {})
        for late in (4, None):
            reader._rounds.next_at = 0.0
            while (batch := reader.poll(rows=10, size=1000, timeout_s=0.0)) is not None:
                found += batch.rows.column("user", 0, len(batch.rows))
                if reader._place.most is None:
                    break
            if late is not None:
                table.rows.append({**row(late, 1, 0), "at": late})
        assert sorted(found) == expected  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("hives", ["hives"]),
        ("public.Hives", ["public", "Hives"]),
        ('"a.b"."c""d"', ["a.b", 'c"d']),
        ("`my db`.`t`", ["my db", "t"]),
        ("my hives", ["my hives"]),
    ],
)
def test_names_of_tables_have_parts(name: str, parts: list[str]) -> None:
    assert name_parts(name, "Postgres db") == parts


@pytest.mark.parametrize("name", ["", "a.", ".a", 'a"b', '"a', "a..b"])
def test_other_names_of_tables_are_refused(name: str) -> None:
    with pytest.raises(UnavailableError, match="is no name of a table"):
        name_parts(name, "Postgres db")
