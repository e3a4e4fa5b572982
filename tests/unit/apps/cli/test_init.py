"""The project that `caraway init` makes: its own test passes, its files are clean, and no file is overwritten."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from caraway.apps.cli import app
from caraway.apps.cli.init import TEMPLATES
from tests.timeouts import scaled

runner = CliRunner()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "My Shop"
    made = runner.invoke(app, ["init", str(folder)])
    assert made.exit_code == 0, made.output
    assert {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()} == set(TEMPLATES)
    return folder


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Settings of the surrounding test run must not reach the inner one.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=project,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=scaled(240),
    )


@pytest.mark.slow
def test_the_test_of_the_project_passes(project: Path) -> None:
    found = run(project, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert found.returncode == 0, found.stdout + found.stderr
    assert "1 passed" in found.stdout


def test_a_clone_has_what_a_project_needs(project: Path) -> None:
    there = f'. "{sys.prefix}/bin/activate" && command -v caraway pytest ruff'
    found = subprocess.run(["bash", "-c", there], cwd=project, capture_output=True, text=True, check=False)
    assert found.stdout.split() == [f"{sys.prefix}/bin/{name}" for name in ("caraway", "pytest", "ruff")], found.stderr


def test_what_comes_next_needs_no_program_that_may_be_missing(tmp_path: Path) -> None:
    made = runner.invoke(app, ["init", str(tmp_path / "shop")])
    assert "README.md, from the unit test to a first query" in made.output
    assert "`pytest`" not in made.output


def test_the_files_are_clean(project: Path) -> None:
    for arguments in (("check",), ("format", "--check")):
        found = run(project, "-m", "ruff", *arguments, "--no-cache", ".")
        assert found.returncode == 0, found.stdout + found.stderr


def test_the_project_has_the_name_of_its_folder(project: Path) -> None:
    settings = tomllib.loads((project / "pyproject.toml").read_text())
    assert settings["project"]["name"] == "my-shop"
    assert settings["project"]["dependencies"] == ["caraway[cli]"]
    assert (project / "README.md").read_text().startswith("# my-shop\n")


def test_no_file_is_overwritten(project: Path) -> None:
    (project / "features.py").write_text("mine")
    again = runner.invoke(app, ["init", str(project)])
    assert again.exit_code == 1
    assert "features.py" in again.output
    assert "already" in again.output
    assert (project / "features.py").read_text() == "mine"
