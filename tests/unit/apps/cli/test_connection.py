"""Requests of commands to a real HTTP server: token, branch, refusals, redirects."""

import json
import socket
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from caraway.apps.cli import app
from caraway.apps.cli.connection import send
from caraway.client.discovery import ServerAddress
from caraway.client.response import no_answer
from caraway.errors import InvalidInputError, UnavailableError
from tests.unit.client.stub import Stub, running

runner = CliRunner()


@pytest.fixture
def stub() -> Iterator[Stub]:
    with running() as server:
        yield server


def test_a_request_carries_token_branch_and_body(stub: Stub) -> None:
    stub.will({"accepted": 1, "rejected": 0, "errors": [], "warnings": []})
    arguments = ["log", "hook", "end", '{"a": 1}', "--url", stub.url, "--token", "secret", "--branch", "dev"]
    told = runner.invoke(app, arguments)
    assert told.stdout == "1 row accepted\n"
    headers = {name.lower(): value for name, value in stub.last.headers.items()}
    assert headers["authorization"] == "Bearer secret"
    assert headers["x-caraway-branch"] == "dev"
    assert headers["content-type"] == "application/json"
    assert headers["idempotency-key"]
    assert (stub.last.method, stub.last.path) == ("POST", "/api/v1/log")
    assert stub.last.json == {"webhook": "hook", "endpoint": "end", "data": [{"a": 1}]}


def test_names_are_quoted_in_paths_and_parameters(stub: Stub) -> None:
    stub.will({"dead_letters": [], "next": None})
    runner.invoke(app, ["dead-letters", "list", "--dataset", "a&b", "--url", stub.url])
    assert stub.last.params["dataset"] == "a&b"
    stub.will({"definitions": []})
    runner.invoke(app, ["describe", "a/../b", "--url", stub.url])
    assert stub.last.path == "/api/v1/definition/a%2F..%2Fb"


def test_a_refusal_is_shown_without_a_trace(stub: Stub) -> None:
    stub.will({"err_msg": "there is no dataset Nope", "code": "unknown_entity"}, 404)
    told = runner.invoke(app, ["lookup", "Nope", "--with", "a=1", "--url", stub.url])
    assert told.exit_code == 1
    assert "there is no dataset Nope" in told.stderr
    assert "Traceback" not in told.output


def test_refused_rows_are_counted_over_all_batches(stub: Stub) -> None:
    error = {"row": 1, "field": "a", "message": "expected int", "dataset": "D"}
    refusal = {
        "accepted": 0,
        "rejected": 2,
        "errors": [error],
        "warnings": [],
        "err_msg": "none",
        "code": "invalid_input",
    }
    stub.will(refusal, 422)
    told = runner.invoke(
        app, ["log", "h", "e", '[{"a": 1}, {"a": 2}, {"a": 3}, {"a": 4}]', "--batch", "2", "--url", stub.url, "--json"]
    )
    assert told.exit_code == 1
    sums = json.loads(told.stdout)
    assert (sums["rejected"], [each["row"] for each in sums["errors"]]) == (4, [1, 3])


def test_a_redirect_is_not_followed_with_the_token(stub: Stub) -> None:
    stub.will({}, 302)
    answer = send("GET", "/status", ServerAddress(stub.url, "secret"), headers={})
    assert (answer.status_code, len(stub.asked)) == (302, 1)


def test_nobody_answers() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(
            UnavailableError, match=r" \(Connection refused\); is it running\? `caraway up` starts"
        ) as found:
            send("GET", "/status", ServerAddress(url, ""), headers={})
        assert not [word for word in ("Error", "Errno", "caraway status") if word in str(found.value)]


def test_a_server_elsewhere_isnt_started_by_caraway_up() -> None:
    elsewhere = no_answer("https://caraway.example", ConnectionResetError(104, "Connection reset by peer"))
    assert str(elsewhere).endswith(
        "(Connection reset by peer); check the URL, and that the server runs there and can be reached from this machine"
    )


def test_a_refused_token_is_told_with_its_place(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    stub.will({"err_msg": "the token isn't valid", "code": "unauthenticated"}, 401)
    told = runner.invoke(app, ["freshness", "--url", stub.url, "--token", "wrong"])
    assert "the token isn't valid; the token that was shown came from the option --token" in told.stderr
    monkeypatch.setenv("CARAWAY_TOKEN", "wrong")
    told = runner.invoke(app, ["freshness", "--url", stub.url])
    assert "came from the variable CARAWAY_TOKEN" in told.stderr


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://x/", "localhost:8100", "http://"])
def test_only_http_is_spoken(url: str) -> None:
    with pytest.raises(InvalidInputError, match="no URL of a server"):
        send("GET", "/status", ServerAddress(url, ""), headers={})
