"""The document names all that the server serves, and nothing else."""

from types import SimpleNamespace
from typing import Any

import pytest

from caraway.server import surface
from caraway.server.handlers.openapi import DOCUMENT, page
from caraway.server.http.errors import Statuses


def test_every_route_is_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = SimpleNamespace
    monkeypatch.setattr(surface, "Api", lambda *_: made(log=0, commit=0))
    parts = made(served=made(keep=0), secrets=0, eraser=0, erasures=0, keyring=0, needed=0)
    routes = {(route.method.lower(), route.path) for route in surface.routes(parts)}
    assert routes == {(method, path) for path, methods in DOCUMENT["paths"].items() for method in methods}


def test_every_status_is_documented() -> None:
    for methods in DOCUMENT["paths"].values():
        for operation in methods.values():
            assert {str(status) for status in Statuses.BY_CLASS.values()} | {"200", "500"} == set(
                operation["responses"]
            )


def test_the_page_shows_every_path() -> None:
    shown = page()
    assert all(path in shown for path in DOCUMENT["paths"])
