"""Fixtures: a server of each test's own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.archive.conftest import archive_of
from tests.integration.server.server_process import ServerProcess

__all__ = ["archive_of"]


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of temporary files of the processes that the test starts."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture
def server(kafka: str, postgres: str, tmp_path: Path, scratch: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path / "server", kafka=kafka, postgres=postgres)
    process.start()
    yield process
    process.kill()
    process.http.close()
