"""Operator trees to protobuf and back: a list of operators, inputs first, the output last."""

from collections.abc import Callable, Sequence

from caraway.errors import InvalidInputError
from caraway.graph.functions import PythonFunction
from caraway.graph.operators import (
    Aggregate,
    Assign,
    AssignedColumn,
    AssignFunction,
    Changelog,
    Dedup,
    Drop,
    DropNull,
    Emit,
    Explode,
    Filter,
    FilterFunction,
    First,
    Input,
    Join,
    JoinKind,
    Latest,
    Operator,
    Rename,
    Select,
    Transform,
    Union,
)
from caraway.graph.pb.caraway.v1 import operators_pb2 as pb
from caraway.graph.wire.expressions import decode_expr, encode_expr
from caraway.graph.wire.types import decode_type, encode_type
from caraway.graph.wire.windows import decode_aggregate, decode_group_window, encode_aggregate, encode_window

# A function that appends an operator with its inputs, and returns its position.
Add = Callable[[Operator], int]

# Operators that are a list of columns, by the name of their field in the message.
_COLUMN_LISTS: dict[str, Callable[..., Operator]] = {
    "select": Select,
    "drop": Drop,
    "drop_null": DropNull,
    "explode": Explode,
}
_KEY_LISTS: dict[str, Callable[..., Operator]] = {"first": First, "latest": Latest}


def encode_operator(root: Operator) -> pb.OperatorTree:
    """Encode an operator tree as its message."""
    message = pb.OperatorTree()

    def add(operator: Operator) -> int:
        encoded = _encode(operator, add)
        message.nodes.append(encoded)
        return len(message.nodes) - 1

    add(root)
    return message


