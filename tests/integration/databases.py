"""A server of Postgres for tests, and empty databases on it."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql

from caraway.stack import ports
from caraway.stack.postgres import EmbeddedPostgres
from tests.alone import running


@contextmanager
def running_postgres(folder: Path) -> Iterator[str]:
    """Start a server in a folder; yield the URL of its first database."""
    server = EmbeddedPostgres(folder, ports.choose())
    with running(server, folder / "postgres.log"):
        yield server.url


@contextmanager
def new_database(server: str) -> Iterator[str]:
    """Create an empty database on a server, yield its URL, and remove it afterwards."""
    name = f"test_{secrets.token_hex(6)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    yield f"{server.rpartition('/')[0]}/{name}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
