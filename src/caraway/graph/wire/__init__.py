"""Graphs and commit requests as bytes, by one structural codec from specs to protobuf and back."""

from caraway.graph.wire.graphs import (
    CommitRequest,
    canonical_bytes,
    decode_commit,
    decode_graph,
    encode_commit,
    encode_graph,
)

__all__ = ["CommitRequest", "canonical_bytes", "decode_commit", "decode_graph", "encode_commit", "encode_graph"]
