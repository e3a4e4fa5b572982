"""A commit, from a request to the branch's new head."""

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from caraway.control.backfill import Backfill, backfills
from caraway.control.model import CommitOutcome
from caraway.control.secret_references import LookUp, lacking, secret_references
from caraway.control.summary import CommitChange, details, summarize
from caraway.control.touching import touched
from caraway.errors import CommitError, UnavailableError
from caraway.graph.connectors import SecretRef
from caraway.graph.fingerprints import graph_fingerprint
from caraway.graph.immutability import descendant_faults, omission_faults
from caraway.graph.merging import merge
from caraway.graph.specs import DatasetSpec, FeaturesetSpec, Graph
from caraway.graph.validation import validate
from caraway.graph.wire import CommitRequest, decode_graph, encode_graph
from caraway.plan.model import GraphPlan
from caraway.plan.planner import plan_graph
from caraway.state import MAIN, Asset, AssetKind, Head, NewCommit, apply_generations, blueprints
from caraway.state.allocation import Allocation, allocate

# How many records topics hold; those that aren't there are left out.
Count = Callable[[Iterable[str]], Mapping[str, int]]
Approve = Callable[[Iterable[tuple[str, Collection[str]]]], None]


def approve_all(entities: Iterable[tuple[str, Collection[str]]]) -> None:
    """Have nothing against any change."""
    del entities


def count_nothing(topics: Iterable[str]) -> Mapping[str, int]:
    """Know of no record."""
    del topics
    return {}


def find_all(secret: SecretRef) -> None:
    """Find every secret."""
    del secret


class Heads(Protocol):
    """What a commit must know of the state."""

    def head(self, branch: str) -> Head:
        """Return a branch's newest commit and graph."""

    def graph(self, commit_id: str) -> bytes:
        """Return the graph of a commit."""

    def assets(self) -> tuple[Asset, ...]:
        """Return all assets."""


class Commits(Protocol):
    """Where a commit is written."""

    def publish(self, commit: NewCommit) -> None:
        """Write a commit with all that it needs and move its branch, all or nothing."""


class AssetReconciler(Protocol):
    """Where the assets of a commit are (`caraway.control.reconciler.LedgerReconciler`)."""

    def check(self) -> None:
        """Raise UnavailableError if nothing can be made now."""

    def converge(self) -> None:
        """Do what the ledger asks for and can be done at once; the rest goes on without the caller."""


class CommitService:
    """Makes commits. Safe to be used by several threads and several servers at once."""

    def __init__(
        self,
        heads: Heads,
        commits: Commits,
        reconciler: AssetReconciler,
        *,
        count: Count = count_nothing,
        look_up: LookUp = find_all,
    ) -> None:
        """Read `heads`, write `commits`, and let `reconciler` begin with what they ask for.

        `count` what there is to read, and `look_up` the secrets that definitions name.
        """
        self._count = count
        self._look_up = look_up
        self._heads = heads
        self._commits = commits
        self._reconciler = reconciler

    def commit(
        self, request: CommitRequest, *, branch: str = MAIN, author: str = "", approve: Approve = approve_all
    ) -> CommitOutcome:
        """Make (or preview) a commit on a branch.

        All that it changes is one transaction: the commit, its assets, what the ledger asks for, and the branch's head.
        A crash before it changes nothing; after it the workers do the rest, whoever they are.

        `approve` is given all entities that change, with their tags; it raises if the author may not change them.

        Raises:
            CommitError: The definitions don't fit each other or what the branch holds.
            UnknownEntityError: There is no such branch.
            ConflictError: Somebody else committed to the branch meanwhile.
            UnavailableError: Postgres or Kafka doesn't answer.
        """
        head = self._heads.head(branch)
        before = decode_graph(head.graph) if head.commit_id else Graph()
        _refuse_twice(request.graph)
        after = merge(before, request.graph, incremental=request.incremental)
        validate(after)
        _refuse_several_pipelines(after)
        _keep_lineage(before, request, after)
        approve(touched(before, after))
        told = self._check_secrets(before, after)
        change = self._change(before, after)
        if not request.backfill:
            _refuse_backfill(change)
        if request.preview:
            return _previewed(change, told)
        return self._publish(change, head, message=request.message, author=author, told=told)

    def roll_back(
        self,
        commit_id: str,
        *,
        branch: str = MAIN,
        author: str = "",
        preview: bool = False,
        approve: Approve = approve_all,
    ) -> CommitOutcome:
        """Let a branch hold again what it held at an earlier commit: a new commit, whose assets may still be there.

        `approve` is as in `commit`.

        Raises:
            UnknownEntityError: There is no such branch or commit.
            ConflictError: Somebody else committed to the branch meanwhile.
            UnavailableError: Postgres or Kafka doesn't answer.
        """
        head = self._heads.head(branch)
        before = decode_graph(head.graph) if head.commit_id else Graph()
        after = decode_graph(self._heads.graph(commit_id))
        approve(touched(before, after))
        # Of a way back nothing may stand in the way.
        told = self._check_secrets(after, after)
        change = self._change(before, after)
        if preview:
            return _previewed(change, told)
        return self._publish(change, head, message=f"roll back to {commit_id}", author=author, told=told)

    def _check_secrets(self, before: Graph, after: Graph) -> tuple[str, ...]:
        """Return lines about secrets that aren't there.

        Raises:
            CommitError: A definition that is new or changed can't work without one.
        """
        old = _entities(before)
        changed = {name for name, spec in _entities(after).items() if old.get(name) != spec}
        faults, told = lacking(secret_references(after), self._look_up, changed)
        if faults:
            raise CommitError("\n".join(faults))
        return tuple(told)

    def _change(self, before: Graph, after: Graph) -> CommitChange:
        existing = self._heads.assets()
        plan = plan_graph(after)
        allocation = allocate(blueprints(plan), existing)
        plan_after = apply_generations(plan, allocation.generations)
        return CommitChange(
            before=before,
            after=after,
            plan_before=_placed(plan_graph(before), existing),
            plan_after=plan_after,
            allocation=allocation,
            backfills=self._backfills(plan_after, allocation),
        )

    def _backfills(self, plan: GraphPlan, allocation: Allocation) -> tuple[Backfill, ...] | None:
        created = {asset.name for asset in allocation.created}
        topics = {topic.name for job in plan.jobs if job.job_id in created for topic in job.inputs}
        try:
            return backfills(plan, created, self._count(topics - created))
        except UnavailableError:
            # A preview needs no Kafka, and a commit finds out by itself.
            return None

    def _publish(
        self, change: CommitChange, head: Head, *, message: str, author: str, told: tuple[str, ...]
    ) -> CommitOutcome:
        self._reconciler.check()
        summary = (*summarize(change, preview=False), *told)
        commit = NewCommit(
            id=uuid.uuid4().hex,
            branch=head.branch,
            parent=head.commit_id,
            message=message,
            author=author,
            graph=encode_graph(change.after),
            fingerprint=graph_fingerprint(change.after),
            summary=summary,
            plan=plan_graph(change.after),
        )
        self._commits.publish(commit)
        self._reconciler.converge()
        return CommitOutcome(commit_id=commit.id, summary=summary, plan=change.plan_after, details=details(change))


