"""A table of operations of the REST surface: their statuses, and whether each needs a token or is about a branch.

Statuses that all operations of a kind have in common are derived from the kind; the table holds the statuses that
handlers raise beyond those.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from caraway.server.access.gate import NEEDS

STATUSES: Final[Mapping[int, str]] = {
    400: "The body, a row or a value doesn't fit",
    401: "There is no token, or it isn't valid",
    403: "The roles of the token's account don't allow it, or a web page of another site asks",
    404: "There is no such dataset, feature, endpoint or branch",
    408: "The body doesn't come",
    409: "Somebody else committed meanwhile, or the key was used with another body",
    413: "Too many bytes or rows",
    415: "The path doesn't take a body of this type",
    422: "User code failed, or not one row fits",
    429: "Too many requests are under way",
    500: "The server failed",
    503: "A part is away",
    504: "It took too long",
}

# Statuses that any operation can answer: 403 for a page of another site or a foreign host
# (`caraway.server.access.sites`), 429 and 504 for the shares of callers and the deadline (`caraway.server.app`), 500
# and 503 for failures of the server or of one of its processes.
OF_ALL: Final = frozenset({403, 429, 500, 503, 504})
# Statuses of the health check, which is open to everybody.
OF_HEALTH: Final = frozenset({500, 503})
# Statuses of operations with a body: damaged, too slow or cut off, too large, of another media type.
OF_A_BODY: Final = frozenset({400, 408, 413, 415})


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation, described by the statuses that it can answer.

    Attributes:
        target: Its target (`caraway.server.http.routes.Route`), by which the token that it needs is found.
        raises: Statuses that its handler raises beyond those of its kind.
        branch: True if it is about the branch that a header names.
        body: True if it takes a body.
    """

    target: str
    raises: frozenset[int] = frozenset()
    branch: bool = True
    body: bool = False

    @property
    def needs_token(self) -> bool:
        """Return whether a server with tokens answers only requests that carry one."""
        return NEEDS[self.target] is not None

    @property
    def statuses(self) -> tuple[int, ...]:
        """Return the statuses that the operation can answer, besides 200."""
        found = OF_HEALTH if self.target == "health" else OF_ALL | self.raises
        return tuple(sorted(found | (OF_A_BODY if self.body else set()) | ({401} if self.needs_token else set())))


def _takes(target: str, *raises: int, branch: bool = True) -> Operation:
    return Operation(target, frozenset(raises), branch, body=True)


def _shows(target: str, *raises: int, branch: bool = True) -> Operation:
    return Operation(target, frozenset(raises), branch)


# The operations by operation id. Status 404 means that a branch, or something that a path or a body names, doesn't
# exist.
OPERATIONS: Final[Mapping[str, Operation]] = {
    "query": _takes("extract_features", 404, 422),
    "explainQuery": _takes("explain_query", 404, 422),
    "getOnlineFeatures": _takes("extract_features", 404, 422),
    "lookup": _takes("lookup", 404),
    # 409 answers an idempotency key that was used with another body, 422 a request of which every row was refused.
    "log": _takes("log", 404, 409, 422),
    "wait": _takes("wait", 404),
    "commit": _takes("sync", 404, 409),
    "erase": _takes("erase", 404, 409),
    "erasures": _shows("erasures", 404),
    "getSecret": _shows("get_secret", 400, 404, branch=False),
    "addSecret": _takes("add_secret", 404, 409, branch=False),
    "updateSecret": _takes("update_secret", 404, branch=False),
    "deleteSecret": _takes("delete_secret", 404, branch=False),
    "listSecrets": _shows("list_secrets", branch=False),
    "initBranch": _takes("init_branch", 404, 409),
    "deleteBranch": _takes("delete_branch", 404, 409),
    "listBranches": _shows("list_branches", branch=False),
    "branchLog": _shows("branch_log", 400, 404),
    "branchDiff": _shows("branch_diff", 400, 404, branch=False),
    "rollBack": _takes("roll_back", 404, 409),
    "deadLetters": _shows("dead_letters", 400, 404),
    "deadLetter": _shows("dead_letter", 400, 404),
    "replay": _takes("replay", 404, 409, 422),
    "listDatasets": _shows("list_datasets", 404),
    "describe": _shows("describe", 404),
    "ledger": _shows("ledger", 400, branch=False),
    "health": _shows("health", branch=False),
    "status": _shows("status", branch=False),
    "metrics": _shows("metrics", branch=False),
    "metricsAtTheRoot": _shows("metrics", branch=False),
    "openapi": _shows("openapi", branch=False),
    "docs": _shows("docs", branch=False),
    "root": _shows("root", branch=False),
}
