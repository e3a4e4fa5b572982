"""Fixtures: a server of each test's own, and archives of its topics."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.archive.archive_process import ArchiveProcess
from tests.integration.server.server_process import ServerProcess, running_server

# Seconds until a record is in its table. With so few, small files are compacted every seven seconds.
SECONDS = 0.1


@pytest.fixture
def server(kafka: str, postgres: str, tmp_path: Path) -> Iterator[ServerProcess]:
    with running_server(tmp_path / "server", kafka=kafka, postgres=postgres) as process:
        yield process


@pytest.fixture
def archive_of(server: ServerProcess) -> Iterator[Callable[..., ArchiveProcess]]:
    """Yield a function that makes the archive of a node, which is killed after the test if it still runs then."""
    made: list[ArchiveProcess] = []

    def make(node: str, **options: Any) -> ArchiveProcess:
        made.append(ArchiveProcess(server.settings, seconds=SECONDS, node=node, **options))
        return made[-1]

    yield make
    for archive in made:
        if archive.lives():
            archive.kill()
