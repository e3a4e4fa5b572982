"""Every shell command of the documentation is run by a test, or names only what there is."""

import re
from pathlib import Path

import pytest

from tests.documented_commands import PAGES, README_OF_PROJECTS, ROOT, RUN_BY, Documented, commands_of, problem

WORKFLOWS = (
    ROOT / "examples" / "github-actions" / "caraway.yml",
    ROOT / "src" / "caraway" / "apps" / "cli" / "project" / "workflow.yaml.template",
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_are_run_by_tests_or_name_only_what_there_is(page: Path) -> None:
    found = [f"{command}: {wrong}" for command in commands_of(page) if (wrong := problem(command))]
    assert found == [], "\n".join(found)


@pytest.mark.parametrize("known", RUN_BY, ids=str)
def test_the_tests_that_run_commands_exist_and_are_needed(known: str) -> None:
    file, _, name = RUN_BY[known].partition("::")
    assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), RUN_BY[known]
    assert any(command.text.startswith(known) for page in PAGES for command in commands_of(page)), "no page has it"


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda workflow: workflow.name)
def test_workflows_install_the_wheel(workflow: Path) -> None:
    lines = re.findall(r"run: (pip install .*)", workflow.read_text())
    assert lines
    assert [line for line in lines if not line.startswith('pip install "$(ls wheels/caraway-*.whl)[cli]"')] == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("caraway frobnicate", "caraway has no command frobnicate"),
        ("caraway branch frobnicate", "caraway branch has no command frobnicate"),
        ("caraway query User --wiht User.user=1", "caraway query: No such option: --wiht"),
        ("caraway commit features.py", "Missing parameter: message"),
        ("./run statsu", "caraway has no command statsu"),
        ("./run just chekc", "there is no recipe chekc"),
        ("just soak 1 2 3", "soak takes 2"),
        ("just bench offlin", "there is no benchmark offlin"),
        ("python -m bench offline --yaers 1", "bench/offline.py has no option --yaers"),
        ("python bench/qeury.py", "there is no file bench/qeury.py"),
        ("python -m caraway.nothing", "there is no program caraway.nothing"),
        ("CARAWAY_TESTS=full pytest tests/nowhere", "there is no tests/nowhere"),
        ('pip install "caraway[server]"', "on no package index"),
        ("pip install 'caraway[postgers]'", "Caraway has no extra postgers"),
        ("caraway status && kubectl apply -f x", "no test runs `kubectl`"),
        ("make install", "RUN_BY in tests/documented_commands.py"),
    ],
)
def test_what_is_wrong_with_a_command_is_named(text: str, wrong: str) -> None:
    assert wrong in problem(Documented(page=ROOT / "README.md", line=1, text=text, block=True))


def test_commands_are_found_in_blocks_and_in_the_text(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Run `caraway status --json`, not `caraway`.\n\n```console\n$ ./run up  # a stack\nready\n```\n\n"
        "```bash\n# first\npytest tests\n```\n\n```text\n$ caraway drift\nfield\n```\n\n    python -m bench floors\n"
    )
    assert [(command.line, command.text) for command in commands_of(page)] == [
        (4, "./run up  # a stack"),
        (10, "pytest tests"),
        (14, "caraway drift"),
        (1, "caraway status --json"),
        (18, "python -m bench floors"),
    ]
    assert len(commands_of(README_OF_PROJECTS)) > 5
