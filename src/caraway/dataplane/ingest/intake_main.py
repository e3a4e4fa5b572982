"""`python -m caraway.dataplane.ingest.intake_main FD SECONDS`: the intake process (`intake_process`).

It reads requests from the socket FD, which it has inherited from its server, and ends when the server closes it. Its
settings are those of the server.
"""

import asyncio
import gc
import logging
import signal
import socket
import sys
from asyncio import IncompleteReadError, StreamWriter

import uvloop

from caraway.dataplane.ingest.delivery import Deliverer
from caraway.dataplane.ingest.endpoints import Endpoint
from caraway.dataplane.ingest.intake import THREAD_SLICE, IngestReport, Intake
from caraway.dataplane.ingest.intake_frames import READY, Outcome, Work, framed, received
from caraway.dataplane.ingest.marks import Marks
from caraway.dataplane.ingest.table import table
from caraway.dataplane.ingest.targets import Target
from caraway.dataplane.topics.credentials import sign_in
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.dataplane.topics.producer import TopicWriter
from caraway.errors import CarawayError, InvalidInputError, UnavailableError
from caraway.process.allocator import return_large_buffers
from caraway.process.collector import collect_rarely
from caraway.process.json_text import parse
from caraway.process.settings.settings import load_settings

LOGGER = logging.getLogger(__name__)

# The milliseconds for which the producer gathers messages, so that all messages of a log request leave together.
# Otherwise the first one would leave alone, and each further request to the broker costs it some 0.2 ms.
LINGER_MS = 5.0


class _Serving:
    """The requests of one server."""

    def __init__(self, writer: TopicWriter) -> None:
        self._writer = writer
        self._endpoints: dict[int, Endpoint] = {}

    async def outcome(self, work: Work, endpoint: Endpoint) -> Outcome:
        """Carry out a request."""
        try:
            return Outcome(number=work.number, result=await self._report(work, endpoint))
        except CarawayError as error:
            return Outcome(number=work.number, result=error)
        except Exception as error:
            LOGGER.exception("a request failed")
            return Outcome(number=work.number, result=RuntimeError(f"{type(error).__name__}: {error}"))

    def endpoint_of(self, work: Work) -> Endpoint:
        """Return the endpoint of a request, after its plans were taken over if it is new."""
        if work.plans is not None:
            webhook, name, plans = work.plans
            self._endpoints[work.endpoint] = Endpoint(webhook, name, tuple(map(Target, plans)))
        return self._endpoints[work.endpoint]

    async def _report(self, work: Work, endpoint: Endpoint) -> IngestReport:
        try:
            rows = table(parse(work.text))
        except InvalidInputError as error:
            raise InvalidInputError(f"data {error}" if str(error).startswith("isn't") else str(error)) from error
        marks = None
        if work.marks is not None:
            header, key, written = work.marks
            marks = Marks(header=header, key=key, written=written)
        # The server passes a request to this process only if none of its rows can belong to an erased key. So the set
        # of erased keys may be empty here.
        deliverer = Deliverer(endpoint.targets, rows, origin=endpoint.origin, erased=ErasedKeys(dict), marks=marks)
        return await Intake(self._writer, endpoint, rows, deliverer).run(in_thread=False, step=THREAD_SLICE)


async def serve(channel: socket.socket, writer: TopicWriter) -> None:
    """Carry out requests until the other end is closed."""
    reader, answers = await asyncio.open_connection(sock=channel)
    serving = _Serving(writer)
    answers.write(framed(READY))
    tasks: set[asyncio.Task[None]] = set()
    try:
        while True:
            work: Work = await received(reader)
            # A later request may bring other plans under the same number of an endpoint. So the endpoint is looked up
            # before the next request is read.
            task = asyncio.create_task(_answer(serving, work, serving.endpoint_of(work), answers))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    except IncompleteReadError:
        pass


async def _answer(serving: _Serving, work: Work, endpoint: Endpoint, answers: StreamWriter) -> None:
    outcome = await serving.outcome(work, endpoint)
    if not answers.is_closing():
        answers.write(framed(outcome))


def main(arguments: list[str]) -> int:
    """Run until the server closes the socket; return the exit code."""
    fd, seconds = arguments
    # Control-C in a terminal sends the signal to all processes of the terminal. The server decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(stream=sys.stderr)
    return_large_buffers()
    gc.freeze()
    collect_rarely()
    writer = TopicWriter(sign_in(load_settings().kafka), timeout_s=float(seconds), linger_ms=LINGER_MS)
    try:
        uvloop.run(serve(socket.socket(fileno=int(fd)), writer))
    except (ConnectionError, UnavailableError) as error:
        LOGGER.warning("the intake process ends: %s", error)
    finally:
        # Requests that are under way now get no answer, so their clients send them again, and the next server reads
        # which of their rows are there. Therefore no row of them may be written after that.
        writer.close(0.0)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
