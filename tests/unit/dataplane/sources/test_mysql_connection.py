"""Connections to MySQL: what they cost before anything is sent."""

import ssl
from typing import Any, NoReturn

import pymysql
import pytest
from pymysql.constants import ER

from caraway.dataplane.addresses.names import jdbc_params
from caraway.dataplane.sources.cdc.mysql.connection import spelled
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


def test_a_position_inside_an_event_of_another_log_is_told_with_the_remedy() -> None:
    """By chance the bytes there look like an event that is too long, or like none."""
    error = pymysql.OperationalError(
        ER.MASTER_FATAL_ERROR_READING_BINLOG, "log event entry exceeded max_allowed_packet"
    )
    assert "RESET MASTER" in spelled(error)
