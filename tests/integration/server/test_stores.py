"""Google Cloud Storage and Azure as sources of a server, whatever is killed; a server stands for each cloud."""

# mypy: disable-error-code="attr-defined"

import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import orjson
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from caraway import Dataset, connectors, dataset, field, meta
from caraway.config.settings import SourcesSettings
from caraway.connectors import source
from caraway.graph.specs import Graph
from caraway.topics.dead_letters import DEAD_LETTERS
from tests.integration.server.kills import kill_at_random
from tests.integration.server.server_process import ServerProcess, end_of, eventually, records
from tests.integration.server.test_file_sources import BEGIN, parquet, pots, readings, status_of, topic_of
from tests.integration.spark.broker import running_broker
from tests.services.stores import CopiedDelta, Store, running_store

FILES, ROWS = 6, 5_000
# The rows of the long test.
MANY, PARTS = 1_000_000, 40


@pytest.fixture(
    params=[
        "gcs",
        pytest.param("azure", marks=pytest.mark.full(reason="a second store; its readers are tested in each run")),
    ]
)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with running_store(request.param, tmp_path / "store", keeps=True) as store:
        yield store


@pytest.fixture
def container(store: Store) -> str:
    name = f"place-{secrets.token_hex(6)}"
    store.create(name)
    return name


@pytest.fixture
def system(store: Store) -> str:
    """Return the name of the store in definitions, which no other test has."""
    return f"cloud_{secrets.token_hex(4)}"


@pytest.fixture
def start(store: Store, system: str, own_server: Callable[..., ServerProcess]) -> Callable[[], ServerProcess]:
    """Return a function that starts servers."""
    return partial(own_server, sources=SourcesSettings(endpoints={system: store.server.address}))


def test_a_killed_server_takes_each_row_once(
    start: Callable[[], ServerProcess], kafka: str, store: Store, container: str, system: str
) -> None:
    for number in range(FILES):
        content = parquet(range(number * ROWS, (number + 1) * ROWS))
        store.put(container, f"raw/day=2023-11-{14 + number}/part.parquet", content)
    store.put(container, "raw/day=2023-11-14/broken.parquet", parquet([1])[:-8])
    server = start()
    gone = store.connector(system, f"{container}-2", prefix="raw")
    with pytest.raises(AssertionError, match=f"{store.word} {container}-2 isn't there.*; check the name"):
        server.commit(Graph(datasets=(readings(gone).to_spec(),)))
    connector = store.connector(system, container, path="raw/day=%Y-%m-%d/*.parquet", format="parquet")
    server.commit(Graph(datasets=(readings(connector).to_spec(),)))
    topic = topic_of(server)
    server.run_in_slices_until(lambda: end_of(kafka, topic) >= 1)
    server.kill()
    server = start()
    eventually(lambda: end_of(kafka, topic) >= FILES * ROWS, server.said)
    # New objects are found by the next round, and those that were read aren't read again.
    store.put(container, "raw/day=2023-12-01/new.parquet", parquet([-1]))
    eventually(lambda: end_of(kafka, topic) >= FILES * ROWS + 1, server.said)
    assert pots(kafka, topic) == Counter([-1, *range(FILES * ROWS)])
    letters = [orjson.loads(value) for value in records(kafka, DEAD_LETTERS) if topic.encode() in value]
    assert [letter["file"] for letter in letters] == ["raw/day=2023-11-14/broken.parquet"]
    # The next thing that goes wrong is shown, and the server goes on: the container is gone.
    store.drop(container)
    eventually(lambda: f"{store.word} {container} isn't there" in status_of(server)["error"], server.said)
    assert server.health().status_code == 200


