"""Reading the shards of other servers: a channel to each, which is kept open."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import grpc
import msgspec

from caraway.errors import UnavailableError
from caraway.sharding.messages import TIMEOUT_S, Answer, Ask, decode_answers, encode
from caraway.sharding.shard_server import METHOD, OPTIONS, PASS, SERVICE

# A restarted server must be reached again at once, so reconnecting starts after 50 ms and backs off to 500 ms at most.
CHANNEL_OPTIONS = (
    *OPTIONS,
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    # Pings find a machine that is gone within seconds; the kernel alone would take many minutes.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.max_pings_without_data", 0),
)


# A function that sends reads to the server at an address; the future fails with `UnavailableError` without an answer.
Call = Callable[[str, Sequence[Ask]], "Future[list[Answer]]"]


class ShardClients:
    """Calls other servers. Thread safe."""

    def __init__(self, shown: Callable[[], bytes], *, timeout_s: float = TIMEOUT_S) -> None:
        """Create a client without channels; `shown` returns the proof that this server belongs to the deployment."""
        self._shown = shown
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._channels: dict[str, tuple[Any, Any]] = {}

    def call(self, address: str, asks: Sequence[Ask]) -> "Future[list[Answer]]":
        """Send reads to the server at an address; the future fails with `UnavailableError` if it doesn't answer."""
        answers: Future[list[Answer]] = Future()
        metadata = ((f"{PASS}-bin", self._shown()),)
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
                    channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
                    known = self._channels[address] = channel, channel.unary_unary(f"/{SERVICE}/{METHOD}")
        return known[1]


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
    return f"{error.code().name.lower()}, {error.details()}"