def decode_operator(message: pb.OperatorTree) -> Operator:
    """Decode an operator tree from its message.

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


def _encode(operator: Operator, add: Add) -> pb.Operator:  # noqa: C901, PLR0911, PLR0912 (a branch a member)
    match operator:
        case Input():
            return pb.Operator(input=operator.dataset)
        case Filter():
            of = add(operator.of)
            return pb.Operator(filter=pb.Operator.Filter(of=of, predicate=encode_expr(operator.predicate)))
        case FilterFunction():
            return pb.Operator(
                filter_function=pb.Operator.FilterFunction(
                    of=add(operator.of),
                    function=_encode_function(operator.function),
                    traced=None if operator.traced is None else encode_expr(operator.traced),
                )
            )
        case Assign():
            return pb.Operator(assign=_encode_assign(operator, add))
        case AssignFunction():
            return pb.Operator(
                assign_function=pb.Operator.AssignFunction(
                    of=add(operator.of),
                    column=operator.column,
                    dtype=encode_type(operator.dtype),
                    function=_encode_function(operator.function),
                    traced=None if operator.traced is None else encode_expr(operator.traced),
                )
            )
        case Transform():
            return pb.Operator(transform=_encode_transform(operator, add))
        case Select():
            return pb.Operator(select=pb.Operator.Columns(of=add(operator.of), columns=operator.columns))
        case Drop():
            return pb.Operator(drop=pb.Operator.Columns(of=add(operator.of), columns=operator.columns))
        case DropNull():
            return pb.Operator(drop_null=pb.Operator.Columns(of=add(operator.of), columns=operator.columns))
        case Explode():
            return pb.Operator(explode=pb.Operator.Columns(of=add(operator.of), columns=operator.columns))
        case Rename():
            pairs = [pb.Operator.Pair(old=old, new=new) for old, new in operator.pairs]
            return pb.Operator(rename=pb.Operator.Rename(of=add(operator.of), pairs=pairs))
        case Union():
            return pb.Operator(union=pb.Operator.Union(left=add(operator.left), right=add(operator.right)))
        case Dedup():
            window = encode_window(operator.window)
            return pb.Operator(dedup=pb.Operator.Dedup(of=add(operator.of), by=operator.by, window=window))
        case Join():
            return pb.Operator(join=_encode_join(operator, add))
        case First():
            return pb.Operator(first=pb.Operator.Columns(of=add(operator.of), columns=operator.keys))
        case Latest():
            return pb.Operator(latest=pb.Operator.Columns(of=add(operator.of), columns=operator.keys))
        case Aggregate():
            return pb.Operator(aggregate=_encode_aggregate(operator, add))
        case Changelog():
            return pb.Operator(
                changelog=pb.Operator.Changelog(
                    of=add(operator.of), column=operator.column, marks_inserts=operator.marks_inserts
                )
            )


def _encode_assign(operator: Assign, add: Add) -> pb.Operator.Assign:
    columns = [
        pb.Operator.AssignedColumn(name=c.name, dtype=encode_type(c.dtype), expr=encode_expr(c.expr))
        for c in operator.columns
    ]
    return pb.Operator.Assign(of=add(operator.of), columns=columns)


def _encode_transform(operator: Transform, add: Add) -> pb.Operator.Transform:
    schema = None
    if operator.columns is not None:
        columns = [pb.Operator.SchemaColumn(name=name, dtype=encode_type(dtype)) for name, dtype in operator.columns]
        schema = pb.Operator.Schema(columns=columns)
    function = _encode_function(operator.function)
    return pb.Operator.Transform(of=add(operator.of), function=function, columns=schema)


def _encode_join(operator: Join, add: Add) -> pb.Operator.Join:
    return pb.Operator.Join(
        left=add(operator.left),
        right=operator.right,
        how=operator.how,
        left_on=operator.left_on,
        right_on=operator.right_on,
        within_low_us=operator.within_low_us,
        within_high_us=operator.within_high_us,
        fields=operator.fields,
    )


def _encode_aggregate(operator: Aggregate, add: Add) -> pb.Operator.Aggregate:
    return pb.Operator.Aggregate(
        of=add(operator.of),
        keys=operator.keys,
        aggregates=[encode_aggregate(a) for a in operator.aggregates],
        window=encode_window(operator.window),
        along=operator.along,
        emit=operator.emit,
    )


def _encode_function(function: PythonFunction) -> pb.Operator.Function:
    return pb.Operator.Function(
        name=function.name,
        source_code=function.source_code,
        pickled=function.pickled,
        includes=function.includes,
    )


def _decode(message: pb.Operator, at: Sequence[Operator]) -> Operator:
    kind = message.WhichOneof("kind")
    match kind:
        case "input":
            return Input(dataset=message.input)
        case "filter":
            return Filter(of=at[message.filter.of], predicate=decode_expr(message.filter.predicate))
        case "filter_function":
            given = message.filter_function
            return FilterFunction(
                of=at[given.of],
                function=_decode_function(given.function),
                traced=decode_expr(given.traced) if given.HasField("traced") else None,
            )
        case "assign":
            columns = tuple(
                AssignedColumn(name=c.name, dtype=decode_type(c.dtype), expr=decode_expr(c.expr))
                for c in message.assign.columns
            )
            return Assign(of=at[message.assign.of], columns=columns)
        case "assign_function":
            assign = message.assign_function
            return AssignFunction(
                of=at[assign.of],
                column=assign.column,
                dtype=decode_type(assign.dtype),
                function=_decode_function(assign.function),
                traced=decode_expr(assign.traced) if assign.HasField("traced") else None,
            )
        case "transform":
            return _decode_transform(message.transform, at)
        case "select" | "drop" | "drop_null" | "explode":
            listed = getattr(message, kind)
            return _COLUMN_LISTS[kind](of=at[listed.of], columns=tuple(listed.columns))
        case "first" | "latest":
            grouped = getattr(message, kind)
            return _KEY_LISTS[kind](of=at[grouped.of], keys=tuple(grouped.columns))
        case "rename":
            return Rename(of=at[message.rename.of], pairs=tuple((p.old, p.new) for p in message.rename.pairs))
        case "union":
            return Union(left=at[message.union.left], right=at[message.union.right])
        case "dedup":
            dedup = message.dedup
            return Dedup(of=at[dedup.of], by=tuple(dedup.by), window=decode_group_window(dedup))
        case "join":
            return _decode_join(message.join, at)
        case "aggregate":
            return _decode_aggregate(message.aggregate, at)
        case "changelog":
            changes = message.changelog
            return Changelog(of=at[changes.of], column=changes.column, marks_inserts=changes.marks_inserts)
        case _:
            raise InvalidInputError("an operator of a kind that this version of Caraway doesn't know")


def _decode_transform(message: pb.Operator.Transform, at: Sequence[Operator]) -> Transform:
    columns = None
    if message.HasField("columns"):
        columns = tuple((c.name, decode_type(c.dtype)) for c in message.columns.columns)
    return Transform(of=at[message.of], function=_decode_function(message.function), columns=columns)


def _decode_join(message: pb.Operator.Join, at: Sequence[Operator]) -> Join:
    return Join(
        left=at[message.left],
        right=message.right,
        how=JoinKind(message.how),
        left_on=tuple(message.left_on),
        right_on=tuple(message.right_on),
        within_low_us=message.within_low_us if message.HasField("within_low_us") else None,
        within_high_us=message.within_high_us,
        fields=tuple(message.fields),
    )


def _decode_aggregate(message: pb.Operator.Aggregate, at: Sequence[Operator]) -> Aggregate:
    return Aggregate(
        of=at[message.of],
        keys=tuple(message.keys),
        aggregates=tuple(decode_aggregate(a) for a in message.aggregates),
        window=decode_group_window(message),
        along=message.along if message.HasField("along") else None,
        emit=Emit(message.emit),
    )


def _decode_function(message: pb.Operator.Function) -> PythonFunction:
    return PythonFunction(
        name=message.name,
        source_code=message.source_code,
        pickled=message.pickled,
        includes=tuple(message.includes),
    )
