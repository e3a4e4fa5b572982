"""Tests of a Postgres behind TLS: all connections of the platform verify it, and say what to change if they can't."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa

from caraway.apps.stack.probe import check_postgres
from caraway.apps.stack.stack import Stack
from caraway.errors import UnavailableError
from caraway.process.settings.errors import ConfigurationError
from caraway.process.settings.settings import PostgresSettings, Settings
from caraway.state.branches import Branches
from caraway.state.database import connect, in_transaction
from caraway.state.listening import Listener
from tests.services.certificates import write_certificates
from tests.services.postgres_tls import tls_before


@dataclass(frozen=True, slots=True)
class Secured:
    """A Postgres behind TLS.

    Attributes:
        plain: Its URL without TLS.
        url: Its URL behind TLS, without parameters.
        ca_file: The authority that signed its certificate.
    """

    plain: str
    url: str
    ca_file: Path


@pytest.fixture
def secured(postgres: str, tmp_path: Path) -> Iterator[Secured]:
    ca_file, keystore = tmp_path / "ca.pem", tmp_path / "server.pem"
    write_certificates(ca_file, keystore)
    port = sa.make_url(postgres).port or 0
    with tls_before(port, keystore) as front:
        yield Secured(postgres, postgres.replace(f":{port}/", f":{front}/"), ca_file)


def test_all_connections_verify_the_server(secured: Secured) -> None:
    url = f"{secured.url}?sslmode=verify-full&sslrootcert={secured.ca_file}"
    assert check_postgres(url) is None
    engine, heard = connect(url), threading.Event()
    listener = Listener(engine, heard.set)
    listener.start()
    try:
        # The first call is for the beginning. A change comes after it, by another connection.
        assert heard.wait(30)
        heard.clear()
        other = connect(secured.plain)
        Branches(other).create("elsewhere")
        other.dispose()
        assert heard.wait(30)
        assert in_transaction(engine, lambda c: c.scalar(sa.text("SELECT 1")), what="look", timeout_seconds=10) == 1
    finally:
        listener.stop(10)
        engine.dispose()


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("sslmode=verify-full&sslrootcert={folder}/other-ca.pem", "sslrootcert of postgres.url must have"),
        ("sslmode=verify-full&sslrootcert={folder}/missing.pem", "sslrootcert of postgres.url names"),
        ("sslmode=verify-full&sslrootcert=system", "sslrootcert of postgres.url must have"),
        ("sslmode=verify-full&sslrootcert={folder}/ca.pem&host=localhost", "as the server's certificate does"),
        ("sslmode=verify-ful", "correct postgres.url"),
    ],
)
def test_a_refusal_names_what_to_change(secured: Secured, tmp_path: Path, query: str, said: str) -> None:
    write_certificates(tmp_path / "other-ca.pem", tmp_path / "other.pem")
    url = f"{secured.url}?{query.format(folder=tmp_path)}"
    password = sa.make_url(url).password or ""
    engine = connect(url)
    with pytest.raises(UnavailableError, match=said) as later:
        in_transaction(engine, lambda connection: None, what="look", timeout_seconds=0.1)
    engine.dispose()
    settings = Settings(data_dir=tmp_path / "data", postgres=PostgresSettings(url=url))
    with pytest.raises(ConfigurationError, match=f"^postgres.url: .*{said}") as at_once:
        Stack(settings).start()
    assert password not in f"{later.value} {at_once.value}"


def test_a_server_without_tls_is_told(postgres: str) -> None:
    assert "the server has no TLS" in (check_postgres(f"{postgres}?sslmode=require") or "")
