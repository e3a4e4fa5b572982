"""Connectors that do what they like, each in a process of its own."""

import ctypes
import os
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from caraway.dataplane.confined.forms import MOST_DOCUMENT
from caraway.dataplane.confined.host import Platform
from caraway.dataplane.confined.values import unpacked
from caraway.dataplane.sinks.writer import Batch, Refusal, RetryLaterError, SignIn, Writing
from caraway.dataplane.sources import hosted
from caraway.dataplane.sources.decoding.protobuf_schemas import compile_file
from caraway.dataplane.sources.decoding.registry import RegisteredSchema
from caraway.dataplane.sources.reader import (
    DEFINITION,
    Items,
    Position,
    Progress,
    SourceBatch,
    SourceContext,
    SourceRecord,
    batch_of,
)
from caraway.errors import CommitError, UnavailableError
from caraway.graph.connectors import KafkaConnector
from caraway.graph.plan.model import SinkPlan
from caraway.graph.systems import KafkaSystem, SecretRef
from caraway.process.confinement.channel import HEAD
from tests.timeouts import deadline_in

MSG_FASTOPEN, IPPROTO_MPTCP = 0x20000000, 262
ROWS = 5_000
HOUR_S = 3_600.0


def address(port: int, host: str = "127.0.0.1") -> bytes:
    return struct.pack("=H", socket.AF_INET) + struct.pack("!H", port) + socket.inet_aton(host) + bytes(8)


def _read(path: str) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace")


def _by_python(port: str) -> str:
    with socket.create_connection(("127.0.0.1", int(port)), 5):
        return "done"


def _by_the_c_library(port: str) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    with socket.socket() as one:
        if libc.connect(one.fileno(), address(int(port)), 16) != 0:
            raise OSError(ctypes.get_errno(), "connect")
    return "done"


def _in_a_thread(port: str) -> str:
    answers: list[str] = []

    def work() -> None:
        try:
            answers.append(_by_the_c_library(port))
        except OSError as error:
            answers.append(f"{type(error).__name__}: {error}")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return answers[0]


def _with_the_first_data(port: str) -> str:
    with socket.socket() as one:
        one.sendto(b"GET / HTTP/1.0\r\n\r\n", MSG_FASTOPEN, ("127.0.0.1", int(port)))
    return "done"


def _in_the_form_of_ipv6(port: str) -> str:
    with socket.socket(socket.AF_INET6) as one:
        one.connect(("::ffff:127.0.0.1", int(port)))
    return "done"


def _by_a_socket_of_files(path: str) -> str:
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(path)
    return "done"


def _by_a_race(ports: str) -> str:
    """Change the address while the platform looks at it, many times."""
    good, bad = (address(int(port)) for port in ports.split())
    libc = ctypes.CDLL(None, use_errno=True)
    shown = ctypes.create_string_buffer(good, 16)
    over = threading.Event()

    def change() -> None:
        while not over.is_set():
            ctypes.memmove(shown, bad, 16)
            ctypes.memmove(shown, good, 16)

    thread = threading.Thread(target=change)
    thread.start()
    connected = 0
    # The listener takes no more than 128 connections that nobody accepts.
    for _ in range(100):
        with socket.socket() as one:
            connected += libc.connect(one.fileno(), shown, 16) == 0
    over.set()
    thread.join()
    return f"connected {connected > 0}"


def _from_brokers(text: str) -> str:
    """Read a topic; return the partitions whose messages came."""
    servers, topic, *partitions = text.split()
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "thief"})
    found: set[int] = set()
    try:
        consumer.assign([TopicPartition(topic, int(number), OFFSET_BEGINNING) for number in partitions])
        end = deadline_in(30)
        while time.monotonic() < end and len(found) < len(partitions):
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                found.add(int(message.partition() or 0))
                # The other partitions have some more seconds.
                end = min(end, deadline_in(3))
    finally:
        consumer.close()
    return " ".join(map(str, sorted(found)))


def _listen(port: str) -> str:
    with socket.create_server(("0.0.0.0", int(port))):
        return "done"


