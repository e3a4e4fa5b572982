"""Group commit: records of small log requests that come while another one is being written leave as one message.

A message costs the producer, the broker and each consumer several times what a record in it costs. No record waits
while nothing of its topic is under way, so requests that are far apart lose no time; and the busier the machine is, the
longer a write takes and the more records share the next one. A message with records of several requests that have
idempotency keys has the header with the marks several times, once for each.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from caraway.dataplane.ingest.delivery import Writer
from caraway.dataplane.ingest.requests import HEADER
from caraway.dataplane.topics.blocks import MAX_RECORDS, block_of, is_block
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.dataplane.topics.producer import TopicItem

# The longest time in seconds that a record waits for the message before it. So a broker that doesn't answer holds up no
# messages but its own.
LONGEST_S = 0.02
# The most bytes of a message that has records of several requests. No broker refuses so small a message; a refusal
# would make all of these requests fail.
MAX_BYTES = 16 * 1024


@dataclass(slots=True)
class _Group:
    """Messages with a record each that leave as one, and the futures of their requests."""

    items: list[TopicItem] = field(default_factory=list)
    futures: list["asyncio.Future[None]"] = field(default_factory=list)
    size: int = 0


class GatheringWriter:
    """A writer for one event loop that gathers single records without keys; it passes on everything else at once.

    Records with a header that is about a single record, such as a position in a trace, are passed on, too.
    """

    def __init__(self, writer: Writer, longest_s: float = LONGEST_S) -> None:
        """Write through `writer`; a record waits for the message before it for `longest_s` seconds at most."""
        self._writer = writer
        self._longest_s = longest_s
        # By topic, the group that waits, and the number of groups that were sent and aren't written yet.
        self._waiting: dict[str, _Group] = {}
        self._under_way: dict[str, int] = {}

    def write(self, topic: str, items: Sequence[TopicItem]) -> "asyncio.Future[None]":
        """Send `items`; the future is done when they are durable, as that of `TopicWriter.write`."""
        value = items[0][1]
        if not (len(items) == 1 and topic != DEAD_LETTERS and len(value) <= MAX_BYTES and _is_record(items[0])):
            return asyncio.wrap_future(self._writer.write(topic, items))
        loop = asyncio.get_running_loop()
        group = self._waiting.get(topic)
        if group is not None and group.size + len(value) > MAX_BYTES:
            self._send(loop, topic, group)
            group = None
        if group is None:
            group = self._waiting[topic] = _Group()
            if topic in self._under_way:
                loop.call_later(self._longest_s, self._send, loop, topic, group)
            else:
                # Requests that came together are processed in one turn of the event loop, and their records leave
                # together after it.
                loop.call_soon(self._send, loop, topic, group)
        future: asyncio.Future[None] = loop.create_future()
        group.items.append(items[0])
        group.futures.append(future)
        group.size += len(value)
        if len(group.items) == MAX_RECORDS:
            self._send(loop, topic, group)
        return future

    def _send(self, loop: asyncio.AbstractEventLoop, topic: str, group: _Group) -> None:
        """Send a group that still waits."""
        if self._waiting.get(topic) is not group:
            return
        del self._waiting[topic]
        self._under_way[topic] = self._under_way.get(topic, 0) + 1
        items = group.items if len(group.items) == 1 else [_joined(group.items)]
        written = self._writer.write(topic, items)

        # The function has no reference to the future that it is added to. With such a reference, only the garbage
        # collector could free the two, and its runs held up all requests for 0.2 s every few seconds.
        def settle(done: "Future[None]") -> None:
            # A write may end after the event loop of a server that stops. All requests were cancelled and answered by
            # then.
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._settle, loop, topic, group, done)

        written.add_done_callback(settle)

    def _settle(self, loop: asyncio.AbstractEventLoop, topic: str, group: _Group, written: "Future[None]") -> None:
        """Settle the requests of a group that was written or failed, and send the group that waited for it."""
        left = self._under_way[topic] - 1
        if left:
            self._under_way[topic] = left
        else:
            del self._under_way[topic]
        waiting = self._waiting.get(topic)
        if waiting is not None:
            self._send(loop, topic, waiting)
        error = written.exception()
        for future in group.futures:
            # The future of a cancelled request is done already, and can't be set again.
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)


def _is_record(item: TopicItem) -> bool:
    """Return whether a message is a single record without a key, and has no header but marks."""
    key, value, headers = item
    return key is None and not is_block(value) and (not headers or dict(headers).keys() == {HEADER})


def _joined(items: Sequence[TopicItem]) -> TopicItem:
    """Join several messages into one, which has the records and the headers of all."""
    headers = [header for _, _, given in items if given for header in dict(given).items()]
    return None, block_of([value for _, value, _ in items]), headers or None
