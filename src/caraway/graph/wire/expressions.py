"""Expressions to protobuf and back: a list of nodes, operands first, the root last."""

from collections.abc import Callable
from dataclasses import fields
from functools import singledispatch

from caraway.expr.nodes import (
    Binary,
    DatePart,
    DatetimeLiteral,
    DictContains,
    DictGet,
    DictLen,
    FillNull,
    FromEpoch,
    IsNull,
    JsonExtract,
    ListAt,
    ListCall,
    ListContains,
    ListFilter,
    ListMap,
    Literal,
    Log,
    MakeStruct,
    Node,
    Now,
    NumberCall,
    ParseJson,
    Power,
    Ref,
    Repeat,
    Round,
    Since,
    SinceEpoch,
    Split,
    Strftime,
    StringCall,
    Strptime,
    StructGet,
    Unary,
    Var,
    When,
    Zip,
)
from caraway.graph.pb.caraway.v1 import expressions_pb2 as pb
from caraway.graph.wire.expressions_decoding import decode_expr
from caraway.graph.wire.types import UNIT, encode_type, encode_value

__all__ = ["decode_expr", "encode_expr"]

# A function that appends a node with its operands, and returns its position.
Add = Callable[[Node], int]


def encode_expr(root: Node) -> pb.Expr:
    """Encode an expression as its message."""
    message = pb.Expr()

    def add(node: Node) -> int:
        encoded = _encode(node, add)
        message.nodes.append(encoded)
        return len(message.nodes) - 1

    add(root)
    return message


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


@_encode.register
def _(node: Power, add: Add) -> pb.Node:
    return pb.Node(power=pb.Node.Power(operand=add(node.operand), exponent=add(node.exponent)))


@_encode.register
def _(node: Log, add: Add) -> pb.Node:
    return pb.Node(log=pb.Node.Log(operand=add(node.operand), base=node.base))


@_encode.register
def _(node: Split, add: Add) -> pb.Node:
    return pb.Node(split=pb.Node.Split(operand=add(node.operand), separator=node.separator))


@_encode.register
def _(node: Strptime, add: Add) -> pb.Node:
    text = pb.Node.Strptime(operand=add(node.operand), format=node.format, timezone=node.timezone)
    return pb.Node(strptime=text)


@_encode.register
def _(node: ParseJson, add: Add) -> pb.Node:
    return pb.Node(parse_json=pb.Node.ParseJson(operand=add(node.operand), dtype=encode_type(node.dtype)))


@_encode.register
def _(node: JsonExtract, add: Add) -> pb.Node:
    return pb.Node(json_extract=pb.Node.JsonExtract(operand=add(node.operand), path=node.path))


@_encode.register
def _(node: Strftime, add: Add) -> pb.Node:
    text = pb.Node.Strftime(operand=add(node.operand), format=node.format, timezone=node.timezone)
    return pb.Node(strftime=text)


@_encode.register
def _(node: FromEpoch, add: Add) -> pb.Node:
    return pb.Node(from_epoch=pb.Node.FromEpoch(operand=add(node.operand), unit=node.unit))


@_encode.register
def _(node: DatetimeLiteral, _add: Add) -> pb.Node:
    parts = {field.name: getattr(node, field.name) for field in fields(node)}
    return pb.Node(datetime_literal=pb.Node.DatetimeLiteral(**parts))


@_encode.register
def _(node: ListCall, add: Add) -> pb.Node:
    return pb.Node(list_call=pb.Node.ListCall(function=node.function, operand=add(node.operand)))


@_encode.register
def _(node: ListAt, add: Add) -> pb.Node:
    return pb.Node(list_at=pb.Node.ListAt(operand=add(node.operand), index=add(node.index)))


@_encode.register
def _(node: ListContains, add: Add) -> pb.Node:
    return pb.Node(list_contains=pb.Node.ListContains(operand=add(node.operand), item=add(node.item)))


@_encode.register
def _(node: ListFilter, add: Add) -> pb.Node:
    operand, predicate = add(node.operand), add(node.predicate)
    return pb.Node(list_filter=pb.Node.Lambda(operand=operand, variable=node.variable, body=predicate))


@_encode.register
def _(node: ListMap, add: Add) -> pb.Node:
    operand, body = add(node.operand), add(node.body)
    return pb.Node(list_map=pb.Node.Lambda(operand=operand, variable=node.variable, body=body))


@_encode.register
def _(node: Var, _add: Add) -> pb.Node:
    return pb.Node(var=node.name)


@_encode.register
def _(node: DictGet, add: Add) -> pb.Node:
    operand, key = add(node.operand), add(node.key)
    default = None if node.default is None else add(node.default)
    return pb.Node(dict_get=pb.Node.DictGet(operand=operand, key=key, default=default))


@_encode.register
def _(node: DictLen, add: Add) -> pb.Node:
    return pb.Node(dict_len=add(node.operand))


@_encode.register
def _(node: DictContains, add: Add) -> pb.Node:
    return pb.Node(dict_contains=pb.Node.DictContains(operand=add(node.operand), key=add(node.key)))


@_encode.register
def _(node: StructGet, add: Add) -> pb.Node:
    return pb.Node(struct_get=pb.Node.StructGet(operand=add(node.operand), field=node.field))


@_encode.register
def _(node: MakeStruct, add: Add) -> pb.Node:
    return pb.Node(make_struct=_encode_fields(node, add))


@_encode.register
def _(node: Zip, add: Add) -> pb.Node:
    return pb.Node(zip=_encode_fields(node, add))


def _encode_fields(node: MakeStruct | Zip, add: Add) -> pb.Node.Fields:
    members = [pb.Node.Field(name=name, value=add(value)) for name, value in node.fields]
    return pb.Node.Fields(dtype=encode_type(node.dtype), fields=members)


@_encode.register
def _(node: Repeat, add: Add) -> pb.Node:
    return pb.Node(repeat=pb.Node.Repeat(value=add(node.value), by=add(node.by)))
