"""Graphs and commit requests as bytes.

The bytes are canonical: equal values give equal bytes, in every process.
"""

from dataclasses import dataclass
from typing import cast

from google.protobuf.message import DecodeError, Message

from caraway.errors import InvalidInputError
from caraway.graph.pb.caraway.v1 import graph_pb2 as pb
from caraway.graph.specs import Graph
from caraway.graph.wire.messages import to_message
from caraway.graph.wire.structure import codec_of

# The value of `CommitRequest.format`. A request without this value doesn't come from Caraway's client, and is refused.
COMMIT_FORMAT = "caraway.v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """A client's request to commit: a graph, already filtered by `env`."""

    message: str
    graph: Graph
    preview: bool = False
    incremental: bool = False
    backfill: bool = True
    env: str | None = None


def encode_commit(request: CommitRequest) -> bytes:
    """Encode a commit request as bytes."""
    fields = codec_of(CommitRequest, pb.CommitRequest.DESCRIPTOR).encode(request, None)
    return canonical_bytes(pb.CommitRequest(**fields, format=COMMIT_FORMAT))


def decode_commit(data: bytes) -> CommitRequest:
    """Decode a commit request from bytes.

    Raises `InvalidInputError` if these are not the bytes of a commit request, or of one from a newer version.
    """
    message = pb.CommitRequest()
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise _foreign() from None
    if message.format != COMMIT_FORMAT:
        raise _foreign()
    return cast("CommitRequest", _decoded(CommitRequest, message))


def encode_graph(graph: Graph) -> bytes:
    """Encode a graph as bytes."""
    return canonical_bytes(to_message(graph, pb.Graph))


def decode_graph(data: bytes) -> Graph:
    """Decode a graph from bytes.

    Raises `InvalidInputError` if these are not the bytes of a graph, or of one from a newer version.
    """
    message = pb.Graph()
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise InvalidInputError("these bytes are no graph") from None
    return cast("Graph", _decoded(Graph, message))


def canonical_bytes(message: Message) -> bytes:
    """Return a message as bytes; equal messages give equal bytes, in every process."""
    return message.SerializeToString(deterministic=True)


def _foreign() -> InvalidInputError:
    return InvalidInputError(
        "these bytes are no commit of Caraway's client. Definitions that were written for Fennel's client are "
        "committed by Caraway's: install caraway, write caraway for fennel in the imports (from caraway.datasets "
        "import dataset), and commit with caraway.client.Client or the command caraway commit"
    )


def _decoded(spec: type, message: Message) -> object:
    try:
        return codec_of(spec, message.DESCRIPTOR).decode(message, None)
    except ValueError as error:
        # Decoding raises a ValueError for an operator, function or unit that a newer client knows and this version
        # doesn't.
        raise InvalidInputError(f"this version of Caraway can't read the graph: {error}") from error
