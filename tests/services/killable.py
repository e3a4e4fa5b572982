"""A server process of another program, which tests start, stop and kill."""

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from signal import SIGKILL, SIGTERM

import httpx

from tests.timeouts import deadline_in, scaled

START_S, STOP_S = 60.0, 30.0


class KillableServer:
    """A server that answers to HTTP, and whose log is a file."""

    def __init__(self, command: Callable[[], Sequence[str]], address: str, log_file: Path) -> None:
        """Prepare to start.

        Args:
            command: Returns the command that starts it.
            address: The URL at which it answers.
            log_file: The file of its log, in a folder that exists.
        """
        self.address = address
        self._command = command
        self._log_file = log_file
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(self._command(), stdout=log, stderr=log)
        deadline = deadline_in(START_S)
        while not self._answers():
            assert self._process.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.05)

    def kill(self) -> None:
        """End it as kill -9 does."""
        if self._process is not None:
            self._process.send_signal(SIGKILL)
            self._process.wait()

    def stop(self) -> None:
        """End it in order."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(SIGTERM)
            try:
                self._process.wait(scaled(STOP_S))
            except subprocess.TimeoutExpired:
                self.kill()

    def said(self) -> str:
        """Return the end of its log."""
        return self._log_file.read_text(errors="replace")[-4000:]

    def _answers(self) -> bool:
        try:
            httpx.get(self.address)
        except httpx.TransportError:
            return False
        return True
