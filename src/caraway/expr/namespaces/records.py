"""`.dict` and `.struct`: methods on maps and records."""

from caraway.errors import InvalidExprException
from caraway.expr.expressions import Expr, Text, make_expr
from caraway.expr.namespaces.numeric import NumberExpr
from caraway.expr.nodes import DictContains, DictGet, DictLen, StructGet


class DictExpr(Expr):
    """Methods on dicts."""

    __slots__ = ()

    def get(self, key: object, default: object = None) -> Expr:
        """Return the value at `key`, or `default` if the key isn't there."""
        fallback = None if default is None else make_expr(default).node
        return Expr(DictGet(operand=self.node, key=make_expr(key).node, default=fallback))

    def len(self) -> NumberExpr:
        """Count the entries."""
        return NumberExpr(DictLen(operand=self.node))

    def contains(self, key: object) -> Expr:
        """Return whether the key is there."""
        return Expr(DictContains(operand=self.node, key=make_expr(key).node))


class StructExpr(Expr):
    """Methods on structs."""

    __slots__ = ()

    def get(self, field: Text) -> Expr:
        """Return a field of the struct; null if the struct is null.

        Raises:
            InvalidExprException: `field` is no plain str.
        """
        if not isinstance(field, Text):
            raise InvalidExprException(
                f"struct.get: the name of a field is a str, not {type(field).__name__} {field}, in {self}"
            )
        return Expr(StructGet(operand=self.node, field=Text(field)))
