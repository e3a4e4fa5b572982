"""The pages of single entities: datasets, featuresets, features, sources, sinks and jobs."""

from base64 import b64decode
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Any

from caraway.apps.server.console.catalogue import Catalogue
from caraway.apps.server.console.charts import Spread, line_of, oldest_of, spread_of
from caraway.apps.server.console.problems import Problem, problems_of
from caraway.apps.server.handlers.dataset_drift import FieldProfile, summary_of
from caraway.apps.server.http.messages import HttpResponse, Request
from caraway.apps.server.lags import pace_of
from caraway.apps.server.pages.context import PageContext
from caraway.apps.server.pages.overview import wanted_jobs
from caraway.apps.server.pages.parameters import given
from caraway.apps.server.pages.session import form_of
from caraway.apps.server.rates import extractions_of, rows_of
from caraway.compute.profiles.tables import Profile
from caraway.dtypes.types import type_name
from caraway.errors import UnknownEntityError, meant
from caraway.expr.printer import print_node
from caraway.graph.lineage_graph import NodeKind, node_id
from caraway.graph.references import datasets_of, inputs_of
from caraway.graph.specs import (
    AliasExtractor,
    ExpressionExtractor,
    Extractor,
    FieldSpec,
    LookupExtractor,
    PythonExtractor,
)
from caraway.state.permissions import Mode

# The most rows of a sample, and the most characters of a value in it.
SAMPLE, LONGEST = 5, 80
# The most datasets of a feature whose ages are in its chart.
CHARTED = 10
# The page of a feature shows the values that were served in this many hours.
VALUES_HOURS = 24


