"""Connections to Google PubSub, with errors that say what to do."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import grpc
from google.api_core.exceptions import (
    AlreadyExists,
    DeadlineExceeded,
    GoogleAPICallError,
    NotFound,
    PermissionDenied,
    Unauthenticated,
)
from google.auth.exceptions import GoogleAuthError
from google.oauth2.service_account import Credentials
from google.protobuf.duration_pb2 import Duration
from google.pubsub_v1 import PublisherClient, SubscriberClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport
from google.pubsub_v1.types import ExpirationPolicy, PullResponse, Subscription

from caraway.dataplane.sources.reader import SourceContext
from caraway.errors import UnavailableError
from caraway.graph.connectors import PubSubConnector
from caraway.graph.systems import PubSubSystem

# Seconds for which an answer is awaited, and seconds for which a request for messages may stay open.
ANSWER_S, PULL_S = 10.0, 20.0
# PubSub delivers a message again if it is neither acknowledged nor extended for this many seconds. After a crash, the
# messages of the old process come again only after that time.
DEADLINE_S = 60
# The subscription keeps messages that aren't acknowledged for seven days, as PubSub does by default.
RETENTION_S = 7 * 24 * 3600
# A request has at most this many acknowledgement ids, with at most this many characters together: PubSub accepts
# requests of up to 512 kB.
IDS, ID_CHARACTERS = 1_000, 384 * 1024
# Google's library raises ValueError for an error of the server whose details don't fit its code.
ERRORS = (GoogleAPICallError, GoogleAuthError, grpc.RpcError, ValueError)
Transport = TypeVar("Transport", PublisherGrpcTransport, SubscriberGrpcTransport)
# The gRPC options of the channels that Google's library makes, for the channel to an emulator. If acknowledgements come
# too late, the answer names each of them in its metadata. With a lower limit for metadata, gRPC would report its size
# instead of that error.
METADATA_BYTES = 4 * 1024 * 1024
OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_metadata_size", METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", METADATA_BYTES),
]


class TopicConnection:
    """Requests about one topic and its subscription. Thread safe."""

    def __init__(self, connector: PubSubConnector, context: SourceContext) -> None:
        """Prepare; nothing is sent before the first request.

        Raises:
            UnknownEntityError: The secret with the key doesn't exist.
            UnavailableError: It can't be looked up, or isn't a key.
        """
        system = connector.system
        assert isinstance(system, PubSubSystem)  # noqa: S101 (the planner refuses others)
        self.project = system.project_id
        self.topic = f"projects/{self.project}/topics/{connector.topic}"
        self.where = f"PubSub {system.name}: topic {connector.topic} of project {self.project}"
        endpoint = context.endpoints.get(system.name)
        credentials = None if endpoint else self._credentials(system, context)
        self._publisher = PublisherClient(transport=_transport(PublisherGrpcTransport, endpoint, credentials))
        self._subscriber = SubscriberClient(transport=_transport(SubscriberGrpcTransport, endpoint, credentials))
        # Requests for messages have a connection of their own, so that closing it ends no other requests.
        self._puller = SubscriberClient(transport=_transport(SubscriberGrpcTransport, endpoint, credentials))

    def _credentials(self, system: PubSubSystem, context: SourceContext) -> Credentials:
        text = context.resolve(system.service_account_key)
        try:
            return Credentials.from_service_account_info(json.loads(text))  # type: ignore[no-any-return]
        except (ValueError, TypeError, AttributeError, GoogleAuthError):
            # The library's error may contain parts of the key, so it isn't shown.
            raise UnavailableError(
                f"{self.where}: the service account key isn't the JSON of a key, as Google's console gives it"
            ) from None

    def subscription(self, name: str) -> Subscription | None:
        """Return a subscription; None if there is none, or an empty one if its settings may not be read."""
        try:
            found = self._subscriber.get_subscription(
                request={"subscription": self.path(name)}, retry=None, timeout=ANSWER_S
            )
        except NotFound:
            return None
        except PermissionDenied:
            # A service account may have the right to pull, but not to look at subscriptions. If this subscription is
            # missing, only a pull shows that.
            return Subscription()
        except ERRORS as error:
            raise self.error(error, name) from error
        if found.topic != self.topic:
            raise UnavailableError(f"{self.where}: the subscription {name} is of {found.topic}; delete it")
        return found

    def subscribe(self, name: str, labels: dict[str, str]) -> None:
        """Make a subscription, which gets all messages that are published from now on."""
        wanted = Subscription(
            name=self.path(name),
            topic=self.topic,
            labels=labels,
            ack_deadline_seconds=DEADLINE_S,
            message_retention_duration=Duration(seconds=RETENTION_S),
            enable_message_ordering=True,
            enable_exactly_once_delivery=True,
            # A policy without a time to live: the subscription never expires, however long no server runs.
            expiration_policy=ExpirationPolicy(),
        )
        try:
            self._subscriber.create_subscription(request=wanted, retry=None, timeout=ANSWER_S)
        except AlreadyExists:
            return
        except PermissionDenied as error:
            raise UnavailableError(
                f"{self.where}: the service account may not make the subscription {name}; give it the role "
                f"roles/pubsub.editor, or make the subscription: gcloud pubsub subscriptions create {name} "
                f"--project={self.project} --topic={self.topic} --ack-deadline={DEADLINE_S} "
                "--enable-message-ordering --enable-exactly-once-delivery --expiration-period=never"
            ) from error
        except ERRORS as error:
            raise self.error(error, name) from error

    def pull(self, name: str, messages: int) -> Any:
        """Return received messages as protobuf; none if none came for some seconds."""
        try:
            request = {"subscription": self.path(name), "max_messages": messages}
            return PullResponse.pb(self._puller.pull(request=request, retry=None, timeout=PULL_S)).received_messages
        except DeadlineExceeded:
            return ()
        except ERRORS as error:
            raise self.error(error, name) from error

    def acknowledge(self, name: str, ids: Sequence[str]) -> None:
        """Acknowledge the messages of a request (`requests_of`); raises the library's errors."""
        self._subscriber.acknowledge(
            request={"subscription": self.path(name), "ack_ids": ids}, retry=None, timeout=ANSWER_S
        )

    def extend(self, name: str, ids: Sequence[str], seconds: int) -> None:
        """Have PubSub wait for so many seconds from now before it delivers messages again; raises the library's errors.

        With 0 seconds it delivers them at once.
        """
        for some in requests_of(ids):
            request = {"subscription": self.path(name), "ack_ids": some, "ack_deadline_seconds": seconds}
            self._subscriber.modify_ack_deadline(request=request, retry=None, timeout=ANSWER_S)

    def unsubscribe(self, name: str) -> None:
        """Delete a subscription, if it is there."""
        try:
            self._subscriber.delete_subscription(
                request={"subscription": self.path(name)}, retry=None, timeout=ANSWER_S
            )
        except NotFound:
            return
        except ERRORS as error:
            raise self.error(error, name) from error

    def check(self, name: str | None) -> None:
        """Check that the topic is there, and may be read."""
        try:
            self._publisher.get_topic(request={"topic": self.topic}, retry=None, timeout=ANSWER_S)
        except PermissionDenied:
            # A service account that may only use a subscription needs no rights about the topic.
            if name is None or not self._may_consume(name):
                raise UnavailableError(
                    f"{self.where}: the service account may not read about the topic; give it the role "
                    "roles/pubsub.editor, or roles/pubsub.subscriber on a subscription that you make"
                ) from None
        except ERRORS as error:
            raise self.error(error, name or "") from error

    def _may_consume(self, name: str) -> bool:
        permission = "pubsub.subscriptions.consume"
        try:
            answer = self._subscriber.test_iam_permissions(
                request={"resource": self.path(name), "permissions": [permission]}, timeout=ANSWER_S
            )
        except ERRORS as error:
            raise self.error(error, name) from error
        return permission in answer.permissions

    def path(self, name: str) -> str:
        """Return the full name of a subscription."""
        return f"projects/{self.project}/subscriptions/{name}"

    def error(self, error: BaseException, name: str) -> UnavailableError:
        """Return the error for people; `name` is the subscription, if there is one."""
        text = error.message if isinstance(error, GoogleAPICallError) else str(error)
        remedy = ""
        match error:
            case NotFound():
                remedy = "; is the topic there, in this project?"
            case PermissionDenied():
                remedy = f"; the service account needs the role roles/pubsub.subscriber on the subscription {name}"
            case Unauthenticated() | GoogleAuthError():
                remedy = "; is the service account key that of an account that is there, and not revoked?"
        kind = type(error).__name__
        return UnavailableError(f"{self.where}: {kind}: {text}{remedy}")

    def stop_pulling(self) -> None:
        """End the request for messages that is under way; it fails."""
        self._puller.transport.close()

    def close(self) -> None:
        """End the connections, and requests that are under way."""
        self._puller.transport.close()
        self._publisher.transport.close()
        self._subscriber.transport.close()


def requests_of(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield acknowledgement ids in parts, of which each fits a request."""
    begin = size = 0
    for end, ack_id in enumerate(ids):
        if end - begin == IDS or size + len(ack_id) > ID_CHARACTERS:
            yield ids[begin:end]
            begin, size = end, 0
        size += len(ack_id)
    if begin < len(ids):
        yield ids[begin:]


def _transport(kind: type[Transport], endpoint: str | None, credentials: Credentials | None) -> Transport:
    if endpoint is None:
        return kind(credentials=credentials)
    # The endpoint is that of an emulator, which accepts everybody, without encryption.
    return kind(channel=grpc.insecure_channel(endpoint.removeprefix("http://").rstrip("/"), options=OPTIONS))
