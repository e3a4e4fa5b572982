"""The secrets of a server."""

from urllib.parse import quote

from caraway.client.caller import Caller
from caraway.client.response import Response


class Secrets(Caller):
    """The part of `Client` that reads and changes secrets."""

    def get_secret(self, name: str) -> str:
        """Return a secret.

        Raises:
            RemoteError: There is no secret of this name, or the server refused.
        """
        answer = self._connection.request("GET", _path(name), self._headers()).json()
        return str(answer["value"])

    def add_secret(self, name: str, value: str) -> Response:
        """Store a new secret."""
        return self._connection.request("POST", _path(name), self._headers(), body={"value": value})

    def update_secret(self, name: str, value: str) -> Response:
        """Change a secret."""
        return self._connection.request("PATCH", _path(name), self._headers(), body={"value": value})

    def delete_secret(self, name: str) -> Response:
        """Delete a secret."""
        return self._connection.request("DELETE", _path(name), self._headers(), body={})


def _path(name: str) -> str:
    return f"/secret/{quote(name, safe='')}"
