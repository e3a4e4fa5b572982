"""The branches of a server, and the one on which a client works."""

from caraway.client.caller import Caller
from caraway.client.response import BRANCH_HEADER, Response
from caraway.graph.branch_names import check_branch_name

MAIN_BRANCH = "main"


class Branches(Caller):
    """The part of `Client` that makes, lists, removes and chooses branches."""

    def init_branch(self, name: str) -> Response:
        """Create an empty branch and check it out.

        Raises:
            InvalidInputError: The name has other characters than letters, digits, `_`, `.`, `-` and `/`.
            RemoteError: The branch exists, or the server refused; the current branch stays.
        """
        return self._make_branch(check_branch_name(name), {})

    def clone_branch(self, name: str, from_branch: str) -> Response:
        """Create a branch with the definitions and data of another one, and check it out.

        Raises:
            InvalidInputError: The name has other characters than letters, digits, `_`, `.`, `-` and `/`.
            RemoteError: The branch exists, the other one doesn't, or the server refused; the current branch stays.
        """
        return self._make_branch(check_branch_name(name), {"clone_from": from_branch})

    def delete_branch(self, name: str) -> Response:
        """Delete a branch; if it is the current one, main is checked out.

        Raises:
            RemoteError: The branch is main or doesn't exist, or the server refused.
        """
        response = self._connection.request("POST", "/delete", {BRANCH_HEADER: name}, body={})
        if self._branch == name:
            self._branch = MAIN_BRANCH
        return response

    def list_branches(self) -> list[str]:
        """Return the names of all branches."""
        answer = self._connection.request("GET", "/branch/list", self._headers()).json()
        return [str(branch["name"]) for branch in answer["branches"]]

    def checkout(self, name: str, init: bool = False) -> None:
        """Switch to a branch, without asking the server whether it exists.

        Args:
            name: The branch.
            init: Create the branch if it doesn't exist.
        """
        if init and name not in self.list_branches():
            self.init_branch(name)
        self._branch = name

    def branch(self) -> str:
        """Return the name of the current branch."""
        return self._branch

    def _make_branch(self, name: str, body: dict[str, str]) -> Response:
        response = self._connection.request("POST", "/init", {BRANCH_HEADER: name}, body=body)
        self._branch = name
        return response
