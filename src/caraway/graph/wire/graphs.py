"""Graphs and commit requests as bytes.

The bytes are canonical: equal values give equal bytes, in every process.
"""

from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from caraway.errors import InvalidInputError
from caraway.graph.pb.caraway.v1 import graph_pb2 as pb
from caraway.graph.specs import Graph
from caraway.graph.wire.datasets import decode_dataset, encode_dataset
from caraway.graph.wire.featuresets import decode_featureset, encode_featureset

# The value of `CommitRequest.format`.
COMMIT_FORMAT = "caraway.v1"

M = TypeVar("M", bound=Message)


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
    return canonical_bytes(
        pb.CommitRequest(
            message=request.message,
            graph=_encode_graph(request.graph),
            preview=request.preview,
            incremental=request.incremental,
            backfill=request.backfill,
            env=request.env,
            format=COMMIT_FORMAT,
        )
    )


def decode_commit(data: bytes) -> CommitRequest:
    """Decode a commit request from bytes.

    Raises:
        InvalidInputError: These are not the bytes of a commit request, or of one from a newer version.
    """
    message = pb.CommitRequest()
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise _foreign() from None
    if message.format != COMMIT_FORMAT:
        raise _foreign()
    return CommitRequest(
        message=message.message,
        graph=_decode_graph(message.graph),
        preview=message.preview,
        incremental=message.incremental,
        backfill=message.backfill,
        env=message.env if message.HasField("env") else None,
    )


def encode_graph(graph: Graph) -> bytes:
    """Encode a graph as bytes."""
    return canonical_bytes(_encode_graph(graph))


def decode_graph(data: bytes) -> Graph:
    """Decode a graph from bytes.

    Raises:
        InvalidInputError: These are not the bytes of a graph, or of one from a newer version.
    """
    return _decode_graph(_parsed(pb.Graph(), data, "graph"))


def canonical_bytes(message: Message) -> bytes:
    """Return a message as bytes; equal messages give equal bytes, in every process."""
    return message.SerializeToString(deterministic=True)


def _foreign() -> InvalidInputError:
    return InvalidInputError(
        "these bytes are no commit of Caraway's client. Definitions that were written for Fennel's client are "
        "committed by Caraway's: install caraway, write caraway for fennel in the imports (from caraway.datasets "
        "import dataset), and commit with caraway.client.Client or the command caraway commit"
    )


def _parsed(message: M, data: bytes, kind: str) -> M:
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise InvalidInputError(f"these bytes are no {kind}") from None
    return message


def _encode_graph(graph: Graph) -> pb.Graph:
    return pb.Graph(
        datasets=[encode_dataset(d) for d in graph.datasets],
        featuresets=[encode_featureset(f) for f in graph.featuresets],
    )


def _decode_graph(message: pb.Graph) -> Graph:
    try:
        return Graph(
            datasets=tuple(decode_dataset(d) for d in message.datasets),
            featuresets=tuple(decode_featureset(f) for f in message.featuresets),
        )
    except ValueError as error:
        # Decoding raises these for an operator, function or unit that a newer client knows and this version doesn't.
        raise InvalidInputError(f"this version of Caraway can't read the graph: {error}") from error
