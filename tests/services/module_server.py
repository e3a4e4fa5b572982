"""Servers of tests in processes of their own, which can be killed, and started again on their data."""

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import httpx

from caraway.stack import ports
from tests.timeouts import deadline_in


class ModuleServer:
    """A module of the tests that is run as `python -m MODULE PORT FOLDER`, and answers HTTP requests on its port."""

    module: str

    def __init__(self, folder: Path) -> None:
        """Choose a port; the data is in a folder, which is made."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = ports.choose()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        command = [sys.executable, "-m", self.module, str(self.port), str(self.folder)]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = deadline_in(30)
        while True:
            assert self._process.poll() is None, (self.folder / "log").read_text()[-4000:]
            assert time.monotonic() < deadline
            with suppress(httpx.HTTPError):
                # Any answer will do.
                httpx.get(f"http://127.0.0.1:{self.port}/session", timeout=2)
                return
            time.sleep(0.05)

    def kill(self) -> None:
        """End the server as kill -9 does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    stop = kill
