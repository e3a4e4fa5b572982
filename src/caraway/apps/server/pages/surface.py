"""The pages of the console: one row for each, as the REST surface has them."""

from collections.abc import Iterable

from caraway.apps.server.handlers.context import ServerContext
from caraway.apps.server.http.endpoints import ADMINISTRATION, PUBLIC, Endpoint, Handler, Permission, bound
from caraway.apps.server.pages import (
    access,
    accounts,
    archive,
    branches,
    drift,
    entities,
    jobs,
    letters,
    lineage,
    offline,
    overview,
    quality,
    query,
    skew,
    why,
)
from caraway.apps.server.pages.context import PageContext
from caraway.apps.server.pages.session import CONSOLE, FORM, HOME
from caraway.state.permissions import Mode

READ_DEFINITION, READ_DATA = Permission((Mode.READ_DEFINITION,)), Permission((Mode.READ_DATA,))
# The most bytes of a form, and of a form that anybody may send, which has only a token and an address.
MAX_FORM, MAX_OPEN_FORM = 256 * 1024, 16 * 1024
WRITE_DATA, WRITE_DEFINITION = Permission((Mode.WRITE_DATA,)), Permission((Mode.WRITE_DEFINITION,))


def _page(path: str, handler: Handler, permission: Permission, method: str = "GET") -> Endpoint:
    return Endpoint(
        method,
        f"{HOME}{path}",
        handler,
        permission,
        answer=None,
        target=f"console_{handler.__name__}",
        accepts=(FORM,),
        form_bytes=MAX_OPEN_FORM if permission.public else MAX_FORM,
        page=CONSOLE,
    )


PAGES: tuple[Endpoint, ...] = (
    _page("", overview.overview, READ_DEFINITION),
    _page("/catalog", overview.catalog, READ_DEFINITION),
    _page("/dataset", entities.dataset, READ_DEFINITION),
    _page("/featureset", entities.featureset, READ_DEFINITION),
    _page("/feature", entities.feature, READ_DEFINITION),
    _page("/source", entities.source, READ_DEFINITION),
    _page("/sink", entities.sink, READ_DEFINITION),
    _page("/job", entities.job, READ_DEFINITION),
    # The endpoint of the API that this page asks records the change in the audit log, so the page isn't `recorded`.
    _page("/job/pause", entities.pause, WRITE_DEFINITION, "POST"),
    _page("/lineage", lineage.lineage, READ_DEFINITION),
    _page("/dead-letters", letters.letters, READ_DATA),
    _page("/dead-letter", letters.letter, READ_DATA),
    # The endpoint of the API that this page asks records the replay in the audit log, so the page isn't `recorded`.
    _page("/replay", letters.replay, WRITE_DATA, "POST"),
    _page("/branches", branches.branches, READ_DEFINITION),
    _page("/commit", branches.commit, READ_DEFINITION),
    _page("/diff", branches.diff, READ_DEFINITION),
    _page("/preview", branches.preview, WRITE_DEFINITION, "POST"),
    # The endpoints of the API that this page asks record the changes in the audit log, so the page isn't `recorded`.
    _page("/change", branches.change, WRITE_DEFINITION, "POST"),
    _page("/jobs", jobs.jobs, READ_DEFINITION),
    _page("/archive", archive.archive, READ_DEFINITION),
    _page("/offline", offline.offline, READ_DATA),
    _page("/offline/cancel", offline.cancel, READ_DATA, "POST"),
    _page("/skew", skew.skew, READ_DATA),
    _page("/quality", quality.quality, READ_DATA),
    _page("/drift", drift.drift, READ_DATA),
    _page("/why", why.why_form, READ_DATA),
    _page("/why", why.ask_why, READ_DATA, "POST"),
    _page("/query", query.query_form, READ_DATA),
    _page("/query", query.query, READ_DATA, "POST"),
    _page("/tokens", accounts.tokens, ADMINISTRATION),
    _page("/tokens", accounts.new_token, ADMINISTRATION, "POST"),
    _page("/revoke", accounts.revoke, ADMINISTRATION, "POST"),
    _page("/roles", accounts.roles, ADMINISTRATION),
    _page("/audit", accounts.audit, ADMINISTRATION),
    _page("/sign-in", access.sign_in_page, PUBLIC),
    _page("/sign-in", access.sign_in, PUBLIC, "POST"),
    _page("/sign-in/provider", access.go_to_provider, PUBLIC),
    _page("/signed-in", access.signed_in, PUBLIC),
    _page("/sign-out", access.sign_out, PUBLIC, "POST"),
    _page("/console.css", access.style, PUBLIC),
    _page("/{name}", access.missing, PUBLIC),
)


def pages(context: ServerContext, endpoints: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    """Return all pages, which ask some endpoints of the API whose handlers have their context."""
    by_target: dict[str, Endpoint] = {}
    for each in endpoints:
        # Some targets have two endpoints, of which the first is Caraway's own.
        by_target.setdefault(each.target, each)
    return bound(PAGES, PageContext(server=context, endpoints=by_target))
