"""All names of expressions in one module; `caraway.expr` has the most used ones."""

# The module defines nothing; programs import names from it. `zip` is exported only here: `caraway.expr` leaves that
# name out, so that `from caraway.expr import *` doesn't replace Python's own `zip`.
from caraway.errors import InvalidExprException
from caraway.expr.builders import col, datetime, from_epoch, lit, make_struct, now, repeat, var, zip  # noqa: A004
from caraway.expr.choices import when
from caraway.expr.expressions import EvalContext, Expr, TypedExpr, make_expr, types_of
from caraway.expr.nodes import TimeUnit

__all__ = [
    "EvalContext",
    "Expr",
    "InvalidExprException",
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
    "types_of",
    "var",
    "when",
    "zip",
]
