"""Connections to MySQL: what they cost before anything is sent."""

import ssl
from typing import Any, NoReturn

import pytest

from caraway.dataplane.addresses.names import jdbc_params
from caraway.dataplane.sources.tables.mysql_connection import MYSQL_PARAMETERS, DatabaseConnection, connection_keywords


def connection(parameters: str) -> Any:
    # The stubs of PyMySQL lack its attributes.
    return DatabaseConnection(
        **connection_keywords(jdbc_params(parameters, MYSQL_PARAMETERS, "MySQL", str)), defer_connect=True
    )


@pytest.mark.parametrize("parameters", ["", "sslMode=PREFERRED", "sslMode=REQUIRED"])
def test_trusted_certificates_are_not_read_if_they_are_not_checked(
    parameters: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object, **__: object) -> NoReturn:
        raise AssertionError("reads the certificates of the system")

    monkeypatch.setattr(ssl, "create_default_context", read)
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", read)
    made = connection(parameters)
    assert made.ssl
    assert made.ctx.verify_mode is ssl.CERT_NONE
    assert not made.ctx.check_hostname


@pytest.mark.parametrize("mode", ["VERIFY_CA", "VERIFY_IDENTITY"])
def test_certificates_are_checked_if_that_is_wanted(mode: str) -> None:
    made = connection(f"sslMode={mode}")
    assert made.ctx.verify_mode is ssl.CERT_REQUIRED
    assert made.ctx.check_hostname == (mode == "VERIFY_IDENTITY")
    assert made.ctx.get_ca_certs()
