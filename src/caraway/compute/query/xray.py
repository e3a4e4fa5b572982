"""The properties of datasets and featuresets, as `xray` shows them (`GET /xray`)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from caraway.dtypes.types import type_name
from caraway.errors import InvalidInputError, UnknownEntityError, meant
from caraway.graph.specs import DatasetSpec, FeaturesetSpec, Graph, Metadata, PythonExtractor

# An error about an unknown name lists at most this many known ones.
LISTED = 20

DATASET_PROPERTIES = (
    "name",
    "fullname",
    "dsschema",
    "field_metadata",
    "retention",
    "history",
    "metaflags",
    "version",
    "pycode",
    "is_source_dataset",
    "tags",
    "lineage_tags",
    "rows_ingested",
    "last_processed",
    "last_updated",
    "backlog",
    "sink_destination",
)
FEATURESET_PROPERTIES = ("name", "metaflags", "pycode", "tags", "lineage_tags")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a dataset is; None for what isn't known.

    Attributes:
        rows: About how many rows were ingested.
        newest_us: The time of the newest row, in microseconds since the epoch.
        backlog: About how many rows aren't processed yet.
    """

    rows: int | None = None
    newest_us: int | None = None
    backlog: int | None = None


def describe(
    graph: Graph,
    tags: Mapping[str, frozenset[str]],
    progress: Callable[[str], Progress],
    *,
    datasets: str | Sequence[str] | None,
    featuresets: str | Sequence[str] | None,
    properties: Sequence[str] | None,
) -> dict[str, Any]:
    """Return properties of datasets and featuresets, by default of all of them.

    Args:
        graph: The definitions that may be shown.
        tags: The tags of datasets by name, their own and the inherited ones.
        progress: Returns how far a dataset is.
        datasets: The wanted datasets.
        featuresets: The wanted featuresets.
        properties: The wanted properties.

    Raises:
        UnknownEntityError: There is no such dataset or featureset.
        InvalidInputError: There is no such property.
    """
    known = {*DATASET_PROPERTIES, *FEATURESET_PROPERTIES}
    if unknown := [name for name in properties or () if name not in known]:
        raise InvalidInputError(
            f"xray: unknown property {', '.join(unknown)[:200]}; properties: {', '.join(sorted(known))}"
        )
    everything = datasets is None and featuresets is None
    wanted = None if properties is None else frozenset(properties)
    specs, sets = {spec.name: spec for spec in graph.datasets}, {spec.name: spec for spec in graph.featuresets}
    return {
        "datasets": [
            _only(_dataset(specs[name], tags, progress(name)), wanted)
            for name in _chosen("dataset", datasets, specs, everything=everything)
        ],
        "featuresets": [
            _only(_featureset(sets[name]), wanted)
            for name in _chosen("featureset", featuresets, sets, everything=everything)
        ],
    }


def _only(item: dict[str, Any], wanted: frozenset[str] | None) -> dict[str, Any]:
    return item if wanted is None else {name: value for name, value in item.items() if name in wanted}


def _chosen(kind: str, names: str | Sequence[str] | None, known: Iterable[str], *, everything: bool) -> list[str]:
    found = list(known)
    if names is None:
        return found if everything else []
    wanted, there = [names] if isinstance(names, str) else list(names), set(found)
    for name in wanted:
        if name not in there:
            more = f" and {len(found) - LISTED} more" if len(found) > LISTED else ""
            listed = ", ".join(found[:LISTED]) or "none"
            raise UnknownEntityError(
                f"xray: there is no {kind} {name[:200]!r}{meant(name, found)}; {kind}s: {listed}{more}"
            )
    return wanted


def _dataset(spec: DatasetSpec, tags: Mapping[str, frozenset[str]], progress: Progress) -> dict[str, Any]:
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
        "lineage_tags": sorted(tags.get(spec.name, frozenset(spec.metadata.tags))),
        "rows_ingested": progress.rows,
        "last_processed": progress.newest_us,
        "last_updated": progress.newest_us,
        "backlog": progress.backlog,
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
