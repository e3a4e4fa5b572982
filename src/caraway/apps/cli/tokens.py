"""`caraway tokens`: create, list and revoke the tokens that requests carry."""

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

import typer

from caraway.apps.cli.database import DatabaseOptions, access, opened
from caraway.apps.cli.options import command
from caraway.apps.cli.output import err, out, table_of
from caraway.apps.cli.remote import JsonOption, show_json
from caraway.observations.operating import TOKENS

tokens = typer.Typer(help="Tokens of users and services, which requests show to the server.", no_args_is_help=True)


@tokens.command("create")
@command
def create(
    account: Annotated[str, typer.Argument(help="The account of the token; it is made if there is none.")],
    *,
    role: Annotated[list[str] | None, typer.Option("--role", "-r", help="Give the account this role, too.")] = None,
    service: Annotated[
        bool, typer.Option("--service", help="The account belongs to a program, not to a person.")
    ] = False,
    days: Annotated[
        int | None, typer.Option(help="Days for which the token is valid; without it until it is revoked.", min=1)
    ] = None,
    note: Annotated[str, typer.Option(help="The purpose of the token, as `caraway tokens list` shows it.")] = "",
    database: DatabaseOptions,
    as_json: JsonOption = False,
) -> None:
    """Make a token and print it: it is shown this once, and only its hash is kept."""
    with opened(database, changes=True) as engine:
        token_id, token = access(engine).create_token(
            account,
            roles_given=role or (),
            kind="service" if service else "user",
            note=note,
            lasting=None if days is None else timedelta(days=days),
        )
        if as_json:
            show_json({"id": token_id, "account": account, "token": token})
            return
        # Only the token itself goes to the standard output, so that it can be piped into a store of secrets.
        err.print(f"token {token_id} of {account}; it isn't shown again", markup=False)
        typer.echo(token)


@tokens.command("list")
@command
def list_tokens(database: DatabaseOptions, as_json: JsonOption = False) -> None:
    """List all tokens, ended ones included. Their secrets aren't shown, since only hashes of them are kept."""
    with opened(database) as engine:
        found = [asdict(token) for token in access(engine).tokens()]
        if as_json:
            show_json({"tokens": found})
            return
        out.print(table_of(TOKENS, found) if found else "There are no tokens.")


@tokens.command("revoke")
@command
def revoke(
    token_id: Annotated[str, typer.Argument(help="Its id, as `caraway tokens list` shows it.", metavar="ID")],
    database: DatabaseOptions,
) -> None:
    """End a token, and the sessions of browsers that signed in with it; servers refuse it within two seconds."""
    with opened(database, changes=True) as engine:
        access(engine).revoke_token(token_id)
        out.print(f"revoked {token_id}", markup=False)


@tokens.command("sign-out")
@command
def sign_out(
    account: Annotated[str, typer.Argument(help="The account, as the audit log names it.")],
    database: DatabaseOptions,
) -> None:
    """End all sessions of an account in browsers; its tokens stay valid."""
    with opened(database, changes=True) as engine:
        ended = access(engine).end_sessions(account)
        out.print(f"ended {ended} {'session' if ended == 1 else 'sessions'} of {account}", markup=False)
