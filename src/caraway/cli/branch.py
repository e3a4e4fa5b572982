"""`caraway branch`: list, create, clone, delete."""

from typing import Annotated

import typer
from rich.table import Table

from caraway.cli.output import DataOption, out, plain_errors
from caraway.cli.remote import JsonOption, TokenOption, UrlOption, ask, server_of, show_json
from caraway.graph.branch_names import check_branch_name

branch = typer.Typer(help="Branches: independent definitions over shared data.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="The branch.", metavar="NAME")]


@branch.command("list")
def list_branches(
    url: UrlOption = None, token: TokenOption = None, data: DataOption = None, as_json: JsonOption = False
) -> None:
    """Show all branches, with the commit that each holds and the one that it serves."""
    with plain_errors():
        server = server_of(url, token, data)
        answer = ask("GET", "/branch/list", server=server, branch="main")
        if as_json:
            show_json(answer)
            return
        table = Table("branch", "head", "serving", "made", box=None, pad_edge=False, header_style="dim")
        for found in answer["branches"]:
            serving = "the same" if found["serving"] == found["head"] else found["serving"] or "nothing"
            table.add_row(found["name"], found["head"] or "nothing yet", serving, found["created_at"])
        out.print(table)


@branch.command("create")
def create(name: NameArgument, url: UrlOption = None, token: TokenOption = None, data: DataOption = None) -> None:
    """Make an empty branch."""
    with plain_errors():
        check_branch_name(name)
        ask("POST", "/init", server=server_of(url, token, data), branch=name, body={})
        out.print(f"made branch {name}", markup=False)


@branch.command("clone")
def clone(
    name: NameArgument,
    source: Annotated[str, typer.Argument(help="The branch that it begins with.", metavar="FROM")] = "main",
    url: UrlOption = None,
    token: TokenOption = None,
    data: DataOption = None,
) -> None:
    """Make a branch with the definitions and data of another one; no data is copied."""
    with plain_errors():
        check_branch_name(name)
        body = {"clone_from": source}
        ask("POST", "/init", server=server_of(url, token, data), branch=name, body=body)
        out.print(f"made branch {name}, a clone of {source}", markup=False)


@branch.command("delete")
def delete(name: NameArgument, url: UrlOption = None, token: TokenOption = None, data: DataOption = None) -> None:
    """Delete a branch; what no other branch needs is removed after a while."""
    with plain_errors():
        ask("POST", "/delete", server=server_of(url, token, data), branch=name, body={})
        out.print(f"deleted branch {name}", markup=False)
