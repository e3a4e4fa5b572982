"""Runners that are stopped after each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from caraway.process.children.part import PartStatus
from caraway.process.children.runner import Runner
from tests.unit.process.children.fake_parts import FakePart, RunPart, Watched


@pytest.fixture
def run_part(tmp_path: Path) -> Iterator[RunPart]:
    """Start runners that are stopped after the test."""
    started: list[Watched] = []

    def run(part: FakePart) -> Watched:
        history: list[PartStatus] = []
        runner = Runner(part, tmp_path / f"{part.name}.log", may_start=lambda: True, on_change=history.append)
        watched = Watched(runner, history)
        started.append(watched)
        runner.start()
        return watched

    yield run
    for watched in started:
        watched.stop()
