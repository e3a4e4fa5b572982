"""Topics whose messages are given, in place of those of a broker and an archive."""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from caraway.dataplane.archive.store.columns import Encoder, columns_of
from caraway.dataplane.archive.store.frames import control_types, framed
from caraway.dataplane.archive.store.reading import ArchivedRecords, ArchivedTopics
from caraway.dataplane.topics.reader import Message
from caraway.expr.polars.values import polars_type
from caraway.graph.plan.model import IndexPlan, TopicKind, TopicPlan

# So few records come at a time, if they do.
PIECE = 7


class GivenTopics(ArchivedTopics):
    """Topics whose messages are archived as they are given."""

    def __init__(self, messages: Mapping[str, Sequence[Message]]) -> None:
        self._given = messages

    def records(self, topic: TopicPlan, wanted: Sequence[str]) -> ArchivedRecords:
        columns = columns_of(topic.schema)
        types = {column.name: polars_type(column.dtype) for column in topic.schema.columns if column.name in wanted}
        types |= control_types(columns)
        table = Encoder(topic.name, columns).table(self._given.get(topic.name, ()))
        # Rows of a table are in no particular order.
        frame = framed(pa.concat_tables([columns.arrow.empty_table(), table]), types)
        return ArchivedRecords(frame.reverse(), columns, {0: 0})

    def pieces(self, topic: TopicPlan, wanted: Sequence[str]) -> Iterator[ArchivedRecords]:
        whole = self.records(topic, wanted)
        for rows in whole.rows.iter_slices(PIECE):
            yield ArchivedRecords(rows, whole.columns, whole.begins)

    def rows(self, topic: TopicPlan) -> int:
        return len(self._given.get(topic.name, ()))


def topic_of(plan: IndexPlan) -> TopicPlan:
    """Return the topic that an index reads."""
    return TopicPlan(dataset=plan.dataset, name=plan.topic, kind=TopicKind.EVENTS, schema=plan.schema, disorder_us=0)
