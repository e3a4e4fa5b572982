"""The parts that all pages have: the API with the rights of the caller, and the entities that the caller may see."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import orjson

from caraway.apps.server.console.catalogue import Catalogue
from caraway.apps.server.console.rendering import link, render
from caraway.apps.server.handlers.context import ServerContext
from caraway.apps.server.http.endpoints import ADMINISTRATION, Endpoint
from caraway.apps.server.http.messages import HttpResponse, Request
from caraway.apps.server.pages.parameters import given
from caraway.apps.server.pages.session import HOME, code_of, fields_in, html
from caraway.errors import CarawayError, ForbiddenError, InvalidInputError
from caraway.state.permissions import ANYBODY

# The most graphs whose catalogues are cached: those of the branches and roles that people look at.
MAX_CATALOGUES = 8
# The pages that show a current state and have no form whose entries would be lost. Browsers load them again after some
# seconds. The parameter `refresh` in the address chooses one of `REFRESH`.
LIVE = frozenset(
    f"{HOME}{page}" for page in ("", "/dataset", "/feature", "/job", "/source", "/sink", "/quality", "/jobs")
)
REFRESH = {"": 60, "60": 60, "10": 10, "off": None}


@dataclass(slots=True, kw_only=True)
class PageContext:
    """The parts of all pages.

    Attributes:
        server: The parts of the handlers of the API.
        endpoints: The endpoints of the API by their targets, with their handlers' context.
    """

    server: ServerContext
    endpoints: Mapping[str, Endpoint]
    catalogues: dict[int, Catalogue] = field(default_factory=dict)

    async def ask(
        self, request: Request[Any, Any], target: str, name: str = "", /, *, query_string: str = "", **given: Any
    ) -> Any:
        """Return the JSON that an endpoint of the API answers to the caller of a page.

        Args:
            request: The request of the page, whose caller and branch count.
            target: The target of the endpoint.
            name: The part of its path that stands in braces.
            query_string: The parameters of an endpoint that has a body, too.
            given: The members of the body, or the parameters of an endpoint without a body; None is left out.

        Raises `CarawayError` as the endpoint does, `ForbiddenError` if the caller lacks its permission, and
        `InvalidInputError` if the path needs a name and there is none.
        """
        endpoint, caller = self.endpoints[target], request.caller
        if not endpoint.permission.public and not endpoint.permission.admits(caller, request.branch):
            permission = endpoint.permission
            where = f"branch {request.branch[:100]!r}" if permission.on_branch else permission.scope
            error = ForbiddenError(f"account {caller.account!r} lacks {permission.wanted} on {where}")
            self.server.deployment.accounts.gate.refuse(caller, target, request.branch, error)
            raise error
        if "{" in endpoint.path and not name:
            raise InvalidInputError(f"{request.path} needs a name, and the request has none")
        members = {key: value for key, value in given.items() if value is not None}
        inner: Request[Any, Any] = replace(
            request,
            method=endpoint.method,
            path=endpoint.path.replace("{name}", name),
            query_string=query_string if endpoint.takes_body else urlencode(members),
            body=orjson.dumps(members) if endpoint.takes_body else b"",
            body_form=endpoint.body,
            parameters_form=endpoint.parameters,
        )
        gate = self.server.deployment.accounts.gate
        response = await gate.pass_on(endpoint, inner, lambda: endpoint.respond(inner, name))
        return orjson.loads(response.body)

    async def ask_if_allowed(self, request: Request[Any, Any], target: str, name: str = "", /, **given: Any) -> Any:
        """Return what `ask` does, or a text that says why there is no answer."""
        try:
            return await self.ask(request, target, name, **given)
        except CarawayError as error:
            return str(error)

    def catalogue(self, request: Request[Any, Any]) -> Catalogue:
        """Return the entities of the request's branch that the caller may see."""
        served = self.server.deployment.graphs.require_served_graph(request.branch)
        graph = self.server.limits.definitions(request, served)
        found = self.catalogues.get(id(graph))
        # The catalogue holds its graph, so no other graph can have the same `id` meanwhile.
        if found is None:
            if len(self.catalogues) >= MAX_CATALOGUES:
                self.catalogues.clear()
            found = self.catalogues[id(graph)] = Catalogue(graph, self._tags(request))
        return found

    def _tags(self, request: Request[Any, Any]) -> Mapping[str, frozenset[str]]:
        served = self.server.deployment.graphs.require_served_graph(request.branch)
        return self.server.limits.tags(served).entities

    def page(
        self, request: Request[Any, Any], template: str, *, http_status: int = 200, **values: object
    ) -> HttpResponse:
        """Return a page."""

        def to(path: str, **parameters: object) -> str:
            branch = None if request.branch == "main" else request.branch
            return link(path, **{"branch": branch, **parameters})

        chosen = given(request, "refresh") if request.path in LIVE and http_status == 200 else "off"
        if chosen not in REFRESH:
            raise InvalidInputError(f"refresh is {chosen[:40]!r}; one of these is expected: 10, 60, off")
        refresh, fields = REFRESH[chosen], fields_in(request.query_string)
        here = {name: values[-1] for name, values in fields.items()}
        text = render(
            template,
            to=to,
            refresh=refresh,
            choices=[
                (words, link(request.path.removeprefix(HOME), **{**here, "refresh": choice}))
                for choice, words in {"10": "every 10 s", "60": "every 60 s", "off": "never"}.items()
                if request.path in LIVE and REFRESH[choice] != refresh
            ],
            branch=request.branch,
            account=request.caller.account,
            signed_in=request.caller is not ANYBODY,
            administers=ADMINISTRATION.admits(request.caller, request.branch),
            code=code_of(request.headers),
            now=datetime.now(UTC),
            path=request.path,
            **values,
        )
        return html(text, http_status, refresh)
