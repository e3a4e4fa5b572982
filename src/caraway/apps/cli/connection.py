"""The HTTP requests of commands, by the standard library: httpx2 takes longer to import than most commands run."""

from collections.abc import Mapping
from http.client import HTTPException
from typing import Final
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request

import orjson

from caraway.client.discovery import ServerAddress
from caraway.client.response import V1_API, Response, no_answer
from caraway.errors import InvalidInputError

# The time limit of a request, which is long enough for a server that is busy with a commit. A server that is down
# refuses the connection at once.
TIMEOUT_SECONDS: Final = 600.0


def send(
    method: str,
    path: str,
    server: ServerAddress,
    *,
    headers: Mapping[str, str],
    params: Mapping[str, str] | None = None,
    body: object = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Response:
    """Send a request below `/api/v1`, with a JSON body if there is one, and return the answer, also a refusal.

    Raises:
        InvalidInputError: The server's URL isn't an HTTP URL.
        UnavailableError: The server doesn't answer.
    """
    address = urlsplit(server.url)
    if address.scheme not in {"http", "https"} or not address.hostname:
        raise InvalidInputError(f"{server.url!r} is no URL of a server, such as http://127.0.0.1:8100")
    query = f"?{urlencode(params)}" if params else ""
    sent = {"Accept": "application/json", **headers}
    if server.token:
        sent["Authorization"] = f"Bearer {server.token}"
    if body is not None:
        sent["Content-Type"] = "application/json"
    request = Request(  # noqa: S310 (the scheme was checked)
        f"{address.scheme}://{address.netloc}{V1_API}{path}{query}",
        data=None if body is None else orjson.dumps(body),
        headers=sent,
        method=method,
    )
    try:
        with _opener().open(request, timeout=timeout_seconds) as answer:
            return Response(
                answer.status, {name.lower(): value for name, value in answer.headers.items()}, answer.read()
            )
    except (OSError, HTTPException) as error:
        raise no_answer(server.url, error) from error


def _opener() -> OpenerDirector:
    """Return an opener that follows no redirect, which would send the token to another server, and opens no files."""
    opener = OpenerDirector()
    for handler in (ProxyHandler(), HTTPHandler(), HTTPSHandler()):
        opener.add_handler(handler)
    return opener
