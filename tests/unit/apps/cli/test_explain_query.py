"""The output of an explained query, and the choice of the `explain` command."""

import json
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
    for given in ('{"Tap.pot": [1]}', f"@{tmp_path / 'rows.json'}"):
        arguments = ["explain", "query", "State.big", "--given", given, "--runs", "2", "--url", "http://x", "--json"]
        result = runner.invoke(app, arguments)
        assert result.exit_code == 0, result.output
        assert json.loads(result.output)["steps"]
    assert [body["inputs"] for body in asked] == [["Tap.pot"], ["Tap.pot"]]
    assert [body["data"] for body in asked] == [{"Tap.pot": [1]}, [{"Tap.pot": 3}]]
    assert {body["runs"] for body in asked} == {2}


@pytest.mark.parametrize("given", ["{", "@/nowhere/at/all"])
def test_what_can_not_be_read_is_reported(asked: list[dict[str, Any]], given: str) -> None:
    result = runner.invoke(app, ["explain", "query", "State.big", "-g", given, "--url", "http://x"])
    assert result.exit_code == 1
    assert "--given" in result.output
    assert not asked


def test_without_a_word_the_plan_of_definitions_is_meant(tmp_path: Path) -> None:
    for arguments in (["explain"], ["explain", "plan"], ["explain", "--json"]):
        result = runner.invoke(app, [*arguments, "--data", str(tmp_path)])
        assert result.exit_code == 1
        assert "no stack runs in" in result.output
    assert "query" in runner.invoke(app, ["explain", "--help"]).output
