"""Rules for all commands: JSON for programs, completion in the shell, the example of a pipeline in CI."""

import re
import shlex
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from caraway.apps.cli import app
from caraway.apps.cli.commands import SECTIONS
from caraway.apps.cli.lazy import LazyGroup

runner = CliRunner()
ROOT = typer.main.get_command(app)
WORKFLOW = Path(__file__).parents[4] / "examples" / "github-actions" / "caraway.yml"
# These commands have no result but a sentence that they are done, or they run until they are ended.
WITHOUT_JSON = {
    "up",
    "down",
    "jars",
    "init",
    "mcp",
    "demo",
    "login",
    "logout",
    "branch create",
    "branch clone",
    "branch delete",
    "secrets set",
    "secrets delete",
    "secrets rotate",
    "logs",
    "tokens revoke",
    "tokens sign-out",
    "roles define",
    "roles delete",
    "roles give",
    "roles take",
}


def commands(command: object = ROOT, names: tuple[str, ...] = ()) -> Iterator[tuple[str, set[str]]]:
    """Yield all commands, each with its options."""
    below = getattr(command, "commands", {})
    for name in below:
        found = command.load(name) if isinstance(command, LazyGroup) else below[name]
        yield from commands(found, (*names, name))
    if not below:
        yield " ".join(names), {option for parameter in command.params for option in parameter.opts}  # type: ignore[attr-defined]


def test_commands_with_results_take_json() -> None:
    assert {name for name, options in commands() if "--json" not in options} == WITHOUT_JSON


def test_the_page_of_help_lists_each_command_with_one_sentence() -> None:
    page = runner.invoke(app, ["--help"], env={"COLUMNS": "120"}).output
    for section in SECTIONS:
        assert f"{section.title}:" in page
        for listed in section.commands:
            assert re.search(rf"^  {listed.name} +{re.escape(listed.summary)}$", page, re.MULTILINE), listed.name
            assert re.fullmatch(r"[A-Z][^.]*\.", listed.summary), listed.summary


@pytest.mark.parametrize("name", [listed.name for section in SECTIONS for listed in section.commands])
def test_each_command_has_a_page_of_its_own(name: str) -> None:
    page = runner.invoke(app, [name, "--help"])
    assert page.exit_code == 0, page.output
    assert page.output.startswith(f"Usage: caraway {name} ")


def test_an_unknown_command_is_refused_with_similar_names() -> None:
    told = runner.invoke(app, ["statsu"])
    assert told.exit_code == 2
    assert "Did you mean 'status'" in told.output


@pytest.mark.parametrize("command", ["audit", "secrets rotate"])
def test_a_command_whose_library_is_missing_says_what_to_install(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # With `None` in its place, importing the module raises ModuleNotFoundError.
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    for module in [name for name in sys.modules if name.startswith("caraway.apps.cli.")]:
        if module.endswith((".audit", ".database", ".secret_rotation")):
            monkeypatch.delitem(sys.modules, module)
    told = runner.invoke(app, command.split())
    assert told.exit_code != 0
    assert f"caraway {command} needs sqlalchemy, which comes with: pip install 'caraway[server]'" in str(told.exception)


def test_the_version() -> None:
    told = runner.invoke(app, ["--version"])
    assert told.output == f"caraway {version('caraway')}\n"


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("caraway led", {"ledger"}),
        ("caraway branch cl", {"clone"}),
        ("caraway ledger --cl", {"--closed"}),
        ("caraway se", {"secrets"}),
        ("caraway --vers", {"--version"}),
    ],
)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_commands_and_options(shell: str, typed: str, offered: set[str]) -> None:
    words = {
        "bash": {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": typed},
        "fish": {"_TYPER_COMPLETE_ARGS": typed, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }
    told = runner.invoke(app, [], env={"_CARAWAY_COMPLETE": f"complete_{shell}", **words[shell]}, prog_name="caraway")
    found = set(re.findall(r"--?[\w-]+|\b[a-z]+\b", told.output))
    assert offered <= found, told.output


def test_the_script_for_the_shell_is_printed() -> None:
    told = runner.invoke(app, [], env={"_CARAWAY_COMPLETE": "source_bash"}, prog_name="caraway")
    assert told.exit_code == 0
    assert "_CARAWAY_COMPLETE=complete_bash" in told.output


def test_the_example_for_github_uses_commands_that_there_are() -> None:
    lines = [found[1] for found in re.finditer(r"^\s*-? ?run: (.*)$", WORKFLOW.read_text(), re.MULTILINE)]
    used = [found[1] for line in lines for found in re.finditer(r"\bcaraway ([a-z][^;]*)", line)]
    assert [command.split()[0] for command in used] == ["preview", "commit", "ledger"]
    known = dict(commands())
    for command in used:
        name, *rest = shlex.split(command)
        assert {word for word in rest if word.startswith("-")} <= known[name], command
        # With --help, options and arguments are parsed and nothing is done.
        read = runner.invoke(app, [name, *rest, "--help"])
        assert read.exit_code == 0, read.output
