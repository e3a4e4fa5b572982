"""The handler of `POST /get-online-features`: queries in the shape of Feast's feature server, over the same plans.

A feature view is a featureset, and so is a feature service (with all of its features). A join key stands for the
feature of that name in each of the requested views, and in each featureset whose features callers must supply for those
views. If no feature there has the name, it stands for the only feature of that name, or for the one with that full
name.

The event time of a feature is that of the newest row that it was looked up in or computed from.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta, Struct

from caraway.apps.server.handlers.context import ReadContext
from caraway.apps.server.handlers.queries import Given
from caraway.apps.server.http.bodies import Flag, Values
from caraway.apps.server.http.messages import HttpResponse, Request, json_response
from caraway.compute.query.batch import Batch
from caraway.compute.query.catalog import Catalog, listed
from caraway.compute.query.event_times import newest, time_columns
from caraway.compute.query.executor import Answer, CompiledPlan
from caraway.dtypes.instants import iso_instant
from caraway.errors import InvalidInputError, UnknownEntityError
from caraway.graph.references import inputs_of

# The event time that Feast shows for entities, and for features that come from no row.
NO_TIME = "1970-01-01T00:00:00Z"
# The most requests whose resolved names are cached, by commit, features and join keys. An application makes a handful
# of different ones. If the cache is full, it is cleared, and names are resolved again when they are needed.
MAX_KEPT = 1_000


class OnlineFeaturesBody(Struct):
    """The features of a view or service for some entities, as Feast asks for them."""

    entities: Annotated[dict[str, Values], Meta(description='an object of lists, such as {"driver": [1, 2]}')]
    features: Annotated[
        list[str] | None, Meta(description='a list of references (view:feature), such as ["drivers:rating"]')
    ] = None
    feature_service: Annotated[str | None, Meta(description="the name of a feature service")] = None
    full_feature_names: Flag = None


@dataclass(frozen=True, slots=True)
class OnlineFeatures:
    """The answer, in Feast's shape."""

    metadata: dict[str, list[str]]
    results: list[dict[str, Values]]


@dataclass(frozen=True, slots=True)
class Asked:
    """The resolved names of a request: inputs by join key, and outputs with the names that the answer gives them."""

    inputs: Mapping[str, tuple[str, ...]]
    outputs: tuple[str, ...]
    shown: tuple[str, ...]


async def get_online_features(context: ReadContext, request: Request[OnlineFeaturesBody]) -> HttpResponse:
    """Return features in the shape of Feast's feature server."""
    live = context.limits.seen(request)
    body = await request.read()
    entities, references = entities_of(body), references_of(body)
    full = bool(body.full_feature_names)
    key = (live.version, references, tuple(entities), full)
    kept = context.resolved.get(key)
    asked = kept[0] if kept else resolve(live.queries.catalog, references, tuple(entities), full=full)
    data = {name: entities[join_key] for join_key, names in asked.inputs.items() for name in names}
    plan = live.queries.plan(list(data), asked.outputs, event_times=True)
    if kept is None:
        if len(context.resolved) >= MAX_KEPT:
            context.resolved.clear()
        kept = context.resolved[key] = (asked, time_columns(plan.plan))
    times: dict[str, list[str]] = {}
    columns = kept[1]

    def keep(_plan: CompiledPlan, batch: Batch) -> None:
        # `Queries` runs a large query in a thread, and calls this function in that thread. So the conversion of many
        # event times to texts doesn't hold up other requests.
        times.update(event_times(columns, batch))

    answer = await context.queries.answer(plan, Given(data, is_large=request.is_large), None, keep)
    return json_response(shown(asked, entities, answer, times))


def entities_of(body: OnlineFeaturesBody) -> dict[str, list[object]]:
    """Return the entities of a request: a list of values for each join key, all of one length."""
    entities = body.entities
    if len({len(values) for values in entities.values()}) > 1:
        lengths = ", ".join(f"{name} {len(values)}" for name, values in entities.items())
        raise InvalidInputError(f"entities: the lists differ in length: {lengths}")
    return entities


def references_of(body: OnlineFeaturesBody) -> tuple[str, ...]:
    """Return the features of a request: `view:feature`, or the name of a view for all of its features."""
    service, features = body.feature_service, body.features
    if service is not None:
        if features:
            raise InvalidInputError("give features or a feature_service, not both")
        return (service,)
    if not features:
        raise InvalidInputError('features is missing; it has to be a list of references, such as ["drivers:rating"]')
    for name in features:
        if name.count(":") != 1:
            raise InvalidInputError(f"features: {name[:200]!r} is no reference; view:feature is expected")
    return tuple(features)


