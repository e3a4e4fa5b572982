"""The calls by which a server reads shards of other servers: a gRPC server, and clients that keep their channels open.

One call carries all reads of a request.
"""

import hmac
import ssl
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc
import msgspec

from caraway.dataplane.index.sharding.messages import TIMEOUT_S, Answer, Ask, decode_answers, decode_asks, encode
from caraway.errors import UnavailableError
from caraway.process.settings.errors import ConfigurationError
from caraway.process.settings.index import IndexSettings

SERVICE, METHOD = "caraway.Index", "Read"
# The name of the gRPC metadata that proves that a caller belongs to the deployment. Its value is derived from the key
# file that all servers of the deployment have.
PASS = "caraway-pass-bin"  # noqa: S105 (a name)
# The number of threads that answer calls, and so of calls that are answered at once. A read holds Python's global lock
# for the 50 us that it takes, so more threads wouldn't answer more reads.
THREADS = 4
# The most bytes of a message that is sent or received: 256 MiB, enough for a request with 100,000 rows and for its
# answer. By default gRPC receives messages of up to 4 MiB only.
MAX_BYTES = 256 << 20
OPTIONS = (("grpc.max_receive_message_length", MAX_BYTES), ("grpc.max_send_message_length", MAX_BYTES))
# A restarted server must be reached again at once, so the pauses between attempts to connect begin with 50 ms and grow
# to 500 ms at most.
CHANNEL_OPTIONS = (
    *OPTIONS,
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    # While calls are under way, the client sends a ping every 10 s. Without an answer within 2 s it closes the
    # connection. TCP alone would notice only after many minutes that a machine is gone.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.max_pings_without_data", 0),
)
END_S = 1.0
# Texts in errors of gRPC that are signs of a failure of TLS, and the remedy.
HANDSHAKE = ("handshake", "CERTIFICATE", "certificate", "WRONG_VERSION_NUMBER", "Socket closed", "Connection reset")
REMEDY = (
    "; if the servers use TLS, all of them need index.ca_file with one authority, and index.certificate_file of that "
    "authority for the host of their index.address"
)

# A function that sends reads to the server at an address. If the server doesn't answer, the future fails with
# `UnavailableError`.
Call = Callable[[str, Sequence[Ask]], "Future[list[Answer]]"]


@dataclass(frozen=True, slots=True)
class Identity:
    """The certificate by which a server and its peers know each other, both ways.

    Attributes:
        authority: The authority of all servers' certificates, in PEM.
        certificate: The certificate of this server, in PEM.
        key: The key of the certificate, in PEM.
    """

    authority: bytes
    certificate: bytes
    key: bytes = field(repr=False)

    @classmethod
    def of(cls, index: IndexSettings) -> "Identity | None":
        """Read the files of the settings; None if servers speak no TLS with each other.

        Raises `ConfigurationError` if a file can't be read, isn't what it should be, or key and certificate differ.
        """
        if index.ca_file is None or index.certificate_file is None or index.key_file is None:
            return None
        try:
            context = ssl.create_default_context(cafile=index.ca_file)
            context.load_cert_chain(index.certificate_file, index.key_file, password="")
            files = (index.ca_file, index.certificate_file, index.key_file)
            return cls(*(file.read_bytes() for file in files))
        except OSError as error:
            raise ConfigurationError(
                f"index.ca_file, index.certificate_file and index.key_file: {index.ca_file}, {index.certificate_file} "
                f"with {index.key_file} can't be used ({error})"
            ) from error


