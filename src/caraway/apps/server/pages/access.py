"""The pages to sign in and out, and the files that pages load."""

import asyncio
import base64
import hashlib
import hmac
import secrets
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from caraway.apps.server.access.gate import NO_ROLE
from caraway.apps.server.access.provider import Provider
from caraway.apps.server.console.rendering import link, render, stylesheet
from caraway.apps.server.http.arrival import arrival
from caraway.apps.server.http.errors import UnknownPathError, status_of
from caraway.apps.server.http.messages import HttpResponse, Request
from caraway.apps.server.pages.context import PageContext
from caraway.apps.server.pages.parameters import given
from caraway.apps.server.pages.session import (
    COOKIE,
    HOME,
    LASTING,
    SIGN_IN,
    cookie_in,
    cookie_of,
    fields_in,
    form_of,
    html,
    is_over_tls,
    page_after,
    redirect,
    session_in,
)
from caraway.errors import CarawayError, ForbiddenError, UnauthenticatedError, shortened
from caraway.state.access import digest_of
from caraway.state.permissions import ANYBODY

# The name of a sign-in in the audit log, whether it was refused or succeeded.
SIGNING_IN = "sign in"
# The cookie of a browser while its person signs in at the identity provider, and the time that the sign-in may take.
AT_PROVIDER = "caraway_sign_in"
AWAY = timedelta(minutes=10)
OTHER_BROWSER = (
    "this sign-in was begun in another browser, by somebody else, or more than ten minutes ago (state); sign in again"
)


async def sign_in_page(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page with the form to sign in."""
    return html(_form(context, page_after(given(request, "next") or "")))


async def sign_in(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Check a token, and begin a session whose id the browser keeps in a cookie."""
    fields = form_of(request.body, request.headers, signed_in=False)
    token, wanted = fields.get("token", "").strip(), page_after(fields.get("next", ""))
    accounts = context.server.deployment.accounts
    gate, access = accounts.gate, accounts.access
    if access is None:
        return redirect(wanted)
    try:
        caller = gate.owner_of(token)
    except UnauthenticatedError as error:
        gate.refuse(ANYBODY, SIGNING_IN, "", error)
        return _not_signed_in(context, error, wanted)
    begin = partial(access.acting_for(caller).begin_session, LASTING, token_digest=digest_of(token))
    session = await asyncio.to_thread(begin)
    return redirect(wanted, cookie_of(COOKIE, session, LASTING, tls=is_over_tls(request.headers)))


async def sign_out(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """End the session, and have the browser forget its id."""
    form_of(request.body, request.headers)
    accounts = context.server.deployment.accounts
    gate, access = accounts.gate, accounts.access
    session = session_in(request.headers)
    if access is not None and session is not None:
        # A session that has ended already needn't be ended. For a made-up id no line is written to the audit log.
        with suppress(UnauthenticatedError):
            caller = await gate.signed_in(request.headers)
            await asyncio.to_thread(access.acting_for(caller).end_session, session)
            await gate.catch_up()
    return redirect(SIGN_IN, cookie_of(COOKIE, "", LASTING, tls=is_over_tls(request.headers)))


async def go_to_provider(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Lead the browser to the identity provider, with a secret by which it is known when it comes back."""
    provider, secret = _provider(context), secrets.token_urlsafe(32)
    wanted = base64.urlsafe_b64encode(page_after(given(request, "next") or "").encode()).decode()
    try:
        address = await provider.sign_in_address(
            state=_derived(secret, "state"), nonce=_derived(secret, "nonce"), verifier=_derived(secret, "verifier")
        )
    except CarawayError as error:
        return _not_signed_in(context, error, HOME)
    # The provider's site leads the browser back, and browsers send no SameSite=Strict cookie then.
    kept = cookie_of(AT_PROVIDER, f"{secret}.{wanted}", AWAY, tls=provider.is_over_tls, same_site="Lax")
    return redirect(address, kept)


async def signed_in(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Begin a session for a person who comes back from the identity provider."""
    provider, accounts = _provider(context), context.server.deployment.accounts
    gate, access = accounts.gate, accounts.access
    fields = {name: values[-1] for name, values in fields_in(request.query_string).items()}
    secret, _, encoded = (cookie_in(request.headers, AT_PROVIDER) or "").partition(".")
    wanted, caller = HOME, ANYBODY
    gone = cookie_of(AT_PROVIDER, "", AWAY, tls=provider.is_over_tls, same_site="Lax")
    try:
        # State, nonce and PKCE's verifier are derived from the secret in the browser's cookie, so no server stores
        # them. If the state doesn't fit the cookie, the sign-in is refused. Otherwise an attacker could sign the victim
        # in to the attacker's own account (login CSRF).
        if not secret or not hmac.compare_digest(fields.get("state", "").encode(), _derived(secret, "state").encode()):
            raise UnauthenticatedError(OTHER_BROWSER)
        with suppress(ValueError):
            wanted = page_after(base64.urlsafe_b64decode(encoded).decode())
        if "error" in fields or not fields.get("code"):
            reason = shortened(fields.get("error", "no code"), 100)
            raise UnauthenticatedError(f"the identity provider refused the sign-in ({reason}); sign in again")
        person = await provider.person_of_code(
            fields["code"],
            nonce=_derived(secret, "nonce"),
            verifier=_derived(secret, "verifier"),
            address=arrival().address,
        )
        caller = gate.caller_of(person.account, person.groups)
        if not caller.grants or access is None:
            raise ForbiddenError(NO_ROLE.format(account=caller.account))
        session = await asyncio.to_thread(
            partial(access.acting_for(caller).begin_session, LASTING, groups=person.groups)
        )
    except CarawayError as error:
        if isinstance(error, UnauthenticatedError | ForbiddenError):
            gate.refuse(caller, SIGNING_IN, "", error)
        return _not_signed_in(context, error, wanted, gone)
    return redirect(wanted, cookie_of(COOKIE, session, LASTING, tls=provider.is_over_tls), gone)


def _provider(context: PageContext) -> Provider:
    provider = context.server.deployment.accounts.gate.provider
    if provider is None or not provider.signs_in:
        raise UnknownPathError("this server has no identity provider (oidc.issuer, oidc.client_id, oidc.redirect_url)")
    return provider


def _not_signed_in(context: PageContext, error: CarawayError, wanted: str, *cookies: str) -> HttpResponse:
    """Return the form to sign in with the reason why it failed. The address, which has a code, isn't shown again."""
    page = html(_form(context, wanted, str(error)), status_of(error))
    return replace(page, headers=[*page.headers, *(("set-cookie", cookie) for cookie in cookies)])


def _form(context: PageContext, wanted: str, message: str = "") -> str:
    provider = context.server.deployment.accounts.gate.provider
    elsewhere = None if provider is None or not provider.signs_in else link("/sign-in/provider", next=wanted)
    return render("sign_in.html", wanted=wanted, message=message, elsewhere=elsewhere)


def _derived(secret: str, use: str) -> str:
    """Return a random text for one use, which only who has the secret can compute."""
    return base64.urlsafe_b64encode(hmac.digest(secret.encode(), use.encode(), hashlib.sha256)).rstrip(b"=").decode()


async def style(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the stylesheet."""
    headers = [("content-type", "text/css; charset=utf-8"), ("cache-control", "max-age=300")]
    return HttpResponse(200, [*headers, ("x-content-type-options", "nosniff")], stylesheet())


async def missing(context: PageContext, request: Request[Any, Any], name: str) -> HttpResponse:
    """Refuse the address of a page that doesn't exist."""
    raise UnknownPathError(f"the console has no page {name[:100]!r}")
