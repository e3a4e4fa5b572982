"""Programs start alike, and end with a line and a code that say why."""

import os
from collections.abc import Iterator

import pytest

from caraway.errors import CarawayError, InvalidInputError, UnavailableError
from caraway.process.program import database_url, run_program
from caraway.process.settings.errors import ConfigurationError
from caraway.process.settings.settings import Settings


@pytest.fixture(autouse=True)
def mask() -> Iterator[None]:
    """Restore the mask of files that a program sets for its process."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


def _no_logs(_: str) -> None:
    pass


def test_a_program_gets_the_settings_and_its_code_is_that_of_the_process() -> None:
    seen: list[tuple[type, int]] = []

    def run(settings: Settings) -> int:
        mask = os.umask(0o077)
        seen.append((type(settings), mask))
        return 7

    assert run_program("archive", run, log=_no_logs) == 7
    assert seen == [(Settings, 0o077)], "files of a program are readable by its user alone"


@pytest.mark.parametrize(
    ("error", "code"), [(InvalidInputError("a wrong place"), 1), (UnavailableError("no broker"), 75)]
)
def test_an_error_is_a_line_with_the_name_of_the_program(
    error: CarawayError, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_: Settings) -> int:
        raise error

    assert run_program("offline query 1", run, log=_no_logs, unavailable=75) == code
    assert capsys.readouterr().err == f"offline query 1: {error}\n"


def test_a_setting_that_is_no_setting_ends_the_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CARAWAY_LOG_LEVEL", "loudly")
    assert run_program("engine", lambda _: 0, log=_no_logs) == 1
    assert capsys.readouterr().err.startswith("engine: ")


def test_a_program_without_a_database_says_which_setting_names_it() -> None:
    with pytest.raises(ConfigurationError, match=r"postgres\.url: the archive .* CARAWAY_POSTGRES__URL"):
        database_url(Settings(), "the archive")
