"""Choices: `when(p).then(x).when(q).then(y).otherwise(z)`. Each step returns a new object."""

from typing import NoReturn

from caraway.errors import InvalidExprException
from caraway.expr.expressions import Expr, make_expr
from caraway.expr.light import light
from caraway.expr.nodes import Node, When


def when(predicate: object) -> "WhenExpr":
    """Start a choice: `when(p).then(x).when(q).then(y).otherwise(z)`; the first predicate that is true decides."""
    return WhenExpr((), make_expr(predicate).node)


class WhenExpr(Expr):
    """A choice whose last predicate has no `then` yet; it can't be used as an expression."""

    __slots__ = ("_branches", "_predicate")

    def __init__(self, branches: tuple[tuple[Node, Node], ...], predicate: Node) -> None:
        self._branches = branches
        self._predicate = predicate

    def then(self, value: object) -> "ThenExpr":
        """Add the value for rows where the predicate is true."""
        return ThenExpr((*self._branches, (self._predicate, make_expr(value).node)))

    @property
    def node(self) -> NoReturn:  # type: ignore[override]
        """Raise `InvalidExprException`, because the choice has no value for its last predicate yet."""
        raise InvalidExprException(f"{self} has no then(...), so it has no value yet")

    def __str__(self) -> str:
        return f"when({light(self._predicate)})"


class ThenExpr(Expr):
    """A choice that is complete, and can be continued with `when` or `otherwise`."""

    __slots__ = ()

    def __init__(self, branches: tuple[tuple[Node, Node], ...]) -> None:
        super().__init__(When(branches=branches, otherwise=None))

    def when(self, predicate: object) -> WhenExpr:
        """Add a predicate for rows for which no earlier one is true."""
        return WhenExpr(self._branches(), make_expr(predicate).node)

    def otherwise(self, value: object) -> Expr:
        """Add the value for rows for which no predicate is true; without it they are null."""
        return Expr(When(branches=self._branches(), otherwise=make_expr(value).node))

    def _branches(self) -> tuple[tuple[Node, Node], ...]:
        assert isinstance(self.node, When)  # noqa: S101 (made so by __init__)
        return self.node.branches
