"""The messages between a server and its intake process: objects of both programs, pickled, each behind its length.

Only the server has the other end of the socket, so what is unpickled comes from a program of this installation.
"""

import pickle
import struct
from asyncio import StreamReader
from dataclasses import dataclass
from typing import Any

from caraway.dataplane.ingest.intake import IngestReport
from caraway.dataplane.ingest.marks import Written
from caraway.graph.plan.model import IngestPlan

_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A request for the intake process.

    Attributes:
        number: The number of the request, which the outcome has, too.
        endpoint: The number of the endpoint.
        plans: The webhook's name, the endpoint's name and the plans of its datasets, if the process doesn't know the
            endpoint yet.
        text: The JSON text of the rows.
        marks: Header and key of the marks of its records, and the marks of records that are there already.
    """

    number: int
    endpoint: int
    plans: tuple[str, str, tuple[IngestPlan, ...]] | None
    text: bytes
    marks: tuple[str, str, Written] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of a request: its report, or the error that was raised."""

    number: int
    result: IngestReport | Exception


# The first message of the intake process, which says that it can process requests now.
READY = "ready"


def framed(message: Work | Outcome | str) -> bytes:
    """Return the bytes of a message."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


async def received(reader: StreamReader) -> Any:
    """Return the next message. Raises `asyncio.IncompleteReadError` if the other end is closed."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return pickle.loads(await reader.readexactly(length))  # noqa: S301 (see the module)
