"""`.str`: methods on text."""

from typing import TYPE_CHECKING, Any

from caraway.dtypes.annotations import dtype_of
from caraway.expr.arguments import plain_text, zone
from caraway.expr.expressions import Expr, Text, make_expr
from caraway.expr.namespaces.numeric import NumberExpr
from caraway.expr.nodes import JsonExtract, Node, ParseJson, Split, StringCall, StringFunction, Strptime

if TYPE_CHECKING:
    from caraway.expr.namespaces.instants import DatetimeExpr
    from caraway.expr.namespaces.lists import ListExpr


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
        """Return true where `item` occurs, taken literally and not as a pattern."""
        return Expr(self._call(StringFunction.CONTAINS, item))

    def startswith(self, item: object) -> Expr:
        """Return true where the text begins with `item`."""
        return Expr(self._call(StringFunction.STARTSWITH, item))

    def endswith(self, item: object) -> Expr:
        """Return true where the text ends with `item`."""
        return Expr(self._call(StringFunction.ENDSWITH, item))

    def split(self, sep: Text) -> "ListExpr":
        """Return the pieces between the occurrences of `sep`, empty ones included; its characters if `sep` is empty.

        Raises:
            DefinitionTypeError: `sep` is no plain str.
        """
        return Expr(Split(operand=self.node, separator=plain_text("split", "sep", sep))).list

    def strptime(self, format: Text, timezone: Text | None = "UTC") -> "DatetimeExpr":
        """Read an instant, in the directives of chrono (`%Y-%m-%d %H:%M:%S%.f %z`).

        Args:
            format: The format of the whole text.
            timezone: IANA zone of a time without an offset; None is UTC.

        Raises:
            DefinitionTypeError: An argument is no plain str.
        """
        text = plain_text("strptime", "format", format)
        return Expr(Strptime(operand=self.node, format=text, timezone=zone("strptime", timezone))).dt

    def parse(self, dtype: Any) -> Expr:
        """Read the value of type `dtype` that a JSON document holds; other documents fail the evaluation.

        Raises:
            DefinitionTypeError: `dtype` is not a type that Caraway knows.
        """
        return Expr(ParseJson(operand=self.node, dtype=dtype_of(dtype)))

    def json_extract(self, path: Text) -> "StringExpr":
        """Return the first match of a JSONPath as text; null if there is none, or no valid document.

        Raises:
            DefinitionTypeError: `path` is no plain str.
        """
        return StringExpr(JsonExtract(operand=self.node, path=plain_text("json_extract", "path", path)))

    def _call(self, function: StringFunction, *args: object) -> Node:
        return StringCall(function=function, operand=self.node, args=tuple(make_expr(arg).node for arg in args))
