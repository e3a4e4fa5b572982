"""The handler that shows how many rows of datasets are as expected (docs/guides/monitoring.md).

A caller sees the datasets of the branch that they may read. Samples have the fields that they may read.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from caraway.apps.server.handlers.context import ServerContext
from caraway.apps.server.http.bodies import Flag, Nothing
from caraway.apps.server.http.messages import HttpResponse, Request, json_response
from caraway.compute.expectations.counts import Counts
from caraway.compute.expectations.report import ExpectationState, Failure, Status
from caraway.compute.expectations.suite import checks_of
from caraway.dtypes.values import to_json
from caraway.errors import UnknownEntityError
from caraway.graph.plan.model import CheckPlan
from caraway.offline.monitoring.quality.counting import is_hidden
from caraway.offline.monitoring.quality.expectation_alerts import DAY_HOURS, states_of
from caraway.offline.monitoring.quality.store import QualityStore, Sample, Total, Windows
from caraway.state.permissions import Mode

# The default and the greatest value of the parameter `hours`, and of the parameter `samples` (rows of each
# expectation).
HOURS, MAX_HOURS = 24, 24 * 366
SHOWN, MAX_SHOWN = 3, 20
_DECODE = msgspec.msgpack.Decoder(list[Any]).decode


class ExpectationParameters(Struct):
    """The expectations that are wanted."""

    dataset: Annotated[str | None, Meta(description="the name of a dataset, to show only its expectations")] = None
    hours: Annotated[int, Meta(ge=1, le=MAX_HOURS, description="how many hours of event time the series has")] = HOURS
    samples: Annotated[
        int, Meta(ge=0, le=MAX_SHOWN, description=f"the most rows that failed, of each expectation, up to {MAX_SHOWN}")
    ] = SHOWN
    brief: Annotated[
        Flag, Meta(description="true: only all rows, and the status that was found last, which reads much less")
    ] = None


class CountedRows(Struct):
    """How many rows were looked at, how many of them failed, and the share that passed."""

    evaluated: int
    failed: int
    rate: float | None


class FailedRow(Struct):
    """A row that failed: its event time, and some of its values."""

    at: str
    values: dict[str, Any]


class HourOfRows(Struct):
    """The rows of an hour of event time."""

    start: str
    evaluated: int
    failed: int


class ExpectationAnswer(Struct):
    """The counts of an expectation."""

    dataset: str
    version: int
    expectation: str
    status: str
    status_since: str | None
    mostly: float
    strict: bool
    newest_at: str | None
    total: CountedRows
    last_hour: CountedRows
    last_day: CountedRows
    samples: list[FailedRow]
    series: list[HourOfRows]


class ExpectationsAnswer(Struct):
    """The expectations of a branch's datasets."""

    branch: str
    expectations: list[ExpectationAnswer]


