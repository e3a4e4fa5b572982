"""Two servers that divide the sinks among themselves; one of them is killed."""

import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest
import sqlalchemy as sa
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from caraway.connectors import sink
from caraway.state.database import connect
from caraway.state.tables import leases
from tests.integration.server.server_process import ServerProcess, eventually
from tests.integration.server.test_sinks import Shop, brokers, graph_of, place, read, totals_of

pytestmark = pytest.mark.usefixtures("jobs")
SINKS = 4


@pytest.fixture
def servers(kafka: str, postgres: str, tmp_path: Path) -> Iterator[list[ServerProcess]]:
    made = [ServerProcess(tmp_path / name, kafka=kafka, postgres=postgres) for name in ("one", "two")]
    for server in made:
        server.start()
    yield made
    for server in made:
        server.kill()
        server.http.close()


def owned(server: ServerProcess) -> set[str]:
    """Return the sinks that a server writes, in good order."""
    with suppress(httpx2.TransportError):
        found = server.http.get("/status").json()["sinks"]
        return {each["sink"] for each in found if each["state"] == "writing"}
    return set()


def expire(postgres: str, server: ServerProcess) -> None:
    """End the leases of a killed server, as they do by themselves half a minute later."""
    engine = connect(postgres)
    with engine.begin() as connection:
        dead = leases.c.holder.endswith(f":{server.settings.data_dir}")
        connection.execute(sa.update(leases).where(dead).values(expires_at=sa.func.clock_timestamp()))
    engine.dispose()


def test_a_killed_server_leaves_its_sinks_to_the_other_one(
    servers: list[ServerProcess], kafka: str, postgres: str
) -> None:
    topics = [f"shared-{secrets.token_hex(4)}" for _ in range(SINKS)]
    admin = AdminClient({"bootstrap.servers": kafka})
    for made in admin.create_topics([NewTopic(topic, 2, 1) for topic in topics]).values():
        made.result()
    shop = Shop()
    servers[0].commit(graph_of(*(sink(brokers(kafka).topic(topic), cdc="debezium") for topic in topics)))
    shop.order(servers[0], 20)
    # Each sink has one server, whichever that is by hashing.
    eventually(lambda: sum(len(owned(each)) for each in servers) == SINKS)
    eventually(lambda: not owned(servers[0]) & owned(servers[1]))
    busier, other = sorted(servers, key=lambda server: -len(owned(server)))
    shop.order(busier, 20)
    busier.kill()
    shop.order(other, 20)
    expire(postgres, busier)
    eventually(lambda: len(owned(other)) == SINKS, other.said)
    for topic in topics:
        eventually(lambda topic=topic: totals_of(read(kafka, topic)) == shop.totals, other.said)  # type: ignore[misc]
        assert max(Counter(map(place, read(kafka, topic))).values()) == 1
