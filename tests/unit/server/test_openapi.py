"""Tests that the document names all that the server serves, and nothing else."""

from types import SimpleNamespace
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from caraway.server import surface
from caraway.server.access.gate import NEEDS
from caraway.server.handlers.answers import OPERATIONS, STATUSES
from caraway.server.handlers.openapi import DOCUMENT, page
from caraway.server.http.errors import Statuses
from caraway.server.http.routes import Route


@pytest.fixture
def routes(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], Route]:
    """Return the routes of a server, by method and path."""
    made: Any = SimpleNamespace
    monkeypatch.setattr(surface, "Api", lambda *_: made(log=0, commit=0, ingest=0))
    names = "secrets eraser erasures keyring graphs bootstrap_servers erased replays"
    parts = made(served=made(keep=0), index=made(positions=0), **dict.fromkeys(names.split(), 0))
    return {(route.method.lower(), route.path): route for route in surface.routes(parts)}


DOCUMENTED = {(method, path): of for path, methods in DOCUMENT["paths"].items() for method, of in methods.items()}


def test_every_route_is_documented(routes: dict[tuple[str, str], Route]) -> None:
    assert routes.keys() == DOCUMENTED.keys()
    assert sorted(of["operationId"] for of in DOCUMENTED.values()) == sorted(OPERATIONS)


def test_an_operation_is_described_as_its_route_is(routes: dict[tuple[str, str], Route]) -> None:
    for place, described in DOCUMENTED.items():
        operation, route = OPERATIONS[described["operationId"]], routes[place]
        assert operation.target == route.target
        assert operation.body == (route.method != "GET"), place
        if operation.body:
            assert set(described["requestBody"]["content"]) == set(route.accepts), place


def test_a_token_is_asked_for_where_the_gate_asks_for_one(routes: dict[tuple[str, str], Route]) -> None:
    assert DOCUMENT["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    for place, described in DOCUMENTED.items():
        needed = NEEDS[routes[place].target] is not None
        assert described["security"] == ([{"bearer": []}] if needed else []), place
        assert ("401" in described["responses"]) is needed


def test_each_operation_lists_the_statuses_that_it_can_answer() -> None:
    listed = {name: set(operation.statuses) for name, operation in OPERATIONS.items()}
    # Status 405 is for other methods than the path's, which are no operations.
    without = {405}
    assert set().union(*listed.values()) | without == {*Statuses.BY_CLASS.values(), 500}
    assert listed["health"] == {500, 503}
    assert listed["listSecrets"] == {401, 403, 429, 500, 503, 504}
    assert 422 not in listed["lookup"]
    assert 415 not in listed["branchLog"]
    assert all(STATUSES[status] for statuses in listed.values() for status in statuses)


def test_the_branch_is_a_parameter_where_the_gate_looks_at_it() -> None:
    branch = {"$ref": "#/components/parameters/Branch"}
    for described in DOCUMENTED.values():
        need = NEEDS[OPERATIONS[described["operationId"]].target]
        about_a_branch = branch in described.get("parameters", [])
        assert about_a_branch is OPERATIONS[described["operationId"]].branch
        if need is not None and need.mode is not None:
            assert about_a_branch is not need.anywhere


def test_the_document_is_valid() -> None:
    assert list(OpenAPIV31SpecValidator(DOCUMENT).iter_errors()) == []


def test_the_page_shows_every_path() -> None:
    shown = page()
    assert all(path in shown for path in DOCUMENT["paths"])
