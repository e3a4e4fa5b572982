"""Tests of the operator's token in a file, and of the addresses on which a server without tokens may listen."""

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from caraway.apps.server import __main__ as program
from caraway.apps.server.access.admin_token import OPERATOR, AdminToken
from caraway.apps.server.access.gate import Gate
from caraway.errors import UnauthenticatedError, UnavailableError
from caraway.process.settings.errors import ConfigurationError
from caraway.process.settings.server import ServerSettings
from caraway.state.access import AccessList, digest_of
from caraway.state.permissions import Mode
from tests.unit.apps.server.asking import Headers
from tests.unit.apps.server.test_access import BY_TARGET

TOKEN = "t" * 40
OTHER = "u" * 40
NO_AUDIT: Any = SimpleNamespace()
UNREAD: Any = SimpleNamespace()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    return file


def guarded(file: Path, access: Any = UNREAD) -> Gate:
    return Gate(NO_AUDIT, access, admin_token_file=file)


def shown(token: str) -> Headers:
    return Headers(authorization=f"Bearer {token}")


def test_the_operator_may_do_everything_before_the_tokens_are_known(file: Path) -> None:
    gate = guarded(file)
    assert gate.admit(BY_TARGET["sync"], shown(TOKEN)) is OPERATOR
    assert all(OPERATOR.may_all(mode, "any branch") for mode in Mode)
    with pytest.raises(UnavailableError, match="doesn't know the tokens"):
        gate.admit(BY_TARGET["sync"], shown(OTHER))
    with pytest.raises(UnauthenticatedError, match=r"caraway tokens create.*run/token"):
        gate.admit(BY_TARGET["sync"], Headers())


def test_the_token_is_valid_as_long_as_the_file_holds_it(file: Path) -> None:
    gate = guarded(file, SimpleNamespace(list_now=lambda _known: AccessList(1, {})))
    gate.refresh()
    file.write_text(OTHER)
    gate.refresh()
    assert gate.admit(BY_TARGET["log"], shown(OTHER)) is OPERATOR
    with pytest.raises(UnauthenticatedError, match="isn't valid"):
        gate.admit(BY_TARGET["log"], shown(TOKEN))
    file.unlink()
    gate.refresh()
    for token in (TOKEN, OTHER, ""):
        with pytest.raises(UnauthenticatedError):
            gate.admit(BY_TARGET["log"], shown(token))


@pytest.mark.parametrize("content", ["", "\n", "short", "a" * 31])
def test_a_token_that_could_be_guessed_is_refused(file: Path, content: str) -> None:
    file.write_text(content)
    with pytest.raises(ConfigurationError, match=r"server\.admin_token_file: .* 32"):
        AdminToken(file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"server\.admin_token_file: .*nowhere can't be read"):
        AdminToken(tmp_path / "nowhere")


def test_an_emptied_file_lets_nobody_in_with_an_empty_token(file: Path) -> None:
    token = AdminToken(file)
    file.write_text("")
    token.refresh()
    assert not token.is_shown(digest_of(""))


def test_a_server_wants_tokens_unless_told_otherwise() -> None:
    assert ServerSettings().tokens


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "example.com", "127.0.0.1.example.com"])
def test_a_server_without_tokens_is_not_opened_to_the_network(host: str) -> None:
    with pytest.raises(ConfigurationError, match=r"server\.allow_network_without_tokens") as caught:
        program.require_protection(ServerSettings(host=host, tokens=False))
    assert "caraway tokens create" in str(caught.value)
    program.require_protection(ServerSettings(host=host))
    program.require_protection(ServerSettings(host=host, tokens=False, allow_network_without_tokens=True))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_on_this_machine_a_server_may_go_without_tokens(host: str) -> None:
    program.require_protection(ServerSettings(host=host, tokens=False))


def test_two_servers_do_not_share_a_port() -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as other:
        port = other.getsockname()[1]
        with pytest.raises(OSError, match="another server listens there"):
            program.port_of(ServerSettings(port=port))
    assert program.port_of(ServerSettings(port=port)) == port
    assert program.port_of(ServerSettings()) > 0
