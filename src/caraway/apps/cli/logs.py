"""`caraway logs`."""

from typing import Annotated

import typer

from caraway.apps.cli.options import command
from caraway.apps.cli.output import out
from caraway.apps.cli.server_options import DataOption
from caraway.apps.stack.folder import DataFolder
from caraway.errors import UnknownEntityError
from caraway.process.children.logs import last_lines
from caraway.process.settings.settings import load_settings


@command
def logs(
    part: Annotated[
        str | None, typer.Argument(help="A part of the stack, such as server or engine.", metavar="PART")
    ] = None,
    *,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, max=1000, help="The most lines of a log.")] = 20,
    data: DataOption = None,
) -> None:
    """Show the last lines of the logs of a stack on this machine, whether it runs or not."""
    folder = DataFolder(load_settings(data).data_dir)
    found = {path.stem: path for path in sorted(folder.logs.glob("*.log"))}
    if not found:
        raise UnknownEntityError(f"there are no logs in {folder.logs}. Another data folder is named by --data.")
    if part is not None and part not in found:
        raise UnknownEntityError(f"there is no log of {part!r}; there are those of {', '.join(found)}")
    for name, path in found.items():
        if part in {None, name}:
            out.print(f"{path}:", markup=False, soft_wrap=True)
            for line in last_lines(path, lines):
                out.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
