"""The run of an offline query part by part, on a real Postgres: resumption, interruptions, attempts."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
import sqlalchemy as sa

from caraway.compute.query.model import Instants
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.errors import InvalidInputError, UnavailableError
from caraway.offline.queries import running
from caraway.offline.queries.inputs import Files, open_rows
from caraway.offline.queries.model import JSON_INPUT, OfflineRequest, QueryStatus, StoredRows, folder_of
from caraway.offline.queries.outputs import read_part
from caraway.offline.queries.places import own_prefix
from caraway.offline.queries.running import ATTEMPTS, QueryRun, attempted
from caraway.offline.queries.store import OfflineQueries
from caraway.state.database import connect
from tests.unit.compute.query.garden import DictReader, engine

T = 1_700_000_000_000_000
ROWS = 10
# The rows of the first part are read once more, to see whether they see their own events.
READS_OF_FIRST_PART = 2


@pytest.fixture
def queries(postgres: str) -> Iterator[OfflineQueries]:
    database: sa.Engine = connect(postgres)
    yield OfflineQueries(database)
    database.dispose()


@pytest.fixture(autouse=True)
def parts_of_three_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "PART_ROWS", 3)
    monkeypatch.setattr(running, "PART_ROWS_OF_FUNCTIONS", 2)


class Pots(DictReader):
    """Pots with a species each; `seen` is called before each read."""

    def __init__(self, seen: Callable[[], object] = lambda: None) -> None:
        row = {"size": 1.0, "bought": T}
        super().__init__({("Pots", (n,)): [(T - 1, {"pot": n, "species": f"s{n}", **row})] for n in range(ROWS)})
        self._seen = seen

    def read(
        self, dataset: str, keys: Sequence[tuple[object, ...]], at_us: Instants, columns: Sequence[str], /
    ) -> tuple[list[list[object]], list[bool]]:
        self._seen()
        return super().read(dataset, keys, at_us, columns)


class Asked:
    """An offline query of pots' species."""

    def __init__(
        self, queries: OfflineQueries, folder: Path, output: str = "State.species", pots: Sequence[object] = range(ROWS)
    ) -> None:
        self.queries = queries
        self.output = output
        self.objects = ObjectFolder(str(folder))
        self.request = OfflineRequest(
            inputs=("Tap.pot",), outputs=(output,), timestamp_column="at", rows=StoredRows(JSON_INPUT)
        )
        columns = {"Tap.pot": list(pots), "at": [T] * len(pots), "label": [f"l{n}" for n in range(len(pots))]}
        self.objects.write(f"{folder_of('q')}/{JSON_INPUT}", orjson.dumps(columns))
        queries.add("q", self.request, branch="main", commit="1", account="a", workflow="w")

    def run(self, reader: DictReader, **more: Any) -> QueryRun:
        rows = open_rows("q", self.request, self.objects, Files(local=False))
        self.queries.begin("q", {}, rows.count())
        return QueryRun(
            query=self.queries.get("q"),
            plan=engine(reader).plan(["Tap.pot"], [self.output]),
            rows=rows,
            queries=self.queries,
            output=self.objects,
            prefix=own_prefix("q"),
            **more,
        )

    def result(self) -> list[dict[str, Any]]:
        parts = range(len(self.queries.get("q").parts))
        found = pa.concat_tables([read_part(self.objects, own_prefix("q"), part) for part in parts])
        rows: list[dict[str, Any]] = found.to_pylist()
        return rows

    def files(self) -> list[str]:
        return [stored.name.rpartition("/")[2] for stored in self.objects.stored(own_prefix("q"))]


def test_every_row_comes_back_once_and_in_order(queries: OfflineQueries, tmp_path: Path) -> None:
    asked = Asked(queries, tmp_path)
    assert asked.run(Pots()).run() is QueryStatus.SUCCEEDED
    assert [(row["State.species"], row["label"]) for row in asked.result()] == [(f"s{n}", f"l{n}") for n in range(ROWS)]
    found = queries.get("q")
    assert ([part.rows for part in found.parts], found.rows_failed) == ([3, 3, 3, 1], 0)
    assert found.status is QueryStatus.SUCCEEDED
    assert asked.files() == ["manifest.json", *(f"part-{n:05}.parquet" for n in range(4))]


def test_a_query_goes_on_behind_the_last_part(queries: OfflineQueries, tmp_path: Path) -> None:
    asked = Asked(queries, tmp_path)
    reads = 0

    def fail_at_the_third() -> None:
        nonlocal reads
        reads += 1
        if reads == READS_OF_FIRST_PART + 2:
            raise UnavailableError("away")

    with pytest.raises(UnavailableError):
        asked.run(Pots(fail_at_the_third)).run()
    assert queries.get("q").rows_done == 6
    assert "manifest.json" not in asked.files()
    reader = Pots()
    assert asked.run(reader).run() is QueryStatus.SUCCEEDED
    assert [keys for _, keys, _ in reader.calls] == [3, 1], "parts that exist aren't computed again"
    assert [row["label"] for row in asked.result()] == [f"l{n}" for n in range(ROWS)]
    assert queries.get("q").rows_done == ROWS


def test_a_part_that_was_written_but_not_noted_is_written_again(queries: OfflineQueries, tmp_path: Path) -> None:
    asked = Asked(queries, tmp_path)

    class Lost(OfflineQueries):
        def advance(self, *_: Any) -> None:
            raise UnavailableError("Postgres is away")

    run = asked.run(Pots())
    lost = Lost(queries._engine)
    with pytest.raises(UnavailableError):
        QueryRun(
            query=run.query, plan=run.plan, rows=run.rows, queries=lost, output=run.output, prefix=run.prefix
        ).run()
    assert asked.files() == ["part-00000.parquet"]
    assert queries.get("q").parts == ()
    assert asked.run(Pots()).run() is QueryStatus.SUCCEEDED
    assert [row["label"] for row in asked.result()] == [f"l{n}" for n in range(ROWS)]


