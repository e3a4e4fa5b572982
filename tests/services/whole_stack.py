"""A whole stack that is started by `caraway up` as a user starts it, and whose processes can be killed all at once."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import psutil

from caraway.apps.stack.folder import DataFolder
from caraway.apps.stack.kafka import EMBEDDED
from caraway.apps.stack.record import read_record
from caraway.client import Client
from caraway.client.discovery import TOKEN
from caraway.dataplane.topics.credentials import sign_in
from caraway.process.settings.kafka import KafkaSettings
from tests.timeouts import scaled
from tests.tls import TLS

READY = "Caraway is ready at"
START_S = 180.0


class WholeStack:
    """A running stack.

    Attributes:
        url: Its server.
        http: A client of its API, with the stack's token.
        kafka: Its broker, at which this process has signed in.
    """

    def __init__(self, folder: Path, up: "subprocess.Popen[str]") -> None:
        record = read_record(DataFolder(folder).record)
        assert record is not None
        self._up = up
        self.url, self._token = record.urls["server"], (folder / TOKEN).read_text().strip()
        password = (folder / "kafka" / "password").read_text()
        self.kafka = sign_in(
            KafkaSettings.model_validate({"bootstrap_servers": record.urls["kafka"], "password": password, **EMBEDDED})
        )
        self.http = httpx2.Client(
            base_url=f"{self.url}/api/v1",
            headers={"Authorization": f"Bearer {self._token}"},
            timeout=scaled(60),
            trust_env=False,
            verify=TLS,
        )

    def client(self) -> Client:
        """Return a client of the server."""
        return Client(self.url, token=self._token)

    def get(self, path: str) -> Any:
        """Return what the API answers."""
        return self.http.get(path).raise_for_status().json()

    def topic(self, name: str) -> str:
        """Return the topic of a dataset."""
        topics: list[dict[str, str]] = self.get("/status")["topics"]
        return next(topic["name"] for topic in topics if topic["dataset"] == name)

    def kill(self) -> None:
        """Kill all processes at once."""
        _kill_all(self._up)


def _kill_all(up: "subprocess.Popen[str]") -> None:
    # The supervisor is the first, since it would start the others again.
    for process in [psutil.Process(up.pid), *psutil.Process(up.pid).children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    up.wait()


@contextmanager
def whole_stack(folder: Path, settings: dict[str, str]) -> Iterator[WholeStack]:
    """Start a stack in a folder; it is killed in the end, if it wasn't before.

    Args:
        folder: The data folder.
        settings: More variables of the environment.
    """
    program = [sys.executable, "-m", "caraway.apps.cli", "up", "--data", str(folder)]
    known = {**os.environ, **settings, "PYTHONUNBUFFERED": "1"}
    said: list[str] = []
    with subprocess.Popen(program, env=known, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as up:
        assert up.stdout is not None
        stack = None
        # The reading of its output has no limit.
        limit = threading.Timer(scaled(START_S), up.kill)
        limit.start()
        try:
            while not (line := up.stdout.readline()).startswith(READY):
                said.append(line)
                assert line, f"it ended with code {up.wait()}:\n{''.join(said)}"
            limit.cancel()
            # It goes on telling what its parts do.
            threading.Thread(target=up.stdout.read, daemon=True).start()
            stack = WholeStack(folder, up)
            yield stack
        finally:
            limit.cancel()
            if stack is not None:
                stack.http.close()
            if up.poll() is None:
                _kill_all(up)
