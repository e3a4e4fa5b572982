"""Expressions as `str()` shows them: operators are infix and without parentheses, other nodes look like calls."""

from caraway.expr.nodes import Binary, DictGet, FillNull, IsNull, ListAt, Node, Now, Repeat, Unary, Var, Zip
from caraway.expr.printer import print_node


def light(node: Node) -> str:
    """Return an expression in a form that is easy to read; `print_node` returns the form that is stable."""
    match node:
        case Binary(op=op, left=left, right=right):
            return f"{light(left)} {op} {light(right)}"
        case Unary(op=op, operand=operand):
            return f"{op} {light(operand)}"
        case IsNull(operand=operand):
            return f"{light(operand)} is null"
        case FillNull(operand=operand, fill=fill):
            return f"fillnull({light(operand)}, {light(fill)})"
        case Repeat(value=value, by=by):
            return f"repeat({light(value)}, {light(by)})"
        case Zip(dtype=dtype, fields=fields):
            return f"zip({', '.join([dtype.name, *(f'{name}={light(value)}' for name, value in fields)])})"
        case ListAt(operand=operand, index=index) | DictGet(operand=operand, key=index, default=None):
            return f"{light(operand)}[{light(index)}]"
        case Var(name=name):
            return f"var({name})"
        case Now():
            return "now()"
        case _:
            return print_node(node)