def _take(port: str) -> str:
    """Listen beside somebody at the same port, by a protocol whose ports Landlock doesn't know."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.bind(("127.0.0.1", int(port)))
        one.listen()
        return "done"


def _hang(_: str) -> str:
    time.sleep(HOUR_S)
    return "done"


def _fail_strangely(_: str) -> str:
    raise UnavailableError("\ud800" * 100_000)


def _compile(text: str) -> str:
    return ", ".join(compile_file(RegisteredSchema(id=1, kind="PROTOBUF", text=text, imports=())).message_types_by_name)


def _start(program: str) -> str:
    return str(subprocess.run([program], check=True))


ATTEMPTS: Mapping[str, Callable[[str], str]] = {
    "read": _read,
    "environment": lambda _: repr(dict(os.environ)) + _read("/proc/self/environ"),
    "Python": _by_python,
    "C": _by_the_c_library,
    "thread": _in_a_thread,
    "fast open": _with_the_first_data,
    "IPv6": _in_the_form_of_ipv6,
    "Unix": _by_a_socket_of_files,
    "race": _by_a_race,
    "compile": _compile,
    "start": _start,
    "listen": _listen,
    "take": _take,
    "brokers": _from_brokers,
    "hang": _hang,
    "fail strangely": _fail_strangely,
}


class Hostile:
    """Something that is made in a process and does what it is told."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    def attempt(self, name: str, argument: str) -> str:
        """Return what an attempt returns, or its error."""
        try:
            return ATTEMPTS[name](argument)
        except OSError as error:
            return f"{type(error).__name__}: {error}"

    def announce(self, size: int) -> None:
        """Announce a message of so many bytes, and send no more of it."""
        self._platform._channel._socket.sendall(HEAD.pack(size))
        time.sleep(HOUR_S)

    def secret(self, arn: str) -> object:
        """Ask for a secret."""
        return self._platform.ask("secret", arn, None, [])

    def close(self) -> None:
        """Do nothing."""


class Numbers:
    """Reads the numbers up to `ROWS` (`SourceReader`); the name of the topic is what its library does to it."""

    def __init__(self, connector: KafkaConnector, context: SourceContext) -> None:
        self._does, self._next = connector.topic, 0
        self._context = context
        # The server answers no question between two calls, in which a reader reads ahead.
        self.reads_ahead = not self._does.startswith("reads the dataset")
        if self._does == "secrets":
            assert isinstance(connector.system, KafkaSystem)
            context.resolve(connector.system.password or "")
            context.resolve(SecretRef(arn="store:other"))

    def seek(self, position: Position, items: Items) -> Position:
        """Go on."""
        del items
        self._next = int(position.get("next", 0))
        return position

    def poll(self, *, rows: int, size: int, timeout_s: float) -> SourceBatch | None:
        """Return the next numbers, unless the library fails."""
        del size, timeout_s
        match self._does:
            case "aborts":
                os.abort()
            case "eats":
                self._eaten = [bytes(64 << 20) for _ in range(1_000)]
            case "hangs":
                time.sleep(HOUR_S)
            case "reads the dataset":
                rows = min(rows, len(list(self._context.live_rows())))
            case "reads the dataset again":
                rows = min(rows, *(len(list(self._context.live_rows())) for _ in range(2)))
            case "hangs up":
                raise EOFError("the file ends too early")
            case _:
                pass
        if self._next >= ROWS:
            return None
        last = min(self._next + min(rows, 250), ROWS)
        records = [SourceRecord("0", number, b"%d" % number) for number in range(self._next, last)]
        self._next = last
        return batch_of(records, self._rows, {"next": last})

    def is_ahead(self, mark: str) -> bool:
        """Return whether a number wasn't read."""
        return int(mark.partition("/")[2]) >= self._next

    def acknowledge(self, position: Position) -> None:
        """Do nothing."""

    def lag(self) -> int:
        """Return how many numbers are left."""
        return ROWS - self._next

    def idle_at(self) -> float | None:
        """Return nothing."""

    def progress(self) -> Progress | None:
        """Return how many numbers were read."""
        return Progress(done=self._next, total=ROWS, unit="rows")

    def peek(self, rows: int) -> SourceBatch:
        """Return the first numbers."""
        batch = self.poll(rows=rows, size=1, timeout_s=0)
        assert batch is not None
        return batch

    def close(self) -> None:
        """Do nothing."""

    @staticmethod
    def _rows(values: Any) -> tuple[list[object], dict[int, str]]:
        return [{"user": f"u{int(value)}", "age": int(value), "at": 1_700_000_000} for value in values], {}


