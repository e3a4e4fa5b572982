"""Typed decoders are made when their module is imported.

msgspec (0.22) collects the facts about a class when it first decodes it, and lets other threads use the incomplete
facts meanwhile: a server in which two threads opened snapshots for the first time died of it, during a request. A
decoder of a class that the same function makes is safe, since no other thread has the class yet.
"""

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import caraway
from caraway.apps.server import surface
from caraway.apps.server.http import endpoints

SOURCES = sorted(Path(caraway.__file__).parent.rglob("*.py"))
# The first runs in commands, which have one thread. The Structs of the second are prepared by the rows of endpoints,
# those of the third by each `Form`, which is a decoder for this test.
ALONE = {"apps/stack/report.py", "apps/server/http/bodies.py", "dataplane/confined/forms.py"}


def made_too_late(text: str) -> Iterator[int]:
    """Yield the lines of a module that decode to a type without a decoder, or make a decoder in a function."""
    # Most modules don't decode.
    tree = ast.parse(text if "msgspec" in text or "Form" in text else "")
    functions = (n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)))
    for function in functions:
        own = {
            ast.unparse(target)
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("msgspec.defstruct(")
            for target in node.targets
        }
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and ast.unparse(node.func).partition("[")[0] == "Form":
                yield node.lineno
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and "msgspec" in ast.unparse(node.func)
            ):
                typed = node.func.attr == "decode" and any(keyword.arg == "type" for keyword in node.keywords)
                late = typed or node.func.attr in {"convert", "Decoder"}
                if late and not own & {ast.unparse(name) for name in ast.walk(node) if isinstance(name, ast.Name)}:
                    yield node.lineno


def test_each_endpoint_prepares_its_structs(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[object] = []
    monkeypatch.setattr(endpoints, "prepare", prepared.append)
    for endpoint in surface.ENDPOINTS:
        replace(endpoint)
        assert prepared[-2:] == [endpoint.body, endpoint.parameters]


def test_typed_decoders_are_made_at_import() -> None:
    root = Path(caraway.__file__).parent
    found = [
        f"{path.relative_to(root)}:{line}"
        for path in SOURCES
        if str(path.relative_to(root)) not in ALONE
        for line in made_too_late(path.read_text())
    ]
    assert not found, "make these decoders when the module is imported"


def test_such_a_one_would_be_found() -> None:
    late = "def read(data):\n    return msgspec.json.decode(data, type=Manifest)\n"
    assert [*made_too_late(late)] == [2]
    assert [*made_too_late("decode = msgspec.json.Decoder(Manifest).decode\n")] == []
    assert [*made_too_late("def read(data):\n    return msgspec.json.decode(data)\n")] == []
    assert [*made_too_late("def read(told):\n    return Form(Manifest).of(told)\n")] == [2]
    assert [*made_too_late("MANIFEST = Form(Manifest)\n")] == []
    own = "def make(fields):\n    put = msgspec.defstruct('Put', fields)\n    return msgspec.json.Decoder({})\n"
    assert [*made_too_late(own.format("put"))] == []
    assert [*made_too_late(own.format("Manifest"))] == [3]
