"""The handlers of secrets in the platform's own store; each is kept sealed, and opened for callers and functions.

Secrets have no tags and belong to no branch, as the jobs that use them may serve several branches. Their endpoints
therefore need the mode on everything.
"""

import asyncio
from typing import Annotated

from msgspec import Meta, Struct

from caraway.apps.server.handlers.context import ServerContext
from caraway.apps.server.http.messages import HttpResponse, Request, json_response
from caraway.graph.secrets.rules import MAX_VALUE, checked_value


class SecretBody(Struct):
    """The value of a secret."""

    value: Annotated[str, Meta(max_length=MAX_VALUE, description=f"a string of 1 to {MAX_VALUE:,} characters")]


async def get_secret(context: ServerContext, request: Request, name: str) -> HttpResponse:
    """Return the value of a secret."""
    await asyncio.to_thread(context.deployment.secrets.refresh)
    return json_response({"value": context.deployment.secrets.get(name)})


async def add_secret(context: ServerContext, request: Request[SecretBody], name: str) -> HttpResponse:
    """Keep a new secret."""
    await asyncio.to_thread(
        context.deployment.secrets.add, name, checked_value((await request.read()).value), request.caller.account
    )
    return json_response({"name": name})


async def update_secret(context: ServerContext, request: Request[SecretBody], name: str) -> HttpResponse:
    """Change a secret, or keep a new one."""
    await asyncio.to_thread(
        context.deployment.secrets.update, name, checked_value((await request.read()).value), request.caller.account
    )
    return json_response({"name": name})


async def delete_secret(context: ServerContext, request: Request, name: str) -> HttpResponse:
    """Forget a secret."""
    await asyncio.to_thread(context.deployment.secrets.delete, name)
    return json_response({"name": name})


async def list_secrets(context: ServerContext, request: Request) -> HttpResponse:
    """Return the names of all secrets, without their values."""
    found = await asyncio.to_thread(context.deployment.secrets.names)
    return json_response(
        {
            "secrets": [
                {"name": s.name, "updated_at": s.updated_at.isoformat(), "updated_by": s.updated_by}
                for s in found.values()
            ]
        }
    )
