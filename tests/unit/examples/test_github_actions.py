"""The workflow for GitHub names only commands and options that there are."""

import re
import shlex
from pathlib import Path

from typer.testing import CliRunner

from caraway.apps.cli import app

WORKFLOW = Path(__file__).parents[3] / "examples" / "github-actions" / "caraway.yml"


def test_the_commands_of_the_workflow_are_known() -> None:
    lines = re.findall(r"caraway ((?:preview|commit|ledger)[^;\n]*)", WORKFLOW.read_text())
    assert [line.split()[0] for line in lines] == ["preview", "commit", "ledger"]
    runner = CliRunner()
    for line in lines:
        arguments = shlex.split(line)
        assert runner.invoke(app, [*arguments, "--help"]).exit_code == 0
        assert runner.invoke(app, [*arguments, "--no-such-option", "--help"]).exit_code == 2
