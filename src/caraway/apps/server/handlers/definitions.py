"""The handlers that show definitions: the datasets that a branch serves, and the entities that have a name."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial

from caraway.apps.server.handlers.context import ServerContext
from caraway.apps.server.http.messages import HttpResponse, Request, json_response
from caraway.apps.server.served_graph import ServedGraph
from caraway.dataplane.index.feeding.worker import IndexStatus
from caraway.dtypes.types import type_name
from caraway.errors import UnknownEntityError
from caraway.graph.lineage import effective_owners, effective_tags
from caraway.graph.plan.model import GraphPlan, JobPlan
from caraway.graph.references import datasets_of, inputs_of, outputs_of
from caraway.graph.specs import (
    AliasExtractor,
    DatasetSpec,
    ExpressionExtractor,
    Extractor,
    FeaturesetSpec,
    FeatureSpec,
    Graph,
    LookupExtractor,
    Metadata,
    PipelineSpec,
    PythonExtractor,
)
from caraway.graph.trees import datasets_read

Json = dict[str, object]

# The most known names, similar to the wanted one, that an error about an unknown name proposes.
SHOWN_NAMES = 3


async def list_datasets(context: ServerContext, request: Request) -> HttpResponse:
    """Return the datasets that the branch serves, and whose definitions the caller may read."""
    served = context.deployment.graphs.require_served_graph(request.branch)
    positions = await asyncio.to_thread(context.deployment.index.positions)
    found = listed(served, positions, context.limits.definitions(request, served))
    return json_response({"branch": request.branch, "datasets": found})


async def list_features(context: ServerContext, request: Request) -> HttpResponse:
    """Return the features that the branch serves, and whose definitions the caller may read."""
    served = context.deployment.graphs.require_served_graph(request.branch)
    seen = context.limits.definitions(request, served)
    found = [feature for featureset in seen.featuresets for feature in _features(featureset)]
    return json_response({"branch": request.branch, "features": found})


async def describe(context: ServerContext, request: Request, name: str) -> HttpResponse:
    """Return what a name stands for, where it comes from and who uses it, as far as the caller may read definitions."""
    served = context.deployment.graphs.require_served_graph(request.branch)
    positions = await asyncio.to_thread(context.deployment.index.positions)
    found = described(served, name, positions, context.limits.definitions(request, served))
    return json_response({"branch": request.branch, "definitions": found})


def listed(served: ServedGraph, positions: Sequence[IndexStatus], seen: Graph) -> list[Json]:
    """Return the datasets of the part of a served graph that may be seen, in the order of their definition."""
    return [
        {
            "name": dataset.name,
            "kind": _kind(dataset),
            "version": dataset.version,
            "keys": list(dataset.keys),
            "timestamp": dataset.timestamp,
            "columns": len(dataset.fields),
            "from": _origins(dataset),
            **_index_status(dataset.name, served.plan, positions),
        }
        for dataset in seen.datasets
    ]


def described(served: ServedGraph, name: str, positions: Sequence[IndexStatus], seen: Graph) -> list[Json]:
    """Return descriptions of all entities with a name in the part of a served graph that may be seen.

    A dataset and a featureset may have the same name.
    """
    found = [describe() for known, describe in _entities(served, positions, seen) if known == name]
    if not found:
        near = get_close_matches(name, {known for known, _ in _entities(served, positions, seen)}, n=SHOWN_NAMES)
        hint = f"; did you mean {' or '.join(near)}?" if near else "; `caraway datasets` lists the datasets"
        raise UnknownEntityError(f"the branch has no definition {name[:200]!r}{hint}")
    return found


def _entities(
    served: ServedGraph, positions: Sequence[IndexStatus], graph: Graph
) -> Iterator[tuple[str, Callable[[], Json]]]:
    """Yield each name of the part of a graph that may be seen, with a function that describes its entity."""
    for dataset in graph.datasets:
        yield dataset.name, partial(_dataset, dataset, served, positions, graph)
        for pipeline in dataset.pipelines:
            yield f"{dataset.name}.{pipeline.name}", partial(_pipeline, dataset, pipeline, served.plan)
    for featureset in graph.featuresets:
        yield featureset.name, partial(_featureset, featureset, served.graph)
        for feature in featureset.features:
            yield f"{featureset.name}.{feature.name}", partial(_feature, featureset, feature, served, graph)
    fed: dict[str, list[tuple[str, str]]] = {}
    for dataset in graph.datasets:
        for source in dataset.sources:
            fed.setdefault(source.connector.system_name, []).append((source.connector.identifier, dataset.name))
    for name, ends in fed.items():
        yield name, partial(_source, name, ends)


def _source(name: str, ends: Sequence[tuple[str, str]]) -> Json:
    return {"kind": "source", "name": name, "feeds": [{"connector": end, "dataset": dataset} for end, dataset in ends]}


def _dataset(dataset: DatasetSpec, served: ServedGraph, positions: Sequence[IndexStatus], graph: Graph) -> Json:
    readers = [
        f"{other.name}.{pipeline.name}"
        for other in graph.datasets
        for pipeline in other.pipelines
        if dataset.name in datasets_read(pipeline.operator)
    ]
    features = [
        output
        for featureset in graph.featuresets
        for extractor in featureset.extractors
        if dataset.name in datasets_of(extractor)
        for output in outputs_of(extractor)
    ]
    return {
        "kind": "dataset",
        "name": dataset.name,
        "version": dataset.version,
        **_about(dataset.name, dataset.metadata, served.graph),
        "fields": [
            {
                "name": field.name,
                "type": type_name(field.dtype),
                "role": _role(key=field.key, timestamp=field.timestamp, erase_key=field.erase_key),
                "description": field.metadata.description,
            }
            for field in dataset.fields
        ],
        "from": _origins(dataset),
        **_index_status(dataset.name, served.plan, positions),
        "topics": [topic.name for topic in served.plan.topics if topic.dataset == dataset.name],
        "used_by": [*readers, *features],
    }


def _pipeline(dataset: DatasetSpec, pipeline: PipelineSpec, plan: GraphPlan) -> Json:
    jobs = [job for job in plan.jobs if (job.dataset, job.pipeline) == (dataset.name, pipeline.name)]
    return {
        "kind": "pipeline",
        "name": f"{dataset.name}.{pipeline.name}",
        "description": pipeline.metadata.description,
        "from": list(datasets_read(pipeline.operator)),
        "writes": dataset.name,
        "jobs": [{"id": job.job_id, "mode": job.mode, "mode_reason": job.mode_reason} for job in jobs],
        "computed_by": _computed_by(jobs),
        "source_code": pipeline.source_code,
    }


def _computed_by(jobs: Sequence[JobPlan]) -> str:
    """Return in words what computes a dataset's rows."""
    return " and ".join(f"job {job.job_id}" for job in jobs)


