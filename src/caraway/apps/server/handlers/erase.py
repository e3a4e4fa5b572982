"""The handlers that erase keys: they store a request, which each server carries out (`caraway.apps.server.erasure`)."""

import asyncio
import uuid
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from caraway.apps.server.access.limits import require
from caraway.apps.server.erasure.remaining import remaining
from caraway.apps.server.handlers.context import ServerContext
from caraway.apps.server.http.messages import HttpResponse, Request, json_response
from caraway.compute.rows.column_casts import MISSING, ColumnCast
from caraway.dataplane.topics.erased_keys import erasure_of
from caraway.dataplane.topics.erasure_places import (
    ARCHIVE,
    ARCHIVE_FILES,
    DEAD_LETTERS_PLACE,
    DERIVED,
    RECOMPUTATION,
    SERVED_PLACE,
    TOPIC,
    index_files_of,
)
from caraway.dtypes.values import ROWS
from caraway.errors import ConflictError, InvalidInputError
from caraway.graph.erase_keys import erase_key_fields, goes_downstream
from caraway.graph.plan.model import Column, GraphPlan
from caraway.graph.schemas import WINDOW_KEY
from caraway.graph.specs import DatasetSpec
from caraway.state.erasures import ErasedKey, ErasureRecord
from caraway.state.permissions import Mode

# The most keys that one request may erase.
MAX_KEYS = 10_000
# The most erased keys in an answer of `erasures`. If a dataset has more, the newest are shown.
SHOWN = 1_000


class EraseBody(Struct):
    """The erase keys of rows."""

    erase_keys: Annotated[
        list[dict[str, Any]],
        Meta(min_length=1, max_length=MAX_KEYS, description='a list of objects, such as [{"user": 1}]'),
    ]
    downstream: Annotated[
        bool | None,
        Meta(
            description="true: also what is computed from the rows is computed again without them, and the topic loses "
            "them; by default true only if an erase key is no key of the dataset"
        ),
    ] = None


async def erase(context: ServerContext, request: Request[EraseBody], dataset: str) -> HttpResponse:
    """Remove all rows with these keys, past and to come.

    The answer's `remaining` lists the places that keep clear text after the erasure.

    Raises:
        InvalidInputError: The keys don't fit, or the dataset doesn't allow what `downstream` asks for.
        ConflictError: `downstream` needs the archive, and the dataset's topic isn't archived.
    """
    served = context.deployment.graphs.require_served_graph(request.branch)
    spec = served.queries.catalog.dataset(dataset)
    tags = context.limits.tags(served).entities
    require(request.caller, Mode.WRITE_DATA, request.branch, [(dataset, tags.get(dataset, frozenset()))])
    topics = topics_of(dataset, _plans(context, request.branch))
    context.sharing.check_written(request.caller, request.branch, [(dataset, topic) for topic in topics])
    body = await request.read()
    columns, values = parsed(spec, body.erase_keys)
    downstream = goes_downstream(spec, body.downstream)
    if downstream:
        await asyncio.to_thread(_require_archive, context, dataset, topics)
    number, hashed = uuid.uuid4().hex, context.deployment.erasure.keyring.current
    keys = [
        ErasedKey(
            request=number,
            branch=request.branch,
            dataset=dataset,
            topic=topic,
            account=request.caller.account,
            token_id=request.caller.token_id,
            columns=erasure.columns,
            key_id=erasure.key_id,
            digest=erasure.digest,
            by_key={column.name for column in columns} <= set(spec.keys),
            downstream=downstream,
        )
        for topic in topics
        for row in values
        for erasure in [erasure_of(topic, columns, row, hashed.id, hashed.mac_key)]
    ]
    new = await asyncio.to_thread(context.deployment.erasure.eraser.ask, keys)
    places = remaining(dataset, served.graph, topics, downstream=downstream)
    answer = {"request": number, "keys": len(values), "new": new, "downstream": downstream, "remaining": places}
    return json_response(answer)


