"""A server that speaks the part of PubSub's protocol that readers use, with a clock of its own and with faults.

Messages come again when their deadline has passed, in the order of their ordering key; acknowledgements fail whose
deadline has passed; and, unless delivery is exactly once, a message may come again although it is acknowledged.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from threading import Condition
from typing import Any

import grpc
from google.protobuf.empty_pb2 import Empty
from google.pubsub_v1 import types
from google.pubsub_v1.types import PubsubMessage, ReceivedMessage, Subscription

#: So many messages that were delivered are kept at least, if none of them comes again.
KEPT = 10_000


@dataclass
class Stored:
    """A message of a subscription; its lease is over at `until`, by the clock of the server."""

    message: PubsubMessage
    ack_id: str = ""
    until: float = 0.0
    acknowledged: bool = False


@dataclass
class PubSubServer:
    #: True if subscriptions that ask for it deliver exactly once.
    exactly_once: bool = True
    now: float = 1_700_000_000.0
    topics: set[str] = field(default_factory=set)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    messages: dict[str, list[Stored]] = field(default_factory=dict)
    #: The most messages of an answer.
    page: int = 5
    #: Methods that are refused, each with the status.
    refused: dict[str, grpc.StatusCode] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    address: str = ""
    _count: int = 0
    _changed: Condition = field(default_factory=Condition)

    def publish(self, topic: str, data: bytes, key: str = "", message_id: str | None = None) -> None:
        with self._changed:
            self._count += 1
            message = PubsubMessage(
                data=data,
                message_id=message_id or str(9_000_000_000 + self._count),
                ordering_key=key,
                publish_time={"seconds": int(self.now)},
            )
            for name, subscription in self.subscriptions.items():
                if subscription.topic == topic:
                    self.messages[name].append(Stored(message))
            self._changed.notify_all()

    def at_once(self) -> Condition:
        """Return a lock; all messages that are published while it is held come together."""
        return self._changed

    def left(self) -> int:
        """Return how many messages aren't acknowledged."""
        with self._changed:
            return sum(not stored.acknowledged for stored in chain(*self.messages.values()))

    def expire(self) -> None:
        """Move the clock behind the deadlines of all messages."""
        with self._changed:
            self.now += 601
            self._changed.notify_all()

    def repeat(self, number: int) -> bool:
        """Deliver an acknowledged message again, as delivery at least once may; return whether there is one."""
        with self._changed:
            done = [stored for stored in chain(*self.messages.values()) if stored.acknowledged]
            if not done or self.exactly_once:
                return False
            again = done[number % len(done)]
            again.acknowledged, again.until = False, 0.0
            self._changed.notify_all()
            return True

    # The methods of the protocol.

    def GetTopic(self, request: types.GetTopicRequest, context: grpc.ServicerContext) -> types.Topic:  # noqa: N802
        if request.topic not in self.topics:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such topic")
        return types.Topic(name=request.topic)

    def GetSubscription(  # noqa: N802
        self, request: types.GetSubscriptionRequest, context: grpc.ServicerContext
    ) -> Subscription:
        if request.subscription not in self.subscriptions:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such subscription")
        return self.subscriptions[request.subscription]

    def CreateSubscription(self, request: Subscription, context: grpc.ServicerContext) -> Subscription:  # noqa: N802
        if request.topic not in self.topics:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such topic")
        if request.name in self.subscriptions:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, "it is there")
        if not self.exactly_once:
            request.enable_exactly_once_delivery = False
        self.subscriptions[request.name] = request
        self.messages[request.name] = []
        return request

    def DeleteSubscription(  # noqa: N802
        self, request: types.DeleteSubscriptionRequest, context: grpc.ServicerContext
    ) -> Empty:
        if self.subscriptions.pop(request.subscription, None) is None:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such subscription")
        return Empty()

    def Pull(self, request: types.PullRequest, context: grpc.ServicerContext) -> types.PullResponse:  # noqa: N802
        if request.subscription not in self.subscriptions:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such subscription")
        most = min(self.page, request.max_messages)
        with self._changed:
            found = self._deliverable(request.subscription, most)
            if not found:
                self._changed.wait(0.02)
                # A client that is gone gets nothing.
                found = self._deliverable(request.subscription, most) if context.is_active() else []
            for stored in found:
                self._count += 1
                stored.ack_id, stored.until = f"ack-{self._count}", self.now + 60
            received = [ReceivedMessage(ack_id=stored.ack_id, message=stored.message) for stored in found]
            return types.PullResponse(received_messages=received)

    def Acknowledge(self, request: types.AcknowledgeRequest, context: grpc.ServicerContext) -> Empty:  # noqa: N802
        late = 0
        with self._changed:
            by_id = {stored.ack_id: stored for stored in self.messages[request.subscription] if stored.ack_id}
            for ack_id in request.ack_ids:
                stored = by_id.get(ack_id)
                if stored is not None and (stored.until > self.now or not self.exactly_once):
                    stored.acknowledged = True
                else:
                    late += 1
            if self.exactly_once and len(by_id) > KEPT:
                # They never come again, and each request looks at all messages.
                left = [stored for stored in self.messages[request.subscription] if not stored.acknowledged]
                self.messages[request.subscription] = left
        if late and self.exactly_once:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "Some acknowledgement ids are invalid")
        return Empty()

    def ModifyAckDeadline(  # noqa: N802
        self, request: types.ModifyAckDeadlineRequest, context: grpc.ServicerContext
    ) -> Empty:
        ack_ids = set(request.ack_ids)
        with self._changed:
            for stored in self.messages[request.subscription]:
                if stored.ack_id in ack_ids and stored.until > self.now:
                    stored.until = self.now + request.ack_deadline_seconds
            self._changed.notify_all()
        return Empty()

    def _deliverable(self, subscription: str, most: int) -> list[Stored]:
        """Return messages that may be delivered; those of a key only if none before them is with somebody."""
        found: list[Stored] = []
        leased: set[str] = set()
        for stored in self.messages[subscription]:
            key = stored.message.ordering_key
            if stored.acknowledged:
                continue
            if stored.until > self.now:
                leased.add(key)
            elif not key or key not in leased:
                found.append(stored)
            if len(found) == most:
                break
        return found


