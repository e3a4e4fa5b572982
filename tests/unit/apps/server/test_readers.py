"""Tests of a reader: the requests that it answers, those that it forwards, and its gate."""

from types import SimpleNamespace
from typing import Any

import pytest

from caraway.apps.server.access.gate import Gate
from caraway.apps.server.http.messages import HttpResponse, Request, text_response
from caraway.apps.server.surface import DOCUMENT
from caraway.apps.server.workers.forwarding import Forwarding
from caraway.apps.server.workers.reader import ReaderRouter
from caraway.errors import UnauthenticatedError
from caraway.state.access import AccessList, TokenOwner, digest_of
from caraway.state.permissions import ANYBODY, Caller, Grant, Mode

MADE: Any = SimpleNamespace


async def forward(request: Request) -> HttpResponse:
    return text_response(request.path)


NOBODY: Any = {}
OWNER: Any = {"authorization": "Bearer good"}
ROUTER = ReaderRouter(MADE(served=MADE(keep=None), graphs=None), MADE(answer=forward))
FORWARDED, QUERY = (ROUTER.find("POST", path)[0] for path in ("/api/v1/log", "/api/v1/query"))
OWN = {"/api/v1/query", "/api/v1/query/explain", "/get-online-features", "/api/v1/dataset/{name}/lookup"}


def test_only_queries_and_lookups_are_answered_by_a_reader() -> None:
    passed_on = MADE(answer=forward)
    router = ReaderRouter(MADE(served=MADE(keep=None), graphs=None), passed_on)
    for path, methods in DOCUMENT["paths"].items():
        for method in methods:
            route, name = router.find(method.upper(), path.replace("{name}", "Pots"))
            if path in OWN:
                assert route.path == path
                assert name == ("Pots" if "{name}" in path else "")
                assert route.handler is not passed_on.answer
            else:
                assert route.handler is passed_on.answer
                assert route.target == (Forwarding.READ if method == "get" else Forwarding.CHANGE)


def test_what_does_not_exist_is_for_the_writer_to_tell() -> None:
    assert ROUTER.find("GET", "/nothing")[0].target == Forwarding.READ
    assert ROUTER.find("PUT", "/api/v1/query")[0].target == Forwarding.CHANGE


def test_bodies_are_taken_from_owners_of_tokens_only() -> None:
    grant = Grant(modes=frozenset({Mode.READ_DATA}), branches=None, tags=None)
    caller = Caller(account="ada", token_id="t1", grants=(grant,))
    known = AccessList(1, {digest_of("good"): TokenOwner(caller, None)})
    gate = Gate(MADE(), MADE(list_now=lambda _known: known))
    gate.refresh()
    for endpoint in (FORWARDED, QUERY):
        assert gate.admit(endpoint, OWNER) is caller
        with pytest.raises(UnauthenticatedError):
            gate.admit(endpoint, NOBODY)
    # The body isn't read; the writer checks the mode of the request.
    assert gate.admit(ROUTER.find("GET", "/api/v1/status")[0], NOBODY) is ANYBODY


def test_without_tokens_all_are_let_in() -> None:
    gate = Gate(MADE(), None)
    assert {gate.admit(endpoint, NOBODY) for endpoint in (FORWARDED, QUERY)} == {ANYBODY}