async def erasures(context: ServerContext, request: Request, dataset: str) -> HttpResponse:
    """Return the erased keys, who asked for it, and the progress at each place."""
    served = context.deployment.graphs.require_served_graph(request.branch)
    served.queries.catalog.dataset(dataset)
    tags = context.limits.tags(served).entities
    require(request.caller, Mode.READ_DEFINITION, request.branch, [(dataset, tags.get(dataset, frozenset()))])
    records = await asyncio.to_thread(context.deployment.erasure.erasures.of, dataset, request.branch, limit=SHOWN)
    plans = _plans(context, request.branch)
    downstream = bool(records) and all(record.key.downstream for record in records)
    places = remaining(dataset, served.graph, topics_of(dataset, plans), downstream=downstream) if records else []
    listed = [_erasure(record, context.deployment.erasure.eraser.member) for record in records]
    return json_response({"dataset": dataset, "erasures": listed, "remaining": places})


def _require_archive(context: ServerContext, dataset: str, topics: Sequence[str]) -> None:
    """Refuse if a topic isn't archived: the rows of other keys are in the archive only, once the topic is cut."""
    archived = context.deployment.offline.reports.all().keys()
    if left := [topic for topic in topics if topic not in archived]:
        raise ConflictError(
            f"erase in {dataset}: the archive has no table of {', '.join(left)} yet, from which what depends on the "
            "dataset could be computed again; start the archive (archive.enabled), or ask again in a minute"
        )


def _plans(context: ServerContext, branch: str) -> list[GraphPlan]:
    """Return the plans of a branch: of the served commit, and of the head if it isn't served yet."""
    return [planned.plan for planned in context.deployment.graphs.require_needed().of(branch).values()]


def parsed(spec: DatasetSpec, rows: Sequence[dict[str, Any]]) -> tuple[tuple[Column, ...], list[list[object]]]:
    """Return the erase keys of a dataset, and their values in stored form, a list for each row of a request."""
    where = f"erase in {spec.name}"
    types = {field.name: field.dtype for field in spec.fields if field.erase_key}
    columns = tuple(Column(name=field.name, dtype=field.dtype) for field in erase_key_fields(spec))
    spelled = ", ".join(types) or "none; mark one with field(key=True, erase_key=True)"
    if not columns:
        raise InvalidInputError(f"{where}: erase keys: {spelled}")
    if WINDOW_KEY in types and spec.pipelines:
        raise InvalidInputError(f"{where}: rows of an aggregation can't be erased by their window, only by their group")
    names = dict.fromkeys(name for row in rows for name in row)
    if wrong := [str(name) for name in names if name not in types]:
        raise InvalidInputError(f"{where}: {', '.join(wrong)} is no erase key; erase keys: {spelled}")
    given: list[list[object]] = []
    for column in columns:
        cast = ColumnCast(column.dtype, ROWS)([row.get(column.name, MISSING) for row in rows])
        if cast.errors:
            row, message = next(iter(cast.errors.items()))
            raise InvalidInputError(f"{where}: row {row}, erase key {column.name}: {message}")
        if None in cast.values:
            raise InvalidInputError(f"{where}: erase key {column.name} is null in some row; each row needs a value")
        given.append(cast.values)
    return columns, [list(row) for row in zip(*given, strict=True)]


def topics_of(dataset: str, plans: Iterable[GraphPlan]) -> list[str]:
    """Return the topics on which keys of a dataset are erased: without those that an index writes for other jobs."""
    found: dict[str, None] = {}
    for plan in plans:
        emitted = {index.emits.name for index in plan.indexes if index.emits is not None}
        found.update({t.name: None for t in plan.topics if t.dataset == dataset and t.name not in emitted})
    return list(found)


def _erasure(record: ErasureRecord, member: str) -> dict[str, object]:
    """Return an erased key as plain values; `waits_for` are the next places, those of this server among them."""
    downstream = (TOPIC, RECOMPUTATION, DERIVED, index_files_of(member), ARCHIVE_FILES)
    places = (ARCHIVE, *(downstream if record.key.downstream else ()), DEAD_LETTERS_PLACE, SERVED_PLACE)
    return {
        "request": record.key.request,
        "topic": record.key.topic,
        "columns": list(record.key.columns),
        "digest": record.key.digest.hex(),
        "account": record.key.account,
        "asked_at": record.asked_at,
        "recorded_at": record.recorded_at,
        "downstream": record.key.downstream,
        "places": [{"place": place, "done_at": at} for place, at in record.places],
        "waits_for": [place for place in places if record.left(place) is None],
    }
