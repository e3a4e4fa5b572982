"""The output of an explained query, and the choice of the `explain` command."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from caraway.apps.cli import app, explain_query
from caraway.apps.cli.explain_query import picture
from caraway.compute.query.explain import analyze, explain
from tests.unit.compute.query import garden
from tests.unit.compute.query.garden import DictReader

runner = CliRunner()
PLAN = garden.engine(DictReader({})).plan(["Tap.pot"], ["State.big", "State.advice"])


def drawn(explained: object) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(picture(msgspec.to_builtins(explained)))
    return capture.get()


def test_a_plan_is_drawn_with_its_steps() -> None:
    text = drawn(explain(PLAN))
    for expected in (
        "given Tap.pot: int",
        "index read Pots by pot",
        "State.advise",
        "State.species, State.big ->",
        "after",
    ):
        assert expected in text
    assert " ms" not in text


def test_a_run_is_drawn_with_times() -> None:
    text = drawn(analyze(PLAN, {"Tap.pot": [1]}, None, runs=3))
    assert "1 row, 3 runs: median" in text
    assert sum(" ms, " in line and line.endswith("%") for line in map(str.rstrip, text.splitlines())) >= 5


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    bodies: list[dict[str, Any]] = []

    def ask(*_: object, body: dict[str, Any], **__: object) -> object:
        bodies.append(body)
        return msgspec.to_builtins(explain(PLAN))

    monkeypatch.setattr(explain_query, "ask", ask)
    return bodies


def test_inputs_are_those_that_are_given(asked: list[dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('[{"Tap.pot": 3}]')
    given = (["--input", '{"Tap.pot": [1]}'], ["--input", str(tmp_path / "rows.json")], ["--with", "Tap.pot=5"])
    for options in (*given, ["--supplied", "Tap.pot"]):
        arguments = ["explain", "query", "State.big", *options, "--runs", "2", "--url", "http://x", "--json"]
        result = runner.invoke(app, arguments)
        assert result.exit_code == 0, result.output
        assert json.loads(result.output)["steps"]
    assert [body["inputs"] for body in asked] == [["Tap.pot"]] * 4
    assert [body.get("data") for body in asked] == [[{"Tap.pot": 1}], [{"Tap.pot": 3}], [{"Tap.pot": "5"}], None]
    assert {body["runs"] for body in asked} == {2}


@pytest.mark.parametrize(("given", "expected"), [("{", "isn't JSON"), ("/nowhere/at/all.json", "can't be read")])
def test_what_can_not_be_read_is_reported(asked: list[dict[str, Any]], given: str, expected: str) -> None:
    result = runner.invoke(app, ["explain", "query", "State.big", "-i", given, "--url", "http://x"])
    assert result.exit_code == 1
    assert expected in result.output
    assert not asked


@pytest.mark.parametrize("command", ["query", "lookup", "why", "erase", "explain query"])
def test_all_commands_about_a_row_have_the_same_words_for_it(command: str) -> None:
    shown = runner.invoke(app, [*command.split(), "--help"], env={"COLUMNS": "200"}).output
    options = set(re.findall(r"--?[a-z][a-z-]*", shown))
    assert {"--with", "-w"} <= options
    assert ("--input" in options) == (command != "why")
    assert not options & {"--key", "--given", "--file"}


def test_without_a_word_the_plan_of_definitions_is_meant(tmp_path: Path) -> None:
    for arguments in (["explain"], ["explain", "plan"], ["explain", "--json"]):
        result = runner.invoke(app, [*arguments, "--data", str(tmp_path)])
        assert result.exit_code == 1
        assert "no stack runs in" in result.output
    assert "query" in runner.invoke(app, ["explain", "--help"]).output
