"""`caraway branch`: list, create, clone, delete."""

from typing import Annotated

import typer

from caraway.apps.cli.options import command
from caraway.apps.cli.output import out, plain_table
from caraway.apps.cli.remote import JsonOption, ServerOptions, ask, show_json
from caraway.graph.branch_names import check_branch_name

branch = typer.Typer(help="Branches: independent definitions over shared data.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="The branch.", metavar="NAME")]


@branch.command("list")
@command
def list_branches(server: ServerOptions, as_json: JsonOption = False) -> None:
    """Show all branches, with the commit that each holds and the one that it serves."""
    answer = ask("GET", "/branch/list", server=server)
    if as_json:
        show_json(answer)
        return
    table = plain_table("branch", "head", "serving", "made")
    for found in answer["branches"]:
        serving = "the same" if found["serving"] == found["head"] else found["serving"] or "nothing"
        table.add_row(found["name"], found["head"] or "nothing yet", serving, found["created_at"])
    out.print(table)


@branch.command("create")
@command
def create(name: NameArgument, server: ServerOptions) -> None:
    """Make an empty branch."""
    check_branch_name(name)
    server.announce()
    ask("POST", "/init", server=server, branch=name, body={})
    out.print(f"made branch {name}", markup=False)


@branch.command("clone")
@command
def clone(
    name: NameArgument,
    server: ServerOptions,
    source: Annotated[str, typer.Argument(help="The branch that it begins with.", metavar="FROM")] = "main",
) -> None:
    """Make a branch with the definitions and data of another one; no data is copied."""
    check_branch_name(name)
    body = {"clone_from": source}
    server.announce()
    ask("POST", "/init", server=server, branch=name, body=body)
    out.print(f"made branch {name}, a clone of {source}", markup=False)


@branch.command("delete")
@command
def delete(name: NameArgument, server: ServerOptions) -> None:
    """Delete a branch; what no other branch needs is removed after a while."""
    server.announce()
    ask("POST", "/delete", server=server, branch=name, body={})
    out.print(f"deleted branch {name}", markup=False)
