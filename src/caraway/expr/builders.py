"""The functions with which users begin an expression, such as `col`, `lit`, `now` and `make_struct`."""

from collections.abc import Mapping
from typing import Any

from caraway.dtypes.annotations import dtype_of
from caraway.dtypes.structs import register_builders
from caraway.errors import DefinitionTypeError, InvalidExprException
from caraway.expr.arguments import plain_int, struct_type, time_unit, zone
from caraway.expr.constants import literal, typed_literal
from caraway.expr.expressions import Expr, make_expr
from caraway.expr.namespaces import DatetimeExpr, ListExpr, StructExpr
from caraway.expr.nodes import DatetimeLiteral, FromEpoch, MakeStruct, Node, Now, Ref, Repeat, TimeUnit, Var, Zip


def col(name: str) -> Expr:
    """Return a reference to a column.

    Raises:
        InvalidExprException: `name` is no string.
    """
    if not isinstance(name, str):
        raise InvalidExprException(f"col: the name of a column is a str, not {type(name).__name__} {name!r}")
    return Expr(Ref(name=name))


def var(name: str) -> Expr:
    """Return a reference to the element in the body of `list.map(name, body)` or `list.filter(name, predicate)`.

    Raises:
        InvalidExprException: `name` is no string.
    """
    if not isinstance(name, str):
        raise InvalidExprException(f"var: the name of a variable is a str, not {type(name).__name__} {name!r}")
    return Expr(Var(name=name))


def lit(value: object, type: Any = None) -> Expr:
    """Return a constant, of type bool, int, float or str by its value, or of the given type.

    Raises:
        DefinitionTypeError: The value needs a type.
        DefinitionError: The value isn't of the type, or an int doesn't fit 64 bits.
    """
    return Expr(literal(value) if type is None else typed_literal(value, dtype_of(type)))


def now() -> DatetimeExpr:
    """Return the time of the query: one instant for all rows of an online query, each row's timestamp offline."""
    return DatetimeExpr(Now())


def repeat(value: object, by: object) -> ListExpr:
    """Return lists that hold `value` `by` times; both may be expressions or constants."""
    return ListExpr(Repeat(value=make_expr(value).node, by=make_expr(by).node))


def from_epoch(duration: object, unit: TimeUnit | str = TimeUnit.SECOND) -> DatetimeExpr:
    """Return the instant `duration` seconds, milliseconds or microseconds after 1970-01-01 UTC.

    Raises:
        DefinitionError: There is no such unit of time.
    """
    return DatetimeExpr(FromEpoch(operand=make_expr(duration).node, unit=time_unit(unit)))


def datetime(
    year: int,
    month: int,
    day: int,
    hour: int = 0,
    minute: int = 0,
    second: int = 0,
    microsecond: int = 0,
    timezone: str | None = "UTC",
) -> DatetimeExpr:
    """Return a constant instant from its parts on the clocks of a time zone.

    Raises:
        DefinitionTypeError: A part is no plain int.
    """
    parts = {
        "year": year,
        "month": month,
        "day": day,
        "hour": hour,
        "minute": minute,
        "second": second,
        "microsecond": microsecond,
    }
    checked = {name: plain_int("datetime", name, part) for name, part in parts.items()}
    return DatetimeExpr(DatetimeLiteral(**checked, timezone=zone("datetime", timezone)))


def make_struct(fields: Mapping[str, object], dtype: Any) -> StructExpr:
    """Return a struct for each row; all its fields must be given.

    Raises:
        DefinitionTypeError: `dtype` is no struct, or `fields` no dict of expressions.
    """
    return StructExpr(MakeStruct(dtype=struct_type("make_struct", dtype), fields=_fields("make_struct", fields)))


def zip(dtype: Any, fields: Mapping[str, object]) -> ListExpr:  # noqa: A001 (the API's name)
    """Return a list of structs for each row, from a list for each field; it is as long as the shortest list.

    Raises:
        DefinitionTypeError: `dtype` is no struct, or `fields` no dict of expressions.
    """
    return ListExpr(Zip(dtype=struct_type("zip", dtype), fields=_fields("zip", fields)))


def _fields(operation: str, fields: Mapping[str, object]) -> tuple[tuple[str, Node], ...]:
    if not isinstance(fields, Mapping) or not all(isinstance(name, str) for name in fields):  # type: ignore[redundant-expr]  # users pass anything
        raise DefinitionTypeError(
            f"{operation}: the fields are a dict from names to expressions, not {type(fields).__name__} {fields}"
        )
    return tuple((name, make_expr(value).node) for name, value in fields.items())


# `caraway.dtypes.structs` can't import this package, because this package imports `caraway.dtypes`. So that module gets
# the functions behind `S.expr(x=...)` and `S.zip(x=...)` of a struct class S by this registration.
register_builders(expr=lambda cls, fields: make_struct(fields, cls), zip=zip)
