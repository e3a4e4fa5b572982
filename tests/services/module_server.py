"""Modules of the tests that are servers in processes of their own, started again on their data after a kill."""

import sys
from pathlib import Path

from caraway.apps.stack import ports
from tests.services.killable import KillableServer


class ModuleServer(KillableServer):
    """A module of the tests that is run as `python -m MODULE PORT FOLDER`, and answers HTTP requests on its port."""

    module: str

    def __init__(self, folder: Path) -> None:
        """Choose a port; the data is in a folder, which is made."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = ports.choose()
        command = [sys.executable, "-m", self.module, str(self.port), str(folder)]
        super().__init__(lambda: command, f"http://127.0.0.1:{self.port}/session", folder / "log")

    def stop(self) -> None:
        """End the server, which needs no order to keep its data."""
        self.kill()
