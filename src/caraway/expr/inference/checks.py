"""Functions that the rules of type inference share: checks of operands, optional results, errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import singledispatch

from caraway.dtypes.types import FLOAT, DataType, EmbeddingType, ListType, base_type, is_optional, optional, type_name
from caraway.errors import DefinitionError
from caraway.expr import nodes as n
from caraway.expr.inference.scopes import Schema
from caraway.expr.printer import print_node

# The names of operations in error messages. An operation that isn't here has the name of its node's class in lower
# case.
_NAMES: dict[type, str] = {
    n.DatetimeLiteral: "datetime",
    n.DictContains: "dict.contains",
    n.DictGet: "dict.get",
    n.DictLen: "dict.len",
    n.FillNull: "fillnull",
    n.FromEpoch: "from_epoch",
    n.JsonExtract: "str.json_extract",
    n.ListAt: "list.at",
    n.ListContains: "list.contains",
    n.ListFilter: "list.filter",
    n.ListMap: "list.map",
    n.MakeStruct: "make_struct",
    n.ParseJson: "str.parse",
    n.Power: "num.pow",
    n.Since: "dt.since",
    n.SinceEpoch: "dt.since_epoch",
    n.Strftime: "dt.strftime",
    n.StructGet: "struct.get",
}


@singledispatch
def infer_nullable(node: n.Node, schema: Schema) -> DataType | None:
    """Return the type of an expression; None for the null literal, which `infer` refuses."""
    raise NotImplementedError(f"no type rule for {type(node).__name__}")


def infer(node: n.Node, schema: Schema) -> DataType:
    """Return the type of an expression over columns of the types in `schema`.

    Raises:
        DefinitionError: The expression is ill-typed or refers to an unknown column, or is the null literal, whose type
            isn't known; the message names the operation, the types found and the printed expression.
    """
    found = infer_nullable(node, schema)
    if found is None:
        raise DefinitionError(
            "the type of null alone is not known; give it one: .astype(Optional[int]) in assign, output_dtype in eval, "
            "or a fillnull"
        )
    return found


def operand_type(dtype: DataType) -> DataType:
    """Return the type as which an operation takes a value: not optional nor restricted, and a list for an embedding."""
    base = base_type(dtype)
    return ListType(FLOAT) if isinstance(base, EmbeddingType) else base


def require(node: n.Node, found: DataType | None, wanted: tuple[DataType, ...]) -> DataType:
    """Return the `operand_type` of an operand, which must be one of `wanted`; the null literal counts as the first."""
    if found is None:
        return wanted[0]
    base = operand_type(found)
    if base not in wanted:
        raise takes(node, " or ".join(dict.fromkeys(type_name(dtype) for dtype in wanted)), found)
    return base


def like(operand: DataType | None, result: DataType) -> DataType:
    """Return the result's type, optional if the operand is."""
    return either_optional(result, operand)


def either_optional(result: DataType, *operands: DataType | None) -> DataType:
    """Return the result's type, optional if one of the operands is."""
    return optional(result) if any(side is None or is_optional(side) for side in operands) else result


def operation_name(node: n.Node) -> str:
    """Return the name by which users know a node's operation, for messages."""
    match node:
        case n.Unary(op=op) | n.Binary(op=op):
            return f"operator {op}"
        case n.NumberCall(function=function):
            return f"num.{function}()"
        case n.StringCall(function=function):
            return f"str.{function}()"
        case n.ListCall(function=function):
            return f"list.{function}()"
        case n.DatePart(part=part):
            return f"dt.{part}"
        case _:
            return f"{_NAMES.get(type(node), type(node).__name__.lower())}()"


def spell(dtype: DataType | None) -> str:
    """Return the spelling of an operand's type."""
    return "null" if dtype is None else type_name(dtype)


def takes(node: n.Node, wanted: str, found: DataType | None) -> DefinitionError:
    """Return the error for an operand of a wrong type."""
    return wrong(node, f"{operation_name(node)} takes {wanted}, found {spell(found)}")


def wrong(node: n.Node, text: str) -> DefinitionError:
    """Return the error for an expression, with the expression in it."""
    return DefinitionError(f"{text}, in {print_node(node)}")


@contextmanager
def wrong_argument(node: n.Node) -> Iterator[None]:
    """Add the operation and its expression to an error of a format or path."""
    try:
        yield
    except DefinitionError as error:
        raise wrong(node, f"{operation_name(node)}: {error}") from None
