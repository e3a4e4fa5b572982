"""Tests of request ids: in answers, in errors' bodies, in log lines, in threads and in what is passed on."""

import asyncio
import io
import logging
import string
from collections.abc import Iterator
from typing import Any

import httpx2
import orjson
import pytest
import structlog
from hypothesis import example, given
from hypothesis import strategies as st

from caraway.apps.server.access.gate import Gate
from caraway.apps.server.app import App
from caraway.apps.server.handlers.queries import Queries
from caraway.apps.server.http.endpoints import PUBLIC, Endpoint, Router
from caraway.apps.server.http.messages import HttpResponse, Request, json_response
from caraway.apps.server.workers.forwarding import Forwarder
from caraway.errors import UnknownEntityError
from caraway.process.logs import configure_logging
from caraway.process.request_ids import MAX_CHARACTERS, REQUEST_ID, accepted
from tests.unit.apps.server.asking import Exchange, Headers
from tests.unit.apps.server.asking import ask as asked
from tests.unit.apps.server.test_access import NO_AUDIT

LOG = structlog.get_logger("test")
SANE = string.ascii_letters + string.digits + "._:/+=@-"
KEPT = json_response({"kept": True})


async def logged(request: Request) -> HttpResponse:
    await asyncio.sleep(0)
    LOG.warning("with structlog")
    logging.getLogger("library").warning("from a library")
    await Queries().in_thread(lambda: LOG.warning("in a thread"))
    return json_response({})


async def refused(request: Request) -> HttpResponse:
    raise UnknownEntityError("there is no such thing")


async def broken(request: Request) -> HttpResponse:
    raise RuntimeError("a mistake")


async def kept(request: Request) -> HttpResponse:
    return KEPT


APP = App(
    Router(tuple(Endpoint("GET", f"/{h.__name__}", h, PUBLIC) for h in (logged, refused, broken, kept))),
    Gate(NO_AUDIT, None),
    sites=None,
)


def ask(path: str, **headers: str) -> Exchange:
    return asked(APP, "GET", path, **headers)


def ids(answer: Exchange) -> list[str]:
    return [value for name, value in answer.headers if name == "x-request-id"]


@pytest.fixture
def lines(capfd: pytest.CaptureFixture[str]) -> Iterator[Any]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    configure_logging("info")
    (handler,) = root.handlers
    assert isinstance(handler, logging.StreamHandler)
    written = io.StringIO()
    handler.setStream(written)

    def read() -> list[dict[str, Any]]:
        found = [orjson.loads(line) for line in written.getvalue().splitlines()]
        written.truncate(0)
        written.seek(0)
        return found

    yield read
    root.handlers[:] = before
    root.setLevel(level)
    structlog.reset_defaults()


def test_log_lines_of_a_request_have_its_id(lines: Any) -> None:
    answer = ask("/logged", x_request_id="abc-1")
    assert ids(answer) == ["abc-1"]
    assert [(line["event"], line["request_id"]) for line in lines()] == [
        ("with structlog", "abc-1"),
        ("from a library", "abc-1"),
        ("in a thread", "abc-1"),
    ]
    LOG.warning("outside of requests")
    (line,) = lines()
    assert "request_id" not in line


def test_refusals_and_faults_have_the_id(lines: Any) -> None:
    refusal = ask("/refused", x_request_id="abc-2")
    assert refusal.json == {
        "err_msg": "there is no such thing",
        "code": "unknown_entity",
        "request_id": "abc-2",
    }
    fault = ask("/broken", x_request_id="abc-3")
    assert (fault.status, fault.json["request_id"], ids(fault)) == (500, "abc-3", ["abc-3"])
    (line,) = lines()
    assert (line["request_id"], line["id"]) == ("abc-3", fault.json["id"])


def test_an_answer_that_is_kept_has_the_id_of_each_request() -> None:
    assert [ids(ask("/kept", x_request_id=name)) for name in ("a", "b")] == [["a"], ["b"]]
    assert KEPT.headers == [("content-type", "application/json")]


def test_requests_without_an_id_get_different_ones() -> None:
    made = {ids(ask("/kept"))[0] for _ in range(100)}
    assert len(made) == 100


@given(st.text(max_size=2 * MAX_CHARACTERS) | st.none())
@example("a" * MAX_CHARACTERS)
@example("4bf92f35-77b3:1")
@example("a/b+c=@x_y.z")
def test_only_sane_ids_are_accepted(text: str | None) -> None:
    found = accepted(text)
    assert 1 <= len(found) <= MAX_CHARACTERS
    assert found.isascii()
    assert not set(found) & set("\r\n\t \"'\\<>{};,")
    # The next process accepts an accepted id as it is.
    assert accepted(found) == found
    if text is not None and found != text:
        assert not text.isascii() or len(text) not in range(1, MAX_CHARACTERS + 1) or set(text) - set(SANE)


def test_the_id_is_passed_on_to_the_process_that_writes() -> None:
    seen: list[str] = []
    changes: Any = {0: 0}
    forwarder = Forwarder.__new__(Forwarder)
    forwarder._changes = changes

    def answer(asked: httpx2.Request) -> httpx2.Response:
        seen.append(asked.headers["x-request-id"])
        return httpx2.Response(200)

    forwarder._client = httpx2.AsyncClient(transport=httpx2.MockTransport(answer), base_url="http://writer")
    headers: Any = Headers()
    token = REQUEST_ID.set("abc-4")
    try:
        asyncio.run(forwarder.answer(Request("GET", "/status", "", headers, b"")))
    finally:
        REQUEST_ID.reset(token)
    assert seen == ["abc-4"]
