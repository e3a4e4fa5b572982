"""A commit, from a request to the branch's new head."""

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from caraway.apps.server.control.backfill_estimates import BackfillEstimate, estimate_backfills
from caraway.apps.server.control.slot_demand import SlotDemand
from caraway.apps.server.control.summary import CommitChange, details, summarize
from caraway.apps.server.control.touching import touched
from caraway.errors import CommitError, InvalidInputError, UnavailableError
from caraway.graph.changes import changes
from caraway.graph.fingerprints import graph_fingerprint, sink_fingerprint, source_fingerprint
from caraway.graph.functions import PythonFunction, parts_of
from caraway.graph.immutability import descendant_faults, omission_faults
from caraway.graph.merging import merge
from caraway.graph.plan.model import GraphPlan, IngestPlan, SinkPlan, on_branch
from caraway.graph.plan.planner import plan_graph
from caraway.graph.secrets.references import LookUp, lacking, passwords_in_clear, secret_references
from caraway.graph.specs import DatasetSpec, FeaturesetSpec, Graph, PythonExtractor
from caraway.graph.systems import SecretRef
from caraway.graph.validation.graphs import validate
from caraway.graph.wire.graphs import CommitRequest, decode_graph, encode_graph
from caraway.state.allocation import Allocation, Asset, allocate
from caraway.state.blueprints import Blueprint, apply_generations, blueprints, content_of
from caraway.state.model import MAIN, Head, NewCommit