async def expectations(context: ServerContext, request: Request[Nothing, ExpectationParameters]) -> HttpResponse:
    """Return how many rows of the branch's datasets are as expected.

    Raises `UnknownEntityError` if the branch has no such dataset, or the caller may not read it.
    """
    deployment, asked = context.deployment, request.parameters()
    served = deployment.graphs.require_served_graph(request.branch)
    tags, caller = context.limits.tags(served), request.caller

    def is_seen(name: str, found: Collection[str]) -> bool:
        return not caller.refused(Mode.READ_DATA, request.branch, [(name, found)])

    every = caller.may_all(Mode.READ_DATA, request.branch)
    names = {spec.name for spec in served.graph.datasets}
    seen = {name for name in names if every or is_seen(name, tags.entities.get(name, frozenset()))}
    if asked.dataset is not None and asked.dataset not in seen:
        raise UnknownEntityError(f"there is no dataset {asked.dataset[:100]!r} on the branch")
    checks = {
        check.check_id: check
        for check in served.plan.checks
        if check.dataset.name in seen and asked.dataset in (None, check.dataset.name)
    }
    fields = {
        name: {
            field.name
            for field in check.dataset.fields
            if every or is_seen(*next(iter(tags.fields_of(name, [field.name]))))
        }
        for name, check in ((check.dataset.name, check) for check in checks.values())
    }
    hides = {
        check_id: None
        if (found := deployment.erasure.erased.hides_record(check.erased_on, check.schema)) is None
        else partial(is_hidden, found)
        for check_id, check in checks.items()
    }
    read = await asyncio.to_thread(_read, deployment.monitoring.quality, checks, asked)
    windows, totals, samples = read
    answer = []
    for check_id, check in checks.items():
        own = [s for s in samples.get(check_id, ()) if (hidden := hides[check_id]) is None or not hidden(s.key, s.row)]
        of_day = windows.get(check_id, {})
        for number, state in enumerate(states_of(check, of_day, totals)):
            total = totals.get((check_id, number))
            failed = [sample for sample in own if sample.number == number]
            shown = [_failure(check, number, sample, fields[check.dataset.name]) for sample in failed]
            answer.append(_answer(state, total, shown, _series(of_day, number, asked.hours), brief=bool(asked.brief)))
    return json_response(msgspec.to_builtins(ExpectationsAnswer(request.branch, answer)))


def _read(
    store: QualityStore, checks: Mapping[str, CheckPlan], asked: ExpectationParameters
) -> tuple[Mapping[str, Windows], Mapping[tuple[str, int], Total], Mapping[str, Sequence[Sample]]]:
    if not checks:
        return {}, {}, {}
    if asked.brief:
        return {}, store.totals(checks), {}
    windows = store.windows(checks, max(asked.hours, DAY_HOURS))
    return windows, store.totals(checks), store.samples(checks, asked.samples) if asked.samples else {}


def _failure(check: CheckPlan, number: int, sample: Sample, fields: Collection[str]) -> Failure:
    """Return the keys of a row that failed, and the columns of the expectation, as far as they may be seen."""
    wanted = {*check.dataset.keys, *checks_of(check.suite)[number].columns} & set(fields)
    values = zip(check.schema.columns, _DECODE(sample.row), strict=True)
    shown = {
        column.name: None if value is None else to_json(column.dtype)(value)
        for column, value in values
        if column.name in wanted
    }
    return Failure(at=sample.at, values=shown)


def _answer(
    state: ExpectationState, total: Total | None, samples: Sequence[Failure], series: list[HourOfRows], *, brief: bool
) -> ExpectationAnswer:
    found_last = None if total is None else total.status
    since = None if total is None else total.changed_at
    return ExpectationAnswer(
        dataset=state.dataset,
        version=state.version,
        expectation=state.name,
        status=(found_last or Status.NO_DATA if brief else state.status).value,
        status_since=None if since is None else since.astimezone(UTC).isoformat(),
        mostly=state.mostly,
        strict=state.strict,
        newest_at=None if state.newest_at is None else state.newest_at.isoformat(),
        total=_counted(state.total),
        last_hour=_counted(state.hour),
        last_day=_counted(state.day),
        samples=[FailedRow(sample.at.isoformat(), dict(sample.values)) for sample in samples],
        series=series,
    )


def _counted(counts: Counts) -> CountedRows:
    return CountedRows(counts.evaluated, counts.failed, counts.rate)


def _series(windows: Windows, number: int, hours: int) -> list[HourOfRows]:
    newest = max((start for _, start in windows), default=None)
    by_hour: dict[datetime, Counts] = {}
    for (place, start), counts in windows.items():
        if place == number and newest is not None and start > newest - timedelta(hours=hours):
            hour = start.replace(minute=0)
            by_hour[hour] = by_hour.get(hour, Counts()) + counts
    return [HourOfRows(hour.isoformat(), c.evaluated, c.failed) for hour, c in sorted(by_hour.items())]