METHODS: dict[str, dict[str, tuple[Any, Any]]] = {
    "google.pubsub.v1.Publisher": {"GetTopic": (types.GetTopicRequest, types.Topic)},
    "google.pubsub.v1.Subscriber": {
        "GetSubscription": (types.GetSubscriptionRequest, Subscription),
        "CreateSubscription": (Subscription, Subscription),
        "DeleteSubscription": (types.DeleteSubscriptionRequest, None),
        "Pull": (types.PullRequest, types.PullResponse),
        "Acknowledge": (types.AcknowledgeRequest, None),
        "ModifyAckDeadline": (types.ModifyAckDeadlineRequest, None),
    },
}


@contextmanager
def running(server: PubSubServer) -> Iterator[PubSubServer]:
    """Serve on a free port of this machine."""

    def handler(name: str, request: Any, answer: Any) -> grpc.RpcMethodHandler:
        method: Callable[[Any, grpc.ServicerContext], Any] = getattr(server, name)

        def call(given: Any, context: grpc.ServicerContext) -> Any:
            server.asked.append(name)
            if name in server.refused:
                context.abort(server.refused[name], "refused")
            return method(given, context)

        serialize = answer.serialize if answer is not None else Empty.SerializeToString
        return grpc.unary_unary_rpc_method_handler(call, request.deserialize, serialize)

    served = grpc.server(ThreadPoolExecutor(8))
    for service, methods in METHODS.items():
        handlers = {name: handler(name, *kinds) for name, kinds in methods.items()}
        served.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    server.address = f"127.0.0.1:{served.add_insecure_port('127.0.0.1:0')}"
    served.start()
    try:
        yield server
    finally:
        served.stop(None).wait()
