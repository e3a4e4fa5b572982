"""The handlers that show what a branch holds: properties of its entities, their lineage, and rows of datasets.

A caller sees the definitions that they may read. Rows need the right to read all of their fields.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from msgspec import Meta, Struct

from caraway.apps.server.handlers.context import ServerContext
from caraway.apps.server.http.bodies import Nothing
from caraway.apps.server.http.messages import HttpResponse, Request, json_response
from caraway.apps.server.newest_rows import newest_rows
from caraway.apps.server.served_graph import ServedGraph
from caraway.compute.query.xray import Progress
from caraway.compute.query.xray import describe as properties_of
from caraway.dataplane.index.feeding.worker import IndexStatus
from caraway.errors import InvalidInputError
from caraway.graph.lineage_graph import as_json, lineage_of
from caraway.graph.plan.model import GraphPlan
from caraway.state.permissions import Mode

Json = dict[str, Any]
# How many rows an answer has if the request sets no `limit`, and the greatest `limit`.
ROWS, MAX_ROWS = 10, 500
# The most characters of a list of names in the query string. Three such lists in ASCII fit into the head of a request
# (`caraway.apps.server.serving`). A caller who wants more names leaves the list out, which means all of them.
MAX_LIST = 10_000
NameList = Annotated[str, Meta(max_length=MAX_LIST)]


class XrayParameters(Struct):
    """The entities and properties that are wanted; all entities if none is named."""

    datasets: Annotated[NameList | None, Meta(description="names, separated by commas")] = None
    featuresets: Annotated[NameList | None, Meta(description="names, separated by commas")] = None
    properties: Annotated[NameList | None, Meta(description="names, separated by commas")] = None


class XrayAnswer(Struct):
    """The properties of datasets and featuresets."""

    datasets: list[Json]
    featuresets: list[Json]


class LineageAnswer(Struct):
    """The nodes, each with its `id`, `kind`, `name`, `of` and `owner`, and the edges with `from`, `to`, `columns`."""

    nodes: list[Json]
    edges: list[Json]


class InspectParameters(Struct):
    """The number of rows, and the fields that are wanted."""

    n: Annotated[int, Meta(ge=1, le=MAX_ROWS, description=f"the most rows, up to {MAX_ROWS}")] = ROWS
    fields: Annotated[NameList | None, Meta(description="names of fields, separated by commas; by default all")] = None


async def xray(context: ServerContext, request: Request[Nothing, XrayParameters]) -> HttpResponse:
    """Return properties of datasets and featuresets.

    Raises:
        UnknownEntityError: The branch has no such entity, or the caller may not read it.
        InvalidInputError: There is no such property.
    """
    served = context.deployment.graphs.require_served_graph(request.branch)
    asked = request.parameters()
    positions = await asyncio.to_thread(context.deployment.index.positions)
    answer = properties_of(
        context.limits.definitions(request, served),
        context.limits.tags(served).entities,
        partial(progress_of, progresses(served.plan, positions)),
        datasets=_names(asked.datasets),
        featuresets=_names(asked.featuresets),
        properties=_names(asked.properties),
    )
    return json_response(answer)


async def lineage(context: ServerContext, request: Request) -> HttpResponse:
    """Return all entities of the branch, and which is computed from which."""
    served = context.deployment.graphs.require_served_graph(request.branch)
    return json_response(as_json(lineage_of(context.limits.definitions(request, served))))


async def inspect(context: ServerContext, request: Request[Nothing, InspectParameters], name: str) -> HttpResponse:
    """Return the newest rows of a dataset.

    Raises:
        UnknownEntityError: The branch has no such dataset.
        InvalidInputError: The dataset has no such field, or no topic has its rows.
        ForbiddenError: The caller may not read one of the fields.
    """
    asked = request.parameters()
    return json_response(await sample(context, request, name, asked.n, _names(asked.fields)))


async def sample(
    context: ServerContext, request: Request[Any, Any], name: str, count: int, fields: Sequence[str] | None
) -> list[Json]:
    """Return the newest rows of a dataset with some of its fields; see `inspect`."""
    served = context.deployment.graphs.require_served_graph(request.branch)
    spec = served.queries.catalog.dataset(name)
    wanted = [field.name for field in spec.fields] if not fields else list(fields)
    if unknown := [field for field in wanted if field not in {known.name for known in spec.fields}]:
        known = ", ".join(field.name for field in spec.fields)
        raise InvalidInputError(f"dataset {name} has no field {unknown[0][:200]!r}; fields: {known}")
    context.limits.check_fields(request, served, Mode.READ_DATA, name, wanted)
    deployment = context.deployment
    rows = await asyncio.to_thread(
        newest_rows,
        spec,
        served.plan,
        count,
        reader=deployment.topics.newest,
        erased=deployment.erasure.erased,
        look_up=partial(_look_up, served, name, wanted),
    )
    return [{field: row[field] for field in wanted} for row in rows]


def _look_up(
    served: ServedGraph, name: str, fields: Sequence[str], keys: Sequence[Json]
) -> tuple[Sequence[bool], Mapping[str, Sequence[object]]]:
    # `sample` has checked the caller's rights on the fields already, so this lookup checks none.
    found, data = served.queries.lookup(name, keys, fields)
    return found, data


def progresses(plan: GraphPlan, positions: Sequence[IndexStatus]) -> dict[str, Progress]:
    """Return how far the indexes of datasets are, by dataset."""
    datasets = {index.asset.hex(): index.dataset for index in plan.indexes}
    found: dict[str, Progress] = {}
    for position in positions:
        dataset = datasets.get(position.asset)
        if dataset is not None:
            rows = round(sum(position.offsets.values()) * position.records_per_message)
            found[dataset] = Progress(rows, position.newest_ingested_us or None, position.lag)
    return found


def progress_of(known: Mapping[str, Progress], dataset: str) -> Progress:
    """Return how far a dataset is; a dataset without an index has nothing that says it."""
    return known.get(dataset, Progress())


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name for name in text.split(",") if name]
