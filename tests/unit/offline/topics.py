"""Topics whose messages are given, in place of those of a broker and an archive."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from caraway.archive.columns import Encoder, columns_of
from caraway.archive.reading import ArchivedRecords, ArchivedTopics
from caraway.plan.model import IndexPlan, RecordSchema, TopicKind, TopicPlan
from caraway.topics.reader import Message


class GivenTopics(ArchivedTopics):
    """Topics whose messages are archived as they are given."""

    def __init__(self, messages: Mapping[str, Sequence[Message]]) -> None:
        self._given = messages

    def records(self, topic: TopicPlan, wanted: Sequence[str]) -> ArchivedRecords:
        columns = columns_of(topic.schema)
        control = [name for name in columns.arrow.names if name not in {c.name for c in topic.schema.columns}]
        names = list(dict.fromkeys([*wanted, *control]))
        encoder = Encoder(topic.name, columns)
        table = pa.concat_tables([columns.arrow.empty_table(), encoder.table(self._given.get(topic.name, ()))])
        # Rows of a table are in no particular order.
        shuffled = table.sort_by([(columns.time, "descending"), (columns.offset, "descending")])
        return ArchivedRecords(shuffled.select(names), columns, {0: 0})


def topic_of(plan: IndexPlan) -> TopicPlan:
    """Return the topic that an index reads."""
    schema: RecordSchema = plan.schema if plan.direct is None else plan.direct.source
    return TopicPlan(dataset=plan.dataset, name=plan.topic, kind=TopicKind.EVENTS, schema=schema, disorder_us=0)
