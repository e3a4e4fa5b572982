"""`caraway roles`: the permissions of accounts."""

from typing import Annotated

import typer

from caraway.apps.cli.database import DatabaseOptions, access, opened
from caraway.apps.cli.options import command
from caraway.apps.cli.output import out, plain_table
from caraway.apps.cli.remote import JsonOption, show_json
from caraway.state.permissions import Grant, Mode

roles = typer.Typer(
    help="Roles, which say what accounts may do, on which branches and on entities with which tags.",
    no_args_is_help=True,
)

NameArgument = Annotated[str, typer.Argument(help="The role.", metavar="ROLE")]
AccountArgument = Annotated[str, typer.Argument(help="The account.", metavar="ACCOUNT")]


@roles.command("define")
@command
def define(
    name: NameArgument,
    *,
    may: Annotated[
        list[Mode], typer.Option("--may", help="A mode that the role grants; give the option again for more.")
    ],
    tag: Annotated[list[str] | None, typer.Option("--tag", help="Grant it only for entities with this tag.")] = None,
    without: Annotated[
        list[str] | None, typer.Option("--without", help="Don't grant it for entities with this tag.")
    ] = None,
    branch: Annotated[
        list[str] | None, typer.Option("--branch", help="Grant it only on this branch; without it on all.")
    ] = None,
    more: Annotated[
        bool, typer.Option("--more", help="Add to what the role grants already, instead of replacing it.")
    ] = False,
    database: DatabaseOptions,
) -> None:
    """Define what a role grants. Servers apply it within two seconds."""
    with opened(database, changes=True) as engine:
        known = access(engine)
        grant = Grant(
            modes=frozenset(may),
            tags=frozenset(tag) if tag else None,
            without=frozenset(without or ()),
            branches=frozenset(branch) if branch else None,
        )
        before = known.roles().get(name, ()) if more else ()
        known.define_role(name, [*before, grant])
        out.print(f"role {name} grants: {'; '.join(map(_spelled, (*before, grant)))}", markup=False, soft_wrap=True)


@roles.command("list")
@command
def list_roles(database: DatabaseOptions, as_json: JsonOption = False) -> None:
    """Show all roles and what they grant."""
    with opened(database) as engine:
        found = access(engine).roles()
        if as_json:
            show_json({"roles": {name: [_shown(grant) for grant in grants] for name, grants in found.items()}})
            return
        table = plain_table("role", "grants")
        for name, grants in found.items():
            table.add_row(name, "\n".join(map(_spelled, grants)))
        out.print(table)


@roles.command("delete")
@command
def delete(name: NameArgument, database: DatabaseOptions) -> None:
    """Remove a role that no account has."""
    with opened(database, changes=True) as engine:
        access(engine).delete_role(name)
        out.print(f"deleted role {name}", markup=False)


@roles.command("give")
@command
def give(account: AccountArgument, name: NameArgument, database: DatabaseOptions) -> None:
    """Assign a role to an account."""
    with opened(database, changes=True) as engine:
        access(engine).give_role(account, name)
        out.print(f"{account} has role {name}", markup=False)


@roles.command("take")
@command
def take(account: AccountArgument, name: NameArgument, database: DatabaseOptions) -> None:
    """Remove a role from an account."""
    with opened(database, changes=True) as engine:
        access(engine).take_role(account, name)
        out.print(f"{account} doesn't have role {name}", markup=False)


def _shown(grant: Grant) -> dict[str, object]:
    return {
        "modes": sorted(grant.modes),
        "tags": None if grant.tags is None else sorted(grant.tags),
        "without": sorted(grant.without),
        "branches": None if grant.branches is None else sorted(grant.branches),
    }


def _spelled(grant: Grant) -> str:
    entities = "all entities" if grant.tags is None else f"entities tagged {' or '.join(sorted(grant.tags))}"
    without = f" without {' or '.join(sorted(grant.without))}" if grant.without else ""
    branches = "all branches" if grant.branches is None else f"branches {', '.join(sorted(grant.branches))}"
    return f"{', '.join(sorted(grant.modes))} on {entities}{without} of {branches}"