def _entities(graph: Graph) -> Mapping[str, DatasetSpec | FeaturesetSpec]:
    datasets: Mapping[str, DatasetSpec] = {spec.name: spec for spec in graph.datasets}
    return {**datasets, **{spec.name: spec for spec in graph.featuresets}}


def _previewed(change: CommitChange, told: tuple[str, ...]) -> CommitOutcome:
    return CommitOutcome(
        commit_id=None,
        summary=(*summarize(change, preview=True), *told),
        plan=change.plan_after,
        details=details(change),
    )


def _placed(plan: GraphPlan, existing: Sequence[Asset]) -> GraphPlan:
    """Return a plan with the names that its assets have, or would have if it were committed now."""
    return apply_generations(plan, allocate(blueprints(plan), existing).generations)


def _keep_lineage(before: Graph, request: CommitRequest, after: Graph) -> None:
    """Nothing goes by being forgotten, and what is computed from a new version is a new version itself."""
    faults = descendant_faults(before, after)
    if not request.incremental:
        faults += omission_faults(before, request.graph)
    if faults:
        raise CommitError("\n".join(faults))


def _refuse_twice(graph: Graph) -> None:
    """Merging goes by name and would take the last one."""
    for kind, specs in (("dataset", graph.datasets), ("featureset", graph.featuresets)):
        counts = Counter(spec.name for spec in specs)
        if twice := [name for name, count in counts.items() if count > 1]:
            raise CommitError("\n".join(f"{kind} {name} is in the commit twice" for name in twice))


def _refuse_several_pipelines(graph: Graph) -> None:
    """A commit without env takes the pipelines of all environments; here one must run."""
    for dataset in graph.datasets:
        if len(dataset.pipelines) > 1:
            names = ", ".join(f"{p.name} (env {', '.join(p.env)})" for p in dataset.pipelines)
            raise CommitError(
                f"dataset {dataset.name} has several pipelines: {names}; commit with the env of one of them"
            )


def _refuse_backfill(change: CommitChange) -> None:
    """Refuse what would have to be computed; what another branch has computed already is there for all."""
    created = {asset.name for asset in change.allocation.created if asset.kind is AssetKind.JOB}
    anew = [job for job in change.plan_after.jobs if job.job_id in created]
    if anew:
        names = ", ".join(f"{job.dataset} (pipeline {job.pipeline})" for job in anew)
        raise CommitError(
            f"backfill=False was asked for, but this would have to be computed anew: {names}. "
            "Commit with backfill=True, or leave these definitions as they are."
        )
