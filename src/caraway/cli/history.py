"""`caraway history`, `caraway diff` and `caraway rollback`: the history of a branch."""

from typing import Annotated

import typer
from rich.text import Text

from caraway.cli.output import DataOption, out, plain_errors
from caraway.cli.remote import BranchOption, JsonOption, TokenOption, UrlOption, ask, server_of, show_json

MARKS = (("added", "+", "green"), ("removed", "-", "red"), ("changed", "~", "yellow"))


def history(
    *,
    branch: BranchOption = "main",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="How many commits.")] = 20,
    url: UrlOption = None,
    token: TokenOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the commits of a branch, newest first."""
    with plain_errors():
        server = server_of(url, token, data)
        answer = ask("GET", "/branch/log", server=server, branch=branch, params={"limit": str(limit)})
        if as_json:
            show_json(answer)
            return
        for commit in answer["commits"]:
            out.print(Text(f"commit {commit['id']}", style="yellow"))
            by = f" by {commit['author']}" if commit["author"] else ""
            out.print(f"{commit['created_at']}{by}, on {commit['branch']}", markup=False)
            out.print(f"    {commit['message']}\n", markup=False)


def diff(
    *,
    before: Annotated[str, typer.Argument(help="A commit.", metavar="A")],
    after: Annotated[str, typer.Argument(help="The commit to compare it with.", metavar="B")],
    url: UrlOption = None,
    token: TokenOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what differs between two commits; exit code 0 only if nothing does."""
    with plain_errors():
        server = server_of(url, token, data)
        params = {"from": before, "to": after}
        answer = ask("GET", "/branch/diff", server=server, branch="main", params=params)
        if as_json:
            show_json(answer)
        else:
            for kind, mark, style in MARKS:
                for name in answer[kind]:
                    out.print(Text(f"{mark} {name}", style=style))
        raise typer.Exit(1 if any(answer[kind] for kind, _, _ in MARKS) else 0)


def rollback(
    *,
    commit: Annotated[str, typer.Argument(help="The commit to go back to.")],
    branch: BranchOption = "main",
    preview: Annotated[bool, typer.Option("--preview", help="Only show what would happen.")] = False,
    url: UrlOption = None,
    token: TokenOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Commit the definitions of an earlier commit again. Data of them that is still kept is used again."""
    with plain_errors():
        server = server_of(url, token, data)
        params = {"preview": str(preview).lower()}
        body = {"commit_id": commit}
        answer = ask("POST", "/branch/rollback", server=server, branch=branch, params=params, body=body)
        if as_json:
            show_json(answer)
        else:
            out.print("".join(answer["summary"]), end="", markup=False, soft_wrap=True)
