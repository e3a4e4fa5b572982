"""The namespaces of an expression: `.num`, `.str`, `.dt`, `.list`, `.dict`, `.struct`.

A namespace is an expression itself, so methods chain: `col("s").str.lower().len()`.
"""

from caraway.expr.expressions import Expr
from caraway.expr.namespaces.instants import DatetimeExpr
from caraway.expr.namespaces.lists import ListExpr
from caraway.expr.namespaces.numeric import NumberExpr
from caraway.expr.namespaces.records import DictExpr, StructExpr
from caraway.expr.namespaces.text import StringExpr

__all__ = ["DatetimeExpr", "DictExpr", "ListExpr", "NumberExpr", "StringExpr", "StructExpr"]

Expr._namespaces.update(  # noqa: SLF001 (`Expr` can't import its subclasses)
    num=NumberExpr, str=StringExpr, dt=DatetimeExpr, list=ListExpr, dict=DictExpr, struct=StructExpr
)
