"""Expressions over columns: `col("price") * 2 > 10`."""

from caraway.errors import InvalidExprException
from caraway.expr.expr import (
    EvalContext,
    Expr,
    TimeUnit,
    TypedExpr,
    col,
    datetime,
    from_epoch,
    lit,
    make_expr,
    make_struct,
    now,
    repeat,
    var,
    when,
)
from caraway.expr.namespaces import DatetimeExpr, DictExpr, ListExpr, NumberExpr, StringExpr, StructExpr

__all__ = [
    "DatetimeExpr",
    "DictExpr",
    "EvalContext",
    "Expr",
    "InvalidExprException",
    "ListExpr",
    "NumberExpr",
    "StringExpr",
    "StructExpr",
    "TimeUnit",
    "TypedExpr",
    "col",
    "datetime",
    "from_epoch",
    "lit",
    "make_expr",
    "make_struct",
    "now",
    "repeat",
    "var",
    "when",
]
