"""The content of a branch of the mock, as plain data: `xray` and `lineage`."""

from collections.abc import Iterable, Sequence
from typing import Any

from caraway.dtypes.types import type_name
from caraway.errors import InvalidInputError, UnknownEntityError
from caraway.graph.references import inputs_of, outputs_of
from caraway.graph.specs import DatasetSpec, FeaturesetSpec, Graph, LookupExtractor, Metadata, PythonExtractor
from caraway.testing.branch import Branch


def describe(
    branch: Branch,
    datasets: str | Sequence[str] | None,
    featuresets: str | Sequence[str] | None,
    properties: Sequence[str] | None,
) -> dict[str, Any]:
    """Return properties of datasets and featuresets, by default of all of them.

    Raises:
        UnknownEntityError: There is no such dataset or featureset.
        InvalidInputError: There is no such property.
    """
    catalog = branch.catalog
    everything = datasets is None and featuresets is None
    described: dict[str, list[dict[str, Any]]] = {
        "datasets": [
            _dataset(branch, catalog.datasets[name])
            for name in _chosen("dataset", datasets, catalog.datasets, everything=everything)
        ],
        "featuresets": [
            _featureset(catalog.featuresets[name])
            for name in _chosen("featureset", featuresets, catalog.featuresets, everything=everything)
        ],
    }
    if properties is None:
        return described
    known = {name for items in described.values() for item in items for name in item}
    if known and (unknown := [name for name in properties if name not in known]):
        raise InvalidInputError(f"xray: unknown property {', '.join(unknown)}; properties: {', '.join(sorted(known))}")
    return {
        kind: [{name: value for name, value in item.items() if name in properties} for item in items]
        for kind, items in described.items()
    }


def _chosen(kind: str, names: str | Sequence[str] | None, known: Iterable[str], *, everything: bool) -> list[str]:
    found = list(known)
    if names is None:
        return found if everything else []
    wanted = [names] if isinstance(names, str) else list(names)
    for name in wanted:
        if name not in found:
            raise UnknownEntityError(f"xray: there is no {kind} {name!r}; {kind}s: {', '.join(found) or 'none'}")
    return wanted


def _dataset(branch: Branch, spec: DatasetSpec) -> dict[str, Any]:
    rows = branch.engine.rows(spec.name)
    last = max((row[spec.timestamp] for row in rows), default=None)  # type: ignore[type-var]  # microseconds
    return {
        "name": spec.name,
        "fullname": spec.name,
        "dsschema": {field.name: type_name(field.dtype) for field in spec.fields},
        "field_metadata": {field.name: _metaflags(field.metadata) for field in spec.fields},
        "retention": spec.history_us,
        "history": spec.history_us,
        "metaflags": _metaflags(spec.metadata),
        "version": spec.version,
        "pycode": "\n".join(pipeline.source_code for pipeline in spec.pipelines),
        "is_source_dataset": not spec.pipelines,
        "tags": list(spec.metadata.tags),
        "lineage_tags": _lineage_tags(branch.graph, spec),
        "rows_ingested": len(rows),
        "last_processed": last,
        "last_updated": last,
        "backlog": 0,
        "sink_destination": [sink.connector.identifier for sink in spec.sinks],
    }


def _featureset(spec: FeaturesetSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "metaflags": _metaflags(spec.metadata),
        "pycode": "\n".join(e.source_code for e in spec.extractors if isinstance(e, PythonExtractor)),
        "tags": list(spec.metadata.tags),
        "lineage_tags": list(spec.metadata.tags),
    }


def _metaflags(metadata: Metadata) -> dict[str, Any]:
    return {
        "owner": metadata.owner,
        "description": metadata.description,
        "tags": list(metadata.tags),
        "deprecated": metadata.deprecated,
        "deleted": metadata.deleted,
    }


def _lineage_tags(graph: Graph, spec: DatasetSpec) -> list[str]:
    """Return the tags of a dataset and of all that it is computed from; `~x` removes x there and downstream."""
    known = {dataset.name: dataset for dataset in graph.datasets}
    inherited = {
        tag
        for pipeline in spec.pipelines
        for name in pipeline.inputs
        if name in known
        for tag in _lineage_tags(graph, known[name])
    }
    tags = inherited | set(spec.metadata.tags)
    plain = {tag for tag in tags if not tag.startswith("~") and f"~{tag}" not in tags}
    own = {tag for tag in spec.metadata.tags if tag.startswith("~")}
    return sorted(plain | own)


def lineage_of(graph: Graph) -> dict[str, Any]:
    """Return the lineage of a graph: an edge for each pipeline's input, each extractor's input and lookup."""
    edges = [
        {"from": source, "to": dataset.name, "by": f"{dataset.name}.{pipeline.name}"}
        for dataset in graph.datasets
        for pipeline in dataset.pipelines
        for source in pipeline.inputs
    ]
    for featureset in graph.featuresets:
        for extractor in featureset.extractors:
            match extractor:
                case LookupExtractor():
                    datasets: tuple[str, ...] = (extractor.dataset,)
                case PythonExtractor():
                    datasets = extractor.datasets
                case _:
                    datasets = ()
            edges += [
                {"from": source, "to": output, "by": f"{featureset.name}.{extractor.name}"}
                for source in (*datasets, *inputs_of(extractor))
                for output in outputs_of(extractor)
            ]
    return {
        "datasets": [dataset.name for dataset in graph.datasets],
        "featuresets": [featureset.name for featureset in graph.featuresets],
        "sources": [
            {"source": source.connector.identifier, "dataset": dataset.name}
            for dataset in graph.datasets
            for source in dataset.sources
        ],
        "sinks": [
            {"dataset": dataset.name, "sink": sink.connector.identifier}
            for dataset in graph.datasets
            for sink in dataset.sinks
        ],
        "edges": edges,
    }
