"""The summary of a commit, in lines for people, made from the same plan that the engines follow."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from caraway.control.backfill import Backfill, duration
from caraway.graph.fingerprints import dataset_fingerprint, featureset_fingerprint
from caraway.graph.specs import Graph
from caraway.plan.model import GraphPlan
from caraway.state.allocation import Allocation
from caraway.state.blueprints import EMITS

# The number of names after which a line ends with "and n more".
SHOWN_NAMES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitChange:
    """A branch before and after a commit, as definitions and as plans, and the assets that it needs afterwards.

    `plan` is the plan of `after`, and `plan_after` the same plan with the names of its assets. `backfills` is None if
    the number of records isn't known.
    """

    before: Graph
    after: Graph
    plan: GraphPlan
    plan_before: GraphPlan
    plan_after: GraphPlan
    allocation: Allocation
    backfills: tuple[Backfill, ...] | None = None


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
    new = {asset.name.partition(EMITS)[0] for asset in change.allocation.created}
    return {
        "changes": {
            "datasets": _sorted(_datasets(change.before), _datasets(change.after)),
            "featuresets": _sorted(_featuresets(change.before), _featuresets(change.after)),
            "features": _sorted(_features(change.before), _features(change.after)),
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
    known = change.backfills is not None
    backfills = {each.job.job_id: each for each in change.backfills or ()}
    for job in change.plan_after.jobs:
        action = "start" if job.job_id in new else "keep" if job.job_id in kept_before else "share"
        backfill = backfills.get(job.job_id)
        unknown = action == "start" and not known
        yield JobChange(
            job_id=job.job_id,
            dataset=job.dataset,
            pipeline=job.pipeline,
            mode=str(job.mode),
            reason=job.mode_reason,
            action=action,
            backfill_records=None if unknown else backfill.records if backfill is not None else 0,
            backfill_seconds=None if unknown else backfill.seconds if backfill is not None else 0.0,
        )
    kept = {job.job_id for job in change.plan_after.jobs}
    for job in change.plan_before.jobs:
        if job.job_id not in kept:
            reason = f"its topic {job.output.name} is kept for a while"
            yield JobChange(
                job_id=job.job_id, dataset=job.dataset, pipeline=job.pipeline, mode="", reason=reason, action="stop"
            )


def _sorted(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, list[str]]:
    return {
        "created": [name for name in after if name not in before],
        "changed": [name for name in after if name in before and before[name] != after[name]],
        "removed": [name for name in before if name not in after],
        "unchanged": [name for name in after if name in before and before[name] == after[name]],
    }


def summarize(change: CommitChange, *, preview: bool) -> tuple[str, ...]:
    """Return the changes of a commit in lines; the first one is the gist."""
    new = {asset.name.partition(EMITS)[0] for asset in change.allocation.created}
    lines = [
        _gist(change, preview=preview),
        *_entities("datasets", _datasets(change.before), _datasets(change.after)),
        *_entities("featuresets", _featuresets(change.before), _featuresets(change.after)),
        *_entities("features", _features(change.before), _features(change.after)),
        *_created("topics", new, [(topic.name, topic.name) for topic in change.plan_after.topics]),
        *_created("indexes", new, _indexes(change.plan_after)),
    ]
    jobs = list(_job_changes(change, new))
    lines += [
        f"job {job.action}: {job.job_id} ({job.pipeline}), {job.mode}: {job.reason}"
        for job in jobs
        if job.action != "stop"
    ]
    lines += _backfills(change.backfills)
    lines += [f"job stop: {job.job_id} ({job.pipeline}); {job.reason}" for job in jobs if job.action == "stop"]
    return tuple(lines)


def _backfills(found: Sequence[Backfill] | None) -> list[str]:
    if found is None:
        return ["backfill: unknown, Kafka doesn't answer"]
    return [
        f"backfill: {each.job.job_id} reads {each.records:,} records, {duration(each.seconds)}"
        for each in found
        if each.records
    ]


def _gist(change: CommitChange, *, preview: bool) -> str:
    datasets = len(change.after.datasets)
    features = sum(len(f.features) for f in change.after.featuresets)
    what = f"{datasets} datasets and {features} features, {len(change.plan_after.jobs)} jobs"
    if preview:
        return f"preview, nothing was changed: the branch would hold {what}"
    if _datasets(change.before) == _datasets(change.after) and _featuresets(change.before) == _featuresets(
        change.after
    ):
        return f"nothing to change: the branch holds {what}"
    return f"committed: the branch holds {what}"


def _entities(kind: str, before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """Return a line for each of new, changed, unchanged and removed names; a group without names has no line."""
    groups = _sorted(before, after)
    shown = {"created": "new", "changed": "changed", "unchanged": "unchanged", "removed": "removed"}
    return [f"{kind} {called}: {_listed(groups[group])}" for group, called in shown.items() if groups[group]]


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


def _datasets(graph: Graph) -> Mapping[str, object]:
    return {spec.name: (dataset_fingerprint(spec), spec.index) for spec in graph.datasets}


def _featuresets(graph: Graph) -> Mapping[str, object]:
    return {spec.name: featureset_fingerprint(spec) for spec in graph.featuresets}


def _features(graph: Graph) -> Mapping[str, object]:
    return {f"{spec.name}.{feature.name}": feature.dtype for spec in graph.featuresets for feature in spec.features}


def _indexes(plan: GraphPlan) -> list[tuple[str, str]]:
    return [(name := index.asset.hex(), f"{index.dataset}.{name} ({index.kind})") for index in plan.indexes]
