"""The handlers of drift: how served features compare with a reference, and its setting (docs/guides/monitoring.md).

A caller sees the features of the branch that they may read. References change what is an alarm for everybody, so
setting one needs the mode that definitions need.
"""

import asyncio
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from caraway.apps.server.access.limits import permitted, require
from caraway.apps.server.handlers.context import ServerContext
from caraway.apps.server.http.bodies import Nothing
from caraway.apps.server.http.messages import HttpResponse, Request, json_response
from caraway.compute.profiles.columns import ColumnProfile
from caraway.compute.profiles.comparing import Shift
from caraway.compute.profiles.tables import Profile
from caraway.errors import InvalidInputError, UnknownEntityError
from caraway.offline.monitoring.drift.reports import (
    Against,
    ColumnDrift,
    drift_of,
    features_of,
    profiles_of,
    window_of_last_hours,
)
from caraway.state.permissions import Mode

# How many hours an answer is about if the request sets no `hours`, and the greatest `hours`.
HOURS, MAX_HOURS = 24, 24 * 366
# How many findings an answer has if the request sets no `limit`, and the greatest `limit`.
FINDINGS, MAX_FINDINGS = 100, 1_000
MAX_NAME = 1_000
# The most bytes of a profile in base64. A profile of some thousands of features fits.
MAX_PROFILE = 24 << 20


class DriftParameters(Struct):
    """The features that are compared, when they were served, and with what they are compared."""

    feature: Annotated[str | None, Meta(description="the name of a feature or featureset, to show only that")] = None
    hours: Annotated[int, Meta(ge=1, le=MAX_HOURS, description="how many hours back values were served")] = HOURS
    reference: Annotated[
        Against | None,
        Meta(
            description="training: the reference that was set; previous, day, week: what was served in the hours "
            "before, a day before, a week before; by default training, or day if none was set"
        ),
    ] = None


class DriftDistance(Struct):
    """A distance of a feature. Without a threshold it is never an alarm."""

    distance: str
    value: float
    at_least: float
    threshold: float | None
    drifted: bool
    note: str


class DriftFeature(Struct):
    """How a feature compares with its reference. Without a reference there are no distances."""

    feature: str
    drifted: bool
    rows: int
    reference: str | None
    reference_rows: int
    reference_set_at: str | None
    distances: list[DriftDistance]


class DriftAnswer(Struct):
    """How the features that a branch served since a time compare with their references."""

    branch: str
    since: str
    false_alarms: float
    features: list[DriftFeature]


async def drift(context: ServerContext, request: Request[Nothing, DriftParameters]) -> HttpResponse:
    """Return how features that were served compare with a reference.

    Raises `UnknownEntityError` if the branch has no such feature, or the caller may not read it.
    """
    deployment, asked = context.deployment, request.parameters()
    served = deployment.graphs.require_served_graph(request.branch)
    entities = context.limits.tags(served).entities
    features = features_of(served.graph, asked.feature)
    pairs = [(name, entities.get(name, frozenset())) for name in features]
    refused = set(request.caller.refused(Mode.READ_DATA, request.branch, pairs))
    seen = {name: found for name, found in features.items() if name not in refused}
    if asked.feature is not None and not seen:
        raise UnknownEntityError(f"there is no feature or featureset {asked.feature[:100]!r} on the branch")
    window = window_of_last_hours(datetime.now(UTC), asked.hours)
    found = await asyncio.to_thread(
        drift_of,
        deployment.monitoring.drift,
        request.branch,
        seen,
        window,
        against=asked.reference,
        false_alarms=deployment.monitoring.false_alarms,
    )
    answer = DriftAnswer(
        request.branch, window.since.isoformat(), deployment.monitoring.false_alarms, [_feature(one) for one in found]
    )
    return json_response(msgspec.to_builtins(answer))


class FindingParameters(Struct):
    """The findings that are wanted."""

    limit: Annotated[
        int, Meta(ge=1, le=MAX_FINDINGS, description=f"the most distances in the answer, up to {MAX_FINDINGS:,}")
    ] = FINDINGS


class DriftFinding(Struct):
    """A distance of a feature from its reference, as the drift watch found it last."""

    feature: str
    distance: str
    value: float
    drifted: bool


class FindingsAnswer(Struct):
    """The findings of the drift watch about a branch, those about features that have drifted first."""

    branch: str
    findings: list[DriftFinding]


async def drift_findings(context: ServerContext, request: Request[Nothing, FindingParameters]) -> HttpResponse:
    """Return the distances of served features from their references, as the drift watch found them last."""
    deployment, asked = context.deployment, request.parameters()
    served = deployment.graphs.require_served_graph(request.branch)
    seen = None
    if not request.caller.may_all(Mode.READ_DATA, request.branch):
        entities = context.limits.tags(served).entities
        seen = permitted(request.caller, Mode.READ_DATA, request.branch, entities)
    # If some features are hidden from the caller, it isn't known how many distances must be read to fill the answer, so
    # all of them are read.
    limit = asked.limit if seen is None else None
    found = await asyncio.to_thread(deployment.monitoring.drift.found, [request.branch], limit)
    findings = [
        DriftFinding(one.column, one.distance, one.value, one.drifted)
        for one in found
        if seen is None or one.column in seen
    ]
    return json_response(msgspec.to_builtins(FindingsAnswer(request.branch, findings[: asked.limit])))


