"""Decoding of expressions from protobuf, the inverse of `caraway.graph.wire.expressions`."""

from collections.abc import Callable, Sequence
from typing import Any, cast

from caraway.dtypes.types import StructType
from caraway.errors import InvalidInputError
from caraway.expr.nodes import (
    Binary,
    BinaryOp,
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
    ListFunction,
    ListMap,
    Literal,
    Log,
    MakeStruct,
    Node,
    Now,
    NumberCall,
    NumberFunction,
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
    StringFunction,
    Strptime,
    StructGet,
    TimeUnit,
    Unary,
    UnaryOp,
    Var,
    When,
    Zip,
)
from caraway.graph.pb.caraway.v1 import expressions_pb2 as pb
from caraway.graph.wire.types import decode_type, decode_value

# A function from the message of one kind, and the nodes before it, to the node.
Decode = Callable[[Any, Sequence[Node]], Node]


def decode_expr(message: pb.Expr) -> Node:
    """Decode an expression from its message.

    Raises:
        InvalidInputError: The message is damaged, or of a kind that this version doesn't know.
    """
    nodes: list[Node] = []
    try:
        for encoded in message.nodes:
            nodes.append(_decode(encoded, nodes))
    except IndexError:
        raise InvalidInputError("a damaged expression: a node refers to one that comes later") from None
    except ValueError as error:
        raise InvalidInputError(f"an expression that this version of Caraway doesn't know: {error}") from None
    if not nodes:
        raise InvalidInputError("a damaged expression: it has no nodes")
    return nodes[-1]


def _decode(message: pb.Node, at: Sequence[Node]) -> Node:
    kind = message.WhichOneof("kind")
    if kind not in _DECODERS:
        raise InvalidInputError("an expression of a kind that this version of Caraway doesn't know")
    return _DECODERS[kind](getattr(message, kind), at)


def _literal(m: pb.Node.Literal, _at: Sequence[Node]) -> Node:
    return Literal(value=decode_value(m.value), dtype=decode_type(m.dtype) if m.HasField("dtype") else None)


def _when(m: pb.Node.When, at: Sequence[Node]) -> Node:
    branches = tuple((at[branch.predicate], at[branch.value]) for branch in m.branches)
    return When(branches=branches, otherwise=at[m.otherwise] if m.HasField("otherwise") else None)


def _string_call(m: pb.Node.StringCall, at: Sequence[Node]) -> Node:
    args = tuple(at[arg] for arg in m.args)
    return StringCall(function=StringFunction(m.function), operand=at[m.operand], args=args)


def _datetime(m: pb.Node.DatetimeLiteral, _at: Sequence[Node]) -> Node:
    return DatetimeLiteral(
        year=m.year,
        month=m.month,
        day=m.day,
        hour=m.hour,
        minute=m.minute,
        second=m.second,
        microsecond=m.microsecond,
        timezone=m.timezone,
    )


def _dict_get(m: pb.Node.DictGet, at: Sequence[Node]) -> Node:
    default = at[m.default] if m.HasField("default") else None
    return DictGet(operand=at[m.operand], key=at[m.key], default=default)


def _fields(kind: type[MakeStruct | Zip]) -> Decode:
    def decode(m: pb.Node.Fields, at: Sequence[Node]) -> Node:
        dtype = cast("StructType", decode_type(m.dtype))
        return kind(dtype=dtype, fields=tuple((field.name, at[field.value]) for field in m.fields))

    return decode


_DECODERS: dict[str | None, Decode] = {
    "ref": lambda name, _: Ref(name=name),
    "literal": _literal,
    "unary": lambda m, at: Unary(op=UnaryOp(m.op), operand=at[m.operand]),
    "binary": lambda m, at: Binary(op=BinaryOp(m.op), left=at[m.left], right=at[m.right]),
    "is_null": lambda operand, at: IsNull(operand=at[operand]),
    "fill_null": lambda m, at: FillNull(operand=at[m.operand], fill=at[m.fill]),
    "when": _when,
    "number_call": lambda m, at: NumberCall(function=NumberFunction(m.function), operand=at[m.operand]),
    "round": lambda m, at: Round(operand=at[m.operand], precision=m.precision),
    "power": lambda m, at: Power(operand=at[m.operand], exponent=at[m.exponent]),
    "log": lambda m, at: Log(operand=at[m.operand], base=m.base if m.HasField("base") else None),
    "string_call": _string_call,
    "split": lambda m, at: Split(operand=at[m.operand], separator=m.separator),
    "strptime": lambda m, at: Strptime(operand=at[m.operand], format=m.format, timezone=m.timezone),
    "parse_json": lambda m, at: ParseJson(operand=at[m.operand], dtype=decode_type(m.dtype)),
    "json_extract": lambda m, at: JsonExtract(operand=at[m.operand], path=m.path),
    "date_part": lambda m, at: DatePart(operand=at[m.operand], part=TimeUnit(m.part), timezone=m.timezone),
    "since": lambda m, at: Since(operand=at[m.operand], start=at[m.start], unit=TimeUnit(m.unit)),
    "since_epoch": lambda m, at: SinceEpoch(operand=at[m.operand], unit=TimeUnit(m.unit)),
    "strftime": lambda m, at: Strftime(operand=at[m.operand], format=m.format, timezone=m.timezone),
    "from_epoch": lambda m, at: FromEpoch(operand=at[m.operand], unit=TimeUnit(m.unit)),
    "datetime_literal": _datetime,
    "list_call": lambda m, at: ListCall(function=ListFunction(m.function), operand=at[m.operand]),
    "list_at": lambda m, at: ListAt(operand=at[m.operand], index=at[m.index]),
    "list_contains": lambda m, at: ListContains(operand=at[m.operand], item=at[m.item]),
    "list_filter": lambda m, at: ListFilter(operand=at[m.operand], variable=m.variable, predicate=at[m.body]),
    "list_map": lambda m, at: ListMap(operand=at[m.operand], variable=m.variable, body=at[m.body]),
    "var": lambda name, _: Var(name=name),
    "dict_get": _dict_get,
    "dict_len": lambda operand, at: DictLen(operand=at[operand]),
    "dict_contains": lambda m, at: DictContains(operand=at[m.operand], key=at[m.key]),
    "struct_get": lambda m, at: StructGet(operand=at[m.operand], field=m.field),
    "make_struct": _fields(MakeStruct),
    "zip": _fields(Zip),
    "repeat": lambda m, at: Repeat(value=at[m.value], by=at[m.by]),
    "now": lambda _, __: Now(),
}
