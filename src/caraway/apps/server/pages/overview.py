"""The first pages: how everything is, and the catalog."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from prometheus_client import REGISTRY

from caraway.apps.server.app import UNKNOWN_TARGET
from caraway.apps.server.console.catalogue import Kind
from caraway.apps.server.console.charts import Line, line_of
from caraway.apps.server.console.problems import SILENT
from caraway.apps.server.http.endpoints import Endpoint
from caraway.apps.server.http.messages import HttpResponse, Request
from caraway.apps.server.lags import WORST, Lags
from caraway.apps.server.pages.context import PageContext
from caraway.apps.server.pages.parameters import given, whole
from caraway.apps.server.rates import ERRORS, MEAN, QUERIES, ROWS, SLOWEST
from caraway.errors import InvalidInputError
from caraway.observations.figures import instant
from caraway.observations.observation import Row, rows_of
from caraway.observations.operating import JOBS

# The most rows of a page of the catalog, and of a list on the overview.
PER_PAGE, LISTED = 50, 15


@dataclass(slots=True)
class Calls:
    """The requests for one address since the server's start, by outcome, and their mean time."""

    address: str
    answered: int = 0
    refused: int = 0
    failed: int = 0
    seconds: float = 0.0
    timed: int = 0

    @property
    def mean_ms(self) -> float | None:
        """The mean time of a request, in milliseconds."""
        return self.seconds / self.timed * 1000 if self.timed else None


async def overview(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page with what is wrong now, how fresh datasets are, rates, and errors."""
    catalogue = context.catalogue(request)
    status = await context.ask(request, "status")
    indexes = [index for index in status["index"].get("indexes", ()) if index["dataset"] in catalogue.datasets]
    indexes.sort(key=lambda index: (-(index["lag_seconds"] or 0.0), -(index["lag"] or 0), index["dataset"]))
    jobs = wanted_jobs(status, catalogue.datasets)
    lags = context.server.deployment.status.lags
    return context.page(
        request,
        "overview.html",
        wrong=await context.ask(request, "problems"),
        status=status,
        counts={kind: sum(entry.kind is kind for entry in catalogue.entries) for kind in Kind},
        lines=_lines(lags),
        indexes=indexes[:LISTED],
        lags={index["dataset"]: line_of(lags.past.of(index["asset"])) for index in indexes[:LISTED]},
        more=max(0, len(indexes) - LISTED),
        jobs=jobs[:LISTED],
        more_jobs=max(0, len(jobs) - LISTED),
        sources=[source for source in status["sources"] if source["dataset"] in catalogue.datasets][:LISTED],
        sinks=[sink for sink in status["sinks"] if sink["dataset"] in catalogue.datasets][:LISTED],
        calls=calls(context.endpoints),
    )


# A line of a chart, with its title and its unit.
Titled = tuple[str, Line | None, str]


def _lines(lags: Lags) -> list[Titled]:
    """Return the lines of what the whole server did in the last hours."""
    rates = {ROWS: "Rows from sources", QUERIES: "Queries", ERRORS: "Queries that failed"}
    times = {MEAN: "Mean time of a query", SLOWEST: "99 of 100 queries took at most"}
    return [
        ("Greatest lag of an index", line_of(lags.past.of(WORST)), "s"),
        *((title, line_of(lags.traffic.of(name)), " a second") for name, title in rates.items()),
        *((title, line_of(lags.traffic.of(name)), "s") for name, title in times.items()),
    ]


async def catalog(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page with all entities that have the words that are searched."""
    words, page = given(request, "q"), whole(request, "page", 1, 1_000_000)
    kind = kind_of(given(request, "kind"))
    catalogue = context.catalogue(request)
    found = catalogue.search(words, kind)
    pages = max(1, -(-len(found) // PER_PAGE))
    shown = found[(page - 1) * PER_PAGE : page * PER_PAGE]
    return context.page(
        request,
        "catalog.html",
        words=words,
        kind=kind,
        kinds=list(Kind),
        entries=shown,
        found=len(found),
        number=page,
        pages=pages,
    )


def kind_of(text: str) -> Kind | None:
    """Return a kind of entities; None for an empty text. Raises `InvalidInputError` for any other text."""
    if not text:
        return None
    try:
        return Kind(text)
    except ValueError:
        raise InvalidInputError(f"there is no kind {text[:40]!r}; kinds: {', '.join(Kind)}") from None


def wanted_jobs(status: Any, datasets: Iterable[str]) -> list[Row]:
    """Return the jobs of a status that must run for some datasets, those that don't run first."""
    seen, now = frozenset(datasets), datetime.now(UTC)
    wanted = [job for job in status["jobs"] if job["desired"] == "running" and job["dataset"] in seen]
    return rows_of(JOBS, {"jobs": [_reported(job, now) for job in wanted]})


def _reported(job: Row, now: datetime) -> Row:
    """Return a job with the state that its engine has reported lately."""
    at = instant(job["updated_at"])
    return job if at is not None and now - at <= SILENT else {**job, "state": "not reported"}


def calls(endpoints: Mapping[str, Endpoint]) -> Sequence[Calls]:
    """Return the requests since the start of this process, by address, without those of load balancers.

    Args:
        endpoints: The endpoints of the API by their targets.
    """
    found: dict[str, Calls] = {}
    for family in REGISTRY.collect():
        if family.name not in {"caraway_request_counter", "caraway_request_latency_seconds"}:
            continue
        for sample in family.samples:
            target = sample.labels.get("target", "")
            endpoint = endpoints.get(target)
            # A load balancer asks again and again, and is refused until the server is ready, which isn't a failure.
            if endpoint is not None and endpoint.probe:
                continue
            # All pages of the console are shown as one address, since they would make a longer list than all other
            # endpoints.
            if target.startswith("console_"):
                address = "pages of this console"
            elif target == UNKNOWN_TARGET:
                address = "addresses that there aren't"
            else:
                address = target if endpoint is None else f"{endpoint.method} {endpoint.path}"
            one = found.setdefault(address, Calls(address))
            if sample.name == "caraway_request_latency_seconds_sum":
                one.seconds += sample.value
            elif sample.name == "caraway_request_latency_seconds_count":
                one.timed += int(sample.value)
            elif sample.name == "caraway_request_counter_total":
                code = sample.labels["code"]
                if code.startswith("5"):
                    one.failed += int(sample.value)
                elif code.startswith("4"):
                    one.refused += int(sample.value)
                else:
                    one.answered += int(sample.value)
    return sorted(found.values(), key=lambda one: one.address)
