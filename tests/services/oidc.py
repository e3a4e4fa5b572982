"""An identity provider in a process of its own, and what a test makes it do."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from caraway.apps.stack.ports import choose
from tests.timeouts import deadline_in

START_S = 20.0
SCOPE = "topics"
PROGRAM = "caraway-cli"
AUDIENCE, CLIENT, SECRET, PASSWORD = "caraway-api", "caraway-console", "the-secret-of-the-client", "lovelace"


class IdentityProvider:
    """A running provider (`tests.services.oidc_server`)."""

    def __init__(self, port: int) -> None:
        self.issuer = f"http://127.0.0.1:{port}"
        self._http = httpx2.Client(base_url=self.issuer)

    def set(self, **given: object) -> int:
        """Change what the provider knows or does; return how often its document was read."""
        asked: int = self._http.post("/test/set", json=given).json()["asked"]
        return asked

    def refresh_tokens(self) -> int:
        """Return how many refresh tokens of the command line count."""
        known: int = self._http.post("/test/set", json={}).json()["refresh"]
        return known

    def rotate(self, algorithm: str = "RS256") -> None:
        """Replace the key."""
        self._http.post(f"/test/rotate/{algorithm}").raise_for_status()

    def token(self, header: dict[str, Any] | None = None, **claims: object) -> str:
        """Return a token for the API, with other claims than the right ones if some are given."""
        asked = {"header": header or {}, "claims": claims}
        token: str = self._http.post("/test/token", json=asked).raise_for_status().json()["token"]
        return token

    def keys(self) -> list[dict[str, Any]]:
        """Return its public keys."""
        found: list[dict[str, Any]] = self._http.get("/keys").json()["keys"]
        return found

    def answers(self) -> bool:
        try:
            return self._http.get("/keys").is_success
        except httpx2.TransportError:
            return False

    def close(self) -> None:
        self._http.close()


@contextmanager
def running_provider() -> Iterator[IdentityProvider]:
    """Start a provider, and end it."""
    port = choose()
    command = [sys.executable, "-m", "tests.services.oidc_server", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        provider = IdentityProvider(port)
        try:
            deadline = deadline_in(START_S)
            while not provider.answers():
                assert process.poll() is None, "the provider has ended"
                assert time.monotonic() < deadline, "the provider doesn't start"
                time.sleep(0.05)
            yield provider
        finally:
            provider.close()
            process.kill()
