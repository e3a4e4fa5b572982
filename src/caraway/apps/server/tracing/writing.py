"""Records of traced requests carry their position in the trace, for consumers of the topics."""

from collections.abc import Sequence

from caraway.apps.server.tracing.spans import TRACE
from caraway.dataplane.ingest.delivery import AnyWriter, WriteFuture
from caraway.dataplane.topics.producer import TopicItem

# The name of the header, as W3C's Trace Context defines it.
HEADER = "traceparent"


class TracingWriter:
    """A writer that adds the header `traceparent` to the records of requests that are traced."""

    def __init__(self, writer: AnyWriter) -> None:
        """Write through `writer`."""
        self._writer = writer

    def write(self, topic: str, items: Sequence[TopicItem]) -> WriteFuture:
        """Send `items`; the future is done when they are durable."""
        trace = TRACE.get()
        if trace is not None:
            position = trace.traceparent.encode()
            items = [(key, value, {**dict(headers or {}), HEADER: position}) for key, value, headers in items]
        return self._writer.write(topic, items)
