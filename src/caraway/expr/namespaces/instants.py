"""`.dt`: methods on instants."""

from typing import TYPE_CHECKING

from caraway.expr.arguments import plain_text, time_unit, zone
from caraway.expr.expressions import Expr, Text, make_expr
from caraway.expr.namespaces.numeric import NumberExpr
from caraway.expr.nodes import DatePart, Node, Since, SinceEpoch, Strftime, TimeUnit

if TYPE_CHECKING:
    from caraway.expr.namespaces.text import StringExpr


class DatetimeExpr(Expr):
    """Methods on instants; parts and formats are those of the time zone set by `with_tz` (UTC by default)."""

    __slots__ = ("_timezone",)

    def __init__(self, node: Node, timezone: Text = "UTC") -> None:
        super().__init__(node)
        self._timezone = timezone

    @property
    def dt(self) -> "DatetimeExpr":
        """The expression itself, with its time zone."""
        return self

    def with_tz(self, timezone: Text | None) -> "DatetimeExpr":
        """Set the IANA time zone of the parts, such as "Asia/Tokyo"; None is UTC."""
        return DatetimeExpr(self.node, zone("with_tz", timezone))

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

    def parts(self, unit: TimeUnit | Text, timezone: Text | None = "UTC") -> NumberExpr:
        """Return one part of the calendar date and time in a time zone.

        Raises:
            DefinitionError: There is no such unit.
        """
        return NumberExpr(DatePart(operand=self.node, part=time_unit(unit), timezone=zone("parts", timezone)))

    def since(self, other: object, unit: TimeUnit | Text = TimeUnit.SECOND) -> NumberExpr:
        """Count the whole units from `other` to this instant.

        Raises:
            DefinitionError: There is no such unit.
        """
        return NumberExpr(Since(operand=self.node, start=make_expr(other).node, unit=time_unit(unit)))

    def since_epoch(self, unit: TimeUnit | Text = TimeUnit.SECOND) -> NumberExpr:
        """Count the whole units from 1970-01-01 UTC.

        Raises:
            DefinitionError: There is no such unit.
        """
        return NumberExpr(SinceEpoch(operand=self.node, unit=time_unit(unit)))

    def strftime(self, format: Text) -> "StringExpr":
        """Return the instant as text by the directives of chrono, in the time zone of `with_tz`.

        Raises:
            DefinitionTypeError: `format` is no plain str.
        """
        text = plain_text("strftime", "format", format)
        return Expr(Strftime(operand=self.node, format=text, timezone=self._timezone)).str
