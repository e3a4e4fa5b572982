"""The base of what a client can do: requests to a server about a branch."""

from typing import TYPE_CHECKING

from caraway.client.response import BRANCH_HEADER

if TYPE_CHECKING:
    from caraway.client.http import Connection


class Caller:
    """The base of the parts of `Client`, which sets both attributes.

    Every method of a part that sends a request raises `UnavailableError` if the server doesn't answer, and
    `RemoteError` if it refuses. A method lists these only where there is more to say.
    """

    _connection: "Connection"
    _branch: str

    def _headers(self) -> dict[str, str]:
        return {BRANCH_HEADER: self._branch}
