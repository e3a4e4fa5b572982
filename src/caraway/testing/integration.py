"""Clients for tests against a server."""

import os
import time

from caraway.client import Client
from caraway.client.discovery import DEFAULT_URL, URL_VARIABLE
from caraway.errors import UnavailableError
from caraway.graph.wire.graphs import CommitRequest

MODE_VARIABLE = "TEST_MODE"


class InternalTestClient(Client):
    """A client that is never connected: entities are added to it, and it builds the commit."""

    def __init__(self) -> None:
        super().__init__(DEFAULT_URL, "token")

    def commit_request(self, message: str = "", env: str | None = None) -> CommitRequest:
        """Return the request that `commit` would send for the added entities."""
        return self.build_commit(message, *self.queued(), env=env)


class LocalClient(Client):
    """A plain client."""


class IntegrationClient(Client):
    """A client of a running server.

    The server must be named: tests commit and log, which must not happen to a stack that just happens to run here.

    Args:
        url: The server; by default that of the environment variable CARAWAY_URL.
        token: The token to send; by default that of CARAWAY_TOKEN, or of the stack on this machine whose address the
            URL is.
        branch: The branch to work on; main by default.

    Raises:
        UnavailableError: No server is named.
    """

    def __init__(self, url: str | None = None, token: str | None = None, branch: str | None = None) -> None:
        url = url or os.environ.get(URL_VARIABLE)
        if not url:
            raise UnavailableError(
                f"IntegrationClient: there is no server to talk to; start one (`caraway up`) and set {URL_VARIABLE}, "
                f"such as {DEFAULT_URL}, or pass url"
            )
        super().__init__(url, token, branch)

    def sleep(self, seconds: float = 7) -> None:
        """Wait for logged rows to be processed."""
        time.sleep(seconds)

    def is_integration_client(self) -> bool:
        """Return True: there is a server."""
        return True

    def integration_mode(self) -> str:
        """Return the value of TEST_MODE; "inmemory" by default."""
        return os.environ.get(MODE_VARIABLE, "inmemory")
