"""The server's processes for offline queries, with programs that end at once."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from caraway.apps.server import offline_runner
from caraway.apps.server.offline_runner import FULL_SECONDS, LOOK_SECONDS, PAUSE_SECONDS, OfflineRunner
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.process.children.ending import LATER
from caraway.process.children.forking import ForkServer


class Queries:
    """Queries that wait for ever."""

    def __init__(self, *ids: str) -> None:
        self._ids = ids

    def waiting(self) -> list[Any]:
        return [SimpleNamespace(id=query_id) for query_id in self._ids]

    def release(self, query_id: str, process: str) -> None:
        assert query_id in self._ids
        assert process


class Runs:
    """A runner, and which queries it began."""

    def __init__(self, folder: Path, *ids: str, processes: int = 1) -> None:
        self.now = 0.0
        self.begun: list[str] = []
        self.forks = ForkServer([offline_runner.PROGRAM])
        self.runner = OfflineRunner(
            Queries(*ids),  # type: ignore[arg-type]  # the methods that a look calls
            ObjectFolder(str(folder)),
            forks=self.forks,
            processes=processes,
            kept=timedelta(days=1),
            environment={},
            scratch=folder,
            started=lambda query, _: self.begun.append(query),
            clock=lambda: self.now,
        )

    def look(self) -> None:
        """Call the runner's look, after all processes that it began have ended."""
        for process in self.runner._running.values():
            process.wait()
        self.runner._look()


Begin = Callable[..., Runs]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    with ExitStack() as stack:

        def make(*ids: str) -> Runs:
            runs = Runs(tmp_path, *ids)
            stack.callback(runs.runner._forks.end)
            return runs

        yield make


@pytest.fixture
def ends_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    def set_program(code: int) -> None:
        (tmp_path / "ends").mkdir()
        (tmp_path / "ends/__init__.py").touch()
        (tmp_path / "ends/__main__.py").write_text(f"if __name__ == '__main__':\n    raise SystemExit({code})\n")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setattr(offline_runner, "PROGRAM", "ends")

    return set_program


def test_a_query_that_waits_for_something_is_begun_again_after_a_pause(ends_with: Any, begin: Begin) -> None:
    ends_with(LATER)
    runs = begin("a", "b")
    runs.look()
    assert runs.begun == ["a"]
    runs.look()
    assert runs.begun == ["a", "b"], "the pause of a query doesn't concern others"
    runs.now = PAUSE_SECONDS - 0.1
    runs.look()
    assert runs.begun == ["a", "b"]
    runs.now = PAUSE_SECONDS
    runs.look()
    assert runs.begun == ["a", "b", "a"]
    runs.look()


def test_a_query_that_waits_for_a_place_is_begun_soon_after_the_one_before_has_ended(
    ends_with: Any, begin: Begin
) -> None:
    ends_with(0)
    runs = begin("a", "b")
    assert runs.runner.pause_seconds() == LOOK_SECONDS
    runs.look()
    assert runs.runner.pause_seconds() == FULL_SECONDS, "nobody wakes the runner at the end of a process"
    runs.look()
    assert len(runs.begun) == 2
    runs.look()


@pytest.mark.parametrize("code", [0, 1, 137])
def test_a_query_whose_process_died_is_begun_again_at_once(ends_with: Any, begin: Begin, code: int) -> None:
    ends_with(code)
    runs = begin("a")
    for number in range(1, 4):
        runs.look()
        assert runs.begun == ["a"] * number
    for process in runs.runner._running.values():
        process.wait()
