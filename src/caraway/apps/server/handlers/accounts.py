"""The handlers of tokens, roles and the audit log, for callers who may do everything."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from caraway.apps.server.handlers.context import ServerContext
from caraway.apps.server.http.bodies import Nothing
from caraway.apps.server.http.messages import HttpResponse, Request, json_response
from caraway.errors import ConflictError
from caraway.state.access import Access
from caraway.state.permissions import Grant

# How many tokens, or lines of the audit log, an answer has if the request sets no `limit`, and the greatest `limit`.
LISTED, MAX_LISTED = 100, 1_000
# The most roles that one request gives, and the most characters of a note and of a name. The names of accounts and
# roles are shorter.
MAX_ROLES, MAX_NOTE, MAX_NAME = 50, 500, 200
# The most days that a token lasts. One that should last longer is made without an end.
MAX_DAYS = 36_500
# Postgres can't store a text with the character NUL.
STORABLE = r"^[^\x00]*$"

Limit = Annotated[int, Meta(ge=1, le=MAX_LISTED, description=f"the most in the answer, up to {MAX_LISTED:,}")]
Name = Annotated[str, Meta(max_length=MAX_NAME, pattern=STORABLE)]


class SignInAnswer(Struct):
    """The identity provider at which people sign in for commands, and the name of the command line there."""

    issuer: str
    client_id: str
    scopes: list[str]


class TokenListParameters(Struct):
    """The part of the list that is wanted."""

    limit: Limit = LISTED
    skip: Annotated[int, Meta(ge=0, le=1_000_000, description="the number of newer tokens that are passed over")] = 0


class TokenShown(Struct):
    """A token, without its text."""

    id: str
    account: str
    kind: str
    roles: list[str]
    note: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None


class TokensAnswer(Struct):
    """Tokens, newest first, also those that have ended."""

    tokens: list[TokenShown]


class TokenBody(Struct):
    """A token that is to be made, and its account, which is made if it doesn't exist."""

    account: Annotated[str, Meta(max_length=MAX_NAME, pattern=STORABLE, description="the name of an account")]
    roles: Annotated[list[Name], Meta(max_length=MAX_ROLES, description="roles that the account gets, too")] = []
    kind: Annotated[Literal["user", "service"], Meta(description="user: a person; service: a program")] = "user"
    note: Annotated[str, Meta(max_length=MAX_NOTE, pattern=STORABLE, description="the purpose of the token")] = ""
    days: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_DAYS)] | None,
        Meta(description="the days for which it is valid; null: until it is revoked"),
    ] = None


class NewToken(Struct):
    """A token that was made. Its text is in no other answer, as only its hash is kept."""

    id: str
    account: str
    token: str


class RevokedToken(Struct):
    """A token that was ended."""

    id: str


class GrantShown(Struct):
    """One thing that a role allows. Null: all tags, or all branches."""

    modes: list[str]
    tags: list[str] | None
    without: list[str]
    branches: list[str] | None


class RolesAnswer(Struct):
    """The grants of each role."""

    roles: dict[str, list[GrantShown]]


class AuditParameters(Struct):
    """The lines that are wanted."""

    limit: Limit = LISTED
    before: Annotated[
        Annotated[int, Meta(ge=1, lt=1 << 62)] | None, Meta(description="the number of a line, to get only older ones")
    ] = None


class AuditLine(Struct):
    """A line of the audit log: a change, or a request that was refused."""

    number: int
    at: str
    account: str
    token: str
    action: str
    branch: str
    detail: str
    outcome: str
    times: int


class AuditAnswer(Struct):
    """Lines of the audit log, newest first. `next` is the `before` of older ones; null if there are none."""

    audit: list[AuditLine]
    next: int | None


async def sign_in(context: ServerContext, request: Request) -> HttpResponse:
    """Return where people sign in who want to use commands; nobody needs a token to ask."""
    del request
    provider = context.deployment.accounts.gate.provider
    about = None if provider is None else provider.for_commands
    if about is None:
        raise ConflictError(
            "this server has no identity provider for commands (oidc.cli_client_id); ask its operator for a token"
        )
    issuer, client_id, scopes = about
    return _answered(SignInAnswer(issuer=issuer, client_id=client_id, scopes=list(scopes)))


async def list_tokens(context: ServerContext, request: Request[Nothing, TokenListParameters]) -> HttpResponse:
    """Return tokens, newest first, without their texts."""
    asked, access = request.parameters(), _access(context)
    found = await asyncio.to_thread(access.tokens, newest=asked.limit, skip=asked.skip)
    shown = [
        TokenShown(
            id=token.id,
            account=token.account,
            kind=token.kind,
            roles=list(token.roles),
            note=token.note,
            created_at=_time(token.created_at) or "",
            expires_at=_time(token.expires_at),
            revoked_at=_time(token.revoked_at),
        )
        for token in found
    ]
    return _answered(TokensAnswer(shown))


async def create_token(context: ServerContext, request: Request[TokenBody]) -> HttpResponse:
    """Make a token for an account. Its text is in this answer only."""
    # The change and its line in the audit log are one transaction, so the endpoint needs no line of its own.
    access, asked = _access(context).acting_for(request.caller), await request.read()
    token_id, token = await asyncio.to_thread(
        access.create_token,
        asked.account,
        roles_given=asked.roles,
        kind=asked.kind,
        note=asked.note,
        lasting=None if asked.days is None else timedelta(days=asked.days),
    )
    context.deployment.accounts.gate.wake()
    return _answered(NewToken(token_id, asked.account, token))


async def revoke_token(context: ServerContext, request: Request[Any], name: str) -> HttpResponse:
    """End a token by its id. Servers refuse it within two seconds."""
    await asyncio.to_thread(_access(context).acting_for(request.caller).revoke_token, name)
    context.deployment.accounts.gate.wake()
    return _answered(RevokedToken(name))


async def list_roles(context: ServerContext, request: Request) -> HttpResponse:
    """Return all roles and what they grant."""
    found = await asyncio.to_thread(_access(context).roles)
    return _answered(RolesAnswer({name: [_grant(grant) for grant in grants] for name, grants in found.items()}))


async def list_audit(context: ServerContext, request: Request[Nothing, AuditParameters]) -> HttpResponse:
    """Return changes and refused requests, newest first."""
    asked = request.parameters()
    found = await asyncio.to_thread(context.deployment.accounts.audit.newest, asked.limit, before=asked.before)
    lines = [
        AuditLine(
            number=record.number,
            at=_time(record.at) or "",
            account=record.act.account,
            token=record.act.token_id,
            action=record.act.action,
            branch=record.act.branch,
            detail=record.act.detail,
            outcome=record.outcome,
            times=record.times,
        )
        for record in found
    ]
    return _answered(AuditAnswer(lines, lines[-1].number if len(lines) == asked.limit else None))


def _access(context: ServerContext) -> Access:
    access = context.deployment.accounts.access
    if access is None:
        raise ConflictError(
            "this server needs no tokens (server.tokens=false), so it has none to show or to make; set "
            "server.tokens=true, and start it again"
        )
    return access


def _grant(grant: Grant) -> GrantShown:
    return GrantShown(
        modes=sorted(grant.modes),
        tags=None if grant.tags is None else sorted(grant.tags),
        without=sorted(grant.without),
        branches=None if grant.branches is None else sorted(grant.branches),
    )


def _time(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat()


def _answered(answer: Struct) -> HttpResponse:
    return json_response(msgspec.to_builtins(answer))
