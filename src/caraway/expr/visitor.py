"""Visitors of expressions for the public API; Caraway itself uses functions instead."""

from typing import Any

from caraway.errors import InvalidExprException
from caraway.expr import nodes as n
from caraway.expr.choices import WhenExpr
from caraway.expr.expressions import Expr
from caraway.expr.printer import print_node
from caraway.expr.references import columns_of

# The name of the visitor's method for each class of nodes except `When`. For a choice `_method` returns `visitWhen`,
# `visitThen` or `visitOtherwise`, by the last of the steps when(), then() and otherwise() that it has.
METHODS: dict[type, str] = {
    n.Literal: "visitLiteral",
    n.Ref: "visitRef",
    n.Var: "visitVar",
    n.Unary: "visitUnary",
    n.Binary: "visitBinary",
    n.IsNull: "visitIsNull",
    n.FillNull: "visitFillNull",
    **dict.fromkeys((n.NumberCall, n.Round, n.Power, n.Log), "visitNumber"),
    **dict.fromkeys((n.StringCall, n.Split, n.Strptime, n.ParseJson, n.JsonExtract), "visitString"),
    **dict.fromkeys((n.DictGet, n.DictLen, n.DictContains), "visitDict"),
    **dict.fromkeys((n.ListCall, n.ListAt, n.ListContains, n.ListFilter, n.ListMap), "visitList"),
    n.StructGet: "visitStruct",
    **dict.fromkeys((n.DatePart, n.Since, n.SinceEpoch, n.Strftime), "visitDateTime"),
    n.FromEpoch: "visitDateTimeFromEpoch",
    n.DatetimeLiteral: "visitDateTimeLiteral",
    n.MakeStruct: "visitMakeStruct",
    n.Repeat: "visitRepeat",
    n.Zip: "visitZip",
    n.Now: "visitNow",
}


class Visitor:
    """A walk through expressions: `visit` calls the method for the class of a node (`caraway.expr.nodes`).

    A subclass defines the methods of the kinds that it knows, and calls `self.visit` on the operands. The methods:
    `visitLiteral`, `visitRef`, `visitVar`, `visitUnary`, `visitBinary`, `visitIsNull`, `visitFillNull`, `visitWhen` (a
    choice that lacks its `then`), `visitThen` (one without `otherwise`), `visitOtherwise`, `visitNumber`,
    `visitString`, `visitBool` (no node has it today), `visitDict`, `visitList`, `visitStruct`, `visitDateTime`,
    `visitDateTimeFromEpoch`, `visitDateTimeLiteral`, `visitMakeStruct`, `visitRepeat`, `visitZip`, `visitNow`.
    """

    def visit(self, obj: Any) -> Any:
        """Call the method for an expression or node.

        Raises:
            InvalidExprException: `obj` is no expression.
            NotImplementedError: The visitor has no method for it.
        """
        node, method = _method(obj)
        visit = getattr(self, method, None)
        if visit is None:
            raise NotImplementedError(f"{type(self).__name__} has no {method}, in {_printed(obj)}")
        return visit(node)


class ExprPrinter(Visitor):
    """Prints expressions in the form of messages, which is stable."""

    def print(self, expr: Expr | n.Node) -> str:
        """Print an expression. Raises `InvalidExprException` if `expr` is no expression, or an incomplete one."""
        return print_node(_complete(expr))

    def visit(self, obj: Any) -> str:
        """Print an expression or node."""
        return self.print(obj)


class FetchReferences(Visitor):
    """Finds the columns that expressions refer to; variables of lambdas are none."""

    def __init__(self) -> None:
        self.refs: set[str] = set()

    def fetch(self, expr: Expr | n.Node) -> set[str]:
        """Return the columns of one expression.

        Raises `InvalidExprException` if `expr` is no expression, or an incomplete one.
        """
        return set(columns_of(_complete(expr)))

    def visit(self, obj: Any) -> None:
        """Add the columns of an expression or node to `refs`."""
        self.refs |= self.fetch(obj)


def _method(obj: object) -> tuple[object, str]:
    if isinstance(obj, WhenExpr):
        return obj, "visitWhen"
    node = _complete(obj)
    if isinstance(node, n.When):
        return node, "visitThen" if node.otherwise is None else "visitOtherwise"
    return node, METHODS[type(node)]


def _complete(obj: object) -> n.Node:
    if isinstance(obj, Expr):
        return obj.node
    if isinstance(obj, n.NODE_TYPES):
        return obj  # type: ignore[return-value]
    raise InvalidExprException(f"an expression is needed, not {type(obj).__name__} {obj!r}")


def _printed(obj: object) -> str:
    return str(obj) if isinstance(obj, Expr) else print_node(_complete(obj))
