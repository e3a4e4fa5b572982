"""A server that captures the changes of a Postgres table into Kafka, and that is killed meanwhile."""

# mypy: disable-error-code="attr-defined"

import random
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from caraway import Dataset, connectors, dataset, field, meta
from caraway.connectors import ref, source
from caraway.graph.specs import Graph
from caraway.topics.codec import DELETE
from tests.integration.server.server_process import ServerProcess, end_of, eventually, records
from tests.services.postgres import Postgres, running_postgres


@pytest.fixture
def source_server(tmp_path: Path) -> Iterator[Postgres]:
    with running_postgres(tmp_path / "source") as server:
        yield server


def captured(connector: connectors.DataConnector) -> Dataset:
    @meta(owner="a@b.co")
    @source(connector, disorder="1h", cdc="native", preproc={"at": ref("__committed_at")})
    @dataset(index=True)
    class Plants:
        id: int = field(key=True)
        size: int
        at: datetime = field(timestamp=True)

    return Plants


def rows_of(kafka: str, topic: str) -> dict[int, int]:
    """Return what a topic says: the sizes by id. Its records of a key are in the order of their commits."""
    found: dict[int, tuple[int, int | None]] = {}
    for value in records(kafka, topic):
        record = msgspec.msgpack.decode(value)
        key, size = record[7][:2]
        if record[3] >= found.get(key, (record[3], None))[0]:
            found[key] = (record[3], None if record[2] == DELETE else size)
    return {key: size for key, (_, size) in found.items() if size is not None}


def check(own_server: Callable[[], ServerProcess], kafka: str, postgres: Postgres, rows: int, kills: int) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE plants (id int PRIMARY KEY, size int)")
        connection.execute("INSERT INTO plants SELECT n, n FROM generate_series(1, %s) n", (rows,))
        info = connection.info
        system = connectors.Postgres(
            name="garden",
            host=info.host,
            port=info.port,
            db_name=info.dbname,
            username=info.user,
            password=info.password,
        )
        defined = captured(system.table("plants", cursor=None))
        server = own_server()
        server.commit(Graph(datasets=(defined.to_spec(),)))
        eventually(lambda: "Plants" in str(server.http.get("/status").json().get("topics")), server.said)
        topic = server.topic("Plants")
        chance = random.Random(rows)
        for number in range(1, kills + 1):
            goal = end_of(kafka, topic) + chance.randrange(1, max(rows // kills, 2))
            server.run_in_slices_until(lambda goal=goal: end_of(kafka, topic) >= goal)  # type: ignore[misc]
            server.kill()
            with connection.transaction():
                connection.execute("UPDATE plants SET size = size + 1 WHERE id %% 97 = %s", (number,))
                connection.execute("DELETE FROM plants WHERE id %% 89 = %s", (number,))
                connection.execute("UPDATE plants SET id = -id WHERE id %% 83 = %s", (number,))
            server = own_server()
        table: dict[int, int] = dict(connection.execute("SELECT id, size FROM plants").fetchall())
        caught_up(server, connection)
        assert rows_of(kafka, topic) == table
        connection.execute("BEGIN; TRUNCATE plants; INSERT INTO plants VALUES (1, 1), (5, 5); COMMIT")
        caught_up(server, connection)
        assert rows_of(kafka, topic) == {1: 1, 5: 5}

        def looked_up() -> Any:
            asked = {"keys": [{"id": 1}, {"id": 2}], "fields": ["size"]}
            return server.http.post("/dataset/Plants/lookup", json=asked).json().get("found")

        eventually(lambda: looked_up() == [True, False], server.said)
        assert server.stop() == 0


def caught_up(server: ServerProcess, connection: "psycopg.Connection[tuple[Any, ...]]") -> None:
    ((end,),) = connection.execute("SELECT (pg_logical_emit_message(true, 'test', 'here') - '0/0'::pg_lsn)::bigint")

    def is_there() -> bool:
        (status,) = server.http.get("/status").json()["sources"]
        assert not status["error"], status
        return bool(status["lag"] == 0 and status["position"]["at"][0] >= end)

    eventually(is_there, lambda: f"{server.http.get('/status').json()['sources']}\n{server.said()}", 600)


@pytest.mark.full(reason="a server is killed and started again six times, for a minute; a short one is in memory")
def test_a_killed_server_has_the_rows_of_the_table(
    own_server: Callable[[], ServerProcess], kafka: str, source_server: Postgres
) -> None:
    check(own_server, kafka, source_server, rows=50_000, kills=5)


@pytest.mark.full(reason="a million rows, for some minutes")
@pytest.mark.timeout(1800)
def test_a_million_rows_are_captured(
    own_server: Callable[[], ServerProcess], kafka: str, source_server: Postgres
) -> None:
    check(own_server, kafka, source_server, rows=1_000_000, kills=8)
