"""A process of its own for large log requests.

Python runs one thread of a process at a time. A request with a thousand rows takes some 8 ms of parsing, casting and
encoding, in which the server can neither answer queries nor fill its index; in another process it takes none of that.
Small requests stay in the server, where they are answered sooner.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from asyncio import Future, IncompleteReadError, StreamWriter
from contextvars import Context

from caraway.dataplane.ingest.endpoints import Endpoint
from caraway.dataplane.ingest.intake import IngestReport
from caraway.dataplane.ingest.intake_frames import Outcome, Work, framed, received
from caraway.dataplane.ingest.marks import Marks
from caraway.errors import UnavailableError
from caraway.process.children.process import LAUNCHER

LOGGER = logging.getLogger(__name__)

# The least and the greatest size of the texts that the server passes to the process. Smaller texts are cheaper to
# process in the server. Larger ones are processed there too, because the server counts the memory that their values
# need.
LEAST_BYTES, MOST_BYTES = 8 * 1024, 1024 * 1024
# The most requests that the process has at a time; further ones wait in the server. The values of each request take 30
# MB at most.
MOST_REQUESTS = 8
# The process knows the plans of at most this many endpoints. If there are more, the plans of all are sent again.
MOST_ENDPOINTS = 500
# The least seconds between two starts of the process.
PAUSE_S = 5.0
ENDED = "the process that takes large log requests ended; some of the rows may have been written. Send them again"


class IntakeProcess:
    """Starts the process at the first use, and leaves requests to it. Only the event loop's thread may use it."""

    def __init__(self, *, timeout_s: float) -> None:
        """Prepare to write to Kafka within `timeout_s`; nothing is started yet."""
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._channel: StreamWriter | None = None
        # Tasks that nobody refers to may be collected as garbage while they run.
        self._starting: asyncio.Task[None] | None = None
        self._receiving: asyncio.Task[None] | None = None
        self._started_at = -PAUSE_S
        self._slots = asyncio.Semaphore(MOST_REQUESTS)
        self._waiting: dict[int, Future[IngestReport]] = {}
        self._number = 0
        # The endpoints that the process knows, by their `id`, each with its number. The dict refers to the endpoints,
        # so that no other object gets the `id` of one of them.
        self._endpoints: dict[int, tuple[Endpoint, int]] = {}

    def is_ready(self) -> bool:
        """Return whether requests can be left to the process; if it doesn't run, its start is begun."""
        if self._channel is not None:
            return True
        if (self._starting is None or self._starting.done()) and time.monotonic() > self._started_at + PAUSE_S:
            self._started_at = time.monotonic()
            # The process outlives the request that starts it, so it starts without the context variables of that
            # request.
            self._starting = asyncio.create_task(self._start(), context=Context())
        return False

    async def put(self, endpoint: Endpoint, text: bytes, marks: Marks | None) -> IngestReport:
        """Leave a request to the process, and return its report.

        Args:
            endpoint: An endpoint with plain targets.
            text: The JSON text of the rows.
            marks: The marks of its records, which must be row numbers.

        Raises:
            UnavailableError: The process has ended, or Kafka doesn't take the rows; some may have been written.
            CarawayError: The request is refused; see `IngestService.put`.
        """
        async with self._slots:
            channel = self._channel
            if channel is None or channel.is_closing():
                raise UnavailableError(ENDED)
            self._number += 1
            known = self._endpoints.get(id(endpoint))
            plans = None
            if known is None:
                if len(self._endpoints) >= MOST_ENDPOINTS:
                    self._endpoints.clear()
                known = self._endpoints[id(endpoint)] = endpoint, len(self._endpoints)
                plans = endpoint.webhook, endpoint.name, tuple(target.plan for target in endpoint.targets)
            answer = self._waiting[self._number] = asyncio.get_running_loop().create_future()
            work = Work(
                number=self._number,
                endpoint=known[1],
                plans=plans,
                text=text,
                marks=None if marks is None else (marks.header, marks.key, frozenset(marks.written)),
            )
            try:
                channel.write(framed(work))
                report: IngestReport = await answer
                return report
            finally:
                self._waiting.pop(work.number, None)

    def stop(self, timeout_s: float) -> None:
        """End the process, which first sends the rows that it has; kill it if that takes too long."""
        if self._socket is not None:
            # The connection belongs to the event loop, which has ended. So the socket is shut down directly, which the
            # process notices.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
        process = self._process
        if process is not None:
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    async def _start(self) -> None:
        here, there = socket.socketpair()
        try:
            self._process = _started(there.fileno(), self._timeout_s)
        except OSError as error:
            here.close()
            LOGGER.warning("no process for large log requests can be started: %s", error)
            return
        finally:
            there.close()
        if self._socket is not None:
            self._socket.close()
        self._socket = here.dup()
        reader, channel = await asyncio.open_connection(sock=here)
        try:
            await received(reader)
        except (IncompleteReadError, ConnectionError):
            LOGGER.warning("the process for large log requests ended at its start")
            return
        LOGGER.info("the process for large log requests takes them")
        self._endpoints.clear()
        self._channel = channel
        self._receiving = asyncio.create_task(self._receive(reader, channel))

    async def _receive(self, reader: asyncio.StreamReader, channel: StreamWriter) -> None:
        """Pass outcomes on to the requests that wait for them, until the process ends."""
        try:
            while True:
                outcome: Outcome = await received(reader)
                answer = self._waiting.get(outcome.number)
                if answer is None or answer.done():
                    continue
                if isinstance(outcome.result, Exception):
                    answer.set_exception(outcome.result)
                else:
                    answer.set_result(outcome.result)
        except (IncompleteReadError, ConnectionError):
            LOGGER.warning("the process for large log requests has ended")
        finally:
            self._channel = None
            channel.close()
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(UnavailableError(ENDED))
            if self._process is not None:
                self._process.poll()


def _started(fd: int, timeout_s: float) -> subprocess.Popen[bytes]:
    """Start the process, which takes some milliseconds of this thread: the process ends when this thread does."""
    launcher = [sys.executable, "-I", "-S", str(LAUNCHER), f"--parent={os.getpid()}", f"--signal={int(signal.SIGKILL)}"]
    program = [sys.executable, "-m", "caraway.dataplane.ingest.intake_main", str(fd), str(timeout_s)]
    return subprocess.Popen([*launcher, "--", *program], pass_fds=[fd])
