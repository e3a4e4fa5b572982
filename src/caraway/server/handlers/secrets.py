"""The handlers of secrets in the platform's own store; each is kept sealed, and opened for callers and functions."""

import asyncio

from caraway.errors import ForbiddenError, InvalidInputError
from caraway.ingest.table import json_type
from caraway.integrations.secret_rules import checked_value
from caraway.server.http.messages import HttpResponse, Request, json_response
from caraway.state import Mode
from caraway.state.permissions import Caller
from caraway.state.secret_store import SecretStore


class SecretRoutes:
    """Answers requests about secrets.

    Secrets have no tags and belong to no branch, as the jobs that use them may serve several branches. A caller
    therefore needs the mode on everything.
    """

    def __init__(self, store: SecretStore) -> None:
        """Work on `store`."""
        self._store = store

    async def get(self, request: Request, name: str) -> HttpResponse:
        """Answer `GET /secret/{name}`: its value."""
        require_everywhere(request.caller, Mode.READ_DATA)
        await asyncio.to_thread(self._store.refresh)
        return json_response({"value": self._store.get(name)})

    async def add(self, request: Request, name: str) -> HttpResponse:
        """Answer `POST /secret/{name}`: keep a new secret."""
        require_everywhere(request.caller, Mode.WRITE_DATA)
        await asyncio.to_thread(self._store.add, name, await _value(request), request.caller.account)
        return json_response({"name": name})

    async def update(self, request: Request, name: str) -> HttpResponse:
        """Answer `PATCH /secret/{name}`: change a secret, or keep a new one."""
        require_everywhere(request.caller, Mode.WRITE_DATA)
        await asyncio.to_thread(self._store.update, name, await _value(request), request.caller.account)
        return json_response({"name": name})

    async def delete(self, request: Request, name: str) -> HttpResponse:
        """Answer `DELETE /secret/{name}`: forget a secret."""
        require_everywhere(request.caller, Mode.WRITE_DATA)
        await asyncio.to_thread(self._store.delete, name)
        return json_response({"name": name})

    async def list(self, request: Request) -> HttpResponse:
        """Answer `GET /secrets`: the names of all secrets, without their values."""
        del request
        found = await asyncio.to_thread(self._store.names)
        return json_response(
            {
                "secrets": [
                    {"name": s.name, "updated_at": s.updated_at.isoformat(), "updated_by": s.updated_by}
                    for s in found.values()
                ]
            }
        )


def require_everywhere(caller: Caller, mode: Mode) -> None:
    """Check that a caller has a mode on all entities of all branches.

    Raises:
        ForbiddenError: The caller lacks the mode.
    """
    if not any(mode in grant.modes and grant.of_all and grant.branches is None for grant in caller.grants):
        raise ForbiddenError(
            f"account {caller.account!r} lacks {mode} on all entities of all branches, which secrets need"
        )


async def _value(request: Request) -> str:
    body = await request.json()
    if not isinstance(body, dict):
        raise InvalidInputError(f"the body is {json_type(body)}; an object with value is expected")
    return checked_value(body.get("value"))
