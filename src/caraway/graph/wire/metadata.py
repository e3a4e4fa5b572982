"""Owners, descriptions and flags to protobuf and back."""

from caraway.graph.pb.caraway.v1 import graph_pb2 as pb
from caraway.graph.specs import Metadata


def encode_metadata(metadata: Metadata) -> pb.Metadata:
    """Encode metadata as its message."""
    return pb.Metadata(
        owner=metadata.owner,
        description=metadata.description,
        tags=metadata.tags,
        deprecated=metadata.deprecated,
        deleted=metadata.deleted,
    )


def decode_metadata(message: pb.Metadata) -> Metadata:
    """Decode metadata from its message."""
    return Metadata(
        owner=message.owner,
        description=message.description,
        tags=tuple(message.tags),
        deprecated=message.deprecated,
        deleted=message.deleted,
    )
