"""Tests that functions get secrets through a port of the engine, and that no process gets any without its password."""

import errno
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from socket import create_connection

import pandas as pd
import pyarrow as pa
import pytest

from caraway.dataplane.streams.functions import children
from caraway.errors import UnavailableError, UnknownEntityError
from caraway.graph import redaction
from caraway.graph.redaction import redacted, remembered
from caraway.graph.runtime import secret_provider
from caraway.lib import secrets
from caraway.process.secrets import port as secret_port
from caraway.process.secrets.port import SecretAddress, SecretPort, open_port, provider_of, secret_address
from tests.unit.dataplane.streams.functions.test_children import LIMITS, TYPE, call_of, columns_of

VALUE = "pass-word-17"


def known(name: str) -> str:
    if name == "away":
        raise UnavailableError("Postgres is away")
    if name != "key":
        raise UnknownEntityError(f"there is no secret {name!r}")
    return VALUE


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[SecretPort]:
    monkeypatch.setattr(redaction, "_handed_out", set())
    monkeypatch.setattr(secret_port, "_ports", [])
    made = open_port(known)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _no_provider() -> Iterator[None]:
    token = secret_provider.set(None)
    yield
    secret_provider.reset(token)


def test_functions_ask_through_the_address_that_travels_with_them(port: SecretPort) -> None:
    assert secret_address() == port.address
    secret_provider.set(remembered(provider_of(port.address)))
    assert [secrets.get("key") for _ in range(3)] == [VALUE] * 3
    with pytest.raises(KeyError, match="there is no secret 'none'"):
        secrets.get("none")
    with pytest.raises(UnavailableError, match="Postgres is away"):
        secrets.get("away")
    # An error doesn't close the connection.
    assert secrets.get("key") == VALUE
    assert redacted(f"it is {VALUE}") == "it is ***"
    assert port.address.password.hex() not in repr(port.address)
    secret_provider.set(None)
    with pytest.raises(NotImplementedError):
        secrets.get("key")


def test_nobody_gets_any_without_the_password(port: SecretPort) -> None:
    with pytest.raises(AuthenticationError):
        Client((port.address.host, port.address.port), authkey=b"guessed")
    secret_provider.set(provider_of(replace(port.address, password=b"guessed")))
    with pytest.raises(UnavailableError, match="doesn't answer when asked for secret 'key'"):
        secrets.get("key")
    # The port still serves other callers.
    secret_provider.set(provider_of(port.address))
    assert secrets.get("key") == VALUE


def test_secrets_are_served_again_when_there_are_file_descriptors_again(
    port: SecretPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    duplicate, failures = os.dup, iter([OSError(errno.EMFILE, os.strerror(errno.EMFILE))])

    def dup(descriptor: int) -> int:
        if (error := next(failures, None)) is not None:
            raise error
        return duplicate(descriptor)

    monkeypatch.setattr(os, "dup", dup)
    secret_provider.set(provider_of(port.address))
    with pytest.raises(UnavailableError):
        secrets.get("key")
    assert next(failures, None) is None, "the failure was met"
    assert secrets.get("key") == VALUE


def test_callers_who_stay_silent_keep_nobody_from_secrets(port: SecretPort) -> None:
    with ExitStack() as silent:
        for _ in range(65):
            silent.enter_context(create_connection((port.address.host, port.address.port), timeout=10))
        answered = ThreadPoolExecutor(1)
        try:
            assert answered.submit(provider_of(port.address), "key").result(30) == VALUE
        finally:
            answered.shutdown(wait=False)


def test_an_engine_that_has_ended_is_told(port: SecretPort) -> None:
    port.close()
    secret_provider.set(provider_of(SecretAddress(port.address.host, port.address.port, b"x" * 32)))
    with pytest.raises(UnavailableError):
        secrets.get("key")


def _signs(frame: pd.DataFrame) -> "pd.Series[int]":
    value = secrets.get("key")
    if (frame["number"] == 5).any():
        raise ValueError(f"can't sign with {value}")
    return frame["number"] + len(value)


@pytest.mark.slow
def test_a_function_in_its_own_process_has_secrets_and_its_letter_has_none(port: SecretPort) -> None:
    call, columns, wanted = call_of(_signs), columns_of(4, 5), pa.array([True, True])
    found = children.run_apart(
        call.packed(), TYPE, wanted, columns, LIMITS, job="job", address=port.address
    ).to_pylist()
    assert [row["made"] for row in found] == [4 + len(VALUE), None]
    assert "raised ValueError: can't sign with ***" in found[1]["message"]
    assert VALUE not in str(found)
    assert VALUE.encode() not in call.packed()
    without = children.run_apart(call.packed(), TYPE, wanted, columns, LIMITS, job="job").to_pylist()
    assert "secrets are known inside pipelines and extractors only" in without[0]["message"]
