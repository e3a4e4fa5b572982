"""The plans of all commits that some branch has as its head or serves, with the names of the assets in use."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from caraway.errors import UnknownEntityError
from caraway.graph.plan.model import GraphPlan, IndexPlan, IngestPlan, JobPlan, SinkPlan, on_branch
from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import Graph
from caraway.graph.wire.graphs import decode_graph
from caraway.state.blueprints import apply_generations, content_of
from caraway.state.model import BranchHeads
from caraway.state.reader import StateReader

T = TypeVar("T", JobPlan, IndexPlan, IngestPlan, SinkPlan)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A commit's graph and its plan."""

    graph: Graph
    plan: GraphPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """All that the branches need at one moment; a piece that several of them share appears once."""

    heads: BranchHeads
    commits: Mapping[str, Planned]
    jobs: tuple[JobPlan, ...] = ()
    indexes: tuple[IndexPlan, ...] = ()
    ingests: tuple[IngestPlan, ...] = ()
    sinks: tuple[SinkPlan, ...] = ()

    def of(self, branch: str) -> Mapping[str, Planned]:
        """Return the commits that a branch serves and has as its head, by their ids; none if there is no branch."""
        names = [name for b in self.heads.branches if b.name == branch for name in (b.serving, b.head) if name]
        return {name: self.commits[name] for name in names}

    def head_of(self, branch: str) -> Planned:
        """Return a branch's newest commit. Raises `UnknownEntityError` if there is no such branch, or it has none."""
        head = next((b.head for b in self.heads.branches if b.name == branch), None)
        if head is None:
            raise UnknownEntityError(
                f"there is no branch {branch!r} with a commit; `caraway branch list` (GET /branch/list) shows all"
            )
        return self.commits[head]


class Plans:
    """Plans the commits in use, and keeps their plans. Not thread safe."""

    def __init__(self, source: StateReader) -> None:
        """Read from `source`; nothing is read yet."""
        self._source = source
        self.needed: Needed | None = None
        """The needs that the last refresh returned; None before the first one."""

    def refresh(self) -> Needed:
        """Return what the branches need now. As long as no branch has moved, this is the same object each time."""
        heads = self._source.branch_heads()
        if self.needed is None or heads != self.needed.heads:
            self.needed = self._plan(heads, self.needed)
        return self.needed

    def _plan(self, heads: BranchHeads, last: Needed | None) -> Needed:
        known = {} if last is None else last.commits
        commits = {name: known.get(name) or self.planned(name) for name in heads.commits}
        plans = [planned.plan for planned in commits.values()]
        return Needed(
            heads=heads,
            commits=commits,
            jobs=_once(job for plan in plans for job in plan.jobs),
            indexes=_once(index for plan in plans for index in plan.indexes),
            ingests=_once(ingest for plan in plans for ingest in plan.ingests),
            sinks=_once(sink for plan in plans for sink in plan.sinks),
        )

    def planned(self, commit_id: str) -> Planned:
        """Return the graph and the plan of a commit. Raises `UnknownEntityError` if there is no such commit."""
        graph = decode_graph(self._source.graph(commit_id))
        generations = self._source.generations(commit_id)
        plan = plan_graph(graph)
        # The sinks are those of the branch on which the commit was made. A clone of that branch that has no commit of
        # its own yet shares them.
        plan = on_branch(plan, self._source.branch_of(commit_id)) if plan.sinks else plan
        return Planned(graph=graph, plan=apply_generations(plan, generations))


def _once(pieces: Iterable[T]) -> tuple[T, ...]:
    return tuple({content_of(piece): piece for piece in pieces}.values())
