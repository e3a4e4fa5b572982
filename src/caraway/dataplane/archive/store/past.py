"""The archived past of a topic, for readers of the topic (`caraway.dataplane.topics.reader`)."""

from collections.abc import Mapping

from caraway.dataplane.archive.store.messages import ArchivedMessages
from caraway.dataplane.archive.store.model import table_path
from caraway.dataplane.topics.ids import topic_id
from caraway.dataplane.topics.markers import MARKER_KEY
from caraway.dataplane.topics.reader import Message
from caraway.graph.plan.model import IndexPlan, RecordSchema


class ArchivedPast:
    """The past of one topic. Not thread safe."""

    def __init__(self, bootstrap_servers: str, objects_url: str, topic: str, schema: RecordSchema) -> None:
        """Read from the table of a topic; the first read opens it.

        Args:
            bootstrap_servers: The broker "host:port", which knows the id of the topic.
            objects_url: The object store (the setting `objects`).
            topic: The name of the topic.
            schema: The schema of its records.
        """
        self._bootstrap_servers = bootstrap_servers
        self._objects_url = objects_url
        self._topic = topic
        self._schema = schema
        self._messages: ArchivedMessages | None = None

    def read(self, positions: Mapping[int, int], records: int) -> tuple[list[Message], Mapping[int, int]]:
        """Return the next messages; see `caraway.dataplane.topics.reader.Past.read`."""
        spans = {} if self._messages is None else self._messages.next_spans(positions, records)
        if not spans:
            # An open table shows only messages that were archived before it was opened, so a table whose messages have
            # all been read is opened again.
            path = table_path(self._topic, topic_id(self._bootstrap_servers, self._topic))
            self._messages = ArchivedMessages.opened(self._objects_url, path, self._schema, list(positions))
            spans = {} if self._messages is None else self._messages.next_spans(positions, records)
        if self._messages is None or not spans:
            return [], positions
        messages = self._messages.read(spans)
        last = {partition: offset for _, _, partition, offset in messages}
        # The archive has no messages without rows and no erased rows. If a span ends with such messages, a marker
        # stands in for the last one, so that the reader's offset moves behind all of them.
        ends = [(MARKER_KEY, b"", p, end - 1) for p, (_, end) in spans.items() if last.get(p) != end - 1]
        return [*messages, *ends], {**positions, **{p: end for p, (_, end) in spans.items()}}


class Pasts:
    """The archived pasts of the topics that indexes read."""

    def __init__(self, bootstrap_servers: str, objects_url: str) -> None:
        """Read the tables of topics of the broker "host:port" in an object store (the setting `objects`)."""
        self._bootstrap_servers = bootstrap_servers
        self._objects_url = objects_url

    def __call__(self, plan: IndexPlan) -> ArchivedPast:
        """Return the past of the topic of an index."""
        return ArchivedPast(self._bootstrap_servers, self._objects_url, plan.topic, plan.schema)
