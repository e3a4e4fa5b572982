"""What a commit does, in lines for people: a second reader of the same plan that the engines follow."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from caraway.graph.fingerprints import dataset_fingerprint, featureset_fingerprint
from caraway.graph.specs import Graph
from caraway.plan.model import GraphPlan, IndexKind, JobPlan

# Names in a line before it says "and n more".
SHOWN_NAMES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A branch before and after a commit, as definitions and as plans."""

    before: Graph
    after: Graph
    plan_before: GraphPlan
    plan_after: GraphPlan

    @property
    def new_jobs(self) -> tuple[JobPlan, ...]:
        """Jobs that must be started, and so read their inputs from the beginning."""
        known = {job.job_id for job in self.plan_before.jobs}
        return tuple(job for job in self.plan_after.jobs if job.job_id not in known)


def summarize(change: Change, *, preview: bool) -> tuple[str, ...]:
    """Tell what a commit changes; the first line is the gist."""
    lines = [
        _gist(change, preview=preview),
        *_entities("datasets", _datasets(change.before), _datasets(change.after)),
        *_entities("featuresets", _featuresets(change.before), _featuresets(change.after)),
        *_entities("features", _features(change.before), _features(change.after)),
        *_created("topics", (t.name for t in change.plan_before.topics), (t.name for t in change.plan_after.topics)),
        *_created("indexes", _indexes(change.plan_before), _indexes(change.plan_after)),
    ]
    new = {job.job_id for job in change.new_jobs}
    for job in change.plan_after.jobs:
        deed = "start" if job.job_id in new else "keep"
        lines.append(f"job {deed}: {job.job_id} ({job.pipeline}), {job.mode}: {job.mode_reason}")
    kept = {job.job_id for job in change.plan_after.jobs}
    lines += [
        f"job stop: {job.job_id} ({job.pipeline}); its topic {job.output.name} is kept"
        for job in change.plan_before.jobs
        if job.job_id not in kept
    ]
    return tuple(lines)


def _gist(change: Change, *, preview: bool) -> str:
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
    """Sort names into new, changed, unchanged and removed; kinds without names give no line."""
    groups = {
        "new": [name for name in after if name not in before],
        "changed": [name for name in after if name in before and before[name] != after[name]],
        "unchanged": [name for name in after if name in before and before[name] == after[name]],
        "removed": [name for name in before if name not in after],
    }
    return [f"{kind} {group}: {_listed(names)}" for group, names in groups.items() if names]


def _created(kind: str, before: Iterable[str], after: Iterable[str]) -> list[str]:
    known = set(before)
    names = list(after)
    groups = {
        "create": [name for name in names if name not in known],
        "reuse": [name for name in names if name in known],
    }
    return [f"{kind} {group}: {_listed(found)}" for group, found in groups.items() if found]


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


def _indexes(plan: GraphPlan) -> list[str]:
    kinds = {IndexKind.VERSIONS: "versions", IndexKind.AGGREGATE: "aggregate"}
    return [f"{index.dataset}.{index.asset.hex()} ({kinds[index.kind]})" for index in plan.indexes]
