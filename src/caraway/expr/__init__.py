"""Expressions over columns: `col("price") * 2 > 10`."""

from caraway.errors import InvalidExprException
from caraway.expr.expr import EvalContext, Expr, TypedExpr, col, lit, make_expr, now, when
from caraway.expr.namespaces import DatetimeExpr, NumberExpr, StringExpr
from caraway.expr.nodes import TimeUnit

__all__ = [
    "DatetimeExpr",
    "EvalContext",
    "Expr",
    "InvalidExprException",
    "NumberExpr",
    "StringExpr",
    "TimeUnit",
    "TypedExpr",
    "col",
    "lit",
    "make_expr",
    "now",
    "when",
]
