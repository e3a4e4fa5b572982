"""Explanations of values that a run serves: their parts, read from the topics, must give the value to the bit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from caraway.compute.query.catalog import Catalog
from caraway.compute.query.model import Instants, QueryReader, Rows
from caraway.compute.why.explaining import Question, bits, explain
from caraway.compute.why.lookups import Asked, Listing, explain_lookup
from caraway.compute.why.model import MAX_LISTED, Lookup
from caraway.compute.why.parts import Histories, all_shown
from caraway.dataplane.archive.store.model import archived_topics
from caraway.dataplane.archive.store.reading import ArchivedTopics, cuts_now
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.dtypes.types import optional
from caraway.dtypes.values import to_json
from caraway.errors import CarawayError
from caraway.graph.specs import DatasetSpec, FeaturesetSpec, FeatureSpec, Graph, LookupExtractor
from caraway.offline.narrowing import KeyRecords
from caraway.offline.why.histories import TopicHistories
from caraway.offline.why.messages import TopicMessages
from caraway.offline.why.sources import SourceRecords
from tests.parity.comparing import (
    Difference,
    Expected,
    columns_apart,
    compared_columns,
    encoded_key,
    tolerant_columns,
)
from tests.parity.graphs import OWNED
from tests.parity.indexing import Index
from tests.parity.traffic import Part
from tests.unit.compute.why.recomputing import listed_values, recompute

#: The lookups of a dataset that are explained.
EXPLAINED = 3
WINDOW_KEY = "window"

Key = tuple[object, ...]


class ServedReader(QueryReader):
    """Reads the datasets of a case from the index of a run."""

    def __init__(self, index: Index, part: Part, catalog: Catalog) -> None:
        """Read the index."""
        self._index, self._part, self._catalog = index, part, catalog

    def read(self, source: str, keys: Sequence[Key], at_us: Instants, columns: Sequence[str], /) -> Rows:
        """Read rows; see `caraway.compute.query.model.Reader.read`."""
        plan, names = self._part.index(source), self._catalog.dataset(source).keys
        encoded = [encoded_key(plan, dict(zip(names, key, strict=True))) for key in keys]
        return self._index.read(plan, encoded, at_us, columns)


def differing_explanations(
    servers: str, objects: Path, index: Index, part: Part, wanted: Sequence[Expected]
) -> list[Difference]:
    """Return where the parts of a value that the index serves don't give it.

    Args:
        servers: The broker.
        objects: The archive of the run, which has a part of its records.
        index: The index.
        part: The case.
        wanted: The reads of its datasets among which those that are explained are drawn.
    """
    source = ArchivedTopics(servers, str(objects), cuts_now(servers, archived_topics([part.plan])))
    catalog = Catalog("", featured(part.case.datasets))
    erased = ErasedKeys(dict)
    sources = SourceRecords(part.plan, catalog.datasets, TopicMessages(servers, str(objects)), erased, all_shown)
    records = KeyRecords(source, part.plan.indexes, whole=True)
    histories = TopicHistories(records, part.plan, catalog.datasets, sources, erased)

    served = Served(catalog, ServedReader(index, part, catalog), histories)
    found: list[Difference] = []
    for expected in wanted:
        rng = Random(f"explained {part.case.seed} {expected.spec.name}")
        for key, at_us in rng.sample(list(expected.asked), min(EXPLAINED, len(expected.asked))):
            found += [
                Difference(part, expected.spec.name, f"key {key!r} at {at_us}, explained", *values, asked=(key, at_us))
                for values in served.unexplained(expected.spec, (key, at_us), rng)
            ]
    return found


@dataclass(frozen=True)
class Served:
    """A graph that is served, with the reader of what is served and the records behind it.

    Attributes:
        catalog: The graph, with the features of `featured`.
        reader: Reads what is served.
        histories: The records behind values.
        on_topics: True if the records come from topics, so that each has a place there.
        columns: Returns the columns of a row that are compared.
    """

    catalog: Catalog
    reader: QueryReader
    histories: Histories
    on_topics: bool = True
    columns: Callable[[DatasetSpec], Sequence[str]] = compared_columns

    def unexplained(self, spec: DatasetSpec, asked: tuple[Key, int], rng: Random) -> list[tuple[object, object]]:
        """Return what is served and what the parts give, where these differ, of a row and of a feature of it.

        Args:
            spec: The dataset.
            asked: The key and the time of the row.
            rng: Chooses the feature.
        """
        key, at_us = asked
        columns = self.columns(spec)
        values, there = self.reader.read(spec.name, [key], [at_us], columns)
        row = {name: column[0] for name, column in zip(columns, values, strict=True)}
        found = self._unexplained_columns(Asked(spec.name, key, at_us, row, there[0]))
        names = [name for name in columns if f"{features_of(spec.name)}.{name}" in self.catalog.features]
        if names:
            feature = f"{features_of(spec.name)}.{rng.choice(names)}"
            if (problem := self._unexplained_feature(feature, asked)) is not None:
                found.append((feature, problem))
        return found

    def _unexplained_columns(self, asked: Asked) -> list[tuple[object, object]]:
        """Return the columns of a row that its parts don't give, each as served and as given, with its name.

        The parts are listed in an explanation, and computed both beside it and from what it lists.
        """
        spec = self.catalog.dataset(asked.dataset)
        listing = Listing(limit=MAX_LISTED)
        explained = explain_lookup(self.catalog, self.histories, asked, listing=listing, hidden=all_shown)
        listed = listed_values(explained.lookup, self.catalog)
        found: list[tuple[object, object]] = []
        # A row that isn't there has nothing but defaults.
        computed = explained.computed if asked.found else {**asked.values, **explained.computed}
        for given in (computed, listed):
            own = {name: given.get(name, "isn't given by the parts") for name in asked.values}
            apart = columns_apart(spec, asked.values, own)
            found += [((name, asked.values[name]), (name, own[name])) for name in sorted(apart)]
        unplaced = _unplaced(explained.lookup) if self.on_topics else []
        return found + [("each part has its place", one) for one in unplaced]

    def _unexplained_feature(self, feature: str, asked: tuple[Key, int]) -> str | None:
        """Return why the explanation of a feature doesn't give its value; None if it does."""
        extractor = self.catalog.extractors[feature][1]
        assert isinstance(extractor, LookupExtractor)
        key, at_us = asked
        types = [self.catalog.features[name] for name in extractor.inputs]
        inputs = {
            name: _given(to_json(optional(dtype))(value), value)
            for name, dtype, value in zip(extractor.inputs, types, key, strict=True)
        }
        question = Question(feature=feature, inputs=inputs, at_us=at_us, listing=Listing(limit=MAX_LISTED))
        try:
            why = explain(self.catalog, self.reader, self.histories, question)
            again = recompute(why, self.catalog)
        except CarawayError as error:
            return f"can't be explained: {error}"
        if why.check.same is not True:
            return f"{why.check.why}: {why}"
        return None if bits(again) == bits(why.value) else f"{again!r} is computed from what is listed: {why}"


