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
from caraway.connectors import sink, source
from caraway.datasets import Count, Sum
from caraway.dtypes import Continuous
from caraway.graph.specs import Graph
from caraway.lib import inputs
from caraway.process.settings.connectors import SourcesSettings
from tests.integration.server.server_process import ServerProcess, end_of, eventually, numbers_of
from tests.services.snowflake import DATABASE, PASSWORD, SCHEMA, USER, Snowflake
from tests.timeouts import deadline_in

# An engine computes the rows that the sink writes.
pytestmark = pytest.mark.usefixtures("jobs")

MANY, TOWNS = 1_000_000, 50


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
    return partial(own_server, sources=SourcesSettings(endpoints={"snow": address}))


def fill(warehouse: Snowflake, rows: int) -> None:
    """Insert rows, of which a thousand each have the same cursor."""
    begin = "'2024-05-01'::timestamp"
    warehouse.execute(
        f"INSERT INTO hives SELECT n, 'town ' || (n % {TOWNS}), "  # noqa: S608 (constants and numbers)
        f"{begin} + floor(n / 1000) * interval '1 second', {begin} FROM (SELECT unnest(range({rows})) AS n)"
    )


def graph() -> Graph:
    snow = connectors.Snowflake(
        name="snow",
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


@pytest.mark.full(reason="a million rows and some twenty kills")
@pytest.mark.timeout(1200)
def test_a_million_rows_survive_kills_at_random_moments(
    start: Callable[[], ServerProcess], warehouse: Snowflake, kafka: str
) -> None:
    fill(warehouse, MANY)
    server = start()
    server.commit(graph())
    topic, random = server.made_topic("Hives"), Random(5)
    deadline, kills, first = deadline_in(900), Counter[str](), ["warehouse", "server"]
    while end_of(kafka, topic) < MANY:
        assert time.monotonic() < deadline, server.said()
        time.sleep(random.uniform(0.3, 6))
        # On a fast machine there are few kills, so server and warehouse are the first two victims.
        victim = first.pop() if first else random.choice(["server", "warehouse", "nobody"])
        kills[victim] += 1
        if victim == "server":
            server.kill()
            server = start()
        elif victim == "warehouse":
            warehouse.kill()
            warehouse.start()
    assert min(kills["server"], kills["warehouse"]) >= 1, kills
    found, every = numbers_of(kafka, topic), Counter(range(MANY))
    # The whole counts would take pytest hours to compare.
    wrong = [number for number in found | every if found[number] != every[number]]
    assert not wrong, (len(wrong), wrong[:5], kills)
    eventually(lambda: written(warehouse) == towns(MANY), server.said)
