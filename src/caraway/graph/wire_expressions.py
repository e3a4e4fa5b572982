"""Expressions to protobuf and back: a list of nodes, operands first, the root last."""

from collections.abc import Callable, Sequence
from functools import singledispatch

from caraway.errors import InvalidInputError
from caraway.expr.nodes import (
    Binary,
    BinaryOp,
    DatePart,
    FillNull,
    IsNull,
    Literal,
    Node,
    Now,
    NumberCall,
    NumberFunction,
    Ref,
    Round,
    Since,
    SinceEpoch,
    StringCall,
    StringFunction,
    TimeUnit,
    Unary,
    UnaryOp,
    When,
)
from caraway.graph.pb.caraway.v1 import expressions_pb2 as pb
from caraway.graph.wire_types import UNIT, decode_type, decode_value, encode_type, encode_value

# Appends a node with all that it needs, and tells its position.
Add = Callable[[Node], int]


def encode_expr(root: Node) -> pb.Expr:
    """Turn an expression into its message."""
    message = pb.Expr()

    def add(node: Node) -> int:
        encoded = _encode(node, add)
        message.nodes.append(encoded)
        return len(message.nodes) - 1

    add(root)
    return message


def decode_expr(message: pb.Expr) -> Node:
    """Turn a message into its expression.

    Raises:
        InvalidInputError: The message is damaged, or of a kind that this version doesn't know.
    """
    nodes: list[Node] = []
    try:
        for encoded in message.nodes:
            nodes.append(_decode(encoded, nodes))
    except IndexError:
        raise InvalidInputError("a damaged expression: a node refers to one that comes later") from None
    if not nodes:
        raise InvalidInputError("a damaged expression: it has no nodes")
    return nodes[-1]


@singledispatch
def _encode(node: Node, add: Add) -> pb.Node:
    raise NotImplementedError(f"no wire form for {type(node).__name__}")


@_encode.register
def _(node: Ref, _add: Add) -> pb.Node:
    return pb.Node(ref=node.name)


@_encode.register
def _(node: Literal, _add: Add) -> pb.Node:
    dtype = None if node.dtype is None else encode_type(node.dtype)
    return pb.Node(literal=pb.Node.Literal(value=encode_value(node.value), dtype=dtype))


@_encode.register
def _(node: Unary, add: Add) -> pb.Node:
    return pb.Node(unary=pb.Node.Unary(op=node.op, operand=add(node.operand)))


@_encode.register
def _(node: Binary, add: Add) -> pb.Node:
    return pb.Node(binary=pb.Node.Binary(op=node.op, left=add(node.left), right=add(node.right)))


@_encode.register
def _(node: IsNull, add: Add) -> pb.Node:
    return pb.Node(is_null=add(node.operand))


@_encode.register
def _(node: FillNull, add: Add) -> pb.Node:
    return pb.Node(fill_null=pb.Node.FillNull(operand=add(node.operand), fill=add(node.fill)))


@_encode.register
def _(node: When, add: Add) -> pb.Node:
    branches = [pb.Node.Branch(predicate=add(predicate), value=add(value)) for predicate, value in node.branches]
    otherwise = None if node.otherwise is None else add(node.otherwise)
    return pb.Node(when=pb.Node.When(branches=branches, otherwise=otherwise))


@_encode.register
def _(node: NumberCall, add: Add) -> pb.Node:
    return pb.Node(number_call=pb.Node.NumberCall(function=node.function, operand=add(node.operand)))


@_encode.register
def _(node: Round, add: Add) -> pb.Node:
    return pb.Node(round=pb.Node.Round(operand=add(node.operand), precision=node.precision))


@_encode.register
def _(node: StringCall, add: Add) -> pb.Node:
    operand, args = add(node.operand), [add(arg) for arg in node.args]
    return pb.Node(string_call=pb.Node.StringCall(function=node.function, operand=operand, args=args))


@_encode.register
def _(node: DatePart, add: Add) -> pb.Node:
    return pb.Node(date_part=pb.Node.DatePart(operand=add(node.operand), part=node.part, timezone=node.timezone))


@_encode.register
def _(node: Since, add: Add) -> pb.Node:
    return pb.Node(since=pb.Node.Since(operand=add(node.operand), start=add(node.start), unit=node.unit))


@_encode.register
def _(node: SinceEpoch, add: Add) -> pb.Node:
    return pb.Node(since_epoch=pb.Node.SinceEpoch(operand=add(node.operand), unit=node.unit))


@_encode.register
def _(_node: Now, _add: Add) -> pb.Node:
    return pb.Node(now=UNIT)


def _decode(message: pb.Node, at: Sequence[Node]) -> Node:
    kind = message.WhichOneof("kind")
    match kind:
        case "ref":
            return Ref(name=message.ref)
        case "literal":
            literal = message.literal
            dtype = decode_type(literal.dtype) if literal.HasField("dtype") else None
            return Literal(value=decode_value(literal.value), dtype=dtype)
        case "unary":
            return Unary(op=UnaryOp(message.unary.op), operand=at[message.unary.operand])
        case "binary":
            binary = message.binary
            return Binary(op=BinaryOp(binary.op), left=at[binary.left], right=at[binary.right])
        case "is_null":
            return IsNull(operand=at[message.is_null])
        case "fill_null":
            return FillNull(operand=at[message.fill_null.operand], fill=at[message.fill_null.fill])
        case "when":
            when = message.when
            otherwise = at[when.otherwise] if when.HasField("otherwise") else None
            return When(branches=tuple((at[b.predicate], at[b.value]) for b in when.branches), otherwise=otherwise)
        case "number_call":
            call = message.number_call
            return NumberCall(function=NumberFunction(call.function), operand=at[call.operand])
        case "round":
            return Round(operand=at[message.round.operand], precision=message.round.precision)
        case "string_call":
            text = message.string_call
            args = tuple(at[arg] for arg in text.args)
            return StringCall(function=StringFunction(text.function), operand=at[text.operand], args=args)
        case "date_part":
            part = message.date_part
            return DatePart(operand=at[part.operand], part=TimeUnit(part.part), timezone=part.timezone)
        case "since":
            since = message.since
            return Since(operand=at[since.operand], start=at[since.start], unit=TimeUnit(since.unit))
        case "since_epoch":
            return SinceEpoch(operand=at[message.since_epoch.operand], unit=TimeUnit(message.since_epoch.unit))
        case "now":
            return Now()
        case _:
            raise InvalidInputError("an expression of a kind that this version of Caraway doesn't know")
