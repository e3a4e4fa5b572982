"""The places where specs and messages differ; everywhere else they have the same names and the same shape."""

from collections.abc import Callable, Iterator
from functools import partial
from re import sub
from typing import Any

from caraway.dtypes.types import DataType
from caraway.expr.nodes import NODE_TYPES, ListFilter
from caraway.graph.connectors import CONNECTORS, Connector, StreamStart, SystemConnector, WebhookConnector
from caraway.graph.functions import PythonFunction
from caraway.graph.operators import First, Latest
from caraway.graph.sources import Computed, SinkSpec
from caraway.graph.systems import SchemaRegistry, SecretRef
from caraway.graph.windows import Window
from caraway.graph.wire import shapes
from caraway.graph.wire.codec import Codec

# Messages, by name, whose fields aren't those of a spec, each with the function that returns its codec for a type.
SHAPES: dict[str, Callable[[Any, shapes.Message, shapes.CodecOf], Codec]] = {
    "Value": shapes.constant,
    "Expr": partial(shapes.tree, kind="expression", node="a node", foreign=ValueError),
    "OperatorTree": partial(shapes.tree, kind="pipeline", node="an operator", foreign=()),
    "ExternalSystem": shapes.external_system,
    "CSV": shapes.csv,
}
# Fields of specs whose field or oneof in the message has another name.
FIELDS: dict[tuple[type, str], str] = {
    (First, "keys"): "columns",
    (Latest, "keys"): "columns",
    (ListFilter, "predicate"): "body",
    (Computed, "by"): "kind",
    (WebhookConnector, "name"): "system",
}
# Fields of specs whose None is sent as the empty text, because the message's field can't be absent.
EMPTY_IS_NONE = {(SinkSpec, "cdc")}
# Fields of messages that no attribute of a spec stands for. All other fields must have one.
WITHOUT_SPEC = {"caraway.v1.CommitRequest.format"}

# Members of a union whose case in the oneof isn't named after the class.
_CASES: dict[type, str] = {
    str: "plain",
    SecretRef: "secret",
    SchemaRegistry: "registry",
    StreamStart: "place",
    int: "at_us",
    PythonFunction: "function",
}
# Endings of class names that the names of the cases in a oneof lack: the case of SessionWindow is `session`.
_SUFFIXES = ("Type", "Window", "Extractor", "Connector", "Format")
# Unions, by the name of their message, of which some fields of specs admit only a part: the window of an aggregate, for
# example, is never a session. The codec is made for the whole union, and refuses the members that a field doesn't
# admit.
WHOLE: dict[str, Any] = {"DataType": DataType, "Window": Window}

# Base classes that stand for all of their subclasses, as a union of them would.
BASES: dict[type, tuple[type, ...]] = {
    Connector: tuple(cls for cls in CONNECTORS.values() if cls is not SystemConnector),
}

# The nouns by which errors name a member of a union, by the message that has the oneof.
NOUNS = {
    "DataType": "a data type",
    "Node": "an expression",
    "Operator": "an operator",
    "Window": "a window",
    "Connector": "a connector",
    "Kafka": "a format",
    "S3": "a format",
    "Files": "a format",
    "Kinesis": "a start of a stream",
    "Secretish": "a setting",
    "Made": "a field of preproc",
    "Computed": "a computation",
    "Extractor": "an extractor",
}
# The error messages for a member of a union that the field doesn't admit, by the name of the member's case in the
# oneof.
MISPLACED = {
    "session": "a damaged pipeline: a session window is that of a groupby, never of one aggregate",
    "continuous": "a damaged pipeline: a continuous window is that of an aggregate, never of a group",
}


def cases(member: type, fields: list[str]) -> Iterator[str]:
    """Yield the names that the case of a union's member may have in a oneof, the likeliest first.

    Args:
        member: The class of the member.
        fields: The names of its fields. The name of an only one may be part of the case's.
    """
    if member in _CASES:
        yield _CASES[member]
    name = member.__name__
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    name = sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    yield name
    yield name.replace("_", "")
    if len(fields) == 1:
        yield f"{name}_{fields[0]}"
    if member in NODE_TYPES:
        # All kinds of nodes share one case in a union of nodes and other classes, such as that of a computation, which
        # is an expression or a function. The case has the message of a whole expression.
        yield "expr"
