"""The parts that handlers work with: those of every process that reads, and those of a whole server."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from caraway.apps.server.access.limits import AccessLimits
from caraway.apps.server.access.shares import Places
from caraway.apps.server.access.sharing import Sharing
from caraway.apps.server.deployment import Deployment
from caraway.apps.server.handlers.queries import Queries
from caraway.dataplane.ingest.service import IngestService

# The most requests that wait for rows to be served at the same time. Each has a Kafka consumer that reads the output
# topics of all jobs of its branch, which costs the server and the broker much.
MAX_WAITS = 8


@dataclass(slots=True, kw_only=True)
class ReadContext:
    """The parts of handlers that read.

    Attributes:
        limits: Restricts callers to what they may see.
        keep: A function that is called with queries that are to be kept.
        queries: The threads of large queries.
        resolved: The resolved names of Feast's requests, which repeat.
    """

    limits: AccessLimits
    keep: Callable[..., None]
    queries: Queries = field(default_factory=Queries)
    resolved: dict[object, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class ServerContext(ReadContext):
    """The parts of all handlers.

    Attributes:
        deployment: The parts of the server behind HTTP.
        ingest: Accepts rows.
        document: The OpenAPI document.
        differences: The differences of the pairs of commits that were compared last.
        waits: The places of requests that wait for rows to be served.
        sharing: Restricts callers to the branches on which they have rights.
    """

    deployment: Deployment
    ingest: IngestService
    document: dict[str, Any]
    differences: dict[object, dict[str, object]] = field(default_factory=dict)
    waits: Places = field(default_factory=lambda: Places(MAX_WAITS, "requests wait"))
    sharing: Sharing = field(init=False)

    def __post_init__(self) -> None:
        self.sharing = Sharing(self.deployment.graphs, self.limits)
