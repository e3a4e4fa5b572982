"""`.num`: methods on numbers."""

import math
from typing import TYPE_CHECKING

from caraway.errors import DefinitionTypeError
from caraway.expr.expressions import Expr, make_expr
from caraway.expr.nodes import Log, NumberCall, NumberFunction, Power

if TYPE_CHECKING:
    from caraway.expr.namespaces.text import StringExpr


class NumberExpr(Expr):
    """Methods on numbers; `abs`, `ceil`, `floor` and `round` are those of `Expr`."""

    __slots__ = ()

    def sqrt(self) -> "NumberExpr":
        """Return the square root; NaN for a negative number."""
        return self._call(NumberFunction.SQRT)

    def pow(self, exponent: object) -> "NumberExpr":
        """Raise to a power; an int if both are ints, which then may not be negative."""
        return NumberExpr(Power(operand=self.node, exponent=make_expr(exponent).node))

    def log(self, base: float = math.e) -> "NumberExpr":
        """Return the logarithm; -inf for 0, NaN for a negative number.

        Raises:
            DefinitionTypeError: `base` is no number; it can't be an expression.
        """
        if not isinstance(base, (int, float)) or isinstance(base, bool):  # type: ignore[redundant-expr]  # users pass anything
            raise DefinitionTypeError(f"log: base is a plain number, not {type(base).__name__} {base}")
        return NumberExpr(Log(operand=self.node, base=None if base == math.e else float(base)))

    def sin(self) -> "NumberExpr":
        """Return the sine of an angle in radians."""
        return self._call(NumberFunction.SIN)

    def cos(self) -> "NumberExpr":
        """Return the cosine of an angle in radians."""
        return self._call(NumberFunction.COS)

    def tan(self) -> "NumberExpr":
        """Return the tangent of an angle in radians."""
        return self._call(NumberFunction.TAN)

    def arcsin(self) -> "NumberExpr":
        """Return the angle in radians with this sine; NaN outside [-1, 1]."""
        return self._call(NumberFunction.ARCSIN)

    def arccos(self) -> "NumberExpr":
        """Return the angle in radians with this cosine; NaN outside [-1, 1]."""
        return self._call(NumberFunction.ARCCOS)

    def arctan(self) -> "NumberExpr":
        """Return the angle in radians with this tangent."""
        return self._call(NumberFunction.ARCTAN)

    def is_nan(self) -> Expr:
        """Return true where the number is NaN."""
        return Expr(self._call(NumberFunction.IS_NAN).node)

    def is_infinite(self) -> Expr:
        """Return true where the number is infinite."""
        return Expr(self._call(NumberFunction.IS_INFINITE).node)

    def to_string(self) -> "StringExpr":
        """Return the number as text: an int plainly, a float in its shortest form that reads back the same."""
        return self._call(NumberFunction.TO_STRING).str

    def _call(self, function: NumberFunction) -> "NumberExpr":
        return NumberExpr(NumberCall(function=function, operand=self.node))
