"""The pages to sign in and out, and the files that pages load."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any

from caraway.console.rendering import render, stylesheet
from caraway.errors import UnauthenticatedError
from caraway.server.http.errors import UnknownPathError
from caraway.server.http.messages import HttpResponse, Request
from caraway.server.pages.context import PageContext
from caraway.server.pages.parameters import given
from caraway.server.pages.session import (
    COOKIE,
    LASTING,
    SIGN_IN,
    cookie_of,
    form_of,
    html,
    is_over_tls,
    page_after,
    redirect,
    session_in,
)
from caraway.state.access import digest_of
from caraway.state.permissions import ANYBODY

# The action of a refused sign-in in the audit log, as that of one that succeeded.
SIGNING_IN = "sign in"


async def sign_in_page(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page with the form to sign in."""
    return html(render("sign_in.html", wanted=page_after(given(request, "next") or ""), message=""))


async def sign_in(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Check a token, and begin a session whose id the browser keeps in a cookie."""
    fields = form_of(request.body, request.headers, signed_in=False)
    token, wanted = fields.get("token", "").strip(), page_after(fields.get("next", ""))
    gate, access = context.server.deployment.gate, context.server.deployment.access
    if access is None:
        return redirect(wanted)
    try:
        caller = gate.owner_of(token)
    except UnauthenticatedError as error:
        gate.refuse(ANYBODY, SIGNING_IN, "", error)
        return html(render("sign_in.html", wanted=wanted, message=str(error)), 401)
    begin = partial(access.acting_for(caller).begin_session, LASTING, token_digest=digest_of(token))
    session = await asyncio.to_thread(begin)
    return redirect(wanted, cookie_of(COOKIE, session, LASTING, tls=is_over_tls(request.headers)))


async def sign_out(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """End the session, and have the browser forget its id."""
    form_of(request.body, request.headers)
    gate, access = context.server.deployment.gate, context.server.deployment.access
    session = session_in(request.headers)
    if access is not None and session is not None:
        # A session that has ended already needs no end, and a made-up one no line of the audit log.
        with suppress(UnauthenticatedError):
            caller = await gate.signed_in(request.headers)
            await asyncio.to_thread(access.acting_for(caller).end_session, session)
            await gate.catch_up()
    return redirect(SIGN_IN, cookie_of(COOKIE, "", LASTING, tls=is_over_tls(request.headers)))


async def style(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the stylesheet."""
    headers = [("content-type", "text/css; charset=utf-8"), ("cache-control", "max-age=300")]
    return HttpResponse(200, [*headers, ("x-content-type-options", "nosniff")], stylesheet())


async def missing(context: PageContext, request: Request[Any, Any], name: str) -> HttpResponse:
    """Refuse the address of a page that doesn't exist."""
    raise UnknownPathError(f"the console has no page {name[:100]!r}")
