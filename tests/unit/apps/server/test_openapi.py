"""Tests that the document names all that the server serves, and nothing else."""

from pathlib import Path

import msgspec
import pytest
from msgspec import Struct
from openapi_spec_validator import OpenAPIV31SpecValidator

from caraway.apps.server.handlers.openapi import BARE, STATUSES, page
from caraway.apps.server.handlers.reads import LookupBody
from caraway.apps.server.http.bodies import Nothing
from caraway.apps.server.http.endpoints import JSON, Endpoint, Scope
from caraway.apps.server.http.errors import STATUS_BY_CLASS
from caraway.apps.server.surface import DOCUMENT, ENDPOINTS

PAGE = Path(__file__).parents[4] / "docs" / "guides" / "serving.md"
DOCUMENTED = {(method, path): of for path, methods in DOCUMENT["paths"].items() for method, of in methods.items()}
BY_PLACE = {(endpoint.method.lower(), endpoint.path): endpoint for endpoint in ENDPOINTS}


def test_every_endpoint_is_documented() -> None:
    assert BY_PLACE.keys() == DOCUMENTED.keys()
    assert len(BY_PLACE) == len(ENDPOINTS) == len({of["operationId"] for of in DOCUMENTED.values()})


def test_an_operation_is_described_as_its_endpoint_is() -> None:
    for place, described in DOCUMENTED.items():
        endpoint = BY_PLACE[place]
        assert ("requestBody" in described) == (endpoint.method != "GET"), place
        if endpoint.method != "GET":
            assert set(described["requestBody"]["content"]) == set(endpoint.accepts), place


def test_only_bodies_of_json_have_members() -> None:
    found = {endpoint.target: endpoint.body for endpoint in ENDPOINTS if endpoint.body is not Nothing}
    assert found["lookup"] is LookupBody
    assert all(JSON in endpoint.accepts and endpoint.takes_body for endpoint in ENDPOINTS if endpoint.target in found)


@pytest.mark.parametrize("form", dict.fromkeys(form for each in ENDPOINTS for form in (each.body, each.parameters)))
def test_every_member_says_what_it_has_to_be(form: type[Struct]) -> None:
    _, components = msgspec.json.schema_components([form])
    assert all("description" in member for member in components[form.__name__]["properties"].values())


def test_a_token_is_asked_for_where_the_gate_asks_for_one() -> None:
    assert DOCUMENT["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    for place, described in DOCUMENTED.items():
        needed = not BY_PLACE[place].permission.public
        assert described["security"] == ([{"bearer": []}] if needed else []), place
        assert ("401" in described["responses"]) is needed


def test_each_operation_lists_the_statuses_that_it_can_answer() -> None:
    listed = {of["operationId"]: set(map(int, of["responses"])) - {200} for of in DOCUMENTED.values()}
    # Status 405 is for other methods than the path's, which are no operations. The HTTP server answers with 431.
    without = {405}
    assert set().union(*listed.values()) | without == {*STATUS_BY_CLASS.values(), 500, *BARE}
    assert {name for name, statuses in listed.items() if 431 in statuses} == {
        of["operationId"]
        for of in DOCUMENTED.values()
        if any(each.get("in") == "query" for each in of.get("parameters", ()))
    }
    assert listed["health"] == {500, 503}
    assert listed["listSecrets"] == {401, 403, 429, 500, 503, 504}
    assert 422 not in listed["lookup"]
    assert 415 not in listed["branchLog"]
    assert all(STATUSES[status] for statuses in listed.values() for status in statuses)


def test_the_branch_is_a_parameter_where_the_gate_looks_at_it() -> None:
    branch = {"$ref": "#/components/parameters/Branch"}
    for place, described in DOCUMENTED.items():
        permission = BY_PLACE[place].permission
        by_branch = bool(permission.modes) and permission.scope is Scope.BRANCH
        assert (branch in described.get("parameters", [])) is by_branch


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: f"{endpoint.method} {endpoint.path}")
def test_the_page_of_paths_names_every_endpoint(endpoint: Endpoint) -> None:
    page_of_paths = PAGE.read_text().partition("## 1. Paths")[2].partition("## 2.")[0]
    forms = [endpoint.path, endpoint.path.replace("{name}", "{id}")]
    forms += [f"…/{path.partition('/dead_letters/')[2] or path.rpartition('/')[2]}" for path in forms]
    assert any(form in page_of_paths for form in forms)


def test_the_document_is_valid() -> None:
    assert list(OpenAPIV31SpecValidator(DOCUMENT).iter_errors()) == []


def test_the_page_shows_every_path() -> None:
    shown = page(DOCUMENT)
    assert all(path in shown for path in DOCUMENT["paths"])
