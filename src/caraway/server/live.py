"""The graph that is served: loaded from Postgres, swapped as a whole when somebody commits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from caraway.errors import UnavailableError, UnknownEntityError
from caraway.graph.specs import Graph
from caraway.ingest import Endpoints
from caraway.plan.model import GraphPlan, IndexPlan
from caraway.query import Answer, Catalog, CompiledPlan, FunctionPool, QueryEngine
from caraway.server.reading import DatasetReader, Index, PartlyRemote, PartlyRemoteReader
from caraway.state import MAIN, Needed, Planned

# The version of a branch without any commit.
NO_COMMIT = ""
EMPTY = Planned(graph=Graph(), plan=GraphPlan())


class Indexer(Protocol):
    """What tails topics into the index (`caraway.index.IndexWorker`)."""

    def set_plans(self, plans: Sequence[IndexPlan]) -> None:
        """Index these from now on, and no others."""
        ...


class Queryable(Protocol):
    """What answers queries: `caraway.query.QueryEngine`, or as much of it as a caller may see."""

    @property
    def catalog(self) -> Catalog:
        """What there is to query."""
        ...

    @property
    def asks_others(self) -> bool:
        """Whether parts of the index may be elsewhere, so that a lookup takes its time."""
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
class Live:
    """All that a request needs of one version of the graph. Frozen: a request sees one version from start to end.

    Attributes:
        version: The served commit; empty before the first.
        graph: Its definitions.
        plan: Its topics, jobs and indexes.
        endpoints: Where rows are logged, for all branches and their newest commits.
        queries: Answers queries and lookups.
        rebuilding: The datasets to which the branch's newest commit, which isn't served yet, gives another topic.
    """

    version: str
    graph: Graph
    plan: GraphPlan
    endpoints: Endpoints
    queries: Queryable
    rebuilding: frozenset[str] = frozenset()


def live_of(branch: str, lives: Mapping[str, Live], problem: Callable[[], str | None]) -> Live:
    """Return what a branch serves.

    Args:
        branch: Its name.
        lives: What all branches serve; empty before the graph was read.
        problem: Tells why Postgres can't be read, if it can't; asked only when nothing is served.

    Raises:
        UnavailableError: The graph hasn't been read yet.
        UnknownEntityError: There is no such branch.
    """
    live = lives.get(branch)
    if live is not None:
        return live
    if lives:
        raise UnknownEntityError(f"there is no branch {branch[:100]!r}; branches: {', '.join(lives)}")
    reason = problem() or "it is being read"
    raise UnavailableError(f"the server is starting and doesn't know its definitions yet: postgres {reason}")


class Serving(Protocol):
    """What has a graph to serve (`caraway.server.deployment.Deployment`)."""

    def require_live(self, branch: str = MAIN) -> Live:
        """Return what a branch serves now."""
        ...


def make_live(version: str, planned: Planned, endpoints: Endpoints, index: Index, functions: FunctionPool) -> Live:
    """Compile what a branch serves; `endpoints` are those of all branches, users' code runs in `functions`."""
    plans = planned.plan.indexes
    reader = PartlyRemoteReader(index, plans) if isinstance(index, PartlyRemote) else DatasetReader(index, plans)
    queries = QueryEngine(Catalog(version, planned.graph), reader, functions.compile)
    return Live(version, planned.graph, planned.plan, endpoints, queries)


def make_lives(needed: Needed, index: Index, functions: FunctionPool, known: Mapping[str, Live]) -> Mapping[str, Live]:
    """Compile what the branches serve, by name; what `known` has compiled of the same commit is taken over.

    Rows that are logged go to all branches, whether they serve their head already or not.
    """
    endpoints = Endpoints(GraphPlan(ingests=needed.ingests))
    compiled = {live.version: live for live in known.values()}
    lives: dict[str, Live] = {}
    for branch in needed.standing.branches:
        version = branch.serving or NO_COMMIT
        planned = needed.commits[version] if version else EMPTY
        live = compiled.get(version)
        if live is None or live.plan != planned.plan:
            live = compiled[version] = make_live(version, planned, endpoints, index, functions)
        head = planned if branch.head is None else needed.commits[branch.head]
        rebuilding = _rebuilt(planned.plan, head.plan)
        lives[branch.name] = replace(live, endpoints=endpoints, rebuilding=rebuilding)
    return lives


def _rebuilt(served: GraphPlan, head: GraphPlan) -> frozenset[str]:
    """Return the served datasets of which a newer plan has another topic."""
    topics = {topic.name for topic in served.topics}
    rebuilt = {topic.dataset for topic in head.topics if topic.name not in topics}
    return frozenset(rebuilt & {topic.dataset for topic in served.topics})
