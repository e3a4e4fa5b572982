"""The handlers of profiles of datasets: what their fields are like, and how they compare with earlier rows.

A caller sees the datasets of the branch that they may read, and of these the fields that they may read.
"""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from caraway.apps.server.access.limits import Tags
from caraway.apps.server.handlers.context import ServerContext
from caraway.apps.server.handlers.drift import FINDINGS, HOURS, MAX_FINDINGS, MAX_HOURS, DriftDistance, distance_of
from caraway.apps.server.http.bodies import Nothing
from caraway.apps.server.http.messages import HttpResponse, Request, json_response
from caraway.compute.profiles.columns import ColumnProfile
from caraway.compute.profiles.kinds import Kind
from caraway.compute.profiles.tables import QUANTILES, Profile
from caraway.dtypes.instants import iso_instant
from caraway.errors import InvalidInputError, UnknownEntityError
from caraway.graph.drift import Drift
from caraway.graph.plan.model import CheckPlan
from caraway.offline.monitoring.drift.datasets import columns_of, dataset_window
from caraway.offline.monitoring.drift.reports import (
    Against,
    ColumnDrift,
    Window,
    compared_columns,
    profiles_of,
    read_profiles,
)
from caraway.state.permissions import Caller, Mode

# The number of frequent values of a field that an answer lists.
SHOWN = 10


class DatasetDriftParameters(Struct):
    """The rows that are compared, and with what."""

    hours: Annotated[
        int, Meta(ge=1, le=MAX_HOURS, description="how many hours of event time, back from the newest row")
    ] = HOURS
    reference: Annotated[
        Against | None,
        Meta(description="previous, day, week: the hours before, a day before (the default), a week before"),
    ] = None


class FrequentValue(Struct):
    """One of the most frequent values of a field, and the number of rows that have it, at least."""

    value: str
    rows: int


class FieldProfile(Struct):
    """The values of a field: their numbers, and what there is to say of values of its kind."""

    kind: str
    rows: int
    nulls: int
    nans: int
    distinct: int
    mean: float | None
    stddev: float | None
    least: float | str | None
    greatest: float | str | None
    quantiles: dict[str, float]
    top: list[FrequentValue]


class FieldDrift(Struct):
    """A field, and how it compares with its reference. Without a reference there are no distances."""

    field: str
    drifted: bool
    profile: FieldProfile
    reference: str | None
    reference_rows: int
    distances: list[DriftDistance]


class DatasetDriftAnswer(Struct):
    """The fields of a dataset within a window of event time, which is null if there are no rows."""

    branch: str
    dataset: str
    since: str | None
    until: str | None
    false_alarms: float
    fields: list[FieldDrift]


async def dataset_drift(
    context: ServerContext, request: Request[Nothing, DatasetDriftParameters], name: str
) -> HttpResponse:
    """Return what the fields of a dataset are like, and how they compare with earlier rows.

    Raises:
        UnknownEntityError: The branch has no such dataset, or the caller may not read it.
        InvalidInputError: It isn't profiled, or the reference is one of features.
    """
    deployment, asked = context.deployment, request.parameters()
    if asked.reference is Against.TRAINING:
        raise InvalidInputError("a dataset is compared with its own earlier rows: reference previous, day or week")
    check, columns = _profiled(context, request, name)
    against = asked.reference or Against.DAY

    def read() -> tuple[Window | None, list[ColumnDrift], Mapping[str, ColumnProfile]]:
        window = dataset_window(deployment.monitoring.profiles, check.check_id, asked.hours)
        if window is None:
            return None, [], {}
        found = profiles_of(deployment.monitoring.profiles, check.check_id, columns, window, against=against)
        return window, compared_columns(found, columns, deployment.monitoring.false_alarms), found.served

    window, found, profiles = await asyncio.to_thread(read)
    answer = DatasetDriftAnswer(
        request.branch,
        name,
        None if window is None else window.since.isoformat(),
        None if window is None else window.until.isoformat(),
        deployment.monitoring.false_alarms,
        [_field(one, profiles[one.column]) for one in found if one.column in profiles],
    )
    return json_response(msgspec.to_builtins(answer))


class DatasetProfileParameters(Struct):
    """The rows whose profile is wanted."""

    hours: Annotated[
        int, Meta(ge=1, le=MAX_HOURS, description="how many hours of event time, back from the newest row")
    ] = HOURS


class DatasetProfileAnswer(Struct):
    """The profile of the fields of a dataset, in base64; null if there are no rows."""

    dataset: str
    since: str | None
    until: str | None
    profile: bytes | None


