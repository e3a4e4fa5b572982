"""The namespaces of an expression: `.num`, `.str`, `.dt`.

A namespace is an expression itself, so methods chain: `col("s").str.lower().len()`.
"""

from typing import Any, NoReturn

from caraway.errors import DefinitionError
from caraway.expr.expr import Expr, make_expr, time_unit
from caraway.expr.nodes import (
    DatePart,
    Node,
    NumberCall,
    NumberFunction,
    Since,
    SinceEpoch,
    StringCall,
    StringFunction,
    TimeUnit,
)

# In the API, but not built yet.
_MISSING = {
    "num": frozenset({"pow", "log", "sin", "cos", "tan", "arcsin", "arccos", "arctan"}),
    "str": frozenset({"split", "strptime", "parse", "json_extract"}),
    "dt": frozenset({"strftime"}),
}


class NumberExpr(Expr):
    """Methods on numbers; `abs`, `ceil`, `floor` and `round` are those of `Expr`."""

    __slots__ = ()

    def sqrt(self) -> "NumberExpr":
        """Give the square root; NaN for a negative number."""
        return self._call(NumberFunction.SQRT)

    def is_nan(self) -> Expr:
        """Tell where the number is NaN."""
        return Expr(self._call(NumberFunction.IS_NAN).node)

    def is_infinite(self) -> Expr:
        """Tell where the number is infinite."""
        return Expr(self._call(NumberFunction.IS_INFINITE).node)

    def to_string(self) -> "StringExpr":
        """Spell the number: an int plainly, a float in its shortest form that reads back the same."""
        return StringExpr(self._call(NumberFunction.TO_STRING).node)

    def _call(self, function: NumberFunction) -> "NumberExpr":
        return NumberExpr(NumberCall(function=function, operand=self.node))

    def __getattr__(self, name: str) -> NoReturn:
        _refuse("num", name)
        super().__getattr__(name)


class StringExpr(Expr):
    """Methods on text."""

    __slots__ = ()

    def lower(self) -> "StringExpr":
        """Put the text into lower case."""
        return StringExpr(self._call(StringFunction.LOWER))

    def upper(self) -> "StringExpr":
        """Put the text into upper case."""
        return StringExpr(self._call(StringFunction.UPPER))

    def len(self) -> NumberExpr:
        """Count the code points."""
        return NumberExpr(self._call(StringFunction.LEN))

    def concat(self, other: object) -> "StringExpr":
        """Append `other`, an expression or a constant."""
        return StringExpr(self._call(StringFunction.CONCAT, other))

    def contains(self, item: object) -> Expr:
        """Tell where `item` occurs, as it is and not as a pattern."""
        return Expr(self._call(StringFunction.CONTAINS, item))

    def startswith(self, item: object) -> Expr:
        """Tell where the text begins with `item`."""
        return Expr(self._call(StringFunction.STARTSWITH, item))

    def endswith(self, item: object) -> Expr:
        """Tell where the text ends with `item`."""
        return Expr(self._call(StringFunction.ENDSWITH, item))

    def _call(self, function: StringFunction, *args: object) -> Node:
        return StringCall(function=function, operand=self.node, args=tuple(make_expr(arg).node for arg in args))

    def __getattr__(self, name: str) -> NoReturn:
        _refuse("str", name)
        super().__getattr__(name)


class DatetimeExpr(Expr):
    """Methods on instants; the parts are read in the time zone set by `with_tz` (UTC by default)."""

    __slots__ = ("_timezone",)

    def __init__(self, node: Node, timezone: str | None = None) -> None:
        super().__init__(node)
        self._timezone = timezone or "UTC"

    def with_tz(self, timezone: str | None) -> "DatetimeExpr":
        """Read the parts in an IANA time zone, such as "Asia/Tokyo"."""
        return DatetimeExpr(self.node, timezone)

    @property
    def year(self) -> NumberExpr:
        """Calendar year."""
        return self.parts(TimeUnit.YEAR, self._timezone)

    @property
    def month(self) -> NumberExpr:
        """Month, 1 to 12."""
        return self.parts(TimeUnit.MONTH, self._timezone)

    @property
    def week(self) -> NumberExpr:
        """ISO week, 1 to 53."""
        return self.parts(TimeUnit.WEEK, self._timezone)

    @property
    def day(self) -> NumberExpr:
        """Day of the month."""
        return self.parts(TimeUnit.DAY, self._timezone)

    @property
    def hour(self) -> NumberExpr:
        """Hour, 0 to 23."""
        return self.parts(TimeUnit.HOUR, self._timezone)

    @property
    def minute(self) -> NumberExpr:
        """Minute, 0 to 59."""
        return self.parts(TimeUnit.MINUTE, self._timezone)

    @property
    def second(self) -> NumberExpr:
        """Second, 0 to 59."""
        return self.parts(TimeUnit.SECOND, self._timezone)

    @property
    def millisecond(self) -> NumberExpr:
        """Milliseconds within the second."""
        return self.parts(TimeUnit.MILLISECOND, self._timezone)

    @property
    def microsecond(self) -> NumberExpr:
        """Microseconds within the second."""
        return self.parts(TimeUnit.MICROSECOND, self._timezone)

    def parts(self, unit: TimeUnit | str, timezone: str | None = "UTC") -> NumberExpr:
        """Read one part of the calendar date and time in a time zone.

        Raises:
            DefinitionError: There is no such unit.
        """
        return NumberExpr(DatePart(operand=self.node, part=time_unit(unit), timezone=timezone or "UTC"))

    def since(self, other: object, unit: TimeUnit | str = TimeUnit.SECOND) -> NumberExpr:
        """Count the whole units from `other` to this instant.

        Raises:
            DefinitionError: There is no such unit.
        """
        return NumberExpr(Since(operand=self.node, start=make_expr(other).node, unit=time_unit(unit)))

    def since_epoch(self, unit: TimeUnit | str = TimeUnit.SECOND) -> NumberExpr:
        """Count the whole units from 1970-01-01 UTC.

        Raises:
            DefinitionError: There is no such unit.
        """
        return NumberExpr(SinceEpoch(operand=self.node, unit=time_unit(unit)))

    def __getattr__(self, name: str) -> NoReturn:
        _refuse("dt", name)
        super().__getattr__(name)


def _refuse(namespace: str, name: str) -> None:
    if name in _MISSING[namespace]:
        raise DefinitionError(
            f".{namespace}.{name}() isn't available yet; compute the value in a Python extractor, or before "
            "it is logged"
        )


def _number(expr: Expr) -> Any:  # noqa: ANN401
    return NumberExpr(expr.node)


Expr._namespaces.update(  # noqa: SLF001 (the classes need each other; this ties the knot)
    num=_number, str=lambda expr: StringExpr(expr.node), dt=lambda expr: DatetimeExpr(expr.node)
)
