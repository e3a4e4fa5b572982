"""The index of one division, built by the code that writes a server's index, and written as tables."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import polars as pl

from caraway.dataplane.archive.store.columns import columns_of
from caraway.dataplane.archive.store.messages import encoded
from caraway.dataplane.index.feeding.consumption import BACKLOG
from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.index.records.removal import pending_key
from caraway.dataplane.index.storage.keys import after
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.index.storage.tables import TABLE_BYTES, write_table, write_tables
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.errors import InvalidInputError
from caraway.graph.plan.model import IndexPlan, TopicPlan
from caraway.offline.spark.pieces import in_order

# The bytes of records that are sorted together. A division has fewer, unless a key has very many records; the order of
# the records doesn't change what is built, only the time that it takes.
SORTED_BYTES = 256 << 20
CACHE_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class DivisionTable:
    """A table of a division, and the division's records.

    The file is removed when the next table is asked for, unless it was moved. The first table counts all records of the
    division, and the others none.
    """

    path: Path
    records: int


def division_tables(
    plan: IndexPlan,
    topic: TopicPlan,
    frames: Iterable[pl.DataFrame],
    *,
    folder: Path,
    erased: ErasedKeys,
    sorted_bytes: int = SORTED_BYTES,
    table_bytes: int = TABLE_BYTES,
) -> Iterator[DivisionTable]:
    """Build the index of a division, and yield its tables.

    Args:
        plan: The index.
        topic: Its topic.
        frames: The records of the division.
        folder: An empty folder for files.
        erased: The keys whose records are left out.
        sorted_bytes: The bytes of records that are sorted together, about.
        table_bytes: The bytes of keys and values of a table.

    Raises `InvalidInputError` if a record can't be applied. The index's own follower makes a dead letter of it.
    """
    records = 0
    with IndexStore(folder / "index", cache_bytes=CACHE_BYTES) as store:
        writer = IndexWriter(store, erased=erased)
        for frame in _gathered(frames, sorted_bytes):
            messages = encoded(topic.schema, columns_of(topic.schema), _sorted(plan, topic, frame))
            while batch := list(islice(messages, BACKLOG.batch)):
                applied = writer.apply(plan, batch)
                if applied.refused:
                    raise InvalidInputError(f"{applied.refused} records of {topic.name} can't be applied")
            records += frame.height
        for path in write_tables(folder, store.scan(plan.asset, after(plan.asset)), table_bytes):
            yield DivisionTable(path, records)
            records = 0
            path.unlink(missing_ok=True)


def erasures_table(plan: IndexPlan, erased: ErasedKeys, path: Path) -> bool:
    """Write the table of the erased keys that an index is to know; return False if there are none.

    The index has none of their records, so it has nothing to remove. They count as not removed yet all the same: an
    index that is followed looks for them too, and reports them as removed only then.
    """
    names = {key.name for key in plan.schema.keys}
    keys = sorted(pending_key(plan.asset, each) for each in erased.known(plan.topic) if names.issuperset(each.columns))
    if keys:
        write_table(path, ((key, b"") for key in keys))
    return bool(keys)


def _gathered(frames: Iterable[pl.DataFrame], most_bytes: int) -> Iterator[pl.DataFrame]:
    """Yield frames put together up to a size."""
    waiting: list[pl.DataFrame] = []
    size = 0
    for frame in frames:
        waiting.append(frame)
        size += int(frame.estimated_size())
        if size >= most_bytes:
            yield pl.concat(waiting)
            waiting, size = [], 0
    if waiting:
        yield pl.concat(waiting)


def _sorted(plan: IndexPlan, topic: TopicPlan, frame: pl.DataFrame) -> pl.DataFrame:
    """Return records in order of key and time, in which they take least time to apply."""
    keys = plan.schema.keys
    return frame[in_order(keys, [frame[key.name] for key in keys], frame[columns_of(topic.schema).time])]