def _given(shown: object, value: object) -> object:
    """Return a value as an input of a query, where a text alone stands for its own bytes."""
    return {"base64": shown} if isinstance(value, bytes) else shown


def _unplaced(lookup: Lookup) -> list[str]:
    items = () if lookup.parts is None else lookup.parts.items
    return [f"{item.event_time} has none" for item in items if item.position is None]


# Features ------------------------------------------------------------------------------------------------------------


def features_of(dataset: str) -> str:
    """Return the name of the featureset that looks up the columns of a dataset."""
    return f"Of{dataset}"


def featured(datasets: Sequence[DatasetSpec]) -> Graph:
    """Return a graph in which the columns of each dataset with keys are features, as far as features can have them."""
    sets = [_featureset(spec) for spec in datasets if spec.keys and WINDOW_KEY not in spec.keys]
    return Graph(datasets=tuple(datasets), featuresets=tuple(sets))


def _featureset(spec: DatasetSpec) -> FeaturesetSpec:
    name = features_of(spec.name)
    keys = [FeatureSpec(name=field.name, dtype=field.dtype) for field in spec.fields if field.key]
    exact = set(compared_columns(spec)) - tolerant_columns(spec)
    looked_up = [field for field in spec.fields if field.name in exact]
    return FeaturesetSpec(
        name=name,
        features=(*keys, *(FeatureSpec(name=field.name, dtype=optional(field.dtype)) for field in looked_up)),
        extractors=tuple(
            LookupExtractor(
                name=f"look_up_{field.name}",
                dataset=spec.name,
                field=field.name,
                inputs=tuple(f"{name}.{key.name}" for key in keys),
                output=f"{name}.{field.name}",
            )
            for field in looked_up
        ),
        metadata=OWNED,
    )
