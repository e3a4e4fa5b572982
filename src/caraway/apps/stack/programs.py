"""The parts that run Caraway's own code: engine, server and archive, each a Python module started as a process."""

import sys
from pathlib import Path

from typing_extensions import override

from caraway.apps.stack.probe import check_engine, check_http
from caraway.process.children.part import Launch, Part
from caraway.process.settings.settings import Settings


class EngineProgram(Part):
    """The engine: a Spark driver. It waits for Postgres and Kafka by itself while Spark starts."""

    name = "engine"
    needs = frozenset({"postgres", "kafka"})
    # In this time each job writes a last checkpoint.
    stop_seconds = 30.0
    start_seconds = 180.0

    def __init__(self, folder: Path, settings: Settings, heartbeat: Path) -> None:
        self._folder = folder
        self._settings = settings
        self._heartbeat = heartbeat

    @override
    def prepare(self) -> None:
        """Remove the last engine's heartbeat."""
        self._heartbeat.unlink(missing_ok=True)

    @override
    def launch(self) -> Launch:
        """Return the command that runs the module."""
        return _python("caraway.dataplane.streams.engine", self._folder, self._settings)

    @override
    def check(self, pid: int) -> str | None:
        """Return why the engine isn't ready, or None if it is."""
        return check_engine(self._heartbeat, pid)


class ServerProgram(Part):
    """`python -m caraway.apps.server`: ingest, query and control over HTTP."""

    name = "server"
    after = needs = frozenset({"postgres", "kafka"})
    stop_seconds = 15.0
    start_seconds = 90.0

    def __init__(self, folder: Path, settings: Settings, port: int) -> None:
        self.port = port
        self._folder = folder
        self._settings = settings

    @override
    def launch(self) -> Launch:
        """Return the command that runs the module."""
        return _python("caraway.apps.server", self._folder, self._settings)

    @override
    def check(self, pid: int) -> str | None:
        """Return why the server isn't ready, or None if it is."""
        server = self._settings.server
        return check_http(server.url or "", server.admin_token_file, server.certificate_file)


class ArchiveProgram(Part):
    """`python -m caraway.dataplane.archive`: the records of all topics as tables in the object store."""

    name = "archive"
    after = needs = frozenset({"postgres", "kafka"})
    # In this time the rows that wait are written to their tables.
    stop_seconds = 15.0

    def __init__(self, folder: Path, settings: Settings) -> None:
        self._folder = folder
        self._settings = settings

    @override
    def launch(self) -> Launch:
        """Return the command that runs the module."""
        return _python("caraway.dataplane.archive", self._folder, self._settings)


def _python(module: str, folder: Path, settings: Settings) -> Launch:
    environment = {
        **settings.environment(),
        # Python doesn't buffer its output, so that a log has all of it even if the process is killed.
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
    }
    return Launch(command=(sys.executable, "-m", module), folder=folder, environment=environment)
