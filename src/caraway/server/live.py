"""The graph that is served: loaded from Postgres, swapped as a whole when somebody commits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from caraway.graph.specs import Graph
from caraway.graph.wire import decode_graph
from caraway.ingest import Endpoints
from caraway.plan.model import GraphPlan, IndexPlan
from caraway.plan.planner import plan_graph
from caraway.query import Catalog, QueryEngine
from caraway.server.reading import DatasetReader, Index
from caraway.state.model import Head

# The version of a branch without any commit.
NO_COMMIT = ""


class Indexer(Protocol):
    """What tails topics into the index (`caraway.index.IndexWorker`)."""

    def set_plans(self, plans: Sequence[IndexPlan]) -> None:
        """Index these from now on, and no others."""
        ...


@dataclass(frozen=True, slots=True)
class Live:
    """All that a request needs of one version of the graph. Frozen: a request sees one version from start to end."""

    version: str
    graph: Graph
    plan: GraphPlan
    endpoints: Endpoints
    queries: QueryEngine


def make_live(head: Head, index: Index) -> Live:
    """Plan and compile the graph of a branch's head."""
    graph = decode_graph(head.graph) if head.commit_id else Graph()
    plan = plan_graph(graph)
    version = head.commit_id or NO_COMMIT
    queries = QueryEngine(Catalog(version, graph), DatasetReader(index, plan.indexes))
    return Live(version, graph, plan, Endpoints(plan), queries)
