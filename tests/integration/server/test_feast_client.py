"""Tests of the real Feast, in its own environment, which reads this server's features by its remote online store."""

import json
import subprocess
from pathlib import Path

import pytest

from bench.feast.rival import environment
from tests.integration.server.server_process import ServerProcess, eventually
from tests.integration.server.test_api import pot

CLIENT = Path(__file__).parents[3] / "bench" / "feast" / "client.py"


@pytest.mark.full(reason="a minute, most of it imports of Feast; the endpoint has unit tests of its own")
@pytest.mark.timeout(600)
def test_feast_reads_online_features(server: ServerProcess, tmp_path: Path) -> None:
    server.log("pots", [pot(801, "oak", size=12.5), pot(802, "elm")])
    data = {"Tap.pot": [801, 802]}
    eventually(lambda: server.query(["State.species"], data).json() == {"State.species": ["oak", "elm"]}, server.said)
    features = {"species": "String", "size": "Float64", "big": "Bool", "count": "Int64"}
    request = {"view": "State", "entity": "pot", "features": features, "rows": [801, 802, 803]}
    url = str(server.settings.server.url)
    command = [environment() / "python", CLIENT, tmp_path, url, json.dumps(request)]
    done = subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    expected = {
        "species": ["oak", "elm", "fern"],
        "size": [12.5, None, None],
        "big": [True, False, False],
        "count": [0, 0, 0],
    }
    assert found["plain"] == {"pot": [801, 802, 803], **expected}
    assert found["full"] == {"pot": [801, 802, 803], **{f"State__{name}": values for name, values in expected.items()}}
