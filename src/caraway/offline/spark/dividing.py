"""The division of a dataset's records by key, and readers of one division."""

from collections.abc import Iterable, Iterator, Sequence

import polars as pl

from caraway.archive.store.columns import columns_of
from caraway.archive.store.reading import ArchivedRecords, ArchivedTopics, Part
from caraway.offline.history.records import index_frame
from caraway.offline.spark.pieces import RECORDS, Piece, divided, divisions_of
from caraway.offline.spark.work import DividedDataset
from caraway.plan.model import TopicPlan

# The kind of pieces of records that may be revised. They are brought together by identity first.
IDENTITIES = 2
_ROW_NUMBER, _DIVISION = "record row", "record division"


class DividedTopic:
    """The records of one division of a dataset."""

    def __init__(self, topic: TopicPlan, frames: Sequence[pl.DataFrame], columns: Sequence[str]) -> None:
        """Have the records, at least one frame, in some columns of the topic's rows."""
        self._topic = topic
        self._frames = frames
        self._columns = frozenset(columns)

    def records(self, topic: TopicPlan, wanted: Sequence[str]) -> ArchivedRecords:
        """Return the records in some columns; see `ArchivedTopics.records`."""
        if topic.name != self._topic.name or not self._columns.issuperset(wanted):
            raise AssertionError(f"records of {topic.name} weren't divided with the columns {', '.join(wanted)}")
        columns = columns_of(topic.schema)
        control = [columns.time, columns.op, columns.ingested, columns.partition, columns.offset, columns.number]
        names = dict.fromkeys([*wanted, *control, columns.id, columns.rev])
        return ArchivedRecords(pl.concat(self._frames).select(list(names)), columns, {})


def divided_part(
    source: ArchivedTopics, dataset: DividedDataset, topic: TopicPlan, part: Part, count: int
) -> Iterator[Piece]:
    """Read a part of a dataset's records, and yield those of each division, or of each division by identity.

    Args:
        source: The records of topics.
        dataset: The dataset.
        topic: Its topic.
        part: The part.
        count: The number of divisions.

    Raises `UnavailableError` if the broker or the object store doesn't answer.
    """
    plan, name = dataset.plan, dataset.plan.dataset
    rows = source.read(topic, dataset.found, part, dataset.columns).with_row_index(_ROW_NUMBER)
    frame = index_frame(plan, ArchivedRecords(rows, columns_of(topic.schema), {}), [_ROW_NUMBER])
    divisions = divisions_of(plan.schema.keys, [frame[key.name] for key in plan.schema.keys], count)
    kept = rows[frame[_ROW_NUMBER]].drop(_ROW_NUMBER)
    if not plan.revised:
        yield from divided(kept, divisions, RECORDS, name)
        return
    marked = kept.with_columns(pl.Series(_DIVISION, divisions, dtype=pl.Int64))
    identities = kept.select(columns_of(topic.schema).id).hash_rows(0) % count
    yield from divided(marked, identities.cast(pl.Int64).to_numpy(), IDENTITIES, name)


def gathered(topic: TopicPlan, name: str, pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Yield the records of one division by identity for the divisions of all revisions of their identities.

    A row of a failed attempt may have another key under the same identity. The division of that key needs the revision
    which replaces the row.
    """
    identity = columns_of(topic.schema).id
    frame = pl.concat([piece.frame for piece in pieces])
    everywhere = frame.select(identity, _DIVISION).unique().filter(pl.col(identity).is_not_null())
    unnamed = frame.filter(pl.col(identity).is_null())
    named = frame.drop(_DIVISION).join(everywhere, on=identity, how="inner").select(frame.columns)
    for some in (unnamed, named):
        yield from divided(some.drop(_DIVISION), some[_DIVISION].to_numpy(), RECORDS, name)