@pytest.mark.full(reason="two servers a store; the readers of both tables are tested without a server in each run")
def test_tables_are_followed_into_indexes(
    start: Callable[[], ServerProcess], store: Store, container: str, system: str, tmp_path: Path
) -> None:
    lake = CopiedDelta(store, tmp_path / "table", container, "tables/pots")
    write_deltalake(lake.url, table_of(1, 2, 3), configuration={"delta.enableChangeDataFeed": "true"})
    lake.copy()
    catalog = SqlCatalog(
        "ice", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=store.location(container, "lake"), **store.io
    )
    with closing(catalog):
        catalog.create_namespace("db")
        table = catalog.create_table("db.pots", table_of().schema)
        table.append(table_of(1, 2, 3))
        (folder,) = {path.rpartition("/metadata/")[0] for path in store.paths(container) if "/metadata/" in path}
        delta = store.connector(system, container, prefix="tables/pots", format="delta")
        iceberg = store.connector(system, container, prefix=folder, format="iceberg")
        server = start()
        server.commit(Graph(datasets=(keyed("Deltas", delta).to_spec(), keyed("Icebergs", iceberg).to_spec())))

        def found(name: str) -> dict[int, float]:
            body = {"keys": [{"pot": pot} for pot in range(1, 6)], "fields": ["moisture"]}
            answer = server.http.post(f"/dataset/{name}/lookup", json=body)
            if answer.status_code != 200:
                return {}
            each = answer.json()
            values = zip(range(1, 6), each["data"]["moisture"], each["found"], strict=True)
            return {pot: value for pot, value, is_there in values if is_there}

        def both(expected: dict[int, float]) -> None:
            for name in ("Deltas", "Icebergs"):
                eventually(
                    lambda name=name: found(name) == expected,  # type: ignore[misc]
                    lambda name=name: f"{name} {found(name)} {server.http.get('/status').json()['sources']}",  # type: ignore[misc]
                )

        both({1: 0.5, 2: 0.5, 3: 0.5})
        server.kill()
        lake.table().delete("pot = 1")
        lake.table().update(predicate="pot = 2", updates={"moisture": "0.25"})
        write_deltalake(lake.url, table_of(5), mode="append")
        lake.copy()
        table.delete("pot = 1")
        table.overwrite(table_of(2, moisture=0.25), overwrite_filter="pot = 2")
        table.append(table_of(5))
        server = start()
        both({2: 0.25, 3: 0.5, 5: 0.5})


def keyed(name: str, connector: connectors.DataConnector) -> Dataset:
    class Pots:
        pot: int = field(key=True)
        moisture: float
        at: datetime = field(timestamp=True)

    Pots.__name__ = Pots.__qualname__ = name
    made = source(connector, disorder="1h", cdc="native", every="1s")(dataset(index=True)(Pots))
    return meta(owner="a@b.co")(made)


def table_of(*numbers: int, moisture: float = 0.5) -> Any:
    at = pa.array([(BEGIN + number) * 1_000_000 for number in numbers], pa.timestamp("us", "UTC"))
    values = pa.array([moisture] * len(numbers), pa.float64())
    return pa.table({"pot": pa.array(numbers, pa.int64()), "moisture": values, "at": at})


@pytest.mark.full(reason="a million rows, and kills of server, broker and store at random moments")
@pytest.mark.timeout(1200)
def test_a_million_rows_survive_kills_at_random_moments(
    store: Store, container: str, system: str, postgres: str, tmp_path: Path
) -> None:
    chance = Random(29)
    bounds = [0, *sorted(chance.sample(range(1, MANY), PARTS - 1)), MANY]
    for at in range(PARTS):
        store.put(container, f"raw/day=2023-11-{10 + at % 20}/{at}.parquet", parquet(range(bounds[at], bounds[at + 1])))
    # Azurite writes its list of blobs every few seconds, and when it ends in order.
    store.server.stop()
    store.server.start()
    connector = store.connector(system, container, path="raw/day=%Y-%m-%d/*.parquet", format="parquet")

    def restart_store() -> None:
        store.server.kill()
        store.server.start()

    with running_broker(tmp_path / "kafka") as broker:
        kafka = broker.bootstrap_servers
        sources = SourcesSettings(endpoints={system: store.server.address})
        server = ServerProcess(tmp_path / "server", kafka=kafka, postgres=postgres, sources=sources)
        server.start()
        try:
            server.commit(Graph(datasets=(readings(connector).to_spec(),)))
            topic = topic_of(server)
            kills = kill_at_random(
                server,
                broker,
                lambda: end_of(kafka, topic) >= MANY,
                chosen=chance,
                # A slow machine needs some time to take rows between two kills.
                pause_s=(0.3, 3),
                others={"store": restart_store},
            )
            assert all(kills[victim] for victim in ("server", "broker", "store")), kills
            found = Counter(msgspec.msgpack.decode(value)[7][0] for value in records(kafka, topic))
            assert found == Counter(range(MANY))
        finally:
            server.kill()
            server.http.close()
