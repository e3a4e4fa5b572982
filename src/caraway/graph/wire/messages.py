"""The parts of a graph as protobuf messages."""

from typing import Any, TypeVar, cast

from google.protobuf.message import Message

from caraway.expr.nodes import Node
from caraway.graph.operators import Operator
from caraway.graph.pb.caraway.v1 import connectors_pb2, expressions_pb2, graph_pb2, operators_pb2
from caraway.graph.sources import SinkSpec, SourceSpec
from caraway.graph.specs import DatasetSpec, Extractor, FeaturesetSpec, Graph, PipelineSpec
from caraway.graph.wire.structure import codec_of

M = TypeVar("M", bound=Message)

# The messages that this module can encode and decode as a whole, with the types of their specs.
_TYPES: dict[type[Message], Any] = {
    graph_pb2.Graph: Graph,
    graph_pb2.Dataset: DatasetSpec,
    graph_pb2.Pipeline: PipelineSpec,
    graph_pb2.Featureset: FeaturesetSpec,
    graph_pb2.Extractor: Extractor,
    connectors_pb2.Sink: SinkSpec,
    connectors_pb2.Source: SourceSpec,
    operators_pb2.OperatorTree: Operator,
    expressions_pb2.Expr: Node,
}


def to_message(spec: object, kind: type[M]) -> M:
    """Encode a spec as its message; `kind` is the class of the message.

    Raises `InvalidInputError` if the spec holds a constant that isn't of the stored form.
    """
    return kind(**codec_of(_TYPES[kind], kind.DESCRIPTOR).encode(spec, None))


def from_message(message: Message) -> Any:
    """Decode a spec from its message.

    Raises:
        InvalidInputError: The message is damaged, or has something that this version doesn't know.
        ValueError: It has a mode, function or unit that this version doesn't know.
    """
    return codec_of(_TYPES[type(message)], message.DESCRIPTOR).decode(message, None)


def encode_expr(root: Node) -> expressions_pb2.Expr:
    """Encode an expression as its message."""
    return to_message(root, expressions_pb2.Expr)


def decode_expr(message: expressions_pb2.Expr) -> Node:
    """Decode an expression from its message.

    Raises `InvalidInputError` if the message is damaged, or has something that this version doesn't know.
    """
    return cast("Node", from_message(message))
