"""Tests of a client that is generated from the OpenAPI document: it authenticates, and the server understands it."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from caraway.apps.server.surface import ENDPOINTS
from tests.integration.server.guarded import Guarded
from tests.integration.server.server_process import ServerProcess, eventually
from tests.integration.server.test_api import pot

PACKAGE = "generated_caraway_client"
# The generator treats bodies of other types than JSON as bytes if its configuration says so.
CONFIGURATION: dict[str, object] = {
    "post_hooks": [],
    "content_type_overrides": dict.fromkeys(
        ("application/vnd.apache.arrow.stream", "application/x-protobuf", "application/protobuf"),
        "application/octet-stream",
    ),
}


@pytest.fixture(scope="module")
def server(guarded_garden: Guarded) -> ServerProcess:
    return guarded_garden.server


@pytest.fixture(scope="module")
def generated(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Return the client, generated from the document that the server shows to everybody."""
    folder = tmp_path_factory.mktemp("client")
    (folder / "configuration.json").write_text(json.dumps(CONFIGURATION))
    shown = server.http.get("/openapi.json", headers={"Authorization": ""})
    (folder / "openapi.json").write_bytes(shown.content)
    made = subprocess.run(
        [
            *(Path(sys.executable).with_name("openapi-python-client"), "generate", "--meta", "none"),
            *("--path", folder / "openapi.json", "--config", folder / "configuration.json"),
            *("--output-path", folder / PACKAGE, "--fail-on-warning"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    operations = {file.stem for file in (folder / PACKAGE / "api" / "default").glob("*.py")} - {"__init__"}
    assert len(operations) == len(ENDPOINTS)
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(PACKAGE)
    finally:
        sys.path.remove(str(folder))


def operation(name: str) -> Any:
    return importlib.import_module(f"{PACKAGE}.api.default.{name}")


def model(name: str) -> Any:
    return getattr(importlib.import_module(f"{PACKAGE}.models"), name)


def test_a_generated_client_authenticates(
    server: ServerProcess, generated: ModuleType, guarded_garden: Guarded
) -> None:
    server = guarded_garden.server
    url = str(server.settings.server.url)
    with generated.AuthenticatedClient(url, guarded_garden.admin) as client:
        listed = operation("list_datasets").sync_detailed(client=client)
        assert listed.status_code == 200, listed.content
        missing = operation("describe").sync_detailed("nothing", client=client)
        assert (missing.status_code, missing.parsed.code) == (404, "unknown_entity")
        elsewhere = operation("list_datasets").sync_detailed(client=client, x_caraway_branch="nowhere")
        assert elsewhere.status_code == 404
        server.log("pots", [pot(801, "oak")])
        asked = {"inputs": ["Tap.pot"], "outputs": ["State.species"], "data": {"Tap.pot": [801]}}
        body = model("QueryBody").from_dict(asked)

        def served() -> bool:
            answer = operation("query").sync_detailed(client=client, body=body)
            assert answer.status_code == 200, answer.content
            return bool(answer.parsed.to_dict() == {"State.species": ["oak"]})

        eventually(served, server.said)


def test_a_generated_client_without_a_valid_token_is_refused(server: ServerProcess, generated: ModuleType) -> None:
    url = str(server.settings.server.url)
    for client in (generated.Client(url), generated.AuthenticatedClient(url, "u" * 40)):
        with client:
            refused = operation("list_datasets").sync_detailed(client=client)
            assert (refused.status_code, refused.parsed.code) == (401, "unauthenticated")
            assert operation("health").sync_detailed(client=client).status_code == 200
