"""Type rules of the `dt` namespace and of other nodes whose values are instants."""

import zoneinfo
from datetime import UTC, datetime
from functools import lru_cache

from caraway.dtypes.types import DATETIME, INT, STRING, DataType
from caraway.expr.functions.chrono_format import parse_format
from caraway.expr.inference.checks import (
    either_optional,
    infer_nullable,
    like,
    operation_name,
    require,
    wrong,
    wrong_argument,
)
from caraway.expr.inference.scopes import Schema
from caraway.expr.nodes import DatePart, DatetimeLiteral, FromEpoch, Node, Since, SinceEpoch, Strftime, TimeUnit

EPOCH_UNITS = (TimeUnit.SECOND, TimeUnit.MILLISECOND, TimeUnit.MICROSECOND)

# A time zone whose name begins with one of these is refused. `ZoneInfo` finds such files in the operating system's
# folder of time zones, but they aren't IANA's zones and may be absent or different on another machine.
_NO_ZONES = ("posix/", "right/", "posixrules", "localtime", "Factory")


@infer_nullable.register
def _(node: DatePart, schema: Schema) -> DataType | None:
    operand = infer_nullable(node.operand, schema)
    require(node, operand, (DATETIME,))
    require_timezone(node, node.timezone)
    return like(operand, INT)


@infer_nullable.register
def _(node: Since, schema: Schema) -> DataType | None:
    ends = infer_nullable(node.operand, schema), infer_nullable(node.start, schema)
    for end in ends:
        require(node, end, (DATETIME,))
    _require_fixed_unit(node, node.unit)
    return either_optional(INT, *ends)


@infer_nullable.register
def _(node: SinceEpoch, schema: Schema) -> DataType | None:
    operand = infer_nullable(node.operand, schema)
    require(node, operand, (DATETIME,))
    _require_fixed_unit(node, node.unit)
    return like(operand, INT)


@infer_nullable.register
def _(node: Strftime, schema: Schema) -> DataType | None:
    operand = infer_nullable(node.operand, schema)
    require(node, operand, (DATETIME,))
    require_timezone(node, node.timezone)
    with wrong_argument(node):
        parse_format(node.format)
    return like(operand, STRING)


@infer_nullable.register
def _(node: FromEpoch, schema: Schema) -> DataType | None:
    operand = infer_nullable(node.operand, schema)
    require(node, operand, (INT,))
    if node.unit not in EPOCH_UNITS:
        raise wrong(node, f"from_epoch() counts no {node.unit}; its units are {', '.join(EPOCH_UNITS)}")
    return like(operand, DATETIME)


@infer_nullable.register
def _(node: DatetimeLiteral, _schema: Schema) -> DataType | None:
    require_timezone(node, node.timezone)
    parts = (node.year, node.month, node.day, node.hour, node.minute, node.second, node.microsecond)
    zone = zoneinfo.ZoneInfo(node.timezone)
    try:
        local = datetime(*parts, tzinfo=zone)
        instants = {local.replace(fold=fold).astimezone(UTC) for fold in (0, 1)}
    except (ValueError, OverflowError) as error:
        raise wrong(node, f"datetime(): {error}") from None
    # A local time that clocks skip becomes another one when it is converted to UTC and back. A local time that they
    # show twice has two instants, one for each fold.
    if any(instant.astimezone(zone).replace(tzinfo=None) != local.replace(tzinfo=None) for instant in instants):
        raise wrong(node, f"datetime(): no clock in {node.timezone} showed {local:%Y-%m-%d %H:%M:%S}")
    if len(instants) > 1:
        raise wrong(node, f"datetime(): clocks in {node.timezone} showed {local:%Y-%m-%d %H:%M:%S} twice; use UTC")
    return DATETIME


@lru_cache(maxsize=256)
def is_timezone(name: str) -> bool:
    """Return whether `name` is an IANA time zone."""
    if name.startswith(_NO_ZONES):
        return False
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def require_timezone(node: Node, name: str) -> None:
    """Check that a name is an IANA time zone; any other is an error of `node`."""
    if not is_timezone(name):
        raise wrong(node, f'{operation_name(node)}: unknown time zone "{name}"; zones are named as "Europe/Paris"')


def _require_fixed_unit(node: Node, unit: TimeUnit) -> None:
    if unit is TimeUnit.MONTH:
        raise wrong(node, "a month has no fixed length; use day or week as the unit")
