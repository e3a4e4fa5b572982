"""Tables that a real server's sinks write in systems which are killed."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Protocol

import psycopg
import pytest

from caraway.connectors import Postgres, Redis, sink
from caraway.connectors.data_connector import DataConnector
from tests.integration.server.server_process import ServerProcess, eventually
from tests.integration.server.test_sinks import Shop, graph_of, states
from tests.integration.sinks.test_postgres_sink import system_at
from tests.services.postgres import Postgres as PostgresServer
from tests.services.postgres import running_postgres
from tests.services.redis import RedisServer, running_redis

pytestmark = pytest.mark.usefixtures("jobs")
KILLS = 8

Totals = dict[str, tuple[int, int]]


class Target(Protocol):
    """A system that a sink writes."""

    kind: str
    where: str

    def connector(self) -> DataConnector: ...

    def totals(self) -> Totals: ...

    def kill(self) -> None: ...

    def start(self) -> None: ...


class PostgresTarget:
    kind, where = "Postgres", "public.totals_main_v1"

    def __init__(self, server: PostgresServer) -> None:
        self.kill, self.start = server.kill, server.start
        self._url = server.url

    def connector(self) -> DataConnector:
        system = system_at(self._url)
        own = Postgres(
            name="own",
            host=system.host,
            port=system.port,
            db_name=system.database,
            username=str(system.username),
            password=str(system.password),
        )
        return own.table("public.totals", cursor=None)

    def totals(self) -> Totals:
        with psycopg.connect(self._url) as connection:
            if connection.execute("SELECT to_regclass('totals_main_v1')").fetchone() == (None,):
                return {}
            rows = connection.execute("SELECT buyer, cents, orders FROM totals_main_v1").fetchall()
        return {buyer: (cents, orders) for buyer, cents, orders in rows}


class RedisTarget:
    kind, where = "Redis", "totals_main_v1"

    def __init__(self, server: RedisServer) -> None:
        self.kill, self.start = server.kill, server.start
        self._server = server

    def connector(self) -> DataConnector:
        return Redis(name="own", host="127.0.0.1", port=self._server.port).keys("totals")

    def totals(self) -> Totals:
        with closing(self._server.client(decode_responses=True)) as client:
            rows = [client.hgetall(key) for key in client.scan_iter("totals_main_v1:*")]
        return {row["buyer"]: (int(row["cents"]), int(row["orders"])) for row in rows if row}


@pytest.fixture(params=["postgres", "redis"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    if request.param == "redis":
        with running_redis(tmp_path / "own") as redis:
            yield RedisTarget(redis)
        return
    with running_postgres(tmp_path / "own") as server:
        yield PostgresTarget(server)


def commit(server: ServerProcess, target: Target) -> None:
    server.commit(graph_of(sink(target.connector(), how="incremental", renames={"who": "buyer"})))


def check(server: ServerProcess, target: Target, shop: Shop) -> None:
    """Wait until the system has the table."""
    eventually(lambda: target.totals() == shop.totals, lambda: f"{target.totals()} {shop.totals} {server.said()}")


@pytest.mark.timeout(900)
def test_kills_of_system_and_server_lose_and_double_nothing(
    own_server: Callable[[], ServerProcess], target: Target
) -> None:
    random, shop, server = Random(11), Shop(11), own_server()
    commit(server, target)
    for kill in range(KILLS):
        shop.order(server, 40)
        # The moment of the kill depends on how far the sink is.
        seen = random.randrange(1, sum(orders for _, orders in shop.totals.values()))
        eventually(lambda seen=seen: sum(n for _, n in target.totals().values()) >= seen, server.said)  # type: ignore[misc]
        if kill % 2:
            target.kill()
            shop.order(server, 10)
            eventually(lambda: states(server)[target.kind]["state"] == "failing", server.said)  # noqa: B023 (called here)
            target.start()
        else:
            server.kill()
            server = own_server()
    shop.order(server, 40)
    check(server, target, shop)
    # All rows may be there before the sink knows that its last write has come through.
    eventually(lambda: states(server)[target.kind]["state"] == "writing", server.said)
    found = states(server)[target.kind]
    assert (found["target"], found["guarantee"]) == (target.where, "exactly once")