async def dataset(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page of a dataset."""
    catalogue, name = context.catalogue(request), given(request, "name")
    spec = _known(name, catalogue.datasets, "dataset")
    status = await context.ask(request, "status")
    rows, fields = await _sample(context, request, name, spec.fields)
    served = context.server.deployment.graphs.require_served_graph(request.branch)
    node = node_id(NodeKind.DATASET, name)
    indexes = [index for index in status["index"].get("indexes", ()) if index["dataset"] == name]
    lags = context.server.deployment.status.lags
    lag = line_of(lags.past.of(indexes[0]["asset"])) if indexes else None
    return context.page(
        request,
        "dataset.html",
        spec=spec,
        owner=catalogue.owners[name],
        tags=sorted(catalogue.tags.get(name, ())),
        fields=[(field, type_name(field.dtype), _role(field)) for field in spec.fields],
        problems=_about(catalogue, node, status),
        indexes=indexes,
        lines=[
            ("Age of what queries read", line_of(await _past_ages(context, request, [name])), "s"),
            ("Lag of its index", lag, "s"),
            ("Rows from its sources", line_of(lags.traffic.of(rows_of(name))), " a second"),
        ],
        jobs=wanted_jobs(status, {name}),
        ages=await _ages(context, request, {name}),
        topics=[topic.name for topic in served.plan.topics if topic.dataset == name],
        above=catalogue.above.get(node, ()),
        below=catalogue.below.get(node, ()),
        node=node,
        rows=rows,
        shown=fields,
    )


async def featureset(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page of a featureset."""
    catalogue, name = context.catalogue(request), given(request, "name")
    spec = _known(name, catalogue.featuresets, "featureset")
    features = [
        (feature, type_name(feature.dtype), computed(catalogue.extractors.get(f"{name}.{feature.name}")))
        for feature in spec.features
    ]
    return context.page(request, "featureset.html", spec=spec, features=features)


async def feature(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page of a feature, with what makes it stale."""
    catalogue, name = context.catalogue(request), given(request, "name")
    traffic = context.server.deployment.status.lags.traffic
    owner, spec = _known(name, catalogue.features, "feature")
    extractor, node = catalogue.extractors.get(name), node_id(NodeKind.FEATURE, name)
    status = await context.ask(request, "status")
    lags = {index["dataset"]: index for index in status["index"].get("indexes", ())}
    values, spread = await _served(context, request, name)
    read = sorted(one.partition(":")[2] for one in catalogue.ancestors(node) if one.startswith("dataset:"))
    return context.page(
        request,
        "feature.html",
        name=name,
        featureset=owner.name,
        spec=spec,
        dtype=type_name(spec.dtype),
        owner=catalogue.owners[name],
        tags=sorted(catalogue.tags.get(name, ())),
        computed=computed(extractor),
        needs=[] if extractor is None else list(inputs_of(extractor)),
        looks_up=[] if extractor is None else list(datasets_of(extractor)),
        source=_source(extractor),
        default=extractor.default if isinstance(extractor, LookupExtractor | AliasExtractor) else None,
        problems=_about(catalogue, node, status),
        ages=await _ages(context, request, read),
        freshness=[(dataset, lags.get(dataset)) for dataset in read],
        lines=[
            ("Age of the oldest data that it reads", line_of(await _past_ages(context, request, read[:CHARTED])), "s"),
            (
                "Extractions",
                line_of(traffic.of(extractions_of(name))),
                " a second",
            ),
        ],
        hours=VALUES_HOURS,
        values=values,
        spread=spread,
        above=catalogue.above.get(node, ()),
        below=catalogue.below.get(node, ()),
        node=node,
    )


async def source(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page of a source."""
    catalogue, name = context.catalogue(request), given(request, "name")
    datasets = _known(name, catalogue.sources, "source")
    status = await context.ask(request, "status")
    specs = [
        (dataset, found)
        for dataset in datasets
        for found in catalogue.datasets[dataset].sources
        if found.connector.identifier == name
    ]
    node = node_id(NodeKind.SOURCE, name)
    return context.page(
        request,
        "source.html",
        name=name,
        specs=specs,
        states=[one for one in status["sources"] if one["source"] == name and one["dataset"] in catalogue.datasets],
        node=node,
        below=catalogue.below.get(node, ()),
    )


async def sink(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page of a sink."""
    catalogue, name = context.catalogue(request), given(request, "name")
    datasets = _known(name, catalogue.sinks, "sink")
    status = await context.ask(request, "status")
    return context.page(
        request,
        "sink.html",
        name=name,
        datasets=datasets,
        states=[one for one in status["sinks"] if one["sink"] == name and one["dataset"] in catalogue.datasets],
        node=node_id(NodeKind.SINK, name),
    )


async def job(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page of a job."""
    return await _job(context, request, given(request, "name"), "")


async def pause(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Pause a job, or let it go on."""
    form = form_of(request.body, request.headers)
    found = await context.ask(request, "pause_job", job_id=form.get("name", ""), paused=form.get("pause") == "yes")
    done = (
        "is paused; its engine stops it in a moment" if found["paused"] else "goes on; its engine starts it in a moment"
    )
    return await _job(context, request, found["job_id"], f"The job {done}.")


async def _job(context: PageContext, request: Request[Any, Any], name: str, said: str) -> HttpResponse:
    catalogue = context.catalogue(request)
    status = await context.ask(request, "status")
    jobs = {job["id"]: job for job in status["jobs"] if job["dataset"] in catalogue.datasets}
    found = _known(name, jobs, "job")
    served = context.server.deployment.graphs.require_served_graph(request.branch)
    plan = next((plan for plan in served.plan.jobs if plan.job_id == name), None)
    pipelines = catalogue.datasets[found["dataset"]].pipelines
    code = next((pipeline.source_code for pipeline in pipelines if pipeline.name == found["pipeline"]), "")
    problems = [
        problem
        for problem in problems_of(status, catalogue.datasets, datetime.now(UTC))
        if found["dataset"] in problem.datasets
    ]
    past = context.server.deployment.status.lags.past
    return context.page(
        request,
        "job.html",
        job=found,
        said=said,
        inputs=[] if plan is None else [topic.dataset for topic in plan.inputs if topic.dataset in catalogue.datasets],
        output="" if plan is None else plan.output.name,
        lines=[("Behind", line_of(past.of(name)), "s"), ("Rows", line_of(past.of(pace_of(name))), " a second")],
        problems=problems,
        source=code,
    )


def computed(extractor: Extractor | None) -> str:
    """Return in words how a feature gets its value."""
    match extractor:
        case None:
            return "given by the query"
        case LookupExtractor():
            return f"looked up: {extractor.dataset}.{extractor.field}"
        case AliasExtractor():
            return f"the feature {extractor.input}"
        case ExpressionExtractor():
            return "an expression"
        case PythonExtractor():
            return f"the Python function {extractor.name}"


def _source(extractor: Extractor | None) -> str:
    match extractor:
        case PythonExtractor():
            return extractor.source_code
        case ExpressionExtractor():
            return print_node(extractor.expr)
        case _:
            return ""


def _about(catalogue: Catalogue, node: str, status: Any) -> list[Problem]:
    """Return the problems of an entity itself, and of all that it is computed from."""
    concerned = {one.partition(":")[2] for one in (node, *catalogue.ancestors(node)) if one.startswith("dataset:")}
    found = problems_of(status, catalogue.datasets, datetime.now(UTC))
    return [problem for problem in found if not concerned.isdisjoint(problem.datasets)]


async def _ages(context: PageContext, request: Request[Any, Any], datasets: Collection[str]) -> list[Any] | str:
    """Return how old what queries read of some datasets is, or why nobody knows."""
    answer = await context.ask_if_allowed(request, "freshness")
    return answer if isinstance(answer, str) else [one for one in answer["datasets"] if one["dataset"] in datasets]


async def _past_ages(
    context: PageContext, request: Request[Any, Any], datasets: Iterable[str]
) -> list[tuple[float, float]]:
    """Return the greatest age of some datasets in each minute of the last day that the server measured."""
    answers = [await context.ask_if_allowed(request, "freshness_history", dataset=name) for name in datasets]
    known = [one for answer in answers if not isinstance(answer, str) for one in answer["datasets"]]
    return oldest_of(zip(one["at"], one["seconds"], strict=True) for one in known)


async def _served(
    context: PageContext, request: Request[Any, Any], feature: str
) -> tuple[FieldProfile | str | None, Spread | None]:
    """Return what the served values of a feature are like, None if none is known, or why it isn't shown."""
    served = context.server.deployment.graphs.require_served_graph(request.branch)
    tags = context.server.limits.tags(served).entities
    if request.caller.refused(Mode.READ_DATA, request.branch, [(feature, tags.get(feature, frozenset()))]):
        return f"Account {request.caller.account!r} may not read values of this feature.", None
    answer = await context.ask_if_allowed(request, "drift_profiles", feature=feature, hours=VALUES_HOURS)
    if isinstance(answer, str) or answer["served"] is None:
        return answer if isinstance(answer, str) else None, None
    column = Profile.from_bytes(b64decode(answer["served"])).columns[feature]
    return summary_of(column), spread_of(column)


async def _sample(
    context: PageContext, request: Request[Any, Any], name: str, fields: tuple[FieldSpec, ...]
) -> tuple[list[list[str]] | str, list[str]]:
    """Return the newest rows of the fields that the caller may read, or why there are none, and these fields."""
    served = context.server.deployment.graphs.require_served_graph(request.branch)
    tags = context.server.limits.tags(served).fields
    tagged = [(field.name, tags.get(f"{name}.{field.name}", frozenset())) for field in fields]
    refused = set(request.caller.refused(Mode.READ_DATA, request.branch, tagged))
    shown = [field.name for field in fields if field.name not in refused]
    if not shown:
        return f"Account {request.caller.account!r} may not read rows of this dataset.", []
    rows = await context.ask_if_allowed(request, "inspect", name, n=SAMPLE, fields=",".join(shown))
    if isinstance(rows, str):
        return rows, shown
    return [[_short(row[field]) for field in shown] for row in rows], shown


def _short(value: object) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _role(field: FieldSpec) -> str:
    if field.timestamp:
        return "timestamp"
    return "erase key" if field.erase_key else "key" if field.key else ""


def _known(name: str, known: Any, kind: str) -> Any:
    if name not in known:
        raise UnknownEntityError(f"the branch has no {kind} {name[:200]!r}{meant(name, known)}")
    return known[name]
