"""The commands in the README of a new project, and the query by curl for it, print what their pages show."""

import os
import re
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from typer.testing import CliRunner

from caraway.apps.cli import app
from caraway.client import Client
from tests.documented_commands import RUN_BY
from tests.integration.jobs import running_jobs
from tests.integration.server.server_process import ServerProcess
from tests.markdown import DOCS, console_commands, matches
from tests.timeouts import scaled

BRANCH = "newcomer"
NAME = "tests/integration/server/test_init_project.py::test_the_readme_of_a_new_project"


def test_the_readme_of_a_new_project(server: ServerProcess, spark: SparkSession, tmp_path: Path) -> None:
    project = tmp_path / "shop"
    assert CliRunner().invoke(app, ["init", str(project)]).exit_code == 0
    commands = list(console_commands(project / "README.md"))
    # Other tests start stacks, install the wheel, and run the project's own test.
    elsewhere = tuple(command for command, test in RUN_BY.items() if test != NAME)
    here = [(command, shown) for command, shown in commands if not command.startswith(elsewhere)]
    assert {command.split()[0] for command, _ in commands if (command, _) not in here} == {
        *("caraway", "pip", "pytest", "python3")
    }
    queries = [shown for command, shown in here if command.startswith("caraway query")]
    assert [re.search(r"^1 +2 +20\.0$", shown, re.MULTILINE) is not None for shown in queries] == [True]
    [(curl, answer)] = console_commands(DOCS / "guides" / "serving.md")
    at = str(server.settings.server.url)
    here.append((curl.replace("http://127.0.0.1:8100", at) + f" -sS -H 'X-CARAWAY-BRANCH: {BRANCH}'", answer))
    # The server of tests asks for no token; a stack's is in this file.
    (project / "caraway-data" / "run").mkdir(parents=True)
    (project / "caraway-data" / "run" / "token").write_text("none")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "CARAWAY_URL": str(server.settings.server.url),
        "CARAWAY_BRANCH": BRANCH,
        "COLUMNS": "200",
    }
    with running_jobs(server.settings, spark), Client(str(server.settings.server.url), branch=BRANCH) as client:
        client.init_branch(BRANCH)
        # One shell runs them all, since a later command uses a variable of an earlier one.
        marks = [f"--- {number}" for number in range(len(here))]
        lines = [line for mark, (command, _) in zip(marks, here, strict=True) for line in (f"echo '{mark}'", command)]
        done = subprocess.run(
            ["bash", "-e"],
            input="\n".join(lines),
            cwd=project,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=scaled(240),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        printed = re.split(r"^--- \d+\n", done.stdout, flags=re.MULTILINE)[1:]
        for (command, shown), output in zip(here, printed, strict=True):
            assert not shown or matches(output, shown), f"{command}\n{output}"
        client.delete_branch(BRANCH)
