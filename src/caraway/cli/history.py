"""`caraway history`, `caraway diff` and `caraway rollback`: the history of a branch."""

from typing import Annotated

import typer
from rich.text import Text

from caraway.cli.options import command
from caraway.cli.output import out
from caraway.cli.remote import BranchOptions, JsonOption, ServerOptions, ask, show_json

MARKS = (("added", "+", "green"), ("removed", "-", "red"), ("changed", "~", "yellow"))


@command
def history(
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="How many commits.")] = 20,
    server: BranchOptions,
    as_json: JsonOption = False,
) -> None:
    """Show the commits of a branch, newest first."""
    answer = ask("GET", "/branch/log", server=server, params={"limit": str(limit)})
    if as_json:
        show_json(answer)
        return
    for commit in answer["commits"]:
        out.print(Text(f"commit {commit['id']}", style="yellow"))
        by = f" by {commit['author']}" if commit["author"] else ""
        out.print(f"{commit['created_at']}{by}, on {commit['branch']}", markup=False)
        out.print(f"    {commit['message']}", markup=False)
        for line in commit["summary"]:
            if line.partition(":")[0].endswith((" new", " changed", " removed")):
                out.print(f"      {line}", markup=False)
        out.print()


@command
def diff(
    *,
    before: Annotated[str, typer.Argument(help="A commit.", metavar="A")],
    after: Annotated[str, typer.Argument(help="The commit to compare it with.", metavar="B")],
    server: ServerOptions,
    as_json: JsonOption = False,
) -> None:
    """Show what differs between two commits; exit code 0 only if nothing does."""
    params = {"from": before, "to": after}
    answer = ask("GET", "/branch/diff", server=server, params=params)
    if as_json:
        show_json(answer)
    else:
        for kind, mark, style in MARKS:
            for name in answer[kind]:
                details = "; ".join(answer["details"].get(name, ()))
                out.print(Text(f"{mark} {name}{details and f' ({details})'}", style=style))
    raise typer.Exit(1 if any(answer[kind] for kind, _, _ in MARKS) else 0)


@command
def rollback(
    *,
    commit: Annotated[str, typer.Argument(help="The commit to go back to.")],
    preview: Annotated[bool, typer.Option("--preview", help="Only show what would happen.")] = False,
    server: BranchOptions,
    as_json: JsonOption = False,
) -> None:
    """Commit the definitions of an earlier commit again. Data of them that is still kept is used again."""
    server.announce()
    params = {"preview": str(preview).lower()}
    body = {"commit_id": commit}
    answer = ask("POST", "/branch/rollback", server=server, params=params, body=body)
    if as_json:
        show_json(answer)
    else:
        out.print("".join(answer["summary"]), end="", markup=False, soft_wrap=True)