def test_rows_that_fail_are_counted_and_named(queries: OfflineQueries, tmp_path: Path) -> None:
    asked = Asked(queries, tmp_path, pots=[0, 1, 2, 3, "x", 5, 6, 7, 8, None])
    assert asked.run(Pots()).run() is QueryStatus.SUCCEEDED
    rows = asked.result()
    assert [row["_error"] and row["_error"].partition(":")[0] for row in rows] == [
        *[None] * 4, "input Tap.pot (int), row 4", *[None] * 4, "input Tap.pot (int), row 9",
    ]  # fmt: skip
    assert [part.failed for part in queries.get("q").parts] == [0, 1, 0, 1]


def test_user_code_gets_smaller_parts(queries: OfflineQueries, tmp_path: Path) -> None:
    asked = Asked(queries, tmp_path, "Faulty.shuffled")
    assert asked.run(Pots()).run() is QueryStatus.SUCCEEDED
    assert [part.rows for part in queries.get("q").parts] == [2] * 5
    assert [row["Faulty.shuffled"] for row in asked.result()] == list(range(ROWS))


def test_a_process_that_is_to_end_leaves_the_query_to_another(queries: OfflineQueries, tmp_path: Path) -> None:
    asked = Asked(queries, tmp_path)
    reader = Pots()
    assert asked.run(reader, stopping=lambda: len(reader.calls) > READS_OF_FIRST_PART).run() is None
    found = queries.get("q")
    assert (found.status, found.rows_done) == (QueryStatus.RUNNING, 6)
    assert asked.run(Pots()).run() is QueryStatus.SUCCEEDED
    assert len(asked.result()) == ROWS


def test_a_cancelled_query_ends_behind_a_part(queries: OfflineQueries, tmp_path: Path) -> None:
    asked = Asked(queries, tmp_path)
    assert asked.run(Pots(lambda: queries.cancel("q"))).run() is QueryStatus.CANCELLED
    found = queries.get("q")
    assert (found.status, found.rows_done, found.ended_at is not None) == (QueryStatus.CANCELLED, 3, True)
    assert asked.files() == ["part-00000.parquet"], "what was written stays"


def test_a_query_whose_rows_all_fail_is_cancelled_amid_a_part(
    queries: OfflineQueries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "PART_ROWS_OF_FUNCTIONS", 10_000)
    asked = Asked(queries, tmp_path, "Faulty.broken", pots=range(500))
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.1
        if now > 3.0:
            queries.cancel("q")
        return now

    assert asked.run(Pots(), clock=clock).run() is QueryStatus.CANCELLED
    assert now < 10.0, "the search for failing rows went on for hundreds of calls"
    assert queries.get("q").parts == ()


def test_a_process_is_asked_to_end_amid_a_part_whose_rows_fail(queries: OfflineQueries, tmp_path: Path) -> None:
    asked = Asked(queries, tmp_path, "Faulty.broken", pots=[1, 2])
    asks = iter([False, False, True])
    assert asked.run(Pots(), stopping=lambda: next(asks)).run() is None
    assert queries.get("q").status is QueryStatus.RUNNING


def failing(error: BaseException) -> Callable[[], QueryStatus | None]:
    def run() -> QueryStatus | None:
        raise error

    return run


def test_a_query_waits_as_long_as_something_is_away(queries: OfflineQueries, tmp_path: Path) -> None:
    Asked(queries, tmp_path)
    for _ in range(2 * ATTEMPTS):
        with pytest.raises(UnavailableError):
            attempted(queries, queries.get("q"), failing(UnavailableError("Kafka is away")))
        found = queries.get("q")
        assert (found.status, found.attempts, found.error) == (QueryStatus.WAITING, 0, "Kafka is away")
    queries.cancel("q")
    attempted(queries, queries.get("q"), failing(UnavailableError("Kafka is away")))
    assert queries.get("q").status is QueryStatus.CANCELLED


# A process that is killed has counted its attempt, and says nothing.
@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError()])
def test_a_query_fails_after_some_processes_that_died(
    queries: OfflineQueries, tmp_path: Path, error: BaseException
) -> None:
    Asked(queries, tmp_path)
    for _ in range(ATTEMPTS):
        with pytest.raises(type(error)):
            attempted(queries, queries.get("q"), failing(error))
        assert queries.get("q").status is QueryStatus.WAITING
    attempted(queries, queries.get("q"), failing(AssertionError("this isn't run any more")))
    found = queries.get("q")
    assert found.status is QueryStatus.FAILED
    assert "given up after 3 attempts: its process ended each time" in (found.error or "")


def test_a_process_that_was_asked_to_end_has_not_failed(queries: OfflineQueries, tmp_path: Path) -> None:
    Asked(queries, tmp_path)
    for _ in range(2 * ATTEMPTS):
        attempted(queries, queries.get("q"), lambda: None)
    found = queries.get("q")
    assert (found.status, found.attempts, found.error) == (QueryStatus.WAITING, 0, None)


@pytest.mark.parametrize("text", ["no such column", "a character \x00 that Postgres can't store"])
def test_rows_that_can_t_be_read_fail_the_query_at_once(queries: OfflineQueries, tmp_path: Path, text: str) -> None:
    Asked(queries, tmp_path)
    attempted(queries, queries.get("q"), failing(InvalidInputError(text)))
    found = queries.get("q")
    assert found.status is QueryStatus.FAILED
    assert (found.error or "")[:6] == text[:6]
