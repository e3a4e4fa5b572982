"""A server reads a table of Snowflake and writes another one: nothing is lost or doubled, whatever is killed."""

# mypy: disable-error-code="attr-defined"

import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from caraway import Dataset, connectors, dataset, field, meta, pipeline
from caraway.config.settings import SourcesSettings
from caraway.connectors import sink, source
from caraway.datasets import Count, Sum
from caraway.dtypes import Continuous
from caraway.graph.specs import Graph
from caraway.lib import inputs
from tests.integration.server.server_process import ServerProcess, end_of, eventually
from tests.integration.server.test_table_sources import taken
from tests.services.snowflake import DATABASE, PASSWORD, SCHEMA, USER, Snowflake
from tests.timeouts import deadline_in

ROWS, MANY, TOWNS = 20_000, 1_000_000, 50
# The names of the warehouse in the tests. A topic is named after the definitions, and tests share a broker.
SNOW_OF_FEW, SNOW_OF_MANY = "snow_of_few", "snow_of_many"


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Snowflake]:
    server = Snowflake(tmp_path / "snowflake")
    server.start()
    server.execute('CREATE TABLE hives (hive number(38,0), town varchar, changed_at timestamp_ntz, "AT" timestamp_ntz)')
    yield server
    server.stop()


@pytest.fixture
def start(warehouse: Snowflake, own_server: Callable[..., ServerProcess]) -> Callable[[], ServerProcess]:
    """Return a function that starts servers, which share a folder, so run only one."""
    address = f"http://127.0.0.1:{warehouse.port}"
    return partial(own_server, sources=SourcesSettings(endpoints=dict.fromkeys((SNOW_OF_FEW, SNOW_OF_MANY), address)))


def fill(warehouse: Snowflake, first: int, last: int, seconds: int = 0) -> None:
    """Insert rows, of which a thousand each have the same cursor."""
    begin = "'2024-05-01'::timestamp"
    warehouse.execute(
        f"INSERT INTO hives SELECT n, 'town ' || (n % {TOWNS}), "  # noqa: S608 (constants and numbers)
        f"{begin} + floor(n / 1000) * interval '1 second' + interval '{seconds} seconds', {begin} "
        f"FROM (SELECT unnest(range({first}, {last})) AS n)"
    )


def graph_of(name: str) -> Graph:
    snow = connectors.Snowflake(
        name=name,
        account="acme",
        db_name=DATABASE,
        username=USER,
        password=PASSWORD,
        warehouse="W",
        schema=SCHEMA,
        role="READER",
    )

    @meta(owner="a@b.co")
    @source(snow.table("hives", cursor="changed_at"), disorder="10s", cdc="append", every="1s")
    @dataset
    class Hives:
        hive: int
        town: str
        at: datetime = field(timestamp=True)

    @meta(owner="a@b.co")
    @sink(snow.table("towns"), how="incremental", every="1s")
    @dataset
    class Towns:
        town: str = field(key=True)
        hives: int
        total: int
        at: datetime = field(timestamp=True)

        @pipeline
        @inputs(Hives)
        def by_town(cls, hives: Dataset) -> Any:
            return hives.groupby("town").aggregate(
                hives=Count(window=Continuous("forever")), total=Sum(of="hive", window=Continuous("forever"))
            )

    return Graph(datasets=(Hives.to_spec(), Towns.to_spec()))


def towns(rows: int) -> list[tuple[str, int, int]]:
    found: dict[str, list[int]] = {}
    for number in range(rows):
        found.setdefault(f"town {number % TOWNS}", []).append(number)
    return sorted((town, len(numbers), sum(numbers)) for town, numbers in found.items())


def written(warehouse: Snowflake) -> list[tuple[str, int, int]]:
    return warehouse.execute("SELECT town, hives, total FROM towns_main_v1 ORDER BY town")


@pytest.mark.full(reason="it takes a minute; reader, sink and lost answers have tests in each run")
def test_a_killed_server_and_a_killed_warehouse_take_each_row_once(
    start: Callable[[], ServerProcess], warehouse: Snowflake, kafka: str
) -> None:
    fill(warehouse, 0, ROWS)
    server = start()
    server.commit(graph_of(SNOW_OF_FEW))
    eventually(lambda: "Hives" in str(server.http.get("/status").json().get("topics")), server.said)
    topic = server.topic("Hives")
    server.run_in_slices_until(lambda: end_of(kafka, topic) >= 1)
    server.kill()
    server = start()
    warehouse.kill()

    def error() -> str:
        (found,) = server.http.get("/status").json()["sources"]
        return str(found["error"])

    eventually(lambda: "table hives" in error(), server.said)
    assert server.health().status_code == 200
    warehouse.start()
    # Rows that come late, and that belong to a value of the cursor that was read.
    fill(warehouse, ROWS, ROWS + 10, -5)
    eventually(lambda: end_of(kafka, topic) >= ROWS + 10, server.said)
    assert taken(kafka, topic) == Counter(range(ROWS + 10))
    eventually(lambda: written(warehouse) == towns(ROWS + 10), server.said)


@pytest.mark.full(reason="a million rows and some twenty kills; a smaller load has a test of its own")
@pytest.mark.timeout(1200)
def test_a_million_rows_survive_kills_at_random_moments(
    start: Callable[[], ServerProcess], warehouse: Snowflake, kafka: str
) -> None:
    fill(warehouse, 0, MANY)
    server = start()
    server.commit(graph_of(SNOW_OF_MANY))
    eventually(lambda: "Hives" in str(server.http.get("/status").json().get("topics")), server.said)
    topic, random = server.topic("Hives"), Random(5)
    deadline, kills = deadline_in(900), Counter[str]()
    while end_of(kafka, topic) < MANY:
        assert time.monotonic() < deadline, server.said()
        time.sleep(random.uniform(0.3, 6))
        victim = random.choice(["server", "warehouse", "nobody"])
        kills[victim] += 1
        if victim == "server":
            server.kill()
            server = start()
        elif victim == "warehouse":
            warehouse.kill()
            warehouse.start()
    assert min(kills["server"], kills["warehouse"]) >= 1, kills
    found, every = taken(kafka, topic), Counter(range(MANY))
    # The whole counts would take pytest hours to compare.
    wrong = [number for number in found | every if found[number] != every[number]]
    assert not wrong, (len(wrong), wrong[:5], kills)
    eventually(lambda: written(warehouse) == towns(MANY), server.said)
