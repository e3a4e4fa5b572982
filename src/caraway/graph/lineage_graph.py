"""The lineage of a graph as nodes and edges: what is computed from what, by column where the definitions show it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from caraway.graph.columns import column_origins
from caraway.graph.lineage import effective_owners
from caraway.graph.references import datasets_of, featureset_of, inputs_of, outputs_of
from caraway.graph.specs import DatasetSpec, Extractor, Graph, LookupExtractor, PipelineSpec
from caraway.graph.trees import datasets_read


class NodeKind(StrEnum):
    """The kinds of nodes, in the direction in which data flows."""

    SOURCE = "source"
    DATASET = "dataset"
    PIPELINE = "pipeline"
    SINK = "sink"
    EXTRACTOR = "extractor"
    FEATURE = "feature"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageNode:
    """An entity. No two nodes have the same `id`, `kind:name`; entities of different kinds may share a name.

    `of` is the dataset of a pipeline, or the featureset of a feature or extractor; otherwise it is empty.
    """

    id: str
    kind: NodeKind
    name: str
    of: str = ""
    owner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageEdge:
    """Data goes from one node to another, both given by their ids.

    `columns` has the pairs of columns that are known: from a dataset to a pipeline, the column that is read and the
    column of the pipeline's output that it goes into; from a dataset to the extractor of a lookup, the field and the
    feature. Without pairs, the edge is between the entities as a whole.
    """

    source: str
    target: str
    columns: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Lineage:
    """All nodes and edges of a graph."""

    nodes: tuple[LineageNode, ...]
    edges: tuple[LineageEdge, ...]


def node_id(kind: NodeKind, name: str) -> str:
    """Return the id of a node."""
    return f"{kind}:{name}"


def lineage_of(graph: Graph) -> Lineage:
    """Return the lineage of a graph. Edges to entities that the graph lacks are left out."""
    nodes = {node.id: node for node in _nodes(graph)}
    edges = [edge for edge in _edges(graph) if edge.source in nodes and edge.target in nodes]
    return Lineage(tuple(nodes.values()), tuple(dict.fromkeys(edges)))


def as_json(lineage: Lineage) -> dict[str, list[dict[str, object]]]:
    """Return a lineage as `GET /lineage` answers it."""
    return {
        "nodes": [
            {"id": node.id, "kind": node.kind.value, "name": node.name, "of": node.of or None, "owner": node.owner}
            for node in lineage.nodes
        ],
        "edges": [
            {"from": edge.source, "to": edge.target, "columns": [list(pair) for pair in edge.columns]}
            for edge in lineage.edges
        ],
    }


def _nodes(graph: Graph) -> Iterator[LineageNode]:
    owners = effective_owners(graph)

    def node(kind: NodeKind, name: str, of: str = "", owner: str = "") -> LineageNode:
        return LineageNode(id=node_id(kind, name), kind=kind, name=name, of=of, owner=owner)

    for dataset in graph.datasets:
        for source in dataset.sources:
            yield node(NodeKind.SOURCE, source.connector.identifier)
        for pipeline in dataset.pipelines:
            owner = pipeline.metadata.owner or dataset.metadata.owner
            yield node(NodeKind.PIPELINE, f"{dataset.name}.{pipeline.name}", dataset.name, owner)
        yield node(NodeKind.DATASET, dataset.name, owner=owners[dataset.name])
        for sink in dataset.sinks:
            yield node(NodeKind.SINK, sink.connector.identifier)
    for featureset in graph.featuresets:
        for extractor in featureset.extractors:
            owner = extractor.metadata.owner or featureset.metadata.owner
            yield node(NodeKind.EXTRACTOR, f"{featureset.name}.{extractor.name}", featureset.name, owner)
        for feature in featureset.features:
            full = f"{featureset.name}.{feature.name}"
            yield node(NodeKind.FEATURE, full, featureset.name, owners[full])


def _edges(graph: Graph) -> Iterator[LineageEdge]:
    datasets = {dataset.name: dataset for dataset in graph.datasets}
    for dataset in graph.datasets:
        here = node_id(NodeKind.DATASET, dataset.name)
        for source in dataset.sources:
            yield LineageEdge(source=node_id(NodeKind.SOURCE, source.connector.identifier), target=here)
        for pipeline in dataset.pipelines:
            yield from _of_pipeline(dataset, pipeline, datasets)
        for sink in dataset.sinks:
            yield LineageEdge(source=here, target=node_id(NodeKind.SINK, sink.connector.identifier))
    for featureset in graph.featuresets:
        for extractor in featureset.extractors:
            yield from _of_extractor(featureset.name, extractor)


def _of_pipeline(
    dataset: DatasetSpec, pipeline: PipelineSpec, datasets: Mapping[str, DatasetSpec]
) -> Iterator[LineageEdge]:
    middle = node_id(NodeKind.PIPELINE, f"{dataset.name}.{pipeline.name}")
    pairs: dict[str, list[tuple[str, str]]] = {name: [] for name in datasets_read(pipeline.operator)}
    for column, origins in column_origins(pipeline.operator, datasets).items():
        for origin, field in sorted(origins or ()):
            pairs[origin].append((field, column))
    for name, known in pairs.items():
        yield LineageEdge(source=node_id(NodeKind.DATASET, name), target=middle, columns=tuple(known))
    yield LineageEdge(source=middle, target=node_id(NodeKind.DATASET, dataset.name))


def _of_extractor(featureset: str, extractor: Extractor) -> Iterator[LineageEdge]:
    middle = node_id(NodeKind.EXTRACTOR, f"{featureset}.{extractor.name}")
    for name in datasets_of(extractor):
        known = ((extractor.field, extractor.output),) if isinstance(extractor, LookupExtractor) else ()
        yield LineageEdge(source=node_id(NodeKind.DATASET, name), target=middle, columns=known)
    for name in inputs_of(extractor):
        yield LineageEdge(source=node_id(NodeKind.FEATURE, name), target=middle)
    for name in outputs_of(extractor):
        if featureset_of(name) == featureset:
            yield LineageEdge(source=middle, target=node_id(NodeKind.FEATURE, name))
