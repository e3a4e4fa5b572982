"""Expressions as text: the form that messages show."""

from functools import singledispatch

import orjson

from caraway.dtypes.decoding import to_json
from caraway.expr.nodes import (
    Binary,
    DatePart,
    FillNull,
    IsNull,
    Literal,
    Node,
    Now,
    NumberCall,
    Ref,
    Round,
    Since,
    SinceEpoch,
    StringCall,
    StringFunction,
    Unary,
    When,
)


@singledispatch
def print_node(node: Node) -> str:
    """Print an expression."""
    raise NotImplementedError(f"no printed form for {type(node).__name__}")


@print_node.register
def _(node: Ref) -> str:
    return f'col("{node.name}")'


@print_node.register
def _(node: Literal) -> str:
    if node.value is None or node.dtype is None:
        return "null"
    return orjson.dumps(to_json(node.dtype)(node.value)).decode()


@print_node.register
def _(node: Unary) -> str:
    return f"{node.op}({print_node(node.operand)})"


@print_node.register
def _(node: Binary) -> str:
    return f"({print_node(node.left)} {node.op} {print_node(node.right)})"


@print_node.register
def _(node: IsNull) -> str:
    return f"IS_NULL({print_node(node.operand)})"


@print_node.register
def _(node: FillNull) -> str:
    return f"FILL_NULL({print_node(node.operand)}, {print_node(node.fill)})"


@print_node.register
def _(node: When) -> str:
    branches = [f"WHEN {print_node(predicate)} THEN {print_node(value)}" for predicate, value in node.branches]
    last = [] if node.otherwise is None else [f"ELSE {print_node(node.otherwise)}"]
    return " ".join([*branches, *last])


@print_node.register
def _(node: NumberCall) -> str:
    return f"{node.function.name}({print_node(node.operand)})"


@print_node.register
def _(node: Round) -> str:
    return f"ROUND({print_node(node.operand)}, {node.precision})"


@print_node.register
def _(node: StringCall) -> str:
    parts = [print_node(part) for part in (node.operand, *node.args)]
    return " + ".join(parts) if node.function is StringFunction.CONCAT else f"{node.function.name}({', '.join(parts)})"


@print_node.register
def _(node: DatePart) -> str:
    return f"DATEPART({print_node(node.operand)}, TimeUnit.{node.part.name})"


@print_node.register
def _(node: Since) -> str:
    return f"SINCE({print_node(node.operand)}, {print_node(node.start)}, unit=TimeUnit.{node.unit.name})"


@print_node.register
def _(node: SinceEpoch) -> str:
    return f"SINCE_EPOCH({print_node(node.operand)}, unit=TimeUnit.{node.unit.name})"


@print_node.register
def _(_node: Now) -> str:
    return "NOW()"