class ProfileParameters(Struct):
    """The feature whose profiles are returned, when it was served, and with what it is compared."""

    feature: Annotated[str, Meta(max_length=MAX_NAME, description="the full name of the feature")]
    hours: Annotated[int, Meta(ge=1, le=MAX_HOURS, description="how many hours back values were served")] = HOURS
    reference: Annotated[Against | None, Meta(description="as for `GET /api/v1/drift`")] = None


class ProfilesAnswer(Struct):
    """The profiles of a feature as it was served, and of its reference, in base64; null if there is no such profile."""

    feature: str
    served: bytes | None
    reference: str | None
    reference_profile: bytes | None


async def drift_profiles(context: ServerContext, request: Request[Nothing, ProfileParameters]) -> HttpResponse:
    """Return the profiles that are compared of a feature: counts, moments, quantiles and frequent values.

    Raises:
        UnknownEntityError: The branch has no such feature.
        ForbiddenError: The caller may not read it.
    """
    deployment, asked = context.deployment, request.parameters()
    served = deployment.graphs.require_served_graph(request.branch)
    features = features_of(served.graph, asked.feature)
    if asked.feature not in features:
        raise UnknownEntityError(f"there is no feature {asked.feature[:100]!r} on the branch")
    tags = context.limits.tags(served).entities
    require(request.caller, Mode.READ_DATA, request.branch, [(asked.feature, tags.get(asked.feature, frozenset()))])
    found = await asyncio.to_thread(
        profiles_of,
        deployment.monitoring.drift,
        request.branch,
        {asked.feature: features[asked.feature]},
        window_of_last_hours(datetime.now(UTC), asked.hours),
        against=asked.reference,
    )
    against = found.against.get(asked.feature)
    answer = ProfilesAnswer(
        asked.feature,
        _bytes(asked.feature, found.served),
        None if against is None else against.value,
        _bytes(asked.feature, found.references),
    )
    return json_response(msgspec.to_builtins(answer))


def _bytes(feature: str, columns: Mapping[str, ColumnProfile]) -> bytes | None:
    return Profile({feature: columns[feature]}).to_bytes() if feature in columns else None


class ReferenceBody(Struct):
    """The profile that features are compared with."""

    profile: Annotated[
        bytes,
        Meta(max_length=MAX_PROFILE, description="the bytes of a profile, in base64, whose columns are features"),
    ]


class ReferenceAnswer(Struct):
    """The features whose reference was set, and the columns of the profile that aren't features of the branch."""

    features: list[str]
    ignored: list[str]


async def set_reference(context: ServerContext, request: Request[ReferenceBody]) -> HttpResponse:
    """Set the reference of the features that a profile has, in place of any that they have.

    Raises:
        InvalidInputError: The bytes aren't a profile, or no column is a feature of the branch of the column's kind.
        ForbiddenError: The caller may not change one of the features.
    """
    deployment = context.deployment
    served = deployment.graphs.require_served_graph(request.branch)
    body = await request.read()
    profile = await asyncio.to_thread(Profile.from_bytes, body.profile)
    features = features_of(served.graph)
    kept = {
        name: column
        for name, column in profile.columns.items()
        if name in features and features[name][0] is column.kind and column.rows
    }
    if not kept:
        shown = ", ".join(f"{name} ({column.kind})" for name, column in list(profile.columns.items())[:5])
        raise InvalidInputError(
            f"no column of the profile is a feature of the branch with values of its kind; columns: {shown or 'none'}"
        )
    tags = context.limits.tags(served).entities
    pairs = [(name, tags.get(name, frozenset())) for name in kept]
    require(request.caller, Mode.WRITE_DEFINITION, request.branch, pairs)
    await asyncio.to_thread(deployment.monitoring.drift.set_references, request.branch, kept, request.caller.account)
    ignored = [name for name in profile.columns if name not in kept]
    return json_response(msgspec.to_builtins(ReferenceAnswer(sorted(kept), ignored)))


def _feature(found: ColumnDrift) -> DriftFeature:
    return DriftFeature(
        feature=found.column,
        drifted=found.drifted,
        rows=found.rows,
        reference=None if found.against is None else found.against.value,
        reference_rows=found.reference_rows,
        reference_set_at=None if found.set_at is None else found.set_at.astimezone(UTC).isoformat(),
        distances=[distance_of(shift) for shift in found.shifts],
    )


def distance_of(shift: Shift) -> DriftDistance:
    """Return a distance as it is shown."""
    return DriftDistance(
        distance=shift.distance.value,
        value=shift.value,
        at_least=shift.at_least,
        threshold=shift.threshold if math.isfinite(shift.threshold) else None,
        drifted=shift.drifted,
        note=shift.note,
    )
