"""A server process of another program, which tests start, stop and kill."""

import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import ClassVar

import httpx2

from tests.timeouts import deadline_in, scaled
from tests.tls import TLS


class ServerProcess(ABC):
    """A server whose log is a file, and which may be started again on its data."""

    # The longest time, in seconds, until it answers after a start, and until it has ended after a stop.
    start_s: ClassVar = 60.0
    stop_s: ClassVar = 30.0

    def __init__(self, log_file: Path, *, working_folder: Path | None = None) -> None:
        """Prepare to start.

        Args:
            log_file: The file of its log, in a folder that exists when it starts.
            working_folder: The working folder of the process; None for that of the tests.
        """
        self.log_file = log_file
        self._working_folder = working_folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Start the server on its data, and wait until it answers."""
        command, environment = self.command()
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *options],
                env=environment,
                cwd=self._working_folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = deadline_in(self.start_s)
        while not self._answers():
            assert self._process.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        """The number of the server's process."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """End the server as kill -9 does."""
        if self._process is not None:
            self._process.send_signal(SIGKILL)
            self._process.wait()

    def stop(self) -> None:
        """End the server in order."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(SIGTERM)
            try:
                self._process.wait(scaled(self.stop_s))
            except subprocess.TimeoutExpired:
                self.kill()

    def said(self) -> str:
        """Return the end of the server's log."""
        return self.log_file.read_text(errors="replace")[-4000:]

    @abstractmethod
    def command(self) -> tuple[Sequence[str], Mapping[str, str] | None]:
        """Return the command that starts the server, and its environment; None for that of the tests."""

    @abstractmethod
    def _answers(self) -> bool:
        """Return whether the server can be used."""


class KillableServer(ServerProcess):
    """A server that answers to HTTP."""

    def __init__(self, command: Callable[[], Sequence[str]], address: str, log_file: Path) -> None:
        """Prepare to start.

        Args:
            command: Returns the command that starts it.
            address: The URL at which it answers.
            log_file: The file of its log, in a folder that exists.
        """
        super().__init__(log_file)
        self.address = address
        self._command = command

    def command(self) -> tuple[Sequence[str], None]:
        """Return the command that starts the server, which has the environment of the tests."""
        return self._command(), None

    def _answers(self) -> bool:
        try:
            httpx2.get(self.address, verify=TLS)
        except httpx2.TransportError:
            return False
        return True
