"""`caraway history`, `diff`, `rollback` and `promote`: the commits of branches."""

from typing import Annotated, Any

import typer
from rich.text import Text

from caraway.apps.cli.options import command
from caraway.apps.cli.output import out
from caraway.apps.cli.remote import BranchOptions, JsonOption, ServerOptions, ask, show_json

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
    before: Annotated[str, typer.Argument(help="A branch, or a commit or the beginning of its id.", metavar="A")],
    after: Annotated[str, typer.Argument(help="The one to compare it with.", metavar="B")],
    server: ServerOptions,
    as_json: JsonOption = False,
) -> None:
    """Show what differs between two branches or commits; exit code 0 only if nothing does."""
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
    commit: Annotated[str, typer.Argument(help="The commit to go back to, or the beginning of its id.")],
    preview: Annotated[bool, typer.Option("--preview", help="Only show what would happen.")] = False,
    server: BranchOptions,
    as_json: JsonOption = False,
) -> None:
    """Commit the definitions of an earlier commit again. Data of them that is still kept is used again."""
    server.announce()
    params = {"preview": str(preview).lower()}
    body = {"commit_id": commit}
    show_commit(ask("POST", "/branch/rollback", server=server, params=params, body=body), as_json=as_json)


@command
def promote(
    *,
    source: Annotated[str, typer.Argument(help="The branch with the definitions.", metavar="BRANCH")],
    message: Annotated[str, typer.Option("--message", "-m", help="A description of the commit.")] = "",
    incremental: Annotated[
        bool, typer.Option("--incremental", help="Keep what BRANCH doesn't hold; else that is an error.")
    ] = False,
    preview: Annotated[bool, typer.Option("--preview", help="Only show what would happen.")] = False,
    server: BranchOptions,
    as_json: JsonOption = False,
) -> None:
    """Commit the definitions of a branch to another one, by default main; equal datasets keep their data."""
    server.announce()
    params = {"preview": str(preview).lower(), "incremental": str(incremental).lower()}
    body = {"source": source, "message": message}
    show_commit(ask("POST", "/branch/promote", server=server, params=params, body=body), as_json=as_json)


def show_commit(answer: Any, *, as_json: bool) -> None:
    """Print what a commit has changed, and its id if it was made."""
    if as_json:
        show_json(answer)
        return
    out.print("".join(answer["summary"]), end="", markup=False, soft_wrap=True)
    if answer["commit_id"]:
        out.print(f"commit {answer['commit_id']}", markup=False)