class ShardServer:
    """The gRPC server by which other servers read the shards of this one."""

    def __init__(
        self, passes: Callable[[], Collection[bytes]], host: str, port: int, identity: Identity | None = None
    ) -> None:
        """Listen; nothing is answered before `start`.

        Args:
            passes: Returns the proofs that are accepted from callers.
            host: The host to listen on.
            port: The port to listen on; 0 for any free one.
            identity: The certificate of this server; None: calls come in clear.

        Raises:
            UnavailableError: The address can't be listened on.
        """
        self._passes = passes
        # Linux lets two processes listen on one port if both set SO_REUSEPORT, as gRPC does by default. Then calls
        # would reach either of them, so the option is off and listening on a port in use fails.
        options = (*OPTIONS, ("grpc.so_reuseport", 0))
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="index-shard-server")
        self._server = grpc.server(self._threads, options=options)
        host_text = f"[{host}]" if ":" in host else host
        try:
            self.port: int = self._listen(f"{host_text}:{port}", identity)
        except RuntimeError as error:
            raise UnavailableError(f"index.host, index.port: can't listen on {host}:{port}: {error}") from error

    def _listen(self, address: str, identity: Identity | None) -> int:
        if identity is None:
            return int(self._server.add_insecure_port(address))
        pair = ((identity.key, identity.certificate),)
        credentials = grpc.ssl_server_credentials(pair, identity.authority, require_client_auth=True)
        return int(self._server.add_secure_port(address, credentials))

    def start(self, answer: Callable[[Ask], Answer]) -> None:
        """Start answering reads, each by `answer`."""
        read = grpc.unary_unary_rpc_method_handler(partial(self._read, answer))
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: read}),))
        self._server.start()

    def stop(self) -> None:
        """Stop; calls that have begun may end within a second."""
        self._server.stop(END_S).wait(END_S)
        self._threads.shutdown(wait=False)

    def _read(self, answer: Callable[[Ask], Answer], request: bytes, context: Any) -> bytes:
        shown = dict(context.invocation_metadata()).get(PASS, b"")
        if not any(hmac.compare_digest(shown, known) for known in self._passes()):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the caller doesn't have the key file of this deployment")
        try:
            asks = decode_asks(request)
        except msgspec.MsgspecError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return encode([answer(ask) for ask in asks])


class ShardClients:
    """Calls other servers. Thread safe."""

    def __init__(
        self, shown: Callable[[], bytes], identity: Identity | None = None, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Create a client without channels.

        Args:
            shown: Returns the proof that this server belongs to the deployment.
            identity: The certificate of this server; None: calls go in clear.
            timeout_s: The most seconds for a call.
        """
        self._shown = shown
        self._credentials = identity and grpc.ssl_channel_credentials(
            identity.authority, identity.key, identity.certificate
        )
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._channels: dict[str, tuple[Any, Any]] = {}

    def call(self, address: str, asks: Sequence[Ask]) -> "Future[list[Answer]]":
        """Send reads to the server at an address; the future fails with `UnavailableError` if it doesn't answer."""
        answers: Future[list[Answer]] = Future()
        metadata = ((PASS, self._shown()),)
        call = self._read(address).future(encode(asks), timeout=self._timeout_s, metadata=metadata)
        call.add_done_callback(lambda ended: _settle(answers, ended, address))
        return answers

    def keep(self, addresses: set[str]) -> None:
        """Close the channels to all other addresses."""
        with self._lock:
            gone = self._channels.keys() - addresses
            channels = [self._channels.pop(address)[0] for address in gone]
        for channel in channels:
            channel.close()

    def close(self) -> None:
        """Close all channels."""
        self.keep(set())

    def _read(self, address: str) -> Any:
        known = self._channels.get(address)
        if known is None:
            with self._lock:
                known = self._channels.get(address)
                if known is None:
                    channel = self._channel(address)
                    known = self._channels[address] = channel, channel.unary_unary(f"/{SERVICE}/{METHOD}")
        return known[1]

    def _channel(self, address: str) -> Any:
        if self._credentials is None:
            return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        return grpc.secure_channel(address, self._credentials, options=CHANNEL_OPTIONS)


def _settle(answers: "Future[list[Answer]]", call: Any, address: str) -> None:
    try:
        answers.set_result(decode_answers(call.result()))
    except grpc.FutureCancelledError:
        answers.set_exception(UnavailableError(f"the call of the server at {address} was broken off"))
    except grpc.RpcError as error:
        answers.set_exception(UnavailableError(f"the server at {address} doesn't answer: {_reason(error)}"))
    except msgspec.MsgspecError as error:
        answers.set_exception(UnavailableError(f"the server at {address} answers what isn't understood: {error}"))


def _reason(error: Any) -> str:
    details = str(error.details())
    # A server without TLS, or one that refuses the certificate of the caller, only closes the connection. So the remedy
    # is named for closed connections too.
    remedy = REMEDY if any(sign in details for sign in HANDSHAKE) else ""
    return f"{error.code().name.lower()}, {details}{remedy}"
