"""`.list`: methods on lists."""

from caraway.expr.arguments import plain_text
from caraway.expr.expressions import Expr, Text, make_expr
from caraway.expr.namespaces.numeric import NumberExpr
from caraway.expr.nodes import ListAt, ListCall, ListContains, ListFilter, ListFunction, ListMap, Node


class ListExpr(Expr):
    """Methods on lists; an embedding is a list of floats. A null list gives null."""

    __slots__ = ()

    def len(self) -> NumberExpr:
        """Count the elements, nulls included."""
        return NumberExpr(self._call(ListFunction.LEN))

    def at(self, index: object) -> Expr:
        """Return the element at `index` (from 0; -1 is the last), null if there is none."""
        return Expr(ListAt(operand=self.node, index=make_expr(index).node))

    def contains(self, item: object) -> Expr:
        """Return whether `item` is an element; null if nulls leave that open."""
        return Expr(ListContains(operand=self.node, item=make_expr(item).node))

    def hasnull(self) -> Expr:
        """Return whether an element is null."""
        return Expr(self._call(ListFunction.HAS_NULL))

    def sum(self) -> NumberExpr:
        """Add the elements up; 0 for an empty list, null if one is null."""
        return NumberExpr(self._call(ListFunction.SUM))

    def min(self) -> NumberExpr:
        """Return the least element; null for an empty list or if one is null."""
        return NumberExpr(self._call(ListFunction.MIN))

    def max(self) -> NumberExpr:
        """Return the greatest element; null for an empty list or if one is null."""
        return NumberExpr(self._call(ListFunction.MAX))

    def mean(self) -> NumberExpr:
        """Return the mean; null for an empty list or if an element is null."""
        return NumberExpr(self._call(ListFunction.MEAN))

    def all(self) -> Expr:
        """Return whether all elements are true; null if one is null."""
        return Expr(self._call(ListFunction.ALL))

    def any(self) -> Expr:
        """Return whether an element is true; if none is, null if one is null."""
        return Expr(self._call(ListFunction.ANY))

    def filter(self, var: Text, predicate: object) -> "ListExpr":
        """Keep the elements for which `predicate` holds, an expression of `var(name)`.

        Raises:
            DefinitionTypeError: `var` is no plain str.
        """
        name, body = plain_text("filter", "var", var), make_expr(predicate).node
        return ListExpr(ListFilter(operand=self.node, variable=name, predicate=body))

    def map(self, var: Text, expr: object) -> "ListExpr":
        """Compute `expr`, an expression of `var(name)`, for each element.

        Raises:
            DefinitionTypeError: `var` is no plain str.
        """
        name, body = plain_text("map", "var", var), make_expr(expr).node
        return ListExpr(ListMap(operand=self.node, variable=name, body=body))

    def _call(self, function: ListFunction) -> Node:
        return ListCall(function=function, operand=self.node)
