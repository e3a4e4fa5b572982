"""The commands as users type them, with all four parts."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from caraway.apps.stack.jars import JarSet
from tests.timeouts import scaled
from tests.tls import TLS

# The most memory that the whole stack may use at rest, in bytes.
MEMORY_BOUND = 2.5e9


@pytest.fixture(scope="module")
def data(jars: JarSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert jars.broker
    return tmp_path_factory.mktemp("commands") / "data"


def caraway(command: str, data: Path, *options: str) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-m", "caraway.apps.cli", command, "--data", str(data), *options]
    return subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=scaled(280))


def status(data: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(caraway("status", data, "--json").stdout)
    return report


@pytest.mark.timeout(600)
def test_up_in_the_background_and_down(data: Path) -> None:
    up = caraway("up", data, "--detach")
    try:
        assert up.returncode == 0, up.stdout + up.stderr
        report = status(data)
        assert report["state"] == "running"
        assert {part["name"]: part["state"] for part in report["parts"]} == dict.fromkeys(
            ("postgres", "kafka", "engine", "server", "archive"), "running"
        )
        assert report["url"] in up.stdout
        assert report["memory_bytes"] < MEMORY_BOUND
        assert httpx2.get(f"{report['url']}/api/v1/health", trust_env=False, verify=TLS).status_code == 200
        twice = caraway("up", data)
        assert twice.returncode == 1
        assert "Caraway runs already" in twice.stderr
    finally:
        down = caraway("down", data)
    assert down.returncode == 0, down.stderr
    report = status(data)
    assert report["state"] == "stopped"
    assert all(part["pid"] is None for part in report["parts"])
    assert caraway("down", data).returncode == 1


@pytest.mark.full(reason="a second start of a whole stack; the first one, in the background, is in each run")
@pytest.mark.timeout(600)
def test_up_in_the_foreground_until_ctrl_c(data: Path) -> None:
    arguments = [sys.executable, "-m", "caraway.apps.cli", "up", "--data", str(data)]
    with subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as up:
        assert up.stdout
        said = []
        for line in up.stdout:
            said.append(line)
            if line.startswith("Caraway is ready at"):
                up.send_signal(signal.SIGINT)
    assert up.returncode == 0, "".join(said)
    assert said[-1] == "Stopped. The data stays.\n"
    assert status(data)["state"] == "stopped"
