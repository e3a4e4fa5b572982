"""The `row_condition` of an expectation: a boolean expression over a row, written as in pandas.

The text is parsed as Python and becomes an expression of Caraway (`caraway.expr`); it is never executed. There are
columns, constants, comparisons (also chained), `in`, `and`, `or`, `not`, `&`, `|`, `~`, arithmetic, and the methods
`isnull()`, `isna()`, `notnull()` and `notna()`. A name that isn't one of Python's stands between backticks.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC
from typing import Any

from dateutil.parser import parse as parse_time

from caraway.dtypes.types import BOOL, DataType, DatetimeType, strip_optional
from caraway.errors import CarawayError, DefinitionError, meant
from caraway.expr import Expr, col, lit
from caraway.expr import datetime as instant
from caraway.expr.inference import infer
from caraway.expr.nodes import Node

_BACKTICKS = re.compile(r"`([^`]*)`")
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}
_NULL_TESTS = {"isnull": True, "isna": True, "notnull": False, "notna": False}
# A condition has at most this many characters, and at most this many levels of nested parts.
MAX_CHARACTERS, MAX_DEPTH = 2_000, 50


def row_condition(text: object, types: Mapping[str, DataType]) -> Node:
    """Return the expression of a condition over columns of these types; it is true of the rows that count.

    Raises:
        DefinitionError: The text is no condition, or doesn't fit the columns.
    """
    if not isinstance(text, str) or len(text) > MAX_CHARACTERS:
        raise DefinitionError(f"row_condition is a text of at most {MAX_CHARACTERS:,} characters, not {text!r:.100}")
    try:
        made = _Parser(types).parse(text)
        found = infer(made.node, dict(types))
    except CarawayError as error:
        raise DefinitionError(f"row_condition {text!r}: {error}") from None
    if strip_optional(found) != BOOL:
        raise DefinitionError(f"row_condition {text!r}: it is neither true nor false of a row, but a value")
    return made.node


class _Parser:
    def __init__(self, types: Mapping[str, DataType]) -> None:
        self._types = types
        # The columns that the text names in backticks, by the Python names that replace them, since `ast` can't parse
        # backticks.
        self._quoted: dict[str, str] = {}

    def parse(self, text: str) -> Expr:
        try:
            tree = ast.parse(_BACKTICKS.sub(self._name_of, text.strip()), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise DefinitionError(f"it can't be parsed: {error}") from None
        return _expr(self._read(tree.body, 0))

    def _name_of(self, found: re.Match[str]) -> str:
        name = f"_quoted_{len(self._quoted)}"
        while name in self._types:
            name += "_"
        self._quoted[name] = found[1]
        return name

    def _read(self, node: ast.expr, depth: int) -> object:
        if depth > MAX_DEPTH:
            raise DefinitionError(f"its parts are more than {MAX_DEPTH} deep in each other")
        deeper = depth + 1
        match node:
            case ast.Name(id=name):
                return self._column(name)
            case ast.Constant(value=bool() | int() | float() | str() as value):
                return value
            case ast.BoolOp(op=op, values=values):
                parts = [_expr(self._read(value, deeper)) for value in values]
                return _joined(operator.and_ if isinstance(op, ast.And) else operator.or_, parts)
            case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=operand):
                return ~_expr(self._read(operand, deeper))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                negated = self._read(operand, deeper)
                return -negated if isinstance(negated, (int, float)) else -_expr(negated)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                sides = _expr(self._read(left, deeper)), _expr(self._read(right, deeper))
                return _ARITHMETIC[type(op)](*sides)
            case ast.Compare():
                return self._comparison(node, deeper)
            case ast.Call(func=ast.Attribute(value=value, attr=attr), args=[], keywords=[]) if attr in _NULL_TESTS:
                is_null = _expr(self._read(value, deeper)).isnull()
                return is_null if _NULL_TESTS[attr] else ~is_null
            case _:
                shown = ast.unparse(node)
                raise DefinitionError(
                    f"{shown[:100]!r} isn't supported; conditions have columns, constants, comparisons, in, and, or, "
                    "not, arithmetic, isnull() and notnull()"
                )

    def _column(self, name: str) -> Expr:
        name = self._quoted.get(name, name)
        if name not in self._types:
            raise DefinitionError(
                f"there is no column {name}{meant(name, self._types)}; columns: {', '.join(self._types)}"
            )
        return col(name)

    def _comparison(self, node: ast.Compare, depth: int) -> Expr:
        sides = [node.left, *node.comparators]
        each = zip(sides, node.ops, node.comparators, strict=False)
        return _joined(operator.and_, [self._compared(left, op, right, depth) for left, op, right in each])

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr, depth: int) -> Expr:
        if isinstance(op, ast.In | ast.NotIn):
            if not isinstance(right, ast.List | ast.Tuple | ast.Set) or not right.elts:
                raise DefinitionError("`in` is followed by a list of constants, such as ['a', 'b']")
            member = _joined(operator.or_, [self._compared(left, ast.Eq(), item, depth) for item in right.elts])
            return member if isinstance(op, ast.In) else ~member
        if type(op) not in _COMPARISONS:
            raise DefinitionError("values are compared by == != < <= > >= and in; for null use isnull()")
        sides = self._read(left, depth), self._read(right, depth)
        one, other = (self._as_instant(side, than) for side, than in (sides, sides[::-1]))
        compared: Expr = _COMPARISONS[type(op)](_expr(one), _expr(other))
        return compared

    def _as_instant(self, side: object, than: object) -> object:
        """Return the instant of a text that is compared with a column of instants."""
        if not isinstance(side, str) or not isinstance(than, Expr):
            return side
        if not isinstance(strip_optional(infer(than.node, dict(self._types))), DatetimeType):
            return side
        try:
            at = parse_time(side)
        except (ValueError, OverflowError) as error:
            raise DefinitionError(f"{side!r} is no time: {error}") from None
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        return instant(at.year, at.month, at.day, at.hour, at.minute, at.second, at.microsecond)


def _joined(join: Callable[[Any, Any], Any], parts: Sequence[Expr]) -> Expr:
    """Join parts by an operator in pairs, so that an expression of many parts isn't as deep as it has parts."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    joined: Expr = join(_joined(join, parts[:middle]), _joined(join, parts[middle:]))
    return joined


def _expr(value: object) -> Expr:
    return value if isinstance(value, Expr) else lit(value)