# Returns the number of records of each of the topics; missing topics are left out.
Count = Callable[[Iterable[str]], Mapping[str, int]]
SlotDemandOf = Callable[[GraphPlan, Container[str]], SlotDemand | None]
Approve = Callable[[Iterable[tuple[str, Collection[str]]]], None]
Share = Callable[[CommitChange], None]
# Returns a line for each source that can't be read.
TrySources = Callable[[Sequence[IngestPlan]], Sequence[str]]
# Returns for each pickled function why it can't run with the modules that are installed here; "" if it can.
CheckFunctions = Callable[[Sequence[bytes]], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOutcome:
    """The outcome of a commit, or of its preview.

    Attributes:
        commit_id: The id of the commit; None for a preview.
        summary: The changes, in lines for people.
        plan: The topics, jobs and indexes that the branch needs afterwards.
        details: The changes, as plain values (`details`).
    """

    commit_id: str | None
    summary: tuple[str, ...]
    plan: GraphPlan
    details: Mapping[str, object] = field(default_factory=dict)


IMPORTS = (
    "Name the helpers from your modules in @includes, so that they are sent along; install packages where the server "
    "and the engine run; put an import that may fail into a try statement"
)
# Checks that a sink can be written; raises `CommitError` if not.
CheckSink = Callable[[SinkPlan], object]


def approve_all(_: Iterable[tuple[str, Collection[str]]]) -> None:
    """Approve any change."""


def share_all(_: CommitChange) -> None:
    """Allow that any assets of other branches are shared."""


def find_all(_: SecretRef) -> None:
    """Accept every secret."""


class Heads(Protocol):
    """The part of the state that a commit reads."""

    def head(self, branch: str) -> Head:
        """Return a branch's newest commit and graph."""

    def graph(self, commit_id: str) -> bytes:
        """Return the graph of a commit."""

    def assets(self, contents: Collection[str]) -> tuple[Asset, ...]:
        """Return the assets of some contents; of those that are gone, only the newest one of a content is needed."""

    def offered(self, wanted: Sequence[Blueprint], branch: str, restores: str | None) -> Sequence[Collection[str]]:
        """Return the ids of the assets that a commit on a branch may reuse, those that it prefers first."""

    def references(self, ids: Collection[str]) -> Mapping[str, Collection[str]]:
        """Return the branches that refer to each of some assets."""


class Commits(Protocol):
    """The part of the state that writes commits."""

    def publish(self, commit: NewCommit) -> None:
        """Write a commit with all that it needs and move its branch, all or nothing."""


class AssetReconciler(Protocol):
    """The reconciler of assets, as a commit needs it (`caraway.apps.server.control.reconciler.LedgerReconciler`)."""

    def check(self) -> object:
        """Raise UnavailableError if no asset can be created now."""

    def converge(self) -> None:
        """Do the actions of the ledger that can be done at once; the rest continues without the caller."""


class CommitService:
    """Makes commits. Safe to be used by several threads and several servers at once."""

    def __init__(
        self,
        heads: Heads,
        commits: Commits,
        reconciler: AssetReconciler,
        *,
        count: Count = lambda _: {},
        look_up: LookUp = find_all,
        slots: SlotDemandOf = lambda _plan, _created: None,
        try_sources: TrySources = lambda _: (),
        check_sink: CheckSink = lambda _: None,
        check_functions: CheckFunctions = lambda functions: [""] * len(functions),
    ) -> None:
        """Read `heads`, write `commits`, and have `reconciler` begin the actions that a commit needs.

        `count` counts the records of topics; by default no topic has any. `look_up` looks up the secrets that
        definitions name. `slots` returns the slots that the new jobs of a plan need, and those that are free.
        `try_sources` connects to sources and says which ones can't be read; by default no source is tried. `check_sink`
        checks that a new sink can be written, before anything is changed. `check_functions` finds functions that lack
        modules here; by default none does.
        """
        self._check_functions = check_functions
        self._try_sources = try_sources
        self._check_sink = check_sink
        self._slots = slots
        self._count = count
        self._look_up = look_up
        self._heads = heads
        self._commits = commits
        self._reconciler = reconciler

    def commit(
        self,
        request: CommitRequest,
        *,
        branch: str = MAIN,
        author: str = "",
        approve: Approve = approve_all,
        share: Share = share_all,
    ) -> CommitOutcome:
        """Make (or preview) a commit on a branch.

        All that a commit changes is one transaction: the commit, its assets, the actions in the ledger, and the
        branch's head. A crash before the transaction changes nothing; after it, any worker of the ledger does the rest.

        `approve` is called with all entities that change and their tags; it raises if the author may not change them.
        `share` is called with the change; it raises if the author may not share what the branch would share.

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
        changed = {spec.name for spec in _changed(before, after)}
        warnings = (*self._check_secrets(before, after), *passwords_in_clear(after, changed))
        self._check_imports(before, after)
        change = self._change(head, before, after)
        share(change)
        if not request.backfill:
            _refuse_backfill(change)
        self._check_sources(change)
        self._check_sinks(change)
        if request.preview:
            return _previewed(change, warnings)
        return self._publish(change, head, message=request.message, author=author, warnings=warnings)

    def roll_back(
        self,
        commit_id: str,
        *,
        branch: str = MAIN,
        author: str = "",
        preview: bool = False,
        approve: Approve = approve_all,
        share: Share = share_all,
    ) -> CommitOutcome:
        """Commit the definitions of an earlier commit again; its assets are reused if they still exist.

        Only a rollback gets back the data of assets that no branch needs any more, for as long as they are kept.

        `approve` and `share` are as in `commit`.

        Raises:
            UnknownEntityError: There is no such branch or commit.
            ConflictError: Somebody else committed to the branch meanwhile.
            UnavailableError: Postgres or Kafka doesn't answer.
        """
        head = self._heads.head(branch)
        before = decode_graph(head.graph) if head.commit_id else Graph()
        after = decode_graph(self._heads.graph(commit_id))
        approve(touched(before, after))
        # A rollback must not fail because a secret is missing now. Compared with itself, the graph has no new
        # definition, so missing secrets give warnings only.
        warnings = self._check_secrets(after, after)
        change = self._change(head, before, after, restores=commit_id)
        share(change)
        if preview:
            return _previewed(change, warnings)
        message = f"roll back to {commit_id}"
        return self._publish(change, head, message=message, author=author, warnings=warnings, restores=commit_id)

    def _check_secrets(self, before: Graph, after: Graph) -> tuple[str, ...]:
        """Return lines about missing secrets that don't prevent the commit.

        Raises `CommitError` if a definition that is new or changed names a secret that doesn't exist.
        """
        changed = {spec.name for spec in _changed(before, after)}
        faults, warnings = lacking(secret_references(after), self._look_up, changed)
        if faults:
            raise CommitError("\n".join(faults))
        return tuple(warnings)

    def _check_imports(self, before: Graph, after: Graph) -> None:
        """Raise `CommitError` if a function of a definition that is new or changed imports a module that isn't here."""
        functions = [
            (f"function {spec.name}.{part.name} can't run on the server", part.pickled)
            for spec in _changed(before, after)
            for part in parts_of(spec)
            if isinstance(part, PythonFunction | PythonExtractor)
        ]
        reasons = self._check_functions([pickled for _, pickled in functions])
        faults = [f"{what}: {reason}" for (what, _), reason in zip(functions, reasons, strict=True) if reason]
        if faults:
            raise CommitError("\n".join([*faults, IMPORTS]))

    def _check_sinks(self, change: CommitChange) -> None:
        """Raise `CommitError` if a sink that is new, or whose system has other settings now, can't be written."""
        created = change.allocation.created_names
        known = {sink_fingerprint(sink.sink): sink.sink.connector for sink in change.plan_before.sinks}
        faults = []
        for sink in change.plan_after.sinks:
            before = known.get(sink_fingerprint(sink.sink))
            if sink.sink_id in created or before not in {None, sink.sink.connector}:
                try:
                    self._check_sink(sink)
                except (CommitError, UnavailableError) as error:
                    faults.append(f"dataset {sink.dataset.name}, sink {sink.sink.connector.identifier}: {error}")
        if faults:
            raise CommitError("\n".join(faults))

    def _check_sources(self, change: CommitChange) -> None:
        """Raise `CommitError` if a source that is new, or whose system has other settings now, can't be read.

        Sources that are read already aren't tried: a system that is away for an hour must not prevent a commit of
        something else.
        """
        created = {asset.content for asset in change.allocation.created}
        known = {source_fingerprint(each.source): each.source.connector for each in change.plan_before.ingests}
        plans = [
            ingest
            for ingest in change.plan.ingests
            if content_of(ingest) in created
            or known.get(source_fingerprint(ingest.source)) not in {None, ingest.source.connector}
        ]
        if faults := self._try_sources(plans):
            raise CommitError("\n".join(faults))

    def _change(self, head: Head, before: Graph, after: Graph, *, restores: str | None = None) -> CommitChange:
        plan = on_branch(plan_graph(after), head.branch)
        wanted = blueprints(plan)
        existing = self._heads.assets({blueprint.content for blueprint in wanted})
        allocation = allocate(wanted, existing, self._heads.offered(wanted, head.branch, restores))
        plan_after = apply_generations(plan, allocation.generations)
        return CommitChange(
            before=before,
            after=after,
            changes=changes(before, after),
            plan=plan,
            plan_before=apply_generations(on_branch(plan_graph(before), head.branch), head.generations),
            plan_after=plan_after,
            allocation=allocation,
            shared=allocation.shared(head.branch, self._heads.references([asset.id for asset in allocation.assets])),
            backfills=self._backfills(plan_after, allocation),
            slots=self._slots(plan_after, allocation.created_names),
        )

    def _backfills(self, plan: GraphPlan, allocation: Allocation) -> tuple[BackfillEstimate, ...] | None:
        created = allocation.created_names
        topics = {topic.name for job in plan.jobs if job.job_id in created for topic in job.inputs}
        topics |= {index.topic for index in plan.indexes if index.asset.hex() in created}
        try:
            return estimate_backfills(plan, created, self._count(topics - created))
        except UnavailableError:
            # Without Kafka a preview has no such estimate; a commit is refused later, by `reconciler.check`.
            return None

    def _publish(
        self,
        change: CommitChange,
        head: Head,
        *,
        message: str,
        author: str,
        warnings: tuple[str, ...],
        restores: str | None = None,
    ) -> CommitOutcome:
        if "\0" in message:
            raise InvalidInputError("the message of a commit has the character NUL, which Postgres can't store")
        self._reconciler.check()
        summary = (*summarize(change, preview=False), *warnings)
        commit = NewCommit(
            id=uuid.uuid4().hex,
            branch=head.branch,
            parent=head.commit_id,
            message=message,
            author=author,
            graph=encode_graph(change.after),
            fingerprint=graph_fingerprint(change.after),
            summary=summary,
            plan=change.plan,
            restores=restores,
            shares=frozenset(change.shared),
        )
        self._commits.publish(commit)
        self._reconciler.converge()
        return CommitOutcome(commit_id=commit.id, summary=summary, plan=change.plan_after, details=details(change))


def _changed(before: Graph, after: Graph) -> list[DatasetSpec | FeaturesetSpec]:
    """Return what is new or changed. A dataset and a featureset may have the same name."""
    return [
        *(spec for spec in after.datasets if spec not in before.datasets),
        *(spec for spec in after.featuresets if spec not in before.featuresets),
    ]


def _previewed(change: CommitChange, warnings: tuple[str, ...]) -> CommitOutcome:
    return CommitOutcome(
        commit_id=None,
        summary=(*summarize(change, preview=True), *warnings),
        plan=change.plan_after,
        details=details(change),
    )


def _keep_lineage(before: Graph, request: CommitRequest, after: Graph) -> None:
    """Refuse a full commit that leaves out an entity, and a new version of a dataset whose readers aren't new, too."""
    faults = descendant_faults(before, after)
    if not request.incremental:
        faults += omission_faults(before, request.graph)
    if faults:
        raise CommitError("\n".join(faults))


def _refuse_twice(graph: Graph) -> None:
    """Refuse a graph with two entities of one name, since merging by name would keep only the last."""
    for kind, specs in (("dataset", graph.datasets), ("featureset", graph.featuresets)):
        counts = Counter(spec.name for spec in specs)
        if twice := [name for name, count in counts.items() if count > 1]:
            raise CommitError("\n".join(f"{kind} {name} is in the commit twice" for name in twice))


def _refuse_several_pipelines(graph: Graph) -> None:
    """Refuse several pipelines of a dataset; they come together if a commit names no env, and only one can run."""
    for dataset in graph.datasets:
        if len(dataset.pipelines) > 1:
            names = ", ".join(f"{p.name} (env {', '.join(p.env)})" for p in dataset.pipelines)
            raise CommitError(
                f"dataset {dataset.name} has several pipelines: {names}; commit with the env of one of them"
            )


def _refuse_backfill(change: CommitChange) -> None:
    """Refuse new jobs. A job that another branch has is shared and needs no backfill."""
    created = change.allocation.created_names
    plan = change.plan_after
    anew = [(job.dataset, job.pipeline) for job in plan.jobs if job.job_id in created]
    if anew:
        names = ", ".join(f"{dataset} (pipeline {pipeline})" for dataset, pipeline in anew)
        raise CommitError(
            f"backfill=False was asked for, but this would have to be computed anew: {names}. "
            "Commit with backfill=True, or leave these definitions as they are."
        )
