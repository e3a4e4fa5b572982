"""A commit is planned once, with the names of its own generations."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from typing_extensions import override

from caraway.graph.specs import Graph
from caraway.graph.wire.graphs import encode_graph
from caraway.state.blueprints import content_of
from caraway.state.model import BranchHeads, BranchRecord
from caraway.state.plans import Plans
from caraway.state.reader import StateReader
from tests.unit.apps.server.control.graphs import clicks, spend, users

FIRST = Graph(datasets=(clicks(), spend()))
GRAPHS = {"a": FIRST, "b": Graph(datasets=(clicks(), spend(), users())), "again": FIRST}


@dataclass
class Source(StateReader):
    """A source whose branches move, and which counts how often each graph was read."""

    heads: dict[str, str | None]
    numbers: dict[str, Mapping[str, int]] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)

    @override
    def branch_heads(self) -> BranchHeads:
        at = datetime(2030, 1, 1, tzinfo=UTC)
        branches = (
            BranchRecord(name=name, head=head, serving=head, created_at=at) for name, head in self.heads.items()
        )
        return BranchHeads(branches=tuple(branches))

    @override
    def graph(self, commit_id: str) -> bytes:
        self.reads.append(commit_id)
        return encode_graph(GRAPHS[commit_id])

    @override
    def generations(self, commit_id: str) -> Mapping[str, int]:
        return self.numbers.get(commit_id, {})


def test_what_several_branches_need_is_planned_once_and_kept() -> None:
    source = Source({"main": "a"})
    plans = Plans(source)
    first = plans.refresh()
    assert plans.refresh() is first
    source.heads["other"] = "b"
    second = plans.refresh()
    assert second.commits["a"] is first.commits["a"]
    assert source.reads == ["a", "b"]
    # Both commits share the job, so it appears once.
    assert [job.dataset for job in second.jobs] == ["Spend"]
    assert {index.dataset for index in second.indexes} == {"Spend", "Users"}
    source.heads = {"main": None}
    assert plans.refresh().jobs == ()


def test_a_further_generation_gives_other_names() -> None:
    source = Source({"main": "a"})
    plans = Plans(source)
    (before,) = plans.refresh().jobs
    source.numbers["again"] = {content_of(before): 2}
    source.heads["main"] = "again"
    (after,) = plans.refresh().jobs
    assert after.job_id == f"{before.job_id}.2"
    # Two branches may use two generations of a content at once.
    source.heads["other"] = "a"
    assert {job.job_id for job in plans.refresh().jobs} == {before.job_id, after.job_id}
