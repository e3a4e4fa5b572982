"""The requests of tools to a Caraway server, each with the token of the agent that calls the tool.

Tools have no rights of their own: whatever they read, the server decides by the token whether the agent may see it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from caraway.client.http import Connection
from caraway.client.response import BRANCH_HEADER

BEARER: Final = "bearer "

Connect = Callable[[str, str], Connection]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A Caraway server and the branch that tools read.

    Attributes:
        url: The server's address.
        branch: The branch that is read if a tool isn't asked for another one.
        token: The token for calls that bring none, as over standard input and output; None if each call must bring
            its own.
        connect: Opens a connection to a URL with a token.
    """

    url: str
    branch: str
    token: str | None
    connect: Connect = Connection

    @contextmanager
    def asked_by(self, headers: Mapping[str, str] | None) -> Iterator["Asker"]:
        """Yield the requests of one call, whose HTTP headers are given; None if the call came without HTTP."""
        token = self.token if headers is None or self.token is not None else bearer_token(headers)
        connection = self.connect(self.url, token or "")
        try:
            yield Asker(connection, self.branch)
        finally:
            connection.close()


@dataclass(frozen=True, slots=True)
class Asker:
    """Requests with one token, about one branch.

    Each raises `RemoteError` if the server refuses it, and `UnavailableError` if the server doesn't answer.
    """

    connection: Connection
    branch: str

    def get(self, path: str, params: Mapping[str, object] | None = None, *, branch: str = "") -> Any:
        """Return the JSON of what is under a path; parameters that are None or empty aren't sent."""
        sent = {name: None if value in {None, ""} else str(value) for name, value in (params or {}).items()}
        return self.connection.request("GET", path, self._headers(branch), params=sent).json()

    def post(self, path: str, body: object, *, branch: str = "") -> Any:
        """Return the JSON of the answer to a POST request; tools post questions only."""
        return self.connection.request("POST", path, self._headers(branch), body=body).json()

    def _headers(self, branch: str) -> dict[str, str]:
        return {BRANCH_HEADER: branch or self.branch}


def bearer_token(headers: Mapping[str, str]) -> str:
    """Return the token in the header `Authorization`; an empty text if there is none."""
    given = headers.get("authorization", "")
    return given[len(BEARER) :].strip() if given[: len(BEARER)].lower() == BEARER else ""
