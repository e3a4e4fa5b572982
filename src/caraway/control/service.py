"""A commit, from a request to the branch's new head."""

import uuid
from collections.abc import Callable, Sequence
from typing import Protocol, Self

from caraway.control.model import CommitResult
from caraway.control.summary import Change, summarize
from caraway.errors import CommitError
from caraway.graph.fingerprints import graph_fingerprint
from caraway.graph.immutability import descendant_faults, omission_faults
from caraway.graph.merging import merge
from caraway.graph.specs import Graph
from caraway.graph.validation import validate
from caraway.graph.wire import CommitRequest, decode_graph, encode_graph
from caraway.plan.model import TopicPlan
from caraway.plan.planner import plan_graph
from caraway.state import MAIN, Head, NewCommit, StateReader, StateWriter, connect
from caraway.topics.admin import ensure_topics


class Heads(Protocol):
    """What a commit must know of the state."""

    def head(self, branch: str) -> Head:
        """Give a branch's newest commit and graph."""


class Commits(Protocol):
    """Where a commit is written."""

    def publish(self, commit: NewCommit) -> None:
        """Write a commit and move its branch, all or nothing."""


class CommitService:
    """Makes commits. Safe to be used by several threads and several servers at once."""

    def __init__(
        self,
        heads: Heads,
        commits: Commits,
        make_topics: Callable[[Sequence[TopicPlan]], None],
        *,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        """Read `heads`, write `commits`; `make_topics` creates those that are missing and may be called again.

        `close` is called when the service is closed.
        """
        self._heads = heads
        self._commits = commits
        self._make_topics = make_topics
        self.close = close

    @classmethod
    def connect(
        cls, postgres_url: str, bootstrap_servers: str, *, partitions: int = 1, kafka_timeout_s: float = 30.0
    ) -> Self:
        """Make the service for a Postgres and a Kafka; nothing is opened yet.

        Args:
            postgres_url: Where the state is.
            bootstrap_servers: Where the topics are.
            partitions: Partitions of a new topic.
            kafka_timeout_s: How long a commit waits for Kafka, in seconds.
        """
        engine = connect(postgres_url)

        def make_topics(topics: Sequence[TopicPlan]) -> None:
            names = [topic.name for topic in topics]
            ensure_topics(bootstrap_servers, names, partitions, timeout_s=kafka_timeout_s)

        return cls(StateReader(engine), StateWriter(engine), make_topics, close=engine.dispose)

    def commit(self, request: CommitRequest, *, branch: str = MAIN, author: str = "") -> CommitResult:
        """Make (or preview) a commit on a branch.

        The order makes it safe to crash anywhere: topics come first, and one without a commit does no harm; the commit
        and its jobs are one transaction, after which engines and servers find them.

        Raises:
            CommitError: The definitions don't fit each other or what the branch holds.
            UnknownEntityError: There is no such branch.
            ConflictError: Somebody else committed to the branch meanwhile.
            UnavailableError: Postgres or Kafka doesn't answer.
        """
        head = self._heads.head(branch)
        before = decode_graph(head.graph) if head.commit_id else Graph()
        after = merge(before, request.graph, incremental=request.incremental)
        validate(after)
        _refuse_several_pipelines(after)
        _keep_lineage(before, request, after)
        change = Change(before=before, after=after, plan_before=plan_graph(before), plan_after=plan_graph(after))
        if not request.backfill:
            _refuse_backfill(change)
        summary = summarize(change, preview=request.preview)
        if request.preview:
            return CommitResult(commit_id=None, summary=summary, plan=change.plan_after)
        self._make_topics(change.plan_after.topics)
        encoded = encode_graph(after)
        commit = NewCommit(
            id=uuid.uuid4().hex,
            branch=branch,
            parent=head.commit_id,
            message=request.message,
            author=author,
            graph=encoded,
            fingerprint=graph_fingerprint(after),
            summary=summary,
            jobs=change.plan_after.jobs,
        )
        self._commits.publish(commit)
        return CommitResult(commit_id=commit.id, summary=summary, plan=change.plan_after)


def _keep_lineage(before: Graph, request: CommitRequest, after: Graph) -> None:
    """Nothing goes by being forgotten, and what is computed from a new version is a new version itself."""
    faults = descendant_faults(before, after)
    if not request.incremental:
        faults += omission_faults(before, request.graph)
    if faults:
        raise CommitError("\n".join(faults))


def _refuse_several_pipelines(graph: Graph) -> None:
    """A commit without env takes the pipelines of all environments; here one must run."""
    for dataset in graph.datasets:
        if len(dataset.pipelines) > 1:
            names = ", ".join(f"{p.name} (env {', '.join(p.env)})" for p in dataset.pipelines)
            raise CommitError(
                f"dataset {dataset.name} has several pipelines: {names}; commit with the env of one of them"
            )


def _refuse_backfill(change: Change) -> None:
    if change.new_jobs:
        names = ", ".join(f"{job.dataset} (pipeline {job.pipeline})" for job in change.new_jobs)
        raise CommitError(
            f"backfill=False was asked for, but this would have to be computed anew: {names}. "
            "Commit with backfill=True, or leave these definitions as they are."
        )
