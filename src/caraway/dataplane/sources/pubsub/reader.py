"""The reader of a topic: it pulls messages from a subscription of its own, and acknowledges those that are durable."""

import re
import secrets
import threading
import time
from base64 import urlsafe_b64encode
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import structlog
from google.api_core.exceptions import FailedPrecondition, InvalidArgument

from caraway.dataplane.ingest.table import RowTable
from caraway.dataplane.sources.decoding.json_objects import decode_json
from caraway.dataplane.sources.pubsub.connection import ANSWER_S, DEADLINE_S, ERRORS, TopicConnection, requests_of
from caraway.dataplane.sources.pubsub.remembered import US, Remembered
from caraway.dataplane.sources.reader import Items, Position, Progress, SourceBatch, SourceContext
from caraway.errors import UnavailableError
from caraway.graph.connectors import PubSubConnector
from caraway.process.recurring import Recurring

LOG = structlog.get_logger(__name__)
# PubSub returns at most `PULLED` messages in one answer. Further answers are requested only while the messages that are
# held have less than `HELD_BYTES`.
PULLED, HELD_BYTES = 1_000, 8 * 1024 * 1024
# Seconds between two extensions of the deadlines of all messages that aren't acknowledged yet. Three attempts fit into
# a deadline, so two of them may fail.
EXTENSION_S = DEADLINE_S / 4
# A subscription has nothing to deliver if no message came for this many seconds after a request.
QUIET_S = 1.0
# After its first messages, a poll waits this many seconds for further ones.
GATHERING_S = 0.02
# The most characters of the readable part of a subscription's name, which may have 255.
MAX_NAME = 200
# The most characters of a label's value.
MAX_LABEL = 63


@dataclass(slots=True)
class _Message:
    """A message that was pulled."""

    message_id: str
    ack_id: str
    data: bytes
    published_us: int


