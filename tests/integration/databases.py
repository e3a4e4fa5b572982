"""A server of Postgres for tests, and new databases on it."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import psycopg
from psycopg import sql

from caraway.apps.stack import ports
from caraway.apps.stack.postgres import EmbeddedPostgres
from caraway.state.migrate import migrate
from tests.alone import running

# Databases without and with Caraway's tables.
EMPTY, MIGRATED = "template1", "caraway_tables"


@contextmanager
def running_postgres(folder: Path) -> Iterator[str]:
    """Start a server in a folder; yield the URL of its first database."""
    server = EmbeddedPostgres(folder, ports.choose())
    with running(server, folder / "postgres.log"):
        yield server.url


@contextmanager
def new_database(server: str, *, template: str | None = None) -> Iterator[str]:
    """Create a database on a server, yield its URL, and remove it afterwards.

    Args:
        server: The URL of any database of the server.
        template: The database whose copy it is; by default the one with Caraway's tables.
    """
    name = f"test_{secrets.token_hex(6)}"
    create = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
    copied = sql.Identifier(template or migrated(server))
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(create.format(sql.Identifier(name), copied))
    yield url_of(server, name)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@cache
def migrated(server: str) -> str:
    """Return the name of a database of a server that has Caraway's tables and no rows; to migrate each takes longer."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(MIGRATED)))
    migrate(url_of(server, MIGRATED))
    return MIGRATED


def url_of(server: str, name: str) -> str:
    """Return the URL of a database of a server."""
    return f"{server.rpartition('/')[0]}/{name}"


def content_of(url: str) -> str:
    """Return the content of all tables of a database as text."""
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        texts = [sql.SQL("SELECT t::text FROM {} t").format(sql.Identifier(table)) for (table,) in tables]
        return "\n".join(text for query in texts for (text,) in connection.execute(query))
