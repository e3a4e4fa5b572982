"""Tests of what a definition may name of the server's machine: hosts, and files in the parameters of JDBC."""

from pathlib import Path

import pytest

from caraway.dataplane.addresses.names import host_and_port, jdbc_params
from caraway.dataplane.addresses.postgres_parameters import POSTGRES_PARAMETERS, connection_parameters
from caraway.dataplane.sources.tables.mongo import address_of
from caraway.dataplane.sources.tables.mysql_connection import MYSQL_PARAMETERS
from caraway.errors import UnavailableError, UnknownEntityError
from caraway.graph.secrets.resolver import resolver
from caraway.graph.systems import PostgresSystem
from caraway.process.settings.settings import SecretsSettings


@pytest.mark.parametrize("host", ["db", "db.example.com", "10.0.0.1", "::1", "a,b", "bücher.example"])
def test_a_host_is_a_name_or_an_address(host: str) -> None:
    assert host_and_port(None, host, 1) == (host, 1)


@pytest.mark.parametrize("host", ["", "/run/postgresql", "@socket", "a,/run", "a,", "a b", "a/?tls=true", "%2Frun"])
def test_a_host_is_no_socket_and_has_no_options(host: str) -> None:
    for call in (lambda: host_and_port(None, host, 1), lambda: address_of(host, None)):
        with pytest.raises(UnavailableError, match="neither a name nor an IP address"):
            call()
    # The operator may write what the server can open.
    assert host_and_port("/run/postgresql", host, 1) == ("/run/postgresql", 1)


def test_a_mongo_has_no_options_of_the_definition() -> None:
    for host in ("mongodb://h/?tlsCertificateKeyFile=/etc/passwd", "h:1/?tls=true&tlsCAFile=/etc/passwd"):
        with pytest.raises(UnavailableError, match="neither a name nor an IP address"):
            address_of(host, None)


@pytest.mark.parametrize("name", ["sslrootcert", "sslcert", "sslkey", "serverSslCert"])
def test_a_file_in_the_parameters_must_be_listed(tmp_path: Path, name: str) -> None:
    known = MYSQL_PARAMETERS if name == "serverSslCert" else POSTGRES_PARAMETERS
    listed, other = tmp_path / "listed.pem", tmp_path / "other.pem"
    for file in (listed, other):
        file.write_text("-----BEGIN CERTIFICATE-----")
    resolve = resolver(str, SecretsSettings(files=(listed, tmp_path / "none"))).resolve
    assert str(listed) in jdbc_params(f"{name}={listed}", known, "db", resolve).values()
    for path in (other, tmp_path / "none", tmp_path / "nowhere", "system" if name != "sslrootcert" else "systems"):
        with pytest.raises(UnknownEntityError, match=r"secrets\.files"):
            jdbc_params(f"{name}={path}", known, "db", resolve)


def test_the_authorities_of_the_system_need_no_list() -> None:
    resolve = resolver(str).resolve
    assert jdbc_params("sslrootcert=system", POSTGRES_PARAMETERS, "db", resolve) == {"sslrootcert": "system"}


def test_libpq_finds_no_password_of_the_server_s_user() -> None:
    system = PostgresSystem(name="db", host="h", port=1, database="d", username="u", password="")
    assert not Path(connection_parameters(system, str, {}, {})["passfile"]).exists()
