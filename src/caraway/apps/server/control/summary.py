"""The changes that a commit makes, in lines for people and as plain values, and the differences of two commits.

The changes of jobs and indexes come from the same plan that the engines follow.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from caraway.apps.server.control.backfill_estimates import BackfillEstimate
from caraway.apps.server.control.slot_demand import SlotDemand
from caraway.graph.changes import Changes, changes
from caraway.graph.plan.model import GraphPlan
from caraway.graph.specs import Graph
from caraway.process.estimates import counted, duration
from caraway.state.allocation import Allocation

# The number of names after which a line ends with "and n more".
SHOWN_NAMES = 12
# The names of the groups of entities in the lines of a summary, in the order of these lines.
SHOWN_GROUPS = {"created": "new", "changed": "changed", "unchanged": "unchanged", "removed": "removed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitChange:
    """A branch before and after a commit, as definitions and as plans, and the assets that it needs afterwards.

    `changes` has the changes of each kind of entity. `plan` is the plan of `after`, and `plan_after` the same plan with
    the names of its assets. `shared` has the ids of the assets that only other branches have so far, with these
    branches. `backfills` is None if the number of records isn't known, and `slots` if the number of slots isn't, or no
    job is new.
    """

    before: Graph
    after: Graph
    changes: Mapping[str, Changes]
    plan: GraphPlan
    plan_before: GraphPlan
    plan_after: GraphPlan
    allocation: Allocation
    shared: Mapping[str, Collection[str]]
    backfills: tuple[BackfillEstimate, ...] | None = None
    slots: SlotDemand | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChange:
    """The change of one job: its action is "start", "keep", "share" or "stop".

    `backfill_records` is the number of existing records that the job reads first, `backfill_seconds` an estimate of
    how long that takes; both are None if they aren't known.
    """

    job_id: str
    dataset: str
    pipeline: str
    mode: str
    reason: str
    action: str
    backfill_records: int | None = 0
    backfill_seconds: float | None = 0.0


def details(change: CommitChange) -> dict[str, object]:
    """Return the changes of a commit as plain values: all names, while the lines of `summarize` show the first ones."""
    new = change.allocation.created_names
    return {
        "changes": {
            **{kind: asdict(found) for kind, found in change.changes.items()},
            "indexes": {
                "created": [shown for name, shown in _indexes(change.plan_after) if name in new],
                "unchanged": [shown for name, shown in _indexes(change.plan_after) if name not in new],
            },
        },
        "jobs": [_job_fields(job) for job in _job_changes(change, new)],
    }


def _job_fields(job: JobChange) -> dict[str, object]:
    """Return a job's change as JSON fields, in which the action is called `deed`."""
    fields = asdict(job)
    return {"deed": fields.pop("action"), **fields}


def _job_changes(change: CommitChange, new: Container[str]) -> Iterator[JobChange]:
    kept_before = {job.job_id for job in change.plan_before.jobs}
    reads = {each.name: (each.records, each.seconds) for each in change.backfills or ()}
    for job in change.plan_after.jobs:
        action = "start" if job.job_id in new else "keep" if job.job_id in kept_before else "share"
        unknown = action == "start" and change.backfills is None
        records, seconds = (None, None) if unknown else reads.get(job.job_id, (0, 0.0))
        yield JobChange(
            job_id=job.job_id,
            dataset=job.dataset,
            pipeline=job.pipeline,
            mode=str(job.mode),
            reason=job.mode_reason,
            action=action,
            backfill_records=records,
            backfill_seconds=seconds,
        )
    kept = {job.job_id for job in change.plan_after.jobs}
    for job in change.plan_before.jobs:
        if job.job_id not in kept:
            reason = f"its topic {job.output.name} is kept for a while"
            yield JobChange(
                job_id=job.job_id, dataset=job.dataset, pipeline=job.pipeline, mode="", reason=reason, action="stop"
            )


def differences(before: Graph, after: Graph) -> dict[str, object]:
    """Return the sorted names, such as "dataset Orders", that a second graph adds to a first, lacks, or has otherwise.

    The value of "details" has the changes of those that it has otherwise.
    """
    found = [(kind.removesuffix("s"), each) for kind, each in changes(before, after).items()]
    groups = {"added": "created", "removed": "removed", "changed": "changed"}
    return {
        **{
            shown: sorted(f"{kind} {name}" for kind, each in found for name in getattr(each, group))
            for shown, group in groups.items()
        },
        "details": {f"{kind} {name}": texts for kind, each in found for name, texts in each.details.items()},
    }


def summarize(change: CommitChange, *, preview: bool) -> tuple[str, ...]:
    """Return the changes of a commit in lines; the first one is the gist."""
    new = change.allocation.created_names
    lines = [
        _gist(change, preview=preview),
        *(
            f"{kind} {shown}: {_listed([found.label(name) for name in names])}"
            for kind, found in change.changes.items()
            for group, shown in SHOWN_GROUPS.items()
            if (names := getattr(found, group))
        ),
        *_created("topics", new, [(topic.name, topic.name) for topic in change.plan_after.topics]),
        *_created("indexes", new, _indexes(change.plan_after)),
        *_created("sinks", new, [(sink.sink_id, sink.target) for sink in change.plan_after.sinks]),
    ]
    jobs = list(_job_changes(change, new))
    lines += [
        f"job {job.action}: {job.job_id} ({job.pipeline}), {job.mode}: {job.reason}"
        for job in jobs
        if job.action != "stop"
    ]
    lines += _backfills(change.backfills)
    lines += [change.slots.line()] if change.slots else []
    lines += [f"job stop: {job.job_id} ({job.pipeline}); {job.reason}" for job in jobs if job.action == "stop"]
    return tuple(lines)


def _backfills(found: Sequence[BackfillEstimate] | None) -> list[str]:
    if found is None:
        return ["backfill: unknown, Kafka doesn't answer"]
    return [
        f"backfill: {each.name} reads about {counted(each.records, 'record')}, "
        f"with its start in {duration(each.seconds)}"
        for each in found
        if each.records
    ]


def _gist(change: CommitChange, *, preview: bool) -> str:
    datasets = len(change.after.datasets)
    features = sum(len(f.features) for f in change.after.featuresets)
    jobs = len(change.plan_after.jobs)
    what = f"{counted(datasets, 'dataset')} and {counted(features, 'feature')}, {counted(jobs, 'job')}"
    if preview:
        return f"preview, nothing was changed: the branch would hold {what}"
    if not any(change.changes.values()):
        return f"nothing to change: the branch holds {what}"
    return f"committed: the branch holds {what}"


def _created(kind: str, new: Container[str], named: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for created and one for reused assets, each given by its name in the store and its shown name."""
    found = list(named)
    groups = {
        "create": [shown for name, shown in found if name in new],
        "reuse": [shown for name, shown in found if name not in new],
    }
    return [f"{kind} {group}: {_listed(names)}" for group, names in groups.items() if names]


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:SHOWN_NAMES])
    rest = len(names) - SHOWN_NAMES
    return f"{shown} and {rest} more" if rest > 0 else shown


def _indexes(plan: GraphPlan) -> list[tuple[str, str]]:
    return [(name := index.asset.hex(), f"{index.dataset}.{name} ({index.kind})") for index in plan.indexes]
