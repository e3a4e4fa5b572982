"""Records without revisions on a topic, the tables of a load of them, and what an index must answer."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from caraway.dataplane.archive.store.reading import ArchivedTopics, cuts_now
from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.codec import PUT
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.dataplane.topics.identity import position_id
from caraway.dataplane.topics.producer import TopicWriter
from caraway.dataplane.topics.reader import Message
from caraway.graph.plan.model import IndexKind, IndexPlan
from caraway.offline.loads.division import division_tables, erasures_table
from caraway.offline.loads.manifest import LoadIndex
from caraway.offline.loads.ranges import KeyOrders, bounds_of
from caraway.offline.queries.model import LoadRequest
from caraway.offline.spark.loading import divided_records, parts_of
from tests.integration.index.flow import AGGREGATES, COLUMNS, KEYS, TIMEOUT_S
from tests.unit.dataplane.index.naive import CODEC, SECOND, Sent, index_plan
from tests.unit.offline.topics import topic_of


def plan_on(topic: str) -> IndexPlan:
    plan = index_plan(IndexKind.AGGREGATE, revised=False, aggregates=AGGREGATES, asset=b"loads--1")
    return replace(plan, topic=topic)


@dataclass
class History:
    """A writer of records to a topic that remembers them."""

    writer: TopicWriter
    topic: str
    sent: list[Sent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plan = plan_on(self.topic)
        self.random = random.Random(5)

    def send(self, count: int) -> None:
        """Write new records, and a tenth of the earlier ones again; return when they are durable."""
        made = []
        for number in range(len(self.sent), len(self.sent) + count):
            at = number * SECOND // 10 + self.random.randrange(60 * SECOND)
            row = (self.random.randrange(1000), self.random.gauss(0, 9), None)
            made.append(Sent(self.random.choice(KEYS), position_id(number, 0), b"", PUT, at, row))
        again = self.random.sample(self.sent, len(self.sent) // 10)
        items = [(*record.message(0)[:2], None) for record in [*made, *again]]
        self.writer.write(self.topic, items).result(TIMEOUT_S)  # type: ignore[arg-type]
        self.sent += made

    def check(self, reader: IndexReader, folder: Path, erased: ErasedKeys | None = None) -> None:
        """Compare an index with one to which the records were written."""
        with IndexStore(folder, cache_bytes=1 << 20) as store:
            messages: list[Message] = [record.message(offset) for offset, record in enumerate(self.sent)]
            IndexWriter(store).apply(self.plan, messages)
            written = IndexReader(store, erased)
            keys = [CODEC.encode_key([key]) or b"" for key in KEYS]
            end = len(self.sent) * SECOND // 10
            for at_us in (0, end // 3, end // 2, end, end + 3600 * SECOND):
                wanted = written.read(self.plan, keys, at_us, COLUMNS[self.plan.kind])
                assert repr(reader.read(self.plan, keys, at_us, COLUMNS[self.plan.kind])) == repr(wanted), at_us

    def tables(
        self, kafka: str, folder: Path, *, load: LoadRequest | None = None, erased: ErasedKeys | None = None
    ) -> dict[int, int]:
        """Build the tables of all records so far in a folder; return their offsets, which are there as well."""
        load, erased = load or LoadRequest(asset=self.plan.asset.hex()), erased or ErasedKeys(dict)
        cuts = cuts_now(kafka, [self.topic])
        source = ArchivedTopics(kafka, str(folder / "objects"), cuts)
        topic = topic_of(self.plan)
        index = LoadIndex(load=load, plan=self.plan, topic=topic, found=source.parts(topic))
        rows = source.records(topic, ["k"]).rows
        bounds = bounds_of(KeyOrders(self.plan.schema.keys, rows).sample(), 3)
        pieces = [piece for part in parts_of(index) for piece in divided_records(source, index, part, bounds)]
        folder.mkdir(parents=True, exist_ok=True)
        for division in sorted({piece.division for piece in pieces}):
            own = folder / str(division)
            own.mkdir()
            frames = [piece.frame for piece in pieces if piece.division == division]
            for table in division_tables(self.plan, topic, frames, folder=own, erased=erased):
                table.path.rename(folder / f"{division}.sst")
        erasures_table(self.plan, erased, folder / "erased.sst")
        offsets = {p: end for p, end in cuts[self.topic].items() if load.holds(p)}
        (folder / "offsets.json").write_text(json.dumps(offsets))
        return offsets


def moved(store: IndexStore, folder: Path) -> Sequence[Path]:
    """Move built tables to where a database takes them, and return them."""
    target = store.begin_load()
    return [path.rename(target / path.name) for path in sorted(folder.glob("*.sst"))]
