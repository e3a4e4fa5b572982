"""The served graph: loaded from Postgres, and replaced as a whole after a commit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from caraway.errors import UnavailableError, UnknownEntityError
from caraway.graph.specs import Graph
from caraway.index.reader import DatasetReader
from caraway.ingest import Endpoints
from caraway.plan.model import GraphPlan, IndexPlan
from caraway.query import Answer, Catalog, CompiledPlan, FunctionPool, QueryEngine
from caraway.query.model import Reader
from caraway.state import MAIN, Needed, Planned

# The version of a branch that has no commit.
NO_COMMIT = ""
EMPTY = Planned(graph=Graph(), plan=GraphPlan())


class Queryable(Protocol):
    """The part that answers queries: `caraway.query.QueryEngine`, or a view of it that is limited to a caller."""

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
        version: The served commit; empty before the first.
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


def served_graph_of(
    branch: str, served_graphs: Mapping[str, ServedGraph], problem: Callable[[], str | None]
) -> ServedGraph:
    """Return the graph that a branch serves.

    Args:
        branch: Its name.
        served_graphs: The served graphs of all branches; empty before the graph was read.
        problem: Returns why Postgres can't be read, if it can't; asked only when nothing is served.

    Raises:
        UnavailableError: The graph hasn't been read yet.
        UnknownEntityError: There is no such branch.
    """
    served = served_graphs.get(branch)
    if served is not None:
        return served
    if served_graphs:
        raise UnknownEntityError(f"there is no branch {branch[:100]!r}; branches: {', '.join(served_graphs)}")
    reason = problem() or "it is being read"
    raise UnavailableError(f"the server is starting and doesn't know its definitions yet: postgres {reason}")


class Serving(Protocol):
    """The part that has the served graphs (`caraway.server.deployment.Deployment`)."""

    def require_served_graph(self, branch: str = MAIN) -> ServedGraph:
        """Return the graph that a branch serves now."""
        ...


def compile_served_graph(
    version: str, planned: Planned, endpoints: Endpoints, index: Reader[IndexPlan, bytes], functions: FunctionPool
) -> ServedGraph:
    """Compile a branch's graph; `endpoints` are those of all branches, users' code runs in `functions`."""
    reader = DatasetReader(index, planned.plan.indexes)
    queries = QueryEngine(Catalog(version, planned.graph), reader, functions.compile)
    return ServedGraph(version, planned.graph, planned.plan, endpoints, queries)


def compile_served_graphs(
    needed: Needed, index: Reader[IndexPlan, bytes], functions: FunctionPool, known: Mapping[str, ServedGraph]
) -> Mapping[str, ServedGraph]:
    """Compile the graphs of all branches, by name; those that `known` has of the same commit are reused.

    The endpoints feed the datasets of all branches, even of a head that isn't served yet.
    """
    endpoints = Endpoints(GraphPlan(ingests=needed.ingests))
    compiled = {served.version: served for served in known.values()}
    served_graphs: dict[str, ServedGraph] = {}
    for branch in needed.heads.branches:
        version = branch.serving or NO_COMMIT
        planned = needed.commits[version] if version else EMPTY
        served = compiled.get(version)
        if served is None or served.plan != planned.plan:
            served = compiled[version] = compile_served_graph(version, planned, endpoints, index, functions)
        head = planned if branch.head is None else needed.commits[branch.head]
        rebuilding = _rebuilt(planned.plan, head.plan)
        served_graphs[branch.name] = replace(served, endpoints=endpoints, rebuilding=rebuilding)
    return served_graphs


def _rebuilt(served: GraphPlan, head: GraphPlan) -> frozenset[str]:
    """Return the served datasets that have another topic in a newer plan."""
    topics = {topic.name for topic in served.topics}
    rebuilt = {topic.dataset for topic in head.topics if topic.name not in topics}
    return frozenset(rebuilt & {topic.dataset for topic in served.topics})
