"""The messages that are rows already, remembered until PubSub doesn't deliver them again.

PubSub delivers a message again until it has confirmed an acknowledgement, which is sent only after the row is durable.
So the ids of rows are saved together with the position, and removed when acknowledgements are confirmed. They are in
blocks, so that thousands of messages take one row of the database.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

US = 1_000_000
# A saved block begins with this many bytes: the time at which its last message was published.
TIME_BYTES = 8
# Without exactly-once delivery, PubSub may deliver a message again although it has confirmed the acknowledgement. So
# messages are remembered `LINGER_S` longer, but at most `MAX_LINGERING` of them, since each takes some 100 bytes of
# memory.
LINGER_S = 600.0
MAX_LINGERING = 1_000_000
# If the confirmation of an acknowledgement was lost, PubSub neither delivers the message again nor confirms it. Such a
# message is forgotten this long after its publication: a day more than the longest time for which subscriptions can
# keep messages.
LONGEST_US = 32 * 24 * 3600 * US


@dataclass(slots=True)
class Block:
    """Messages that were handed over together.

    Attributes:
        item: The name of the block among the items of the source.
        published_us: When the last of them was published, by the clock of PubSub; 0 if that isn't known.
        marks: The marks of the messages.
        open: How many of them aren't confirmed to be acknowledged.
    """

    item: str
    published_us: int
    marks: tuple[str, ...]
    open: int


class Remembered:
    """The marks of messages that are rows, or will be with the batch that is being written."""

    def __init__(
        self, *, lingers: bool = False, most: int = MAX_LINGERING, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin without messages.

        Args:
            lingers: True if PubSub may deliver a message again after it has confirmed its acknowledgement.
            most: How many such messages are remembered at most.
            clock: Returns the time in seconds, which never jumps.
        """
        self.lingers = lingers
        self._most = most
        self._clock = clock
        # The block of each remembered mark, and the marks among them whose acknowledgements are confirmed.
        self._blocks: dict[str, Block] = {}
        self._confirmed: set[str] = set()
        self._all: dict[str, Block] = {}
        self._ready: list[Block] = []
        self._lingering: deque[tuple[float, Block]] = deque()
        self._lingering_marks = 0
        self._newest_us = 0

    def load(self, items: Mapping[str, bytes]) -> None:
        """Remember saved blocks."""
        for item, content in items.items():
            marks = tuple(content[TIME_BYTES:].decode().split())
            self._add(Block(item, int.from_bytes(content[:TIME_BYTES]), marks, len(marks)))

    def add(self, item: str, marks: Collection[str], published_us: int = 0) -> bytes:
        """Remember messages under the name of a new block, and return its content, which is to be saved."""
        self._newest_us = max(self._newest_us, published_us)
        self._add(Block(item, published_us, tuple(marks), len(marks)))
        return published_us.to_bytes(TIME_BYTES) + "\n".join(marks).encode()

    def __contains__(self, mark: str) -> bool:
        return mark in self._blocks

    def confirm(self, marks: Iterable[str]) -> None:
        """Note that the acknowledgement of messages is confirmed."""
        for mark in marks:
            block = self._blocks.get(mark)
            if block is None or mark in self._confirmed:
                continue
            self._confirmed.add(mark)
            block.open -= 1
            if block.open == 0:
                if self.lingers:
                    self._lingering.append((self._clock(), block))
                    self._lingering_marks += len(block.marks)
                else:
                    self._ready.append(block)

    def pruned(self) -> list[str]:
        """Forget blocks whose messages don't come again, and return their names, which are to be removed."""
        ready, self._ready = self._ready, []
        until = self._clock() - LINGER_S
        while self._lingering and (self._lingering[0][0] < until or self._lingering_marks > self._most):
            _, block = self._lingering.popleft()
            self._lingering_marks -= len(block.marks)
            ready.append(block)
        if self._newest_us:
            for block in list(self._all.values()):
                # Blocks are in the order in which they were handed over, so the first one that is young enough ends the
                # search.
                block.published_us = block.published_us or self._newest_us
                if block.published_us > self._newest_us - LONGEST_US:
                    break
                if block.open:
                    ready.append(block)
        for block in ready:
            del self._all[block.item]
            for mark in block.marks:
                if self._blocks.get(mark) is block:
                    del self._blocks[mark]
                    self._confirmed.discard(mark)
        return [block.item for block in ready]

    def _add(self, block: Block) -> None:
        self._all[block.item] = block
        self._blocks.update(dict.fromkeys(block.marks, block))
