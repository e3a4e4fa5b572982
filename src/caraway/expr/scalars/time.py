"""The `dt` namespace of single values, and the nodes whose values are instants.

Parts of an instant have a form here only in UTC, since polars's and Python's tables of other time zones may differ.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from caraway.dtypes.instants import EPOCH
from caraway.dtypes.types import DATETIME, INT
from caraway.dtypes.values import INT_MAX
from caraway.expr.functions.chrono_writing import writer
from caraway.expr.functions.local_time import PARTS, US_OF_UNIT, literal_instant
from caraway.expr.nodes import DatePart, DatetimeLiteral, FromEpoch, Since, SinceEpoch, Strftime, TimeUnit
from caraway.expr.scalars.arithmetic import wrapped
from caraway.expr.scalars.operators import strict, strict2
from caraway.expr.scalars.rare import of_polars
from caraway.expr.scalars.scope import NoScalarFormError, Scalar, ScalarScope, compile_node

# Instants from FIRST to LAST, in microseconds since the epoch, are converted to Python's datetime, which supports the
# years 1 to 9999. The first and the last day of these years are left to polars, as are all other years.
FIRST = (datetime(1, 1, 2, tzinfo=EPOCH.tzinfo) - EPOCH) // timedelta(microseconds=1)
LAST = (datetime(9999, 12, 31, tzinfo=EPOCH.tzinfo) - EPOCH) // timedelta(microseconds=1)


@compile_node.register
def _(node: DatePart, scope: ScalarScope) -> Scalar:
    if node.timezone != "UTC":
        raise NoScalarFormError(node.timezone)
    part_of, unit = PARTS[node.part], node.part

    def part(us: int) -> object:
        if FIRST <= us <= LAST:
            return part_of(EPOCH + timedelta(microseconds=us))
        return of_polars().part_of_instant(us, unit)

    return strict(part, scope.operand(node.operand, DATETIME))


@compile_node.register
def _(node: Since, scope: ScalarScope) -> Scalar:
    whole = _whole_units(node.unit)
    return strict2(
        lambda end, start: whole(wrapped(end - start)),
        scope.operand(node.operand, DATETIME),
        scope.operand(node.start, DATETIME),
    )


@compile_node.register
def _(node: SinceEpoch, scope: ScalarScope) -> Scalar:
    return strict(_whole_units(node.unit), scope.operand(node.operand, DATETIME))


def _whole_units(unit: TimeUnit) -> Callable[[int], int]:
    """Return the function that divides by the unit, truncating toward zero."""
    length = US_OF_UNIT[unit]
    return lambda us: us // length if us >= 0 else wrapped(-(wrapped(-us) // length))


@compile_node.register
def _(node: Strftime, scope: ScalarScope) -> Scalar:
    return strict(writer(node.format, node.timezone), scope.operand(node.operand, DATETIME))


@compile_node.register
def _(node: FromEpoch, scope: ScalarScope) -> Scalar:
    length = US_OF_UNIT[node.unit]
    most = INT_MAX // length
    return strict(lambda units: units * length if -most <= units <= most else None, scope.operand(node.operand, INT))


@compile_node.register
def _(node: DatetimeLiteral, _scope: ScalarScope) -> Scalar:
    instant = literal_instant(node)
    return lambda _row: instant
