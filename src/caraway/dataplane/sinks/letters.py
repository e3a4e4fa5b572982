"""The dead letters of sinks: changes that the other side refuses."""

import time
from collections.abc import Sequence
from concurrent.futures import Future
from hashlib import blake2b
from typing import Protocol

import orjson

from caraway.dataplane.sinks.envelopes import Envelopes
from caraway.dataplane.sinks.replays import encoded
from caraway.dataplane.sinks.writer import Refusal
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS, KEY_BYTES, MAX_PAYLOAD
from caraway.dataplane.topics.producer import TopicItem
from caraway.errors import UnavailableError
from caraway.graph.plan.model import SinkPlan

# The seconds after which a write of dead letters fails, if the broker doesn't answer.
WRITE_S = 10.0
# A dead letter contains its change only if that has at most this many characters. A change consists of the rows before
# and after it.
MAX_CHANGE = 4 * MAX_PAYLOAD


class Writer(Protocol):
    """The writer of records (`caraway.dataplane.topics.producer.TopicWriter`)."""

    def write(self, topic: str, items: Sequence[TopicItem]) -> "Future[None]":
        """Send `items`; the future is done when they are durable."""
        ...


class SinkLetters:
    """Writes the dead letters of one sink."""

    def __init__(self, name: str, plan: SinkPlan, envelopes: Envelopes, writer: Writer) -> None:
        """Prepare.

        Args:
            name: The name of the sink.
            plan: The sink.
            envelopes: Makes the envelopes that dead letters show.
            writer: Writes to topics.
        """
        self._name, self._plan, self._envelopes, self._writer = name, plan, envelopes, writer

    def write(self, refusals: Sequence[Refusal]) -> None:
        """Write a dead letter for each refused change, and wait until all are durable.

        A dead letter that is written again after a crash has the same key, so the topic keeps one of them.

        Raises `UnavailableError` if Kafka doesn't answer.
        """
        items: list[TopicItem] = []
        for refusal in refusals:
            change = refusal.change
            payload = self._envelopes.envelope(change)["payload"]
            row = payload["after"] or payload["before"]
            text = orjson.dumps(row)
            letter = {
                "dataset": self._plan.dataset.name,
                "topic": self._plan.topic.name,
                "sink": self._plan.sink.connector.identifier,
                "sink_id": self._name,
                "stage": "sink",
                "op": payload["op"],
                "partition": change.partition,
                "offset": change.offset,
                "reason": [{"field": "", "message": refusal.reason}],
                "row": row if len(text) <= MAX_PAYLOAD else text[:MAX_PAYLOAD].decode(errors="ignore"),
                "event_time": change.time_us,
                "time": time.time_ns() // 1000,
            }
            if len(text) <= MAX_PAYLOAD and len(again := encoded(change)) <= MAX_CHANGE:
                # The encoded change is stored, too, so that it can be sent again later.
                letter["change"] = again
            position = f"sink {self._name}/{change.partition}/{change.offset}"
            items.append((blake2b(position.encode(), digest_size=KEY_BYTES).digest(), orjson.dumps(letter), None))
        try:
            self._writer.write(DEAD_LETTERS, items).result(WRITE_S)
        except TimeoutError:
            raise UnavailableError(f"Kafka didn't take dead letters within {WRITE_S:g} s") from None
