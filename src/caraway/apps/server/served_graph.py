"""The served graph: loaded from Postgres, and replaced as a whole after a commit."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from caraway.apps.server.watch import Watch
from caraway.compute.extractors.pool import FunctionPool
from caraway.compute.query.catalog import Catalog
from caraway.compute.query.executor import Answer, CompiledPlan, QueryEngine
from caraway.compute.query.model import Reader
from caraway.compute.rows.calls import FunctionCaller, refuse_functions
from caraway.dataplane.index.reader import DatasetReader
from caraway.dataplane.ingest.endpoints import Endpoints
from caraway.errors import UnavailableError, UnknownEntityError
from caraway.graph.plan.model import GraphPlan, IndexPlan
from caraway.graph.specs import Graph
from caraway.process.collector import keep_what_is_here
from caraway.state.model import MAIN
from caraway.state.plans import Needed, Planned

LOG = structlog.get_logger(__name__)

# The version of the empty graph that a branch serves until its first commit is ready.
NO_COMMIT = ""
EMPTY = Planned(graph=Graph(), plan=GraphPlan())


class Queryable(Protocol):
    """The part that answers queries: `executor.QueryEngine`, or a view of it that is limited to a caller."""

    @property
    def catalog(self) -> Catalog:
        """The datasets and features that can be queried."""
        ...

    @property
    def asks_others(self) -> bool:
        """True if other servers may have parts of the index, so that a lookup may take a while."""
        ...

    def plan(
        self,
        inputs: Sequence[str],
        outputs: Sequence[str],
        *,
        foreign_inputs: bool = False,
        event_times: bool = False,
    ) -> CompiledPlan:
        """Return the plan of a query."""
        ...

    def lookup(
        self,
        dataset: str,
        keys: Sequence[Mapping[str, object]],
        fields: Sequence[str],
        timestamps: Sequence[object] | None = None,
    ) -> tuple[list[bool], Answer]:
        """Look up rows of a dataset by key."""
        ...


@dataclass(frozen=True, slots=True)
class ServedGraph:
    """All that a request needs of one version of the graph. Frozen, so that a request sees one version throughout.

    Attributes:
        version: The id of the served commit; `NO_COMMIT` before the first.
        graph: Its definitions.
        plan: Its topics, jobs and indexes.
        endpoints: The endpoints to which rows are logged, of all branches and their newest commits.
        queries: The part that answers queries and lookups.
        rebuilding: The datasets to which the branch's newest commit, which isn't served yet, gives another topic.
    """

    version: str
    graph: Graph
    plan: GraphPlan
    endpoints: Endpoints
    queries: Queryable
    rebuilding: frozenset[str] = frozenset()


def _rebuilt(served: GraphPlan, head: GraphPlan) -> frozenset[str]:
    """Return the served datasets that have another topic in a newer plan."""
    topics = {topic.name for topic in served.topics}
    rebuilt = {topic.dataset for topic in head.topics if topic.name not in topics}
    return frozenset(rebuilt & {topic.dataset for topic in served.topics})


class ServedGraphs:
    """The graphs that the branches serve, read from Postgres again after each commit. Thread safe."""

    def __init__(
        self,
        read: Callable[[], Needed],
        index: Reader[IndexPlan, bytes],
        functions: FunctionPool,
        poll_seconds: float,
        *,
        follow: Callable[[Needed], None] = lambda _: None,
        call: FunctionCaller = refuse_functions,
    ) -> None:
        """Prepare; nothing is read before `watch` is started.

        Args:
            read: Reads the erased keys, whose rows must not be shown, and then what the branches need.
            index: The source of rows.
            functions: The processes for users' functions.
            poll_seconds: The interval of the watch.
            follow: Has index and sources follow other plans; called before queries see these plans, so that no query
                reads an index that isn't being filled.
            call: Runs the users' functions of webhooks.
        """
        self.needed: Needed | None = None
        """All assets that the branches need; None before the graph was read."""
        self.watch = Watch("postgres", self.reload, poll_seconds)
        self._read = read
        self._index = index
        self._functions = functions
        self._follow = follow
        self._call = call
        self._served: Mapping[str, ServedGraph] = {}
        self._reloading = threading.Lock()

    def reload(self) -> None:
        """Compile the graphs that the branches serve, and serve them from now on, if a branch has changed.

        Raises `UnavailableError` if Postgres doesn't answer.
        """
        with self._reloading:
            needed = self._read()
            self._functions.end_unused({served.version for served in self._served.values()})
            if needed is self.needed:
                return
            self._follow(needed)
            self._served = self._compiled(needed)
            self.needed = needed
            LOG.info("serving", branches={branch.name: branch.serving for branch in needed.heads.branches})
            keep_what_is_here()

    def _compiled(self, needed: Needed) -> Mapping[str, ServedGraph]:
        """Return the graphs of all branches, by name; those that are served already are reused.

        The endpoints feed the datasets of all branches, even of a head that isn't served yet.
        """
        endpoints = Endpoints(GraphPlan(ingests=needed.ingests), self._call)
        compiled = {served.version: served for served in self._served.values()}
        found: dict[str, ServedGraph] = {}
        for branch in needed.heads.branches:
            version = branch.serving or NO_COMMIT
            planned = needed.commits[version] if version else EMPTY
            served = compiled.get(version)
            if served is None or served.plan != planned.plan:
                reader = DatasetReader(self._index, planned.plan.indexes)
                queries = QueryEngine(Catalog(version, planned.graph), reader, self._functions.compiler(version))
                served = compiled[version] = ServedGraph(version, planned.graph, planned.plan, endpoints, queries)
            head = planned if branch.head is None else needed.commits[branch.head]
            found[branch.name] = replace(served, endpoints=endpoints, rebuilding=_rebuilt(planned.plan, head.plan))
        return found

    def all(self) -> Mapping[str, ServedGraph]:
        """Return the graphs that the branches serve, by branch."""
        return self._served

    def main(self) -> ServedGraph | None:
        """Return the graph that the main branch serves; None before the graph was read."""
        return self._served.get(MAIN)

    def require_served_graph(self, branch: str = MAIN) -> ServedGraph:
        """Return the graph that a branch serves.

        Raises:
            UnavailableError: The graph hasn't been read yet.
            UnknownEntityError: There is no such branch.
        """
        served = self._served.get(branch)
        if served is not None:
            return served
        if self._served:
            raise UnknownEntityError(f"there is no branch {branch[:100]!r}; branches: {', '.join(self._served)}")
        raise self._unread()

    def require_needed(self) -> Needed:
        """Return all assets that the branches need. Raises `UnavailableError` if the graph hasn't been read yet."""
        if self.needed is None:
            raise self._unread()
        return self.needed

    def _unread(self) -> UnavailableError:
        reason = self.watch.problem() or "it is being read"
        return UnavailableError(f"the server is starting and doesn't know its definitions yet: postgres {reason}")
