"""The pages of tokens, roles and the audit log, for people who may do everything."""

from typing import Any

from caraway.apps.server.http.errors import status_of
from caraway.apps.server.http.messages import HttpResponse, Request
from caraway.apps.server.pages.context import PageContext
from caraway.apps.server.pages.parameters import given, whole
from caraway.apps.server.pages.session import form_fields, form_of
from caraway.errors import CarawayError, InvalidInputError

# The most rows of a page.
LISTED = 50
# The highest number of a page of tokens.
MAX_PAGE = 20_000


async def tokens(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page with all tokens, and the form for a new one."""
    return await _tokens(context, request)


async def new_token(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Make a token, and show it this once."""
    fields = form_of(request.body, request.headers)
    entered = {name: fields.get(name, "").strip() for name in ("account", "note", "days")}
    roles = form_fields(request.body, "role")
    try:
        days = _days(entered["days"])
        kind = "service" if fields.get("kind") == "service" else "user"
        made = await context.ask(
            request,
            "create_token",
            account=entered["account"],
            roles=roles,
            kind=kind,
            note=entered["note"],
            days=days,
        )
    except CarawayError as error:
        return await _tokens(context, request, entered=entered, message=str(error), status=status_of(error))
    return context.page(request, "token.html", made=made)


async def revoke(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """End a token."""
    fields = form_of(request.body, request.headers)
    done = await context.ask(request, "revoke_token", fields.get("name", "") or "-")
    return await _tokens(context, request, said=f"Token {done['id']} has ended. Servers refuse it within two seconds.")


async def roles(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page with all roles and what they grant."""
    found = await context.ask(request, "list_roles")
    return context.page(request, "roles.html", roles=found["roles"])


async def audit(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page with changes and refused requests, newest first."""
    before = whole(request, "before", 0, 999_999_999) if given(request, "before") else None
    found = await context.ask(request, "list_audit", limit=LISTED, before=before)
    return context.page(request, "audit.html", lines=found["audit"], older=found["next"], before=before)


async def _tokens(
    context: PageContext,
    request: Request[Any, Any],
    *,
    said: str = "",
    message: str = "",
    entered: dict[str, str] | None = None,
    status: int = 200,
) -> HttpResponse:
    page = whole(request, "page", 1, MAX_PAGE)
    # One token more than is shown is asked for, to find out whether there are older ones.
    found = (await context.ask(request, "list_tokens", limit=LISTED + 1, skip=(page - 1) * LISTED))["tokens"]
    known = await context.ask(request, "list_roles")
    return context.page(
        request,
        "tokens.html",
        http_status=status,
        tokens=found[:LISTED],
        older=len(found) > LISTED,
        number=page,
        roles=list(known["roles"]),
        said=said,
        message=message,
        entered=entered or {"account": "", "note": "", "days": ""},
    )


def _days(text: str) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise InvalidInputError(f"the days are {text[:40]!r}; enter a whole number, or nothing for a token without end")
    return int(text)
