"""`caraway init`: a new project with definitions, a test, checks before a commit to git and a workflow for CI."""

import re
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from caraway.apps.cli.options import command
from caraway.apps.cli.output import out
from caraway.errors import ConflictError

PACKAGE = "caraway.apps.cli.project"
# The template of each file of the project.
TEMPLATES = {
    "features.py": "features.py.template",
    "test_features.py": "test_features.py.template",
    "pyproject.toml": "pyproject.toml.template",
    "README.md": "README.md.template",
    ".gitignore": "gitignore.template",
    ".pre-commit-config.yaml": "pre-commit-config.yaml.template",
    ".github/workflows/features.yaml": "workflow.yaml.template",
}
# Files in which `{name}` stands for the name of the project, and `{version}` for the version of Caraway.
NAMED = {"pyproject.toml", "README.md"}


@command
def init(
    folder: Annotated[Path, typer.Argument(help="The folder; it is made if it isn't there.", metavar="DIR")] = Path(),
) -> None:
    """Make a project with definitions, a unit test, pre-commit checks and a workflow for CI. It overwrites no file."""
    folder = folder.absolute()
    present = [name for name in TEMPLATES if (folder / name).exists()]
    if present:
        raise ConflictError(f"{folder} has {', '.join(present)} already; choose a folder without, or move them away")
    name = re.sub(r"[^a-z0-9]+", "-", folder.name.lower()).strip("-") or "features"
    for target, template in TEMPLATES.items():
        text = (files(PACKAGE) / template).read_text(encoding="utf-8")
        path = folder / target
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            named = text.format(name=name, version=version("caraway")) if target in NAMED else text
            path.write_text(named, encoding="utf-8")
        except OSError as error:
            raise ConflictError(f"{path} can't be written: {error.strerror}") from error
    out.print(f"Made a project in {folder}:", markup=False, soft_wrap=True)
    for target in TEMPLATES:
        out.print(f"  {target}", markup=False)
    out.print("Next: the commands of its README.md, from the unit test to a first query")
