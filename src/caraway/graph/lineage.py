"""Inheritance of metadata: tags along the lineage, owners from the containing entity."""

from collections.abc import Iterable, Iterator, Mapping
from graphlib import TopologicalSorter

from caraway.graph.columns import column_origins
from caraway.graph.references import datasets_of, inputs_of, outputs_of
from caraway.graph.specs import DatasetSpec, Extractor, Graph, LookupExtractor
from caraway.graph.trees import datasets_read


def effective_tags(graph: Graph) -> Mapping[str, frozenset[str]]:
    """Return the tags of all datasets and features, by name and full name: their own and the inherited ones.

    A dataset inherits from those that its pipelines read; a feature from its featureset, from the features and datasets
    that its extractors use, and from the field that is looked up or, for a function, from all fields of the datasets.
    `~x` cancels an inherited `x` there and downstream, and is a tag itself; an entity that inherits both ends with
    neither. The graph must have no circles; entities that it refers to but lacks have no tags.
    """
    found = _all_tags(graph)
    names = [d.name for d in graph.datasets] + [f"{s.name}.{f.name}" for s in graph.featuresets for f in s.features]
    return {name: found[name] for name in names}


def effective_field_tags(graph: Graph) -> Mapping[str, frozenset[str]]:
    """Return the tags of all fields of datasets, by full name: their own and the inherited ones.

    As in `effective_tags`, a negated tag cancels an inherited one. A field inherits from its dataset, and from the
    fields that its pipelines compute it from; if a user's function hides which ones these are, from all fields that the
    pipeline reads.
    """
    found = _all_tags(graph)
    return {f"{d.name}.{f.name}": found[_field(d.name, f.name)] for d in graph.datasets for f in d.fields}


def extractor_tags(graph: Graph, features: Mapping[str, frozenset[str]]) -> Mapping[str, frozenset[str]]:
    """Return the tags of all extractors, by names such as `extractor User.age`.

    An extractor has its own tags, which no feature inherits, and those of the features that it computes. `features` has
    the tags of all features, as `effective_tags` returns them.
    """
    return {
        f"extractor {spec.name}.{extractor.name}": frozenset(extractor.metadata.tags).union(
            *(features[name] for name in outputs_of(extractor))
        )
        for spec in graph.featuresets
        for extractor in spec.extractors
    }


def _all_tags(graph: Graph) -> Mapping[str, frozenset[str]]:
    own: dict[str, frozenset[str]] = {d.name: frozenset(d.metadata.tags) for d in graph.datasets}
    parents: dict[str, set[str]] = {
        d.name: {name for p in d.pipelines for name in datasets_read(p.operator)} for d in graph.datasets
    }
    datasets = {dataset.name: dataset for dataset in graph.datasets}
    for dataset in graph.datasets:
        computed = [column_origins(p.operator, datasets) for p in dataset.pipelines]
        read = {name for p in dataset.pipelines for name in _fields_of(datasets_read(p.operator), datasets)}
        for field in dataset.fields:
            node = _field(dataset.name, field.name)
            own[node], parents[node] = frozenset(field.metadata.tags), {dataset.name}
            for origins in computed:
                columns = origins.get(field.name)
                parents[node] |= read if columns is None else {_field(*column) for column in columns}
    for featureset in graph.featuresets:
        whole = f"featureset {featureset.name}"
        own[whole], parents[whole] = frozenset(featureset.metadata.tags), set()
        for feature in featureset.features:
            full_name = f"{featureset.name}.{feature.name}"
            own[full_name], parents[full_name] = frozenset(feature.metadata.tags), {whole}
        for extractor in featureset.extractors:
            for output in outputs_of(extractor):
                parents[output] |= _uses(extractor, datasets)
    found: dict[str, frozenset[str]] = {}
    for name in TopologicalSorter(parents).static_order():
        found[name] = _with_inherited(own.get(name, frozenset()), (found[parent] for parent in parents.get(name, ())))
    return found


def effective_owners(graph: Graph) -> Mapping[str, str]:
    """Return the owners of all datasets, fields, featuresets and features, by name and full name.

    A field or feature without an owner has that of its dataset or featureset.
    """
    found: dict[str, str] = {}
    for dataset in graph.datasets:
        found[dataset.name] = dataset.metadata.owner
        found |= {f"{dataset.name}.{f.name}": f.metadata.owner or dataset.metadata.owner for f in dataset.fields}
    for featureset in graph.featuresets:
        found[featureset.name] = featureset.metadata.owner
        found |= {
            f"{featureset.name}.{f.name}": f.metadata.owner or featureset.metadata.owner for f in featureset.features
        }
    return found


def _uses(extractor: Extractor, datasets: Mapping[str, DatasetSpec]) -> set[str]:
    if isinstance(extractor, LookupExtractor):
        return {*extractor.inputs, extractor.dataset, _field(extractor.dataset, extractor.field)}
    read = datasets_of(extractor)
    return {*inputs_of(extractor), *read, *_fields_of(read, datasets)}


def _fields_of(names: Iterable[str], datasets: Mapping[str, DatasetSpec]) -> Iterator[str]:
    return (_field(name, field.name) for name in names if name in datasets for field in datasets[name].fields)


def _field(dataset: str, field: str) -> str:
    # Fields and features are nodes of one lineage. A dataset and a featureset may share a name, so without the prefix a
    # field and a feature could have the same full name.
    return f"field {dataset}.{field}"


def _with_inherited(own: frozenset[str], parents: Iterable[frozenset[str]]) -> frozenset[str]:
    inherited = frozenset[str]().union(*parents)
    return own | {tag for tag in inherited if _opposite(tag) not in inherited | own}


def _opposite(tag: str) -> str:
    return tag[1:] if tag.startswith("~") else f"~{tag}"
