"""Erased keys in the table of served features: rows that were looked up by them are removed, and none is added.

A row belongs to an erased key if it has the features by which an extractor of its commit looks up the dataset, or one
that is computed from it and has a key of the same name and type, under their own names or those of which they are
aliases. A key that was computed during a query isn't in its row, so such rows aren't found.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import orjson

from caraway.compute.rows.column_casts import ColumnCast
from caraway.dataplane.archive.served_table import COMMIT, INPUTS, OUTPUTS, SCHEMA, Row
from caraway.dataplane.topics.codec import RecordCodec
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.errors import InvalidInputError, UnknownEntityError
from caraway.graph.erase_keys import erase_key_fields
from caraway.graph.plan.model import Column
from caraway.graph.schemas import WINDOW_KEY
from caraway.graph.specs import AliasExtractor, DatasetSpec, Graph, LookupExtractor
from caraway.graph.trees import datasets_read, reached

KEPT_COMMITS = 1_000
_PLACES = tuple(SCHEMA.get_field_index(name) for name in (COMMIT, INPUTS, OUTPUTS))

_codec = lru_cache(maxsize=KEPT_COMMITS)(RecordCodec.of_keys)


@dataclass(frozen=True, slots=True)
class Rule:
    """A way to find the rows of a dataset's key in a commit: for each key column the features that hold its value.

    If `each` is set, these features hold lists, and each position of them is a key.
    """

    dataset: str
    keys: tuple[Column, ...]
    features: tuple[frozenset[str], ...]
    each: bool


class ErasedRows:
    """Finds the rows of erased keys. Thread safe."""

    def __init__(self, erased: ErasedKeys, graph_of: Callable[[str], Graph]) -> None:
        """Compare rows with the keys in `erased`; `graph_of` returns the graph of a commit."""
        self._erased = erased
        self._scopes: dict[str, set[str]] = {}
        self._graph_of = graph_of
        self._known: dict[str, tuple[Rule, ...]] = {}

    def watch(self, dataset: str, scope: str) -> None:
        """Find the rows of a dataset as well, since keys of it were erased in a scope."""
        self._scopes.setdefault(dataset, set()).add(scope)

    def hides_row(self, row: Row) -> bool:
        """Return whether a row, in the order of the table's columns, is of an erased key; see `hides`."""
        return self.hides(*(row[place] for place in _PLACES))

    def hides(self, commit: str, inputs: str, outputs: str) -> bool:
        """Return whether a row of a commit with these inputs and outputs, in JSON, is of an erased key.

        Raises `UnavailableError` if the graph of the commit can't be read now.
        """
        if not self._scopes or not commit:
            return False
        rules = [rule for rule in self._rules(commit) if rule.dataset in self._scopes]
        if not rules:
            return False
        values = orjson.loads(inputs) | orjson.loads(outputs)
        return any(self._is_of(rule, values) for rule in rules)

    def _rules(self, commit: str) -> tuple[Rule, ...]:
        rules = self._known.get(commit)
        if rules is None:
            try:
                rules = rules_of(self._graph_of(commit))
            except UnknownEntityError:
                rules = ()
            self._known[commit] = rules
        return rules

    def _is_of(self, rule: Rule, values: Mapping[str, object]) -> bool:
        parts = []
        for names in rule.features:
            found = next((values[name] for name in names if name in values), None)
            if found is None:
                return False
            parts.append(found if rule.each and isinstance(found, list) else [found])
        tests = [self._erased.hides(scope, rule.keys) for scope in tuple(self._scopes[rule.dataset])]
        keys = list(_keys(rule.keys, parts))
        return any(test(key) for test in tests if test is not None for key in keys)


def _keys(columns: tuple[Column, ...], parts: Sequence[list[object]]) -> Iterator[bytes]:
    """Yield the keys that served values stand for; values that can't be a key are skipped."""
    codec = _codec(columns)
    for values in zip(*parts, strict=False):
        casts = [ColumnCast(column.dtype)([value]) for column, value in zip(columns, values, strict=True)]
        if any(cast.errors for cast in casts):
            continue
        try:
            yield codec.encode_key([cast.values[0] for cast in casts]) or b""
        except InvalidInputError:
            continue


def rules_of(graph: Graph) -> tuple[Rule, ...]:
    """Return the rules by which rows of a graph's queries belong to keys of its datasets."""
    datasets = {spec.name: spec for spec in graph.datasets}
    erasable = [spec for spec in graph.datasets if any(field.erase_key for field in spec.fields)]
    if not erasable:
        return ()
    before = {spec.name: [n for p in spec.pipelines for n in datasets_read(p.operator)] for spec in graph.datasets}
    alike = _aliases(graph)
    found: dict[Rule, None] = {}
    for featureset in graph.featuresets:
        for extractor in featureset.extractors:
            if not isinstance(extractor, LookupExtractor) or extractor.dataset not in datasets:
                continue
            spec = datasets[extractor.dataset]
            if spec in erasable:
                found[_rule(extractor, spec, alike)] = None
            upstream = reached([spec.name], before)
            for name in upstream:
                if (source := datasets.get(name)) in erasable and source is not None:
                    rule = _rule_upstream(extractor, spec, source, alike)
                    found |= {} if rule is None else {rule: None}
    return tuple(found)


def _rule_upstream(
    extractor: LookupExtractor, spec: DatasetSpec, source: DatasetSpec, alike: Mapping[str, frozenset[str]]
) -> Rule | None:
    """Return the rule for keys of a dataset that another one is computed from; None if that has no such keys."""
    types = {field.name: field.dtype for field in spec.fields if field.name in spec.keys}
    columns = [Column(name=field.name, dtype=field.dtype) for field in erase_key_fields(source)]
    if any(types.get(column.name) != column.dtype for column in columns):
        return None
    features = dict(zip(spec.keys, extractor.inputs, strict=True))
    return Rule(
        dataset=source.name,
        keys=tuple(columns),
        features=tuple(alike.get(features[c.name], frozenset({features[c.name]})) for c in columns),
        each=extractor.element_wise,
    )


def _rule(extractor: LookupExtractor, spec: DatasetSpec, alike: Mapping[str, frozenset[str]]) -> Rule:
    types = {field.name: field.dtype for field in spec.fields}
    pairs = [
        (Column(name=key, dtype=types[key]), alike.get(feature, frozenset({feature})))
        for key, feature in zip(spec.keys, extractor.inputs, strict=True)
        # If pipelines compute a dataset, a key is erased for its group, in all windows at once. So the window, which is
        # a part of the key, isn't compared.
        if key != WINDOW_KEY or not spec.pipelines
    ]
    return Rule(
        dataset=spec.name,
        keys=tuple(column for column, _ in pairs),
        features=tuple(names for _, names in pairs),
        each=extractor.element_wise,
    )


def _aliases(graph: Graph) -> dict[str, frozenset[str]]:
    """Return, for each feature that is an alias or has aliases, all features with the same value."""
    alike: dict[str, frozenset[str]] = {}
    for featureset in graph.featuresets:
        for extractor in featureset.extractors:
            if isinstance(extractor, AliasExtractor):
                ends = extractor.input, extractor.output
                joined: frozenset[str] = frozenset().union(*(alike.get(end, {end}) for end in ends))
                alike.update(dict.fromkeys(joined, joined))
    return alike
