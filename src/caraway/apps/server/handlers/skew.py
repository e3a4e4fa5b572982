"""The handler that shows how served features compare with the same features computed again (docs/guides/monitoring.md).

A caller sees the features of the branch that they may read. Samples have values of features, and no inputs.
"""

import asyncio
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from caraway.apps.server.access.limits import permitted
from caraway.apps.server.handlers.context import ServerContext
from caraway.apps.server.http.bodies import Nothing
from caraway.apps.server.http.messages import HttpResponse, Request, json_response
from caraway.errors import UnknownEntityError
from caraway.state.findings import MISMATCHES, UNCHECKED, FeatureCounts, Finding, Sample
from caraway.state.permissions import Mode

# The default and the greatest value of the parameter `hours`, and of the parameter `samples`.
HOURS, MAX_HOURS = 24, 24 * 366
SHOWN, MAX_SHOWN = 20, 500
# The findings that answers count, in their order, as lists: a loop over the enumeration `Finding` for each feature
# would take most of the time of an answer.
OF_MISMATCHES, OF_UNCHECKED = ([finding for finding in Finding if finding in of] for of in (MISMATCHES, UNCHECKED))


class SkewParameters(Struct):
    """The findings that are wanted."""

    feature: Annotated[str | None, Meta(description="the name of a feature or featureset, to show only that")] = None
    hours: Annotated[int, Meta(ge=1, le=MAX_HOURS, description="how many hours back values were served")] = HOURS
    samples: Annotated[int, Meta(ge=0, le=MAX_SHOWN, description=f"the most samples, up to {MAX_SHOWN}")] = SHOWN


class FeatureSkew(Struct):
    """The values of a feature that one commit served: computed again, differing by reason, and not comparable."""

    feature: str
    commit: str
    served_now: bool
    checked: int
    mismatched: int
    reasons: dict[str, int]
    unchecked: dict[str, int]


class SkewSample(Struct):
    """A value that differs, or an error instead of the recomputed one."""

    feature: str
    commit: str
    reason: str
    served_at: str
    at: str
    query: str
    row: int
    served: str
    recomputed: str


class SkewAnswer(Struct):
    """The findings about a branch's features since a time."""

    branch: str
    since: str
    features: list[FeatureSkew]
    samples: list[SkewSample]


async def skew(context: ServerContext, request: Request[Nothing, SkewParameters]) -> HttpResponse:
    """Return how features that were served compare with the same features computed again.

    Raises `UnknownEntityError` if the branch has no such feature, or the caller may not read it.
    """
    deployment, asked = context.deployment, request.parameters()
    served = deployment.graphs.require_served_graph(request.branch)
    entities = context.limits.tags(served).entities
    since = datetime.now(UTC) - timedelta(hours=asked.hours)
    # Counts are stored by the hour, so the first hour is counted as a whole.
    counts = await asyncio.to_thread(
        deployment.monitoring.skew.counts, request.branch, since.replace(minute=0, second=0, microsecond=0)
    )
    defined = {f"{spec.name}.{feature.name}" for spec in served.graph.featuresets for feature in spec.features}
    readable = defined & permitted(request.caller, Mode.READ_DATA, request.branch, entities)
    # The tags of a feature that isn't defined any more aren't known, so it is shown only to callers with the right to
    # all data.
    every = request.caller.may_all(Mode.READ_DATA, request.branch)
    seen = [found for found in counts if every or found.feature in readable]
    if asked.feature is not None:
        seen = _only(asked.feature, seen, readable)
    names = {found.feature for found in seen}
    samples = await asyncio.to_thread(deployment.monitoring.skew.samples, request.branch, since, names, asked.samples)
    answer = SkewAnswer(
        request.branch,
        since.isoformat(),
        [_feature(found, served.version) for found in seen],
        [_sample(sample) for sample in samples],
    )
    return json_response(msgspec.to_builtins(answer))


def _only(name: str, counts: Sequence[FeatureCounts], readable: Collection[str]) -> list[FeatureCounts]:
    """Return the counts of a feature, or those of all features of a featureset."""

    def is_meant(feature: str) -> bool:
        return feature == name or feature.startswith(f"{name}.")

    found = [counted for counted in counts if is_meant(counted.feature)]
    # For a feature that the caller may not read, the error is the same as for one that doesn't exist.
    if not found and not any(map(is_meant, readable)):
        raise UnknownEntityError(f"there is no feature or featureset {name[:100]!r} on the branch")
    return found


def _feature(found: FeatureCounts, version: str) -> FeatureSkew:
    counts = found.counts
    mismatches = {finding.value: counts[finding] for finding in OF_MISMATCHES if finding in counts}
    differing = sum(mismatches.values())
    return FeatureSkew(
        feature=found.feature,
        commit=found.commit,
        served_now=found.commit == version,
        checked=counts.get(Finding.SAME, 0) + differing,
        mismatched=differing,
        reasons=mismatches,
        unchecked={finding.value: counts[finding] for finding in OF_UNCHECKED if finding in counts},
    )


def _sample(sample: Sample) -> SkewSample:
    return SkewSample(
        feature=sample.feature,
        commit=sample.commit,
        reason=sample.finding.value,
        served_at=sample.served_at.astimezone(UTC).isoformat(),
        at=sample.at.astimezone(UTC).isoformat(),
        query=sample.query,
        row=sample.row,
        served=sample.served,
        recomputed=sample.recomputed,
    )
