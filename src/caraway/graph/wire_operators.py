"""Operator trees to protobuf and back: a list of operators, inputs first, the output last."""

from collections.abc import Callable, Sequence

from caraway.errors import InvalidInputError
from caraway.graph.operators import (
    Aggregate,
    AggregateFunction,
    AggregateSpec,
    Assign,
    AssignedColumn,
    Drop,
    Filter,
    Input,
    Join,
    JoinKind,
    Latest,
    Operator,
    Rename,
    Select,
)
from caraway.graph.pb.caraway.v1 import operators_pb2 as pb
from caraway.graph.windows import ContinuousWindow
from caraway.graph.wire_expressions import decode_expr, encode_expr
from caraway.graph.wire_types import decode_type, decode_value, encode_type, encode_value

# Appends an operator with all that it needs, and tells its position.
Add = Callable[[Operator], int]


def encode_operator(root: Operator) -> pb.OperatorTree:
    """Turn an operator tree into its message."""
    message = pb.OperatorTree()

    def add(operator: Operator) -> int:
        encoded = _encode(operator, add)
        message.nodes.append(encoded)
        return len(message.nodes) - 1

    add(root)
    return message


def decode_operator(message: pb.OperatorTree) -> Operator:
    """Turn a message into its operator tree.

    Raises:
        InvalidInputError: The message is damaged, or of a kind that this version doesn't know.
    """
    nodes: list[Operator] = []
    try:
        for encoded in message.nodes:
            nodes.append(_decode(encoded, nodes))
    except IndexError:
        raise InvalidInputError("a damaged pipeline: an operator refers to one that comes later") from None
    if not nodes:
        raise InvalidInputError("a damaged pipeline: it has no operators")
    return nodes[-1]


def _encode(operator: Operator, add: Add) -> pb.Operator:
    match operator:
        case Input():
            return pb.Operator(input=operator.dataset)
        case Filter():
            of = add(operator.of)
            return pb.Operator(filter=pb.Operator.Filter(of=of, predicate=encode_expr(operator.predicate)))
        case Assign():
            of = add(operator.of)
            columns = [
                pb.Operator.AssignedColumn(name=c.name, dtype=encode_type(c.dtype), expr=encode_expr(c.expr))
                for c in operator.columns
            ]
            return pb.Operator(assign=pb.Operator.Assign(of=of, columns=columns))
        case Select():
            return pb.Operator(select=pb.Operator.Columns(of=add(operator.of), columns=operator.columns))
        case Drop():
            return pb.Operator(drop=pb.Operator.Columns(of=add(operator.of), columns=operator.columns))
        case Rename():
            pairs = [pb.Operator.Pair(old=old, new=new) for old, new in operator.pairs]
            return pb.Operator(rename=pb.Operator.Rename(of=add(operator.of), pairs=pairs))
        case Join():
            return pb.Operator(
                join=pb.Operator.Join(
                    left=add(operator.left),
                    right=operator.right,
                    how=operator.how,
                    left_on=operator.left_on,
                    right_on=operator.right_on,
                    within_low_us=operator.within_low_us,
                    within_high_us=operator.within_high_us,
                    fields=operator.fields,
                )
            )
        case Latest():
            return pb.Operator(latest=pb.Operator.Columns(of=add(operator.of), columns=operator.keys))
        case Aggregate():
            of = add(operator.of)
            aggregates = [_encode_aggregate(a) for a in operator.aggregates]
            return pb.Operator(aggregate=pb.Operator.Aggregate(of=of, keys=operator.keys, aggregates=aggregates))


def _encode_aggregate(aggregate: AggregateSpec) -> pb.Operator.AggregateColumn:
    return pb.Operator.AggregateColumn(
        function=aggregate.function,
        into=aggregate.into,
        of=aggregate.of,
        window_us=aggregate.window_us,
        default=encode_value(aggregate.default),
        dtype=encode_type(aggregate.dtype),
    )


def _decode(message: pb.Operator, at: Sequence[Operator]) -> Operator:
    kind = message.WhichOneof("kind")
    match kind:
        case "input":
            return Input(dataset=message.input)
        case "filter":
            return Filter(of=at[message.filter.of], predicate=decode_expr(message.filter.predicate))
        case "assign":
            columns = tuple(
                AssignedColumn(name=c.name, dtype=decode_type(c.dtype), expr=decode_expr(c.expr))
                for c in message.assign.columns
            )
            return Assign(of=at[message.assign.of], columns=columns)
        case "select":
            return Select(of=at[message.select.of], columns=tuple(message.select.columns))
        case "drop":
            return Drop(of=at[message.drop.of], columns=tuple(message.drop.columns))
        case "rename":
            return Rename(of=at[message.rename.of], pairs=tuple((p.old, p.new) for p in message.rename.pairs))
        case "join":
            join = message.join
            return Join(
                left=at[join.left],
                right=join.right,
                how=JoinKind(join.how),
                left_on=tuple(join.left_on),
                right_on=tuple(join.right_on),
                within_low_us=join.within_low_us if join.HasField("within_low_us") else None,
                within_high_us=join.within_high_us,
                fields=tuple(join.fields),
            )
        case "latest":
            return Latest(of=at[message.latest.of], keys=tuple(message.latest.columns))
        case "aggregate":
            aggregate = message.aggregate
            return Aggregate(
                of=at[aggregate.of],
                keys=tuple(aggregate.keys),
                aggregates=tuple(_decode_aggregate(a) for a in aggregate.aggregates),
            )
        case _:
            raise InvalidInputError("an operator of a kind that this version of Caraway doesn't know")


def _decode_aggregate(message: pb.Operator.AggregateColumn) -> AggregateSpec:
    return AggregateSpec(
        function=AggregateFunction(message.function),
        into=message.into,
        of=message.of if message.HasField("of") else None,
        window=ContinuousWindow(length_us=message.window_us if message.HasField("window_us") else None),
        default=decode_value(message.default),
        dtype=decode_type(message.dtype),
    )