def resolve(catalog: Catalog, references: Sequence[str], join_keys: Sequence[str], *, full: bool) -> Asked:
    """Find features for references and join keys."""
    outputs: list[tuple[str, str]] = []
    for reference in references:
        view, _, feature = reference.partition(":")
        # Feast allows a version after the name of a view. Featuresets have no versions, so such a name is an unknown
        # view.
        spec = catalog.featuresets.get(view)
        if spec is None:
            raise UnknownEntityError(f"there is no feature view {view!r}; {listed('featuresets', catalog.featuresets)}")
        names = [feature] if feature else [found.name for found in spec.features if found.name not in join_keys]
        outputs += [(view, name) for name in names]
    views = tuple(dict.fromkeys(view for view, _ in outputs))
    of_views = {
        key: tuple(name for view in views if (name := f"{view}.{key}") in catalog.features) for key in join_keys
    }
    given = {*join_keys, *(name for names in of_views.values() for name in names)}
    missing = _without_extractor(catalog, [f"{view}.{name}" for view, name in outputs], given)
    shown_names = tuple(f"{view}__{name}" if full else name for view, name in outputs)
    if len(set(shown_names) | set(join_keys)) < len(shown_names) + len(join_keys):
        raise InvalidInputError(
            "features: two of them have one name, or that of an entity; ask for full_feature_names to tell them apart"
        )
    return Asked(
        inputs={join_key: _inputs(catalog, join_key, of_views[join_key], missing) for join_key in join_keys},
        outputs=tuple(f"{view}.{name}" for view, name in outputs),
        shown=shown_names,
    )


def _without_extractor(catalog: Catalog, outputs: Sequence[str], given: AbstractSet[str]) -> tuple[str, ...]:
    """Return the features from which outputs are computed, besides `given`, and that only callers can supply."""
    seen: dict[str, None] = dict.fromkeys(name for name in outputs if name not in given)
    pending = list(seen)
    while pending:
        owner = catalog.extractors.get(pending.pop())
        further = [name for name in (inputs_of(owner[1]) if owner else ()) if name not in seen and name not in given]
        seen.update(dict.fromkeys(further))
        pending += further
    return tuple(name for name in seen if name not in catalog.extractors)


def _inputs(catalog: Catalog, join_key: str, of_views: Sequence[str], missing: Sequence[str]) -> tuple[str, ...]:
    if join_key in catalog.features:
        return (join_key,)
    found = (*of_views, *(name for name in missing if name.partition(".")[2] == join_key))
    if found:
        return found
    found = tuple(name for name in catalog.features if name.partition(".")[2] == join_key)
    if not found:
        raise InvalidInputError(f"entities: no feature is called {join_key[:200]!r}; name the feature that it is")
    if len(found) > 1:
        raise InvalidInputError(f"entities: {join_key!r} may be {', '.join(found)}; give the full name")
    return found


def event_times(columns: Mapping[str, tuple[str, ...]], batch: Batch) -> dict[str, list[str]]:
    """Return the event times of outputs for each row, as text; `columns` holds the columns of times for each output."""
    made: dict[tuple[str, ...], list[str]] = {}
    for names in columns.values():
        if names not in made:
            made[names] = [NO_TIME if time is None else iso_instant(time) for time in newest(batch, names)]
    return {name: made[names] for name, names in columns.items()}


def shown(
    asked: Asked, entities: Mapping[str, list[object]], answer: Answer, times: Mapping[str, list[str]]
) -> dict[str, object]:
    """Build an answer in Feast's shape: the entities come first, then the features, with their event times."""
    columns = [*entities.values(), *(answer[name] for name in asked.outputs)]
    rows = len(columns[0]) if columns else 0
    unknown = [NO_TIME] * rows
    shown_times = [*(unknown for _ in entities), *(times[name] for name in asked.outputs)]
    present = ["PRESENT"] * rows
    return {
        "metadata": {"feature_names": [*entities, *asked.shown]},
        "results": [
            {
                "values": column,
                "statuses": present
                if None not in column
                else ["NULL_VALUE" if value is None else "PRESENT" for value in column],
                "event_timestamps": column_times,
            }
            for column, column_times in zip(columns, shown_times, strict=True)
        ],
    }
