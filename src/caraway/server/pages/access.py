"""The pages to sign in and out, and the files that pages load."""

import re
from typing import Any

from caraway.console.rendering import render, stylesheet
from caraway.errors import UnauthenticatedError
from caraway.server.http.errors import UnknownPathError
from caraway.server.http.messages import HttpResponse, Request
from caraway.server.pages.context import PageContext
from caraway.server.pages.parameters import given
from caraway.server.pages.session import SIGN_IN, cookie_of, form_of, html, page_after, redirect

# Tokens have these characters only; others could end the value of a cookie.
TOKEN = re.compile(r"[A-Za-z0-9_.~+/=-]{1,400}")


class _Shown:
    """The headers of a request that shows a token."""

    def __init__(self, token: str) -> None:
        self._token = token

    def get(self, key: str, default: str | None = None) -> str | None:
        return f"Bearer {self._token}" if key == "authorization" else default


async def sign_in_page(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page with the form to sign in."""
    return html(render("sign_in.html", wanted=page_after(given(request, "next") or ""), message=""))


async def sign_in(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Check a token, and have the browser keep it in a cookie."""
    fields = form_of(request.body, request.headers, signed_in=False)
    token, wanted = fields.get("token", "").strip(), page_after(fields.get("next", ""))
    if TOKEN.fullmatch(token) is None:
        message = "that is no token: enter one that `caraway tokens create` has printed"
        return html(render("sign_in.html", wanted=wanted, message=message), 401)
    try:
        context.server.deployment.gate.admit(context.endpoints["metrics"], _Shown(token))
    except UnauthenticatedError as error:
        return html(render("sign_in.html", wanted=wanted, message=str(error)), 401)
    return redirect(wanted, cookie_of(token, request.headers))


async def sign_out(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Have the browser forget the token."""
    form_of(request.body, request.headers)
    return redirect(SIGN_IN, cookie_of("", request.headers))


async def style(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the stylesheet."""
    headers = [("content-type", "text/css; charset=utf-8"), ("cache-control", "max-age=300")]
    return HttpResponse(200, [*headers, ("x-content-type-options", "nosniff")], stylesheet())


async def missing(context: PageContext, request: Request[Any, Any], name: str) -> HttpResponse:
    """Refuse the address of a page that doesn't exist."""
    raise UnknownPathError(f"the console has no page {name[:100]!r}")
