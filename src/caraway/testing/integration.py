"""Clients for tests against a server."""

import os
import time

from caraway.client import Client
from caraway.errors import UnavailableError
from caraway.graph.wire import CommitRequest

# Where a server on this machine listens by default.
LOCAL_URL = "http://localhost:8000"
URL_VARIABLE = "CARAWAY_URL"
TOKEN_VARIABLE = "CARAWAY_TOKEN"  # noqa: S105 (its name)
MODE_VARIABLE = "TEST_MODE"


class InternalTestClient(Client):
    """A client that is never connected: entities are added to it, and it builds the commit."""

    def __init__(self) -> None:
        super().__init__(LOCAL_URL, "token")

    def commit_request(self, message: str = "", env: str | None = None) -> CommitRequest:
        """Build what `commit` would send for the entities that were added."""
        return self.build_commit(message, *self.queued(), env=env)


class LocalClient(Client):
    """A plain client."""


class IntegrationClient(Client):
    """A client of a running server.

    Args:
        url: Where the server is; by default what the environment variable CARAWAY_URL says.
        token: Who the user is; by default what CARAWAY_TOKEN says.
        branch: The branch to work on; main by default.

    Raises:
        UnavailableError: Nothing says where a server is.
    """

    def __init__(self, url: str | None = None, token: str | None = None, branch: str | None = None) -> None:
        url = url or os.environ.get(URL_VARIABLE)
        if not url:
            raise UnavailableError(
                f"IntegrationClient: there is no server to talk to; start one (`caraway up`) and set {URL_VARIABLE}, "
                f"such as {LOCAL_URL}, or pass url"
            )
        super().__init__(url, token if token is not None else os.environ.get(TOKEN_VARIABLE, ""), branch)

    def sleep(self, seconds: float = 7) -> None:
        """Wait for what was logged to be processed."""
        time.sleep(seconds)

    def is_integration_client(self) -> bool:
        """Tell that there is a server."""
        return True

    def integration_mode(self) -> str:
        """Return what TEST_MODE says; "inmemory" by default."""
        return os.environ.get(MODE_VARIABLE, "inmemory")
