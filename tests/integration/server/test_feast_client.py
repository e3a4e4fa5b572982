"""Tests of the real Feast, in its own environment, which reads this server's features by its remote online store."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.feast.rival import environment
from caraway.client.discovery import DEFAULT_PORT
from tests.integration.server.guarded import Guarded
from tests.integration.server.server_process import eventually
from tests.integration.server.test_api import pot
from tests.markdown import DOCS

CLIENT = Path(__file__).parents[3] / "bench" / "feast" / "client.py"


def documented() -> dict[str, Any]:
    """Return the configuration for Feast's clients in docs/guides/serving.md."""
    _, _, section = (DOCS / "guides" / "serving.md").read_text().partition("### Feast's clients")
    found = re.search(r"^```yaml\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert found is not None
    config: dict[str, Any] = yaml.safe_load(found[1])
    return config


def test_the_documented_address_is_that_of_a_server() -> None:
    assert documented()["online_store"] == {"type": "remote", "path": f"http://127.0.0.1:{DEFAULT_PORT}"}


@pytest.mark.full(reason="a minute, most of it imports of Feast; the endpoint has unit tests of its own")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("in_file", [False, True], ids=["token in a variable", "token in the file"])
def test_feast_reads_online_features(guarded_garden: Guarded, tmp_path: Path, *, in_file: bool) -> None:
    server, token = guarded_garden.server, guarded_garden.admin
    server.log("pots", [pot(811, "oak", size=12.5), pot(812, "elm")])
    data = {"Tap.pot": [811, 812]}
    eventually(lambda: server.query(["State.species"], data).json() == {"State.species": ["oak", "elm"]}, server.said)
    features = {"species": "String", "size": "Float64", "big": "Bool", "count": "Int64"}
    request = {"view": "State", "entity": "pot", "features": features, "rows": [811, 812, 813]}
    config = documented()
    config["online_store"]["path"] = str(server.settings.server.url)
    environ = {**os.environ, config["auth"]["token_env_var"]: token}
    if in_file:
        del environ[config["auth"].pop("token_env_var")]
        config["auth"]["token"] = token
    (tmp_path / "feature_store.yaml").write_text(yaml.safe_dump(config))
    command = [environment() / "python", CLIENT, tmp_path, json.dumps(request)]
    done = subprocess.run(
        list(map(str, command)), env=environ, check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    expected = {
        "species": ["oak", "elm", "fern"],
        "size": [12.5, None, None],
        "big": [True, False, False],
        "count": [0, 0, 0],
    }
    assert found["plain"] == {"pot": [811, 812, 813], **expected}
    assert found["full"] == {"pot": [811, 812, 813], **{f"State__{name}": values for name, values in expected.items()}}
