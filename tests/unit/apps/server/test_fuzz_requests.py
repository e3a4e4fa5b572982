"""The fuzzer runs rarely (`just fuzz`), so each landing checks that it knows all that a server answers to."""

from caraway.apps.server.surface import DOCUMENT
from tests.fuzz.valid import agents, pages, requests


def test_the_fuzzer_knows_every_endpoint() -> None:
    known = {(r.method.lower(), r.path.partition("?")[0]) for r in requests()}
    for path, operations in DOCUMENT["paths"].items():
        for method in operations:
            named = [path.replace("{name}", name) for name in ("Pots", "Moisture", "fuzz", "0-0")]
            assert any((method, name) in known for name in named), f"tests/fuzz/valid.py lacks {method} {path}"


def test_the_fuzzer_knows_every_page_and_tool() -> None:
    """A page whose form it doesn't know raises."""
    assert pages("session")
    assert agents()