# The lies that the process of a source tells, by the name of the topic.
LIES: Mapping[str, Mapping[str, object]] = {
    "more rows": {"rows": 10_000_000},
    "short columns": {"columns": {"age": [1]}},
    "columns that are none": {"columns": {"age": 1}},
    "marks of others": {"run": "0/0~248,x:users:other"},
    "endless marks": {"run": f"0/0~{10**15}"},
    "no marks": {"run": None, "marks": []},
    "a fault of another row": {"faults": [[10_000, "x"]]},
    "a text as a position": {"position": "x"},
    "the definition of a source": {"items": {DEFINITION: b"forged"}},
    "a position of bytes": {"position": {"a": b"\xff"}},
    "a position of no text": {"position": {"a": "\ud800"}},
    "a position of a great int": {"position": {"a": 2**70}},
    "a position of a decimal": {"position": {"a": Decimal("1E+9")}},
    "a long position": {"position": {"a": "x" * MOST_DOCUMENT}},
    "many items": {"items": dict.fromkeys(map(str, range(100_001)))},
    "long items": {"items": {"a": bytes(17 << 20)}},
    "a great size": {"size": 2**70},
    "an object": {"size": {"__reduce__": ["os.system", "true"]}},
}


# The lies that it tells of the state of its reader.
STATES: Mapping[str, tuple[object, object, object]] = {
    "a great lag": (2**5000, None, None),
    "a great progress": (None, None, [2**70, 0, "rows"]),
    "a unit of no text": (None, None, [1, 2, "\ud800"]),
    "a long unit": (None, None, [1, 2, "x" * 1_000]),
}


class Lying(hosted.HostedReader):
    """A process that was taken over, and tells what it likes."""

    def poll(self, rows: int, size: int, timeout_s: float, wanted: Any) -> tuple[Any, hosted.State]:
        """Return a batch with a lie in it."""
        told, state = super().poll(rows, size, timeout_s, wanted)
        does: str = self._reader._does  # type: ignore[attr-defined]
        return {**unpacked(bytes(told)), **LIES.get(does, {})}, STATES.get(does, state)  # type: ignore[return-value]


class Silent(hosted.HostedReader):
    """A process that doesn't tell the values of its rows."""

    def column(self, batch: int, name: str) -> list[object]:
        """Wait."""
        time.sleep(HOUR_S)
        return super().column(batch, name)


class Writer:
    """Writes to nothing (`SinkWriter`); it refuses, is busy with, or fails at what the keys of changes say."""

    guarantee = "exactly once"
    remembers = True

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def positions(self) -> Mapping[int, int]:
        """Return a position."""
        return {0: 7, -1: 3}

    def write(self, batch: Batch) -> None:
        """Write changes."""
        while batch.sent < len(batch.changes):
            change = batch.changes[batch.sent]
            batch.sent += 1
            match change.key:
                case b"bad":
                    self._writing.refuse([Refusal(change, "no")])
                case b"hangs":
                    time.sleep(HOUR_S)
                case b"twice":
                    self._writing.refuse([Refusal(change, "no"), Refusal(change, "no")])
                    self._writing.refuse([Refusal(change, "never")])
                case b"foreign":
                    self._writing.refuse([Refusal(replace(change, offset=1_000), "no")])
                case b"busy":
                    self._writing.pause(2.5)
                    raise RetryLaterError("it is busy")
                case b"lost" if not self._writing.keep():
                    raise UnavailableError("another server writes it now")
                case b"abort":
                    os.abort()
                case _:
                    pass

    def close(self) -> None:
        """Do nothing."""


def check(plan: SinkPlan, sign_in: SignIn) -> None:
    """Refuse every sink."""
    raise CommitError(f"{plan.sink.connector.identifier} isn't there for {sign_in.resolve('me')}")
