"""Tests of finding the route of a request, and of the error when there is none."""

import asyncio

import pytest

from caraway.apps.server.http.endpoints import PUBLIC, Endpoint, Permission, Router
from caraway.apps.server.http.errors import UnknownPathError, WrongMethodError
from caraway.apps.server.http.messages import HttpResponse, Request, text_response
from caraway.apps.server.pages.surface import PAGES
from caraway.apps.server.surface import ENDPOINTS


async def handler(request: Request) -> HttpResponse:
    return text_response(request.path)


async def named(request: Request, name: str) -> HttpResponse:
    return text_response(f"{request.path} {name}")


ROUTER = Router(
    (
        Endpoint("GET", "/a", handler, PUBLIC, target="a"),
        Endpoint("POST", "/a", handler, PUBLIC, target="a"),
        Endpoint("POST", "/d/{name}/look", named, PUBLIC, target="look"),
    )
)


@pytest.mark.parametrize(
    ("method", "path", "target", "name"),
    [("GET", "/a", "a", ""), ("POST", "/d/x/look", "look", "x"), ("POST", "/d/look/look", "look", "look")],
)
def test_a_route_is_found_with_its_name(method: str, path: str, target: str, name: str) -> None:
    route, found = ROUTER.find(method, path)
    assert (route.target, found) == (target, name)


@pytest.mark.parametrize("path", ["/", "/a/", "/d//look", "/d/x/y/look", "/d/look", "/d/x/look/", ""])
def test_an_unknown_path_is_refused(path: str) -> None:
    with pytest.raises(UnknownPathError, match=r"there is nothing under .*; the nearest of 2 paths are "):
        ROUTER.find("GET", path)


def test_an_unknown_path_names_the_nearest_ones() -> None:
    with pytest.raises(UnknownPathError) as raised:
        Router(ENDPOINTS).find("GET", "/api/v1/datasts" + "s" * 1_000_000)
    assert len(str(raised.value)) < 600
    with pytest.raises(UnknownPathError, match=r"of [0-9]+ paths are GET /api/v1/datasets,"):
        Router(ENDPOINTS).find("GET", "/api/v1/datasts")


def test_a_wrong_method_names_the_right_ones() -> None:
    with pytest.raises(WrongMethodError) as raised:
        ROUTER.find("PUT", "/a")
    assert raised.value.allowed == "GET, POST"
    with pytest.raises(WrongMethodError, match="it takes POST"):
        ROUTER.find("GET", "/d/x/look")


def test_handlers_are_called_with_the_name_if_they_take_one() -> None:
    class NoHeaders:
        def get(self, _key: str, default: str | None = None) -> str | None:
            return default

    for path, body in (("/a", b"/a"), ("/d/x/look", b"/d/x/look x")):
        route, name = ROUTER.find("POST", path)
        request = Request("POST", path, "", NoHeaders(), b"")
        assert asyncio.run(route.respond(request, name)).body == body


def test_endpoints_of_one_name_need_the_same_permission() -> None:
    """The gate remembers who was admitted by the name of the endpoint, not by its permission."""
    needed: dict[str, tuple[Permission, bool]] = {}
    for endpoint in (*ENDPOINTS, *PAGES):
        found = endpoint.permission, endpoint.page is not None
        assert needed.setdefault(endpoint.target, found) == found, endpoint.path