class PubSubReader:
    """Reads a topic through a subscription of its own (`SourceReader`).

    The position has the name of the subscription and the number of messages that were handed over. The items have the
    marks of messages that PubSub may deliver again, although they are rows.
    """

    def __init__(self, connector: PubSubConnector, context: SourceContext) -> None:
        """Prepare to read.

        Raises:
            UnknownEntityError: The secret with the key doesn't exist.
            UnavailableError: It can't be looked up, or isn't a key.
        """
        self._context = context
        self._connection = TopicConnection(connector, context)
        self._name = ""
        self._is_made = self._is_found = False
        # How many messages were handed over, and how many of them are durable.
        self._count = self._durable = 0
        self._remembered = Remembered()
        self._held: dict[str, _Message] = {}
        self._held_bytes = 0
        # The messages that were handed over and aren't acknowledged yet: for each, the number that `_durable` must
        # reach first, the mark, and the acknowledgement id.
        self._unacknowledged: deque[tuple[int, str, str]] = deque()
        # The last acknowledgement id of each message that this reader holds, by its mark. `_extend` extends the
        # deadlines of these messages in another thread.
        self._leased: dict[str, str] = {}
        self._lock = threading.Lock()
        self._adopted: dict[str, None] = {}
        self._pull_pool = ThreadPoolExecutor(1, thread_name_prefix="pubsub-pull")
        self._ack_pool = ThreadPoolExecutor(2, thread_name_prefix="pubsub-ack")
        self._pull: Future[Any] | None = None
        # When the first request since the last messages was sent; infinite if none was.
        self._asked_at = float("inf")
        self._removed: dict[str, bytes | None] = {}
        self._acks: list[tuple[Future[None], list[str]]] = []
        self._opened_at = time.monotonic()
        self._idle_at: float | None = None
        self._extending = Recurring("pubsub extension", self._extend, EXTENSION_S)
        self._closed = False

    def seek(self, position: Position, items: Items) -> Position:
        """Go on at a position; the first time, choose the name of the subscription (see `SourceReader.seek`)."""
        # The random part keeps the subscriptions of deployments with the same definitions apart.
        self._name = position.get("subscription") or f"{_readable(self._context.name)}-{secrets.token_hex(4)}"
        self._is_made = bool(position.get("made"))
        self._count = self._durable = int(position.get("messages", 0))
        self._remembered.load(items)
        self._opened_at = time.monotonic()
        self._extending.start()
        return self._position()

    def poll(self, *, rows: int, size: int, timeout_s: float) -> SourceBatch | None:
        """Return the next messages; see `SourceReader.poll`."""
        if not self._is_found and self._find():
            return self._batch([], {})
        begun = time.monotonic()
        self._confirm()
        self._removed.update(dict.fromkeys(self._remembered.pruned()))
        deadline = begun + timeout_s
        while len(self._held) < rows and self._held_bytes < size:
            self._pull_if_room()
            left = deadline - time.monotonic()
            if left <= 0 or self._pull is None:
                break
            wait([self._pull], timeout=left)
            if self._collect() and len(self._held) <= PULLED:
                # An answer may have few messages although there are more, so further ones are awaited for a moment.
                deadline = min(deadline, time.monotonic() + GATHERING_S)
        # The next messages come while the rows of these are written.
        self._pull_if_room()
        if self._held or self._removed or self._adopted:
            self._idle_at = None
            return self._take(rows, size)
        is_quiet = self._pull is not None and self._asked_at < begun - QUIET_S
        # The messages of a crashed process come again only after their deadline. The source doesn't count as idle
        # before.
        is_quiet = is_quiet and begun > self._opened_at + DEADLINE_S
        self._idle_at = begun if is_quiet else None
        return None

    def is_ahead(self, mark: str) -> bool:
        """Return whether a message of a row may still come again without being known.

        The messages that a crash left unacknowledged come again at a time that nobody knows. So they are remembered,
        too, with the next batch, instead of being waited for. A message makes one record only, as its cdc is "append"
        or "upsert". So a message with a mark is written as a whole.
        """
        if mark in self._remembered:
            return False
        self._adopted[mark] = None
        return True

    def acknowledge(self, position: Position) -> None:
        """Acknowledge the messages before a position."""
        self._durable = int(position.get("messages", 0))
        self._acknowledge()

    def _acknowledge(self) -> None:
        marks: list[str] = []
        ack_ids: list[str] = []
        while self._unacknowledged and self._unacknowledged[0][0] <= self._durable:
            _, mark, ack_id = self._unacknowledged.popleft()
            marks.append(mark)
            ack_ids.append(ack_id)
        begin = 0
        for some in requests_of(ack_ids):
            future = self._ack_pool.submit(self._connection.acknowledge, self._name, some)
            self._acks.append((future, marks[begin : begin + len(some)]))
            begin += len(some)

    def lag(self) -> int | None:
        """Return 0 if nothing came for some time; else None, as PubSub doesn't count messages here."""
        is_quiet = self._pull is not None and self._asked_at < time.monotonic() - QUIET_S
        return 0 if is_quiet and not self._held else None

    def idle_at(self) -> float | None:
        """Return when a poll last found nothing, although messages of earlier processes had come again by then."""
        return self._idle_at

    def progress(self) -> Progress | None:
        """Return nothing: a topic has no end."""
        return None

    def peek(self, rows: int) -> SourceBatch:
        """Check the topic and the rights, and return no rows: a message can't be read without taking it."""
        del rows
        self._connection.check(self._name or None)
        return self._batch([], {})

    def close(self) -> None:
        """Return the messages to PubSub, so that other servers get them, and end the connection."""
        if self._closed:
            return
        self._closed = True
        self._extending.stop(0)
        # Acknowledgements in flight are awaited, because messages that are acknowledged needn't be returned.
        wait([future for future, _ in self._acks], timeout=ANSWER_S)
        acknowledged = {
            mark for future, marks in self._acks if future.done() and not future.exception() for mark in marks
        }
        # The request for messages is ended first. Otherwise PubSub could answer it with the messages that are returned.
        self._connection.stop_pulling()
        self._pull_pool.shutdown(wait=True)
        ids = [ack_id for mark, ack_id in self._leased.items() if mark not in acknowledged]
        if self._pull is not None and self._pull.exception() is None:
            ids += [received.ack_id for received in self._pull.result()]
        if ids:
            try:
                self._connection.extend(self._name, ids, 0)
            except ERRORS:
                # Messages that couldn't be returned come again after their deadline.
                LOG.debug("messages couldn't be returned", source=self._connection.where)
        self._connection.close()
        self._ack_pool.shutdown(wait=False, cancel_futures=True)

    def _find(self) -> bool:
        """Find the subscription, or make it; return True if the position must be saved, since it is found first."""
        found = self._connection.subscription(self._name)
        if found is None and self._is_made:
            raise UnavailableError(
                f"{self._connection.where}: the subscription {self._name} was deleted, so messages that were published "
                "since can't be read. To go on without them, make it again: "
                f"gcloud pubsub subscriptions create {self._name} --project={self._connection.project} "
                f"--topic={self._connection.topic} --ack-deadline={DEADLINE_S} --enable-message-ordering "
                "--enable-exactly-once-delivery --expiration-period=never"
            )
        if found is None:
            dataset = re.sub(r"[^a-z0-9_-]", "-", self._context.dataset.name.lower())[:MAX_LABEL]
            labels = {"made-by": "caraway", "dataset": dataset}
            self._connection.subscribe(self._name, labels)
            found = self._connection.subscription(self._name)
        self._remembered.lingers = found is None or not found.enable_exactly_once_delivery
        self._is_found = True
        was_made, self._is_made = self._is_made, True
        return not was_made

    def _pull_if_room(self) -> None:
        if self._pull is None and self._held_bytes < HELD_BYTES and not self._closed:
            self._asked_at = min(self._asked_at, time.monotonic())
            self._pull = self._pull_pool.submit(self._connection.pull, self._name, PULLED)

    def _collect(self) -> bool:
        """Take the answer to the last request for messages, if it has come; return whether it had some."""
        if self._pull is None or not self._pull.done():
            return False
        pull, self._pull = self._pull, None
        answer = pull.result()
        if answer:
            self._asked_at = float("inf")
        with self._lock:
            for received in answer:
                message, ack_id = received.message, received.ack_id
                mark = _mark(message.message_id)
                self._leased[mark] = ack_id
                if mark in self._remembered:
                    # The message was handed over before. When all that was handed over is durable, its row is durable,
                    # too, and the message is acknowledged by its new id.
                    self._unacknowledged.append((self._count, mark, ack_id))
                elif (held := self._held.get(mark)) is not None:
                    held.ack_id = ack_id
                else:
                    at = message.publish_time
                    published_us = at.seconds * US + at.nanos // 1000
                    self._held[mark] = _Message(message.message_id, ack_id, message.data, published_us)
                    self._held_bytes += len(message.data)
        self._acknowledge()
        return bool(answer)

    def _take(self, rows: int, size: int) -> SourceBatch:
        """Return messages as a batch, with the changes of items."""
        items, self._removed = self._removed, {}
        taken: list[tuple[str, _Message]] = []
        while self._held and len(taken) < rows and size > 0:
            mark = next(iter(self._held))
            message = self._held.pop(mark)
            # A message that `is_ahead` has adopted is remembered with this batch instead. The worker leaves its row
            # out.
            self._adopted.pop(mark, None)
            self._held_bytes -= len(message.data)
            size -= len(message.data)
            taken.append((mark, message))
        if taken:
            self._count += len(taken)
            published_us = max(message.published_us for _, message in taken)
            items[str(self._count)] = self._remembered.add(str(self._count), [mark for mark, _ in taken], published_us)
            self._unacknowledged += [(self._count, mark, message.ack_id) for mark, message in taken]
        if self._adopted:
            adopted, self._adopted = list(self._adopted), {}
            item = f"{self._count}-{secrets.token_hex(4)}"
            items[item] = self._remembered.add(item, adopted)
        return self._batch(taken, items)

    def _batch(self, taken: list[tuple[str, _Message]], items: dict[str, bytes | None]) -> SourceBatch:
        rows, faults = decode_json([message.data for _, message in taken])
        return SourceBatch(
            rows=RowTable(rows, faults),
            mark=lambda row: taken[row][0],
            origin=lambda row: {"partition": self._connection.topic, "offset": taken[row][1].message_id},
            position=self._position(),
            items=items,
            size=sum(len(message.data) for _, message in taken),
        )

    def _position(self) -> dict[str, Any]:
        return {"subscription": self._name, "made": self._is_made, "messages": self._count}

    def _confirm(self) -> None:
        """Note which acknowledgements PubSub has confirmed."""
        pending = []
        for future, marks in self._acks:
            if not future.done():
                pending.append((future, marks))
                continue
            with self._lock:
                for mark in marks:
                    self._leased.pop(mark, None)
            error = future.exception()
            if error is None:
                self._remembered.confirm(marks)
            elif not isinstance(error, InvalidArgument | FailedPrecondition):
                raise self._connection.error(error, self._name) from error
            # `InvalidArgument` and `FailedPrecondition` mean that some deadlines had passed. The messages come again,
            # and are acknowledged then.
        self._acks = pending

    def _extend(self) -> None:
        """Extend the deadlines of the messages that aren't acknowledged yet. It runs in a thread of its own."""
        with self._lock:
            ids = list(self._leased.values())
        try:
            self._connection.extend(self._name, ids, DEADLINE_S)
        except ERRORS as error:
            # Messages whose deadlines weren't extended come again, and are recognised then.
            LOG.debug("deadlines of messages couldn't be extended", source=self._connection.where, error=str(error))


def forget(connector: PubSubConnector, context: SourceContext, position: Position) -> None:
    """Delete the subscription of a source that is gone for good.

    Raises:
        UnavailableError: PubSub doesn't answer, or refuses; the text names the subscription.
    """
    name = position.get("subscription")
    if not name:
        return
    connection = TopicConnection(connector, context)
    try:
        connection.unsubscribe(name)
    finally:
        connection.close()


def _readable(name: str) -> str:
    """Return the beginning of a subscription's name."""
    return f"caraway-{name}"[:MAX_NAME]


def _mark(message_id: str) -> str:
    """Return the mark of a message: its id, or a digest of it if that isn't a number."""
    if message_id.isdecimal():
        return message_id
    return "x" + urlsafe_b64encode(blake2b(message_id.encode(), digest_size=16).digest()).rstrip(b"=").decode()