def _featureset(featureset: FeaturesetSpec, graph: Graph) -> Json:
    return {
        "kind": "featureset",
        "name": featureset.name,
        **_about(featureset.name, featureset.metadata, graph),
        "features": _features(featureset),
    }


def _features(featureset: FeaturesetSpec) -> list[Json]:
    return [
        {
            "name": f"{featureset.name}.{feature.name}",
            "type": type_name(feature.dtype),
            "from": _computed(_extractor(featureset, feature)),
            "description": feature.metadata.description,
        }
        for feature in featureset.features
    ]


def _feature(featureset: FeaturesetSpec, feature: FeatureSpec, served: ServedGraph, graph: Graph) -> Json:
    full = f"{featureset.name}.{feature.name}"
    extractor = _extractor(featureset, feature)
    uses = [
        output
        for other in graph.featuresets
        for found in other.extractors
        if full in inputs_of(found)
        for output in outputs_of(found)
    ]
    found: Json = {
        "kind": "feature",
        "name": full,
        "type": type_name(feature.dtype),
        **_about(full, feature.metadata, served.graph),
        "from": _computed(extractor),
        "needs": [] if extractor is None else list(inputs_of(extractor)),
        "used_by": list(dict.fromkeys(uses)),
    }
    if isinstance(extractor, PythonExtractor):
        found["source_code"] = extractor.source_code
    return found


def _extractor(featureset: FeaturesetSpec, feature: FeatureSpec) -> Extractor | None:
    full = f"{featureset.name}.{feature.name}"
    return next((found for found in featureset.extractors if full in outputs_of(found)), None)


def _computed(extractor: Extractor | None) -> str:
    """Return in words how a feature gets its value."""
    match extractor:
        case None:
            return "the query's input"
        case LookupExtractor():
            return f"lookup of {extractor.dataset}.{extractor.field}"
        case AliasExtractor():
            return f"feature {extractor.input}"
        case ExpressionExtractor():
            return f"expression over {', '.join(extractor.inputs) or 'constants'}"
        case PythonExtractor():
            return f"Python function {extractor.name}"


def _about(name: str, metadata: Metadata, graph: Graph) -> Json:
    return {
        "owner": effective_owners(graph).get(name, metadata.owner),
        "description": metadata.description,
        "tags": sorted(effective_tags(graph).get(name, frozenset(metadata.tags))),
        "deprecated": metadata.deprecated,
    }


def _kind(dataset: DatasetSpec) -> str:
    return "derived" if dataset.pipelines else "source" if dataset.sources else "unfed"


def _origins(dataset: DatasetSpec) -> list[str]:
    """Return the origins of a dataset's rows: its sources and pipelines."""
    pipelines = [f"pipeline {dataset.name}.{pipeline.name}" for pipeline in dataset.pipelines]
    return [*(source.connector.identifier for source in dataset.sources), *pipelines]


def _index_status(dataset: str, plan: GraphPlan, positions: Sequence[IndexStatus]) -> Mapping[str, object]:
    """Return whether rows of a dataset can be looked up, and how many records its index is behind (None: unknown)."""
    assets = {index.asset.hex() for index in plan.indexes if index.dataset == dataset}
    lags = [position.lag for position in positions if position.asset in assets]
    known = bool(lags) and None not in lags
    return {"indexed": bool(assets), "lag": sum(lag or 0 for lag in lags) if known else None}


def _role(*, key: bool, timestamp: bool, erase_key: bool) -> str:
    if timestamp:
        return "timestamp"
    return "erase key" if erase_key else "key" if key else ""