async def dataset_profile(
    context: ServerContext, request: Request[Nothing, DatasetProfileParameters], name: str
) -> HttpResponse:
    """Return the profile of the fields of a dataset, which can be merged and compared at the desk.

    Raises:
        UnknownEntityError: The branch has no such dataset, or the caller may not read it.
        InvalidInputError: It isn't profiled.
    """
    deployment, asked = context.deployment, request.parameters()
    check, columns = _profiled(context, request, name)

    def read() -> tuple[Window | None, dict[str, ColumnProfile]]:
        window = dataset_window(deployment.monitoring.profiles, check.check_id, asked.hours)
        if window is None:
            return None, {}
        return window, read_profiles(deployment.monitoring.profiles, check.check_id, columns, window)

    window, profiles = await asyncio.to_thread(read)
    answer = DatasetProfileAnswer(
        name,
        None if window is None else window.since.isoformat(),
        None if window is None else window.until.isoformat(),
        Profile(profiles).to_bytes() if profiles else None,
    )
    return json_response(msgspec.to_builtins(answer))


class DatasetFindingParameters(Struct):
    """The findings that are wanted."""

    limit: Annotated[
        int, Meta(ge=1, le=MAX_FINDINGS, description=f"the most distances in the answer, up to {MAX_FINDINGS:,}")
    ] = FINDINGS


class DatasetFinding(Struct):
    """A distance of a field of a dataset from a day before, as it was found last."""

    dataset: str
    field: str
    distance: str
    value: float
    drifted: bool


class DatasetFindingsAnswer(Struct):
    """The findings about a branch's datasets, those about fields that have drifted first, and what is profiled."""

    branch: str
    profiled: list[str]
    findings: list[DatasetFinding]


async def dataset_findings(context: ServerContext, request: Request[Nothing, DatasetFindingParameters]) -> HttpResponse:
    """Return which datasets are profiled, and the distances of their fields from a day before, as found last."""
    deployment, asked = context.deployment, request.parameters()
    served = deployment.graphs.require_served_graph(request.branch)
    tags = context.limits.tags(served)
    checks = {
        check.check_id: check
        for check in served.plan.checks
        if check.profiled and _is_seen(request.caller, request.branch, tags, check.dataset.name)
    }
    found = await asyncio.to_thread(deployment.monitoring.profiles.found, list(checks)) if checks else []
    findings = [
        DatasetFinding(checks[one.scope].dataset.name, one.column, one.distance, one.value, one.drifted)
        for one in found
        if _may_read(request.caller, request.branch, tags, checks[one.scope].dataset.name, one.column)
    ]
    findings.sort(key=lambda one: (not one.drifted, one.dataset, one.field, one.distance))
    names = sorted(check.dataset.name for check in checks.values())
    return json_response(msgspec.to_builtins(DatasetFindingsAnswer(request.branch, names, findings[: asked.limit])))


def _profiled(
    context: ServerContext, request: Request[Nothing, Any], name: str
) -> tuple[CheckPlan, dict[str, tuple[Kind, Drift]]]:
    """Return the check of a profiled dataset, and those of its columns that the caller may read."""
    served = context.deployment.graphs.require_served_graph(request.branch)
    tags = context.limits.tags(served)
    known = {spec.name for spec in served.graph.datasets}
    if name not in known or not _is_seen(request.caller, request.branch, tags, name):
        raise UnknownEntityError(f"there is no dataset {name[:100]!r} on the branch")
    check = next((one for one in served.plan.checks if one.dataset.name == name and one.profiled), None)
    if check is None:
        raise InvalidInputError(
            f"dataset {name} isn't profiled; declare @meta(drift=Drift()) of it, from caraway.lib, and commit"
        )
    columns = {
        column: what
        for column, what in columns_of(check).items()
        if _may_read(request.caller, request.branch, tags, name, column)
    }
    return check, columns


def _is_seen(caller: Caller, branch: str, tags: Tags, name: str) -> bool:
    return not caller.refused(Mode.READ_DATA, branch, [(name, tags.entities.get(name, frozenset()))])


def _may_read(caller: Caller, branch: str, tags: Tags, dataset: str, column: str) -> bool:
    """Return whether a caller who may read a dataset may read a column; the delay is no field of its own."""
    return not caller.refused(Mode.READ_DATA, branch, tags.fields_of(dataset, [column]))


def _field(found: ColumnDrift, profile: ColumnProfile) -> FieldDrift:
    return FieldDrift(
        field=found.column,
        drifted=found.drifted,
        profile=summary_of(profile),
        reference=None if found.against is None else found.against.value,
        reference_rows=found.reference_rows,
        distances=[distance_of(shift) for shift in found.shifts],
    )


def summary_of(profile: ColumnProfile) -> FieldProfile:
    """Return what there is to say of the values of a column."""
    quantiles = {f"{share:.0%}": profile.quantile(share) for share in QUANTILES}
    return FieldProfile(
        kind=profile.kind.value,
        rows=profile.rows,
        nulls=profile.nulls,
        nans=profile.nans,
        distinct=round(profile.distinct_values),
        mean=profile.mean,
        stddev=profile.stddev,
        least=_extreme(profile.least, profile.kind),
        greatest=_extreme(profile.greatest, profile.kind),
        quantiles={name: value for name, value in quantiles.items() if value is not None},
        top=[FrequentValue(text, rows) for text, rows in profile.top(SHOWN)],
    )


def _extreme(value: float | None, kind: Kind) -> float | str | None:
    return iso_instant(int(value)) if value is not None and kind is Kind.TIME else value
