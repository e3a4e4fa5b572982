"""Requests of HTTP sinks: their size, and what the answers of the server mean."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2
import pytest

from caraway.dataplane.sinks import http
from caraway.dataplane.sinks.changes import Change, Row
from caraway.dataplane.sinks.http import ATTEMPTS, HTTPWriter
from caraway.dataplane.sinks.writer import Batch, Refusal, RetryLaterError, SignIn
from caraway.errors import CommitError, UnavailableError
from caraway.graph.connectors import HTTPConnector
from caraway.graph.sources import SinkSpec
from caraway.graph.systems import SecretRef
from tests.unit.dataplane.sinks.world import SINK, SYSTEM, plan_of, writing

CONNECTOR = HTTPConnector(system=SYSTEM, endpoint="changes", limit=2, headers=(("x-team", "bees"),))


@dataclass
class Server:
    """A server that answers as it is told to, then with 200."""

    answers: list[httpx2.Response | Exception] = field(default_factory=list)
    bodies: list[list[dict[str, Any]]] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    keeps: bool = True

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        assert str(request.url) == "https://hooks/changes"
        assert (request.headers["content-type"], request.headers["x-team"]) == ("application/json", "bees")
        self.bodies.append(json.loads(request.content))
        answer = self.answers.pop(0) if self.answers else httpx2.Response(200)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def writer(self, monkeypatch: pytest.MonkeyPatch, connector: HTTPConnector = CONNECTOR) -> HTTPWriter:
        def client_of(given: HTTPConnector, _: object) -> httpx2.Client:
            headers = {**dict(given.headers), "Content-Type": "application/json"}
            return httpx2.Client(base_url="https://hooks", headers=headers, transport=httpx2.MockTransport(self.answer))

        monkeypatch.setattr(http, "client_of", client_of)
        return HTTPWriter(
            writing(
                plan_of(sink=replace(SINK, connector=connector)),
                product="fennel",
                refuse=self.refused.extend,
                keep=lambda: self.keeps,
                pause=self.pauses.append,
            )
        )


def batch(count: int, text: str = "") -> Batch:
    changes = [Change(b"k", None, Row(1, (f"{n}{text}", 1.0, None)), 1, 0, n) for n in range(count)]
    return Batch(changes, {0: count})


def offsets(bodies: Sequence[Sequence[dict[str, Any]]]) -> list[list[int]]:
    return [[each["payload"]["source"]["fennel"]["offset"] for each in body] for body in bodies]


@pytest.mark.spec("connectors:4.2:2")
def test_requests_have_at_most_so_many_changes_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    server.writer(monkeypatch).write(batch(5))
    assert offsets(server.bodies) == [[0, 1], [2, 3], [4]]
    many = Server()
    many.writer(monkeypatch, replace(CONNECTOR, limit=None)).write(batch(230))
    assert [len(body) for body in many.bodies] == [100, 100, 30]
    large = Server()
    large.writer(monkeypatch, replace(CONNECTOR, limit=None)).write(batch(3, "x" * 600_000))
    assert [len(body) for body in large.bodies] == [1, 1, 1]


@pytest.mark.spec("connectors:4.2:2")
def test_a_busy_server_gets_the_same_request_again_and_nothing_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[httpx2.Response | Exception] = [
        httpx2.Response(200),
        httpx2.ConnectError("away"),
        httpx2.Response(503),
        httpx2.Response(429, headers={"Retry-After": "7"}),
        httpx2.Response(302, headers={"Location": "/"}),
    ]
    server = Server(answers)
    server.writer(monkeypatch).write(batch(4))
    assert offsets(server.bodies) == [[0, 1], *[[2, 3]] * 5]
    assert server.pauses[2] >= 7
    assert (len(server.pauses), server.refused) == (4, [])


def test_after_some_attempts_the_writer_gives_up_and_goes_on_later(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server([httpx2.Response(200), *[httpx2.Response(500, text="no  room")] * ATTEMPTS])
    writer, given = server.writer(monkeypatch), batch(4)
    with pytest.raises(RetryLaterError, match="500: no room"):
        writer.write(given)
    assert given.sent == 2
    writer.write(given)
    assert offsets(server.bodies)[-1] == [2, 3]
    assert sum(body == [0, 1] for body in offsets(server.bodies)) == 1


def test_a_request_that_is_refused_again_and_again_becomes_dead_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server([httpx2.Response(400)] * ATTEMPTS)
    server.writer(monkeypatch).write(batch(3))
    assert [(refusal.change.offset, refusal.reason) for refusal in server.refused] == [
        (0, "the server answers 400"),
        (1, "the server answers 400"),
    ]
    assert offsets(server.bodies) == [*[[0, 1]] * ATTEMPTS, [2]]


def test_a_server_that_lost_the_lease_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(keeps=False)
    with pytest.raises(UnavailableError, match="another server"):
        server.writer(monkeypatch).write(batch(1))
    assert server.bodies == []


@pytest.mark.parametrize(
    ("host", "certificate", "text"),
    [("https://hooks", "secret", "no certificate"), ("ftp://secret", "", "doesn't begin with https")],
)
def test_an_address_or_certificate_that_cannot_be_used_is_named_without_its_value(
    host: str, certificate: str, text: str
) -> None:
    system = replace(SYSTEM, host=SecretRef(arn="env:HOST"), ca_cert=SecretRef(arn="env:CA"))
    known: Callable[[Any], str] = {system.host: host, system.ca_cert: certificate}.__getitem__
    sink = SinkSpec(connector=replace(CONNECTOR, system=system), cdc=SINK.cdc)
    with pytest.raises(CommitError, match=text) as caught:
        http.check(plan_of(sink=sink), SignIn(resolve=known))
    assert "secret" not in str(caught.value)
