"""The division of sources and sinks in a real Postgres: each has one server, whoever comes and goes."""

import psycopg
import pytest
import sqlalchemy as sa
from psycopg import sql

from caraway.errors import UnavailableError
from caraway.state.ownership.members import READERS, WRITERS
from caraway.state.ownership.shares import Shares
from caraway.state.tables import leases

SOURCES = [f"source-{n}" for n in range(20)]
NODES = ("one", "two", "three")


def test_each_source_has_one_server_and_few_move(engine: sa.Engine) -> None:
    first, *others = (Shares(engine, READERS, node) for node in NODES)
    assert first.mine(SOURCES) == set(SOURCES)
    for other in others:
        other.mine(SOURCES)
    divided = [each.mine(SOURCES) for each in (first, *others)]
    assert all(divided)
    assert sorted(source for part in divided for source in part) == sorted(SOURCES)
    # A server that leaves, or that is killed so that its lease expires, gives its sources to the others alone.
    others[0].leave()
    after = [each.mine(SOURCES) for each in (first, others[1])]
    assert sorted(source for part in after for source in part) == sorted(SOURCES)
    assert (after[0] >= divided[0], after[1] >= divided[2]) == (True, True)
    with engine.begin() as connection:
        dead = leases.c.name.endswith("/three")
        connection.execute(sa.update(leases).where(dead).values(expires_at=sa.func.clock_timestamp()))
    assert first.mine(SOURCES) == set(SOURCES)


def test_a_server_keeps_its_part_while_postgres_is_away(engine: sa.Engine, postgres: str, postgres_server: str) -> None:
    first, second = Shares(engine, READERS, "one"), Shares(engine, READERS, "two")
    first.mine(SOURCES)
    parts = [second.mine(SOURCES), first.mine(SOURCES)]
    name = postgres.rpartition("/")[2]
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        closed = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
        connection.execute(closed.format(sql.Identifier(name), sql.Literal(False)))
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        try:
            assert [second.mine(SOURCES), first.mine(SOURCES)] == parts
            with pytest.raises(UnavailableError):
                Shares(engine, READERS, "three").mine(SOURCES)
        finally:
            connection.execute(closed.format(sql.Identifier(name), sql.Literal(True)))
    assert [second.mine(SOURCES), first.mine(SOURCES)] == parts


def test_sources_and_sinks_are_divided_among_their_own_members(engine: sa.Engine) -> None:
    readers, writers = Shares(engine, READERS, "one"), Shares(engine, WRITERS, "two")
    assert readers.mine(SOURCES) == writers.mine(SOURCES) == readers.mine(SOURCES) == set(SOURCES)
