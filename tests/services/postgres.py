"""A private Postgres server for tests that kill it or need its log of changes: on a free port, with its own folder.

Tests that only need a database have the fixture `postgres`, whose server all tests share.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from caraway.apps.stack import ports
from caraway.apps.stack.postgres import EmbeddedPostgres
from caraway.process.children.process import start, stop
from tests.timeouts import deadline_in

# Changes can be captured from the log.
SETTINGS = {"wal_level": "logical", "max_replication_slots": "10", "max_wal_senders": "10"}


class Postgres:
    """A server whose superuser is in its URL. It can be killed, and started again on its data."""

    def __init__(self, folder: Path) -> None:
        self._part = EmbeddedPostgres(folder, ports.choose())
        self._config = folder / "cluster" / "postgresql.conf"
        self._log = folder / "postgres.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        return self._part.port or 0

    @property
    def url(self) -> str:
        """The address of the server's first database, with user and password."""
        return self._part.url

    @property
    def pid(self) -> int:
        """The number of the server's first process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the server on its data, and wait until it answers."""
        self._part.prepare()
        lines = {f"{name} = {value}" for name, value in SETTINGS.items()}
        if missing := sorted(lines - set(self._config.read_text().splitlines())):
            with self._config.open("a") as file:
                file.write("\n".join(("", *missing, "")))
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._process = start(self._part.launch(), self._log, self._part.stop_signal)
        deadline = deadline_in(self._part.start_seconds)
        while self._part.check(self._process.pid) is not None:
            assert self._process.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.02)

    def kill(self) -> None:
        """End all processes of the server as kill -9 does."""
        if self._process is None or self._process.poll() is not None:
            return
        end_all(self._process.pid)
        self._process.wait()

    def stop(self) -> None:
        """End the server in order."""
        if self._process is not None and self._process.poll() is None:
            stop(self._process, self._part.stop_signal, self._part.stop_seconds)

    def said(self) -> str:
        """Return the end of the server's log."""
        return self._log.read_text(errors="replace")[-4000:]


def end_all(pid: int) -> None:
    """Kill all processes of a server, given its first one, and wait until all others have ended."""
    parent = psutil.Process(pid)
    # The first process can't start others while its processes end: they would hold the memory that they share, so that
    # a server that is started again refuses its data.
    parent.suspend()
    children = parent.children(recursive=True)
    for process in (*children, parent):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    deadline = deadline_in(10)
    while any(map(_lives, children)):
        assert time.monotonic() < deadline, "the processes of a server don't end"
        time.sleep(0.01)


def _lives(process: psutil.Process) -> bool:
    """Return whether a process hasn't ended; one that has may still wait for somebody to ask for its status."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextmanager
def running_postgres(folder: Path) -> Iterator[Postgres]:
    """Run a server until the block ends."""
    server = Postgres(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
