"""Erased keys in the cases of a run: by keys of datasets, and downstream of sources, by any column.

An index, one that is built anew after the erasure, and offline reads hide the keys of a dataset. After an erasure
downstream, the tables of the archive lack the rows, and what is computed from them is what the in-process engine
computes of the other rows alone.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from caraway.compute.query.model import Rows
from caraway.dataplane.archive.store.columns import columns_of
from caraway.dataplane.archive.store.model import archived_topics, table_path
from caraway.dataplane.archive.store.reading import ArchivedTopics, cuts_now
from caraway.dataplane.archive.store.tables import ArchiveTable
from caraway.dataplane.topics.codec import RecordCodec
from caraway.dataplane.topics.erased_keys import ErasedKeys, erasure_of
from caraway.dataplane.topics.ids import topic_id
from caraway.graph.plan.model import Column, IndexPlan
from caraway.offline.history.replayed import ReplayedIndex
from caraway.offline.reader import OfflineReader
from tests.integration.archive.archiving import archive_all
from tests.parity.comparing import (
    Difference,
    Expected,
    Key,
    answered,
    by_question,
    columns_apart,
    compared_columns,
    encoded_key,
)
from tests.parity.graphs import oracle
from tests.parity.indexing import DoubleIndex
from tests.parity.traffic import Part

MAC_KEY = b"parity" * 5
# The lookups of a dataset, and the keys that are erased from it.
ASKED, ERASED = 150, 4


class ErasureCheck:
    """Compares the engines once more after keys were erased. The run's topics must not change any more."""

    def __init__(self, servers: str, objects: Path, index: DoubleIndex) -> None:
        """Read the archive in a folder, and the topics and the index of a run."""
        self._servers, self._objects, self._index = servers, objects, index

    def differing(self, part: Part, wanted: Sequence[Expected]) -> list[Difference]:
        """Return the differences in a case, given what its datasets must hold without erasures."""
        rng = Random(f"erased {part.case.seed}")
        keyed = [expected for expected in wanted if expected.spec.keys and expected.asked]
        with warnings.catch_warnings():
            # A sum that doesn't fit is null in both.
            warnings.simplefilter("ignore")
            found = [difference for expected in keyed for difference in self._by_key(rng, expected)]
            return [*found, *self._downstream(rng, part, keyed)]

    def _by_key(self, rng: Random, expected: Expected) -> list[Difference]:
        part, spec = expected.part, expected.spec
        plan = part.index(spec.name)
        asked = _some(rng, expected)
        names = [column.name for column in plan.schema.keys]
        rows = [dict(zip(spec.keys, key, strict=True)) for key, _ in asked]
        gone = [[row[name] for name in names] for row in rng.sample(rows, min(ERASED, len(rows)))]
        erased = ErasedKeys(lambda: {"k": MAC_KEY})
        topic = plan.topic
        erased.add(topic, [erasure_of(topic, plan.schema.keys, values, "k", MAC_KEY) for values in gone])
        engine = oracle(part.case, part.arrived())
        engine.erase(spec.name, [dict(zip(names, values, strict=True)) for values in gone])
        local = answered(spec, asked, engine)
        columns = compared_columns(spec)
        keys = [encoded_key(plan, row) for row in rows]
        online = self._index.read_without(erased, plan, keys, [at_us for _, at_us in asked], columns)
        offline = self._offline(part, spec.name, asked, columns, erased)
        rebuilt = self._rebuilt(part, plan, asked, columns, erased)
        return [
            Difference(part, spec.name, f"{kind}: key {key!r} at {at_us} after an erasure", one, other)
            for kind, answers in (("index", online), ("offline", offline), ("index built anew", rebuilt))
            for (key, at_us), one, other in zip(asked, local, by_question(columns, *answers), strict=True)
            # Values of a key that isn't there are no answer.
            if one["found"] is not other["found"] or (one["found"] and columns_apart(spec, one, other))
        ]

    def _downstream(self, rng: Random, part: Part, keyed: Sequence[Expected]) -> list[Difference]:
        """Erase rows of sources by a value of some column, and compare offline reads of their topics."""
        found: list[Difference] = []
        topics = archived_topics([part.plan])
        for spec in (spec for spec in part.case.datasets if not spec.pipelines):
            topic = part.topic(spec.name)
            read = [expected for expected in keyed if part.index(expected.spec.name).topic == topic.name]
            arrived = part.arrived().get(spec.name, [])
            if not read or not arrived:
                continue
            # The first columns have few values, each in many rows.
            column = rng.choice([*topic.schema.columns, *topic.schema.columns[:2] * 3])
            value = rng.choice(arrived).row[column.name]
            if value is None:
                continue
            archive_all(self._servers, self._objects, topic)
            erased = ErasedKeys(lambda: {"k": MAC_KEY})
            erased.add(topic.name, [erasure_of(topic.name, (column,), [value], "k", MAC_KEY)])
            hides = erased.hides_record(topic.name, topic.schema)
            assert hides is not None
            path = table_path(topic.name, topic_id(self._servers, topic.name))
            table = ArchiveTable.existing(str(self._objects), path)
            assert table is not None
            assert table.remove(columns_of(topic.schema), hides) > 0
            gone = _encoded(column, value)
            kept = [arrival for arrival in arrived if _encoded(column, arrival.row[column.name]) != gone]
            engine = oracle(part.case, part.arrived() | {spec.name: kept})
            for expected in read:
                asked, columns = _some(rng, expected), compared_columns(expected.spec)
                local = answered(expected.spec, asked, engine)
                cuts = ArchivedTopics(self._servers, str(self._objects), cuts_now(self._servers, topics))
                with OfflineReader(cuts, part.plan.indexes, part.plan.topics) as reader:
                    rows = reader.read(expected.spec.name, [k for k, _ in asked], [at for _, at in asked], columns)
                found += [
                    Difference(part, expected.spec.name, f"key {key!r} at {at_us} without {value!r}", one, other)
                    for (key, at_us), one, other in zip(asked, local, by_question(columns, *rows), strict=True)
                    if one["found"] is not other["found"] or (one["found"] and columns_apart(expected.spec, one, other))
                ]
        return found

    def _offline(
        self, part: Part, dataset: str, asked: Sequence[tuple[Key, int]], columns: Sequence[str], erased: ErasedKeys
    ) -> Rows:
        with OfflineReader(self._source(part), part.plan.indexes, part.plan.topics, erased=erased) as reader:
            return reader.read(dataset, [key for key, _ in asked], [at_us for _, at_us in asked], columns)

    def _rebuilt(
        self, part: Part, plan: IndexPlan, asked: Sequence[tuple[Key, int]], columns: Sequence[str], erased: ErasedKeys
    ) -> Rows:
        """Read from an index into which all records were written after the erasure, by the writer of a server."""
        topic = next(topic for topic in part.plan.topics if topic.name == plan.topic)
        with TemporaryDirectory() as folder:
            index = ReplayedIndex(plan, topic, self._source(part), folder=Path(folder), erased=erased, now_us=0)
            try:
                return index.read(plan.dataset, [key for key, _ in asked], [at_us for _, at_us in asked], columns)
            finally:
                index.close()

    def _source(self, part: Part) -> ArchivedTopics:
        cuts = cuts_now(self._servers, archived_topics([part.plan]))
        return ArchivedTopics(self._servers, str(self._objects), cuts)


def _some(rng: Random, expected: Expected) -> list[tuple[Key, int]]:
    return rng.sample(list(expected.asked), min(ASKED, len(expected.asked)))


def _encoded(column: Column, value: object) -> bytes | None:
    """Return the bytes by which values of a column are equal."""
    return RecordCodec.of_keys([column]).encode_key([value])
