"""Tests that the commands of docs/guides/cli.md, run in their order, print the text that the page shows."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from caraway.apps.cli import app
from caraway.client import Client
from tests.integration.server.server_process import ServerProcess, eventually
from tests.markdown import DOCS, blocks, console_commands, matches

PAGE = DOCS / "guides" / "cli.md"
BRANCH = "documented"
runner = CliRunner()


def test_the_matcher_sees_differences() -> None:
    assert matches("a 1\nb\nc\n", "a …\n…\nc\n")
    assert not matches("a 1\nb\n", "a …\n…\nc\n")
    assert not matches("[x]\n", "[y]\n")
    assert matches("id     at\n1-234  x\n", "id   at\n…-…  x\n")
    assert not matches("a b\n", "a  b\n")


def test_the_page(server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (definitions,) = blocks(PAGE)
    (tmp_path / "users.py").write_text(definitions.code)
    monkeypatch.chdir(tmp_path)
    url = str(server.settings.server.url)
    monkeypatch.setenv("CARAWAY_URL", url)
    monkeypatch.setenv("CARAWAY_BRANCH", BRANCH)
    monkeypatch.setenv("COLUMNS", "200")
    with Client(url, branch=BRANCH) as client:
        client.init_branch(BRANCH)
        for command, shown in console_commands(PAGE):
            name, *arguments = shlex.split(command)
            assert name == "caraway"
            if "main" in shown:
                shown = re.sub(r"\b(on|branch) main\b", rf"\1 {BRANCH}", shown)  # noqa: PLW2901 (the page is about main)
            printed: list[str] = []

            def done(arguments: list[str] = arguments, shown: str = shown, printed: list[str] = printed) -> bool:
                printed[:] = [runner.invoke(app, arguments).output]
                return matches(printed[0], shown)

            if arguments[0] in {"query", "lookup", "datasets", "features", "describe", "freshness"}:
                # Rows are served, and datasets measured, a moment after they are durable or committed.
                eventually(done, lambda command=command, printed=printed: f"{command}\n{printed[0]}")  # type: ignore[misc]
            else:
                assert done(), f"{command}\n{printed[0]}"
        client.delete_branch(BRANCH)
