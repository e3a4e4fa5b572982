"""The commands that the demo suggests at its end."""

from pathlib import Path

import pytest

from caraway.apps.demo import command


@pytest.mark.parametrize("name", ["caraway", "./run"])
@pytest.mark.parametrize("kept", [True, False])
def test_the_suggested_commands_are_those_of_this_installation(
    name: str, kept: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CARAWAY_COMMAND", name)
    command._suggest(Path("flights"), kept=kept)
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith(f"{name} demo --months 3 ") for line in lines)
    assert any(f"{name} up --data " in line for line in lines)
