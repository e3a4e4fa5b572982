"""The gRPC server by which other servers read this server's shards: one call carries all reads of a request."""

import hmac
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import grpc
import msgspec

from caraway.errors import UnavailableError
from caraway.sharding.messages import Answer, Ask, decode_asks, encode

SERVICE, METHOD = "caraway.Index", "Read"
# The metadata key of the proof that a caller belongs to the deployment.
PASS = "caraway-pass"  # noqa: S105 (a name)
# Bound on concurrent calls. A read takes some 50 us and holds Python's lock; more threads would only share it.
THREADS = 4
# Bound on a message: a request of 100,000 rows, or its answer.
MAX_BYTES = 256 << 20
OPTIONS = (("grpc.max_receive_message_length", MAX_BYTES), ("grpc.max_send_message_length", MAX_BYTES))
END_S = 1.0


class ShardServer:
    """A gRPC server."""

    def __init__(self, passes: Callable[[], Collection[bytes]], host: str, port: int) -> None:
        """Listen; nothing is answered before `start`.

        Args:
            passes: Returns the proofs of which callers must show one.
            host: The host to listen on.
            port: The port to listen on; 0 for any free one.

        Raises:
            UnavailableError: The address can't be listened on.
        """
        self._passes = passes
        # Without this option the server would share a port that another process listens on.
        options = (*OPTIONS, ("grpc.so_reuseport", 0))
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="index-shard-server")
        self._server = grpc.server(self._threads, options=options)
        host_text = f"[{host}]" if ":" in host else host
        try:
            self.port: int = self._server.add_insecure_port(f"{host_text}:{port}")
        except RuntimeError as error:
            raise UnavailableError(f"index.host, index.port: can't listen on {host}:{port}: {error}") from error

    def start(self, answer: Callable[[Ask], Answer]) -> None:
        """Start answering reads, each by `answer`."""
        read = grpc.unary_unary_rpc_method_handler(partial(self._read, answer))
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: read}),))
        self._server.start()

    def stop(self) -> None:
        """Stop; calls under way get some time."""
        self._server.stop(END_S).wait(END_S)
        self._threads.shutdown(wait=False)

    def _read(self, answer: Callable[[Ask], Answer], request: bytes, context: Any) -> bytes:
        shown = dict(context.invocation_metadata()).get(f"{PASS}-bin", b"")
        if not any(hmac.compare_digest(shown, known) for known in self._passes()):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the caller hasn't the key file of this deployment")
        try:
            asks = decode_asks(request)
        except msgspec.MsgspecError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return encode([answer(ask) for ask in asks])
