"""The page for security reviewers lists each route with the capability that it asks for, and settings that exist."""

import re
from collections.abc import Iterable

import pytest

from caraway.apps.server.http.endpoints import Endpoint, Permission, Scope
from caraway.apps.server.pages.surface import PAGES
from caraway.apps.server.surface import ENDPOINTS
from caraway.state.permissions import Mode
from tests.markdown import DOCS

PAGE = (DOCS / "operate" / "security-review.md").read_text(encoding="utf-8")
ROUTE = re.compile(r"`((?:GET|POST|PATCH|PUT|DELETE) [^`]+)`")
SETTING = re.compile(r"`([a-z]+\.[a-z_]+)(?:=[^`]*)?`")
SCOPES = {Scope.BRANCH: "on the branch", Scope.ANY_BRANCH: "on any branch", Scope.EVERYTHING: "on everything"}


def capability(permission: Permission) -> str:
    """Return a permission in the words of the page."""
    if permission.public:
        return "none"
    if not permission.modes:
        return "any valid token"
    if permission.every:
        return "all four modes on everything"
    modes = "any mode" if set(permission.modes) == set(Mode) else permission.wanted
    return f"{modes} {SCOPES[permission.scope]}"


def told() -> dict[str, str]:
    """Return the capability of each route of the page."""
    rows = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if ROUTE.search(line) and line.startswith("|")]
    found = [(route, row[0]) for row in rows for route in ROUTE.findall(row[1])]
    assert len(dict(found)) == len(found), "a route stands twice on the page"
    return dict(found)


def asked(endpoints: Iterable[Endpoint]) -> dict[str, str]:
    return {f"{each.method} {each.path}": capability(each.permission) for each in endpoints}


@pytest.mark.parametrize(("kind", "endpoints"), [("API", ENDPOINTS), ("console", PAGES)])
def test_each_route_asks_for_the_capability_that_the_page_lists(kind: str, endpoints: tuple[Endpoint, ...]) -> None:
    del kind
    known, wanted = told(), asked(endpoints)
    assert {route: known.get(route) for route in wanted} == wanted


def test_the_page_lists_no_other_routes() -> None:
    assert told().keys() == asked((*ENDPOINTS, *PAGES)).keys()


def test_settings_of_the_checklist_exist() -> None:
    known = set(re.findall(r"`([a-z]+\.[a-z_]+)`", (DOCS / "operate" / "operations.md").read_text(encoding="utf-8")))
    named = {name for name in SETTING.findall(PAGE) if not name.endswith((".md", ".py", ".yaml", ".key", ".lock"))}
    assert len(named) > 10
    assert named <= known
