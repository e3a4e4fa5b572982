"""Tests of the sessions of browsers in Postgres: servers share them, and they end in each of their ways."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from caraway.apps.server.access.admin_token import OPERATOR
from caraway.apps.server.access.gate import Gate
from caraway.apps.server.pages.session import LASTING, PageHeaders
from caraway.apps.server.pages.surface import PAGES
from caraway.errors import UnauthenticatedError
from caraway.state.access import MAX_SESSIONS, Access, digest_of
from caraway.state.audit import AuditLog
from caraway.state.permissions import Caller
from caraway.state.tables import sessions
from tests.integration.state.test_rights import LOST
from tests.unit.apps.server.asking import Headers

(OVERVIEW,) = (page for page in PAGES if page.path == "/console")
OPERATORS = "o" * 40


class Servers:
    """Two servers of a deployment, whose clock is the test's, and that read changes only when they are asked."""

    def __init__(self, engine: sa.Engine, folder: Path) -> None:
        self.engine, self.file = engine, folder / "token"
        self.start = self.now = datetime.now(UTC)
        self.file.write_text(OPERATORS)
        self.access = Access(engine, by="test")
        self.gates = [self._gate(), self._gate()]

    def _gate(self) -> Gate:
        access = Access(self.engine, by="server")
        gate = Gate(AuditLog(self.engine), access, admin_token_file=self.file, clock=lambda: self.now.timestamp())
        gate.refresh()
        return gate

    def sign_in(self, token: str) -> str:
        caller = self.gates[0].owner_of(token)
        return self.access.acting_for(caller).begin_session(LASTING, token_digest=digest_of(token))

    def caller(self, session: str, gate: int = 0) -> Caller:
        return asyncio.run(self.gates[gate].let_in(OVERVIEW, cookie(session)))

    def is_out(self, session: str) -> bool:
        for gate in range(len(self.gates)):
            with pytest.raises(UnauthenticatedError):
                self.caller(session, gate)
        return True

    def refresh(self) -> None:
        for gate in self.gates:
            gate.refresh()


def cookie(session: str) -> PageHeaders:
    return PageHeaders(Headers(cookie=f"caraway_session={session}"), "")


@pytest.fixture
def servers(engine: sa.Engine, tmp_path: Path) -> Servers:
    return Servers(engine, tmp_path)


@pytest.fixture
def token(servers: Servers) -> str:
    _, token = servers.access.create_token("ada", roles_given=["admin"])
    servers.refresh()
    return token


def test_a_session_is_no_token_and_all_servers_know_it_at_once(servers: Servers, token: str) -> None:
    session = servers.sign_in(token)
    for gate in range(2):
        assert servers.caller(session, gate).account == "ada"
    # The hash in Postgres opens nothing, and the session opens no endpoint of the API; nor is the token a session.
    with servers.engine.begin() as connection:
        kept = connection.execute(sa.select(sessions)).one()
    assert kept.digest == digest_of(session)
    assert session not in str(kept)
    assert token not in str(kept)
    for guess in (kept.digest.hex(), token, session[:-1], ""):
        assert servers.is_out(guess)
    for server in servers.gates:
        with pytest.raises(UnauthenticatedError):
            server.owner_of(session)
        assert not server.knows(Headers(authorization=f"Bearer {session}"))


def test_a_session_ends_at_the_sign_out_on_all_servers(servers: Servers, token: str) -> None:
    ended, other = servers.sign_in(token), servers.sign_in(token)
    assert servers.caller(ended).account == servers.caller(other, 1).account == "ada"
    servers.access.acting_for(servers.caller(ended)).end_session(ended)
    servers.refresh()
    assert servers.is_out(ended)
    assert servers.caller(other).account == "ada"
    assert servers.access.end_sessions("ada") == 1
    servers.refresh()
    assert servers.is_out(other)
    acts = [(line.act.account, line.act.action, line.outcome) for line in AuditLog(servers.engine).newest(4)]
    signed_in = ("ada", "sign in", "done")
    assert acts == [("test", "end sessions", "done"), ("ada", "sign out", "done"), signed_in, signed_in]


def test_a_session_ends_with_its_time_and_with_its_token(servers: Servers, token: str) -> None:
    session = servers.sign_in(token)
    assert servers.caller(session).account == "ada"
    servers.now += LASTING + timedelta(minutes=1)
    assert servers.is_out(session)
    servers.now = servers.start
    assert servers.caller(session).account == "ada"
    servers.access.revoke_token(token.split("_")[1])
    servers.refresh()
    assert servers.is_out(session)
    _, short = servers.access.create_token("ada", lasting=timedelta(hours=1))
    servers.refresh()
    session = servers.sign_in(short)
    assert servers.caller(session).account == "ada"
    servers.now += timedelta(hours=1, minutes=1)
    assert servers.is_out(session)


def test_the_operators_session_ends_when_the_file_holds_another_token(servers: Servers) -> None:
    session = servers.sign_in(OPERATORS)
    assert servers.caller(session) is OPERATOR
    servers.file.write_text("p" * 40)
    servers.refresh()
    assert servers.is_out(session)


def test_an_account_has_a_bounded_number_of_sessions(servers: Servers, token: str) -> None:
    begun = [servers.sign_in(token) for _ in range(MAX_SESSIONS + 2)]
    for session in begun[:2]:
        assert servers.is_out(session)
    assert servers.caller(begun[2]).account == servers.caller(begun[-1]).account == "ada"


def test_nobody_signs_in_without_a_line_in_the_audit_log(servers: Servers, token: str) -> None:
    with servers.engine.begin() as connection:
        connection.execute(sa.text(LOST))
    with pytest.raises(sa.exc.DBAPIError, match="the log is lost"):
        servers.sign_in(token)
    with servers.engine.begin() as connection:
        assert connection.execute(sa.select(sessions)).all() == []
