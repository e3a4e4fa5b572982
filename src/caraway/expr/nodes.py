"""The nodes of an expression: frozen declarations without behaviour.

What a node means is told by its inference rule (`caraway.expr.inference`) and by its two compilers: polars for reads
and tests (`caraway.expr.polars_compiler`), Spark Columns for streams (`caraway.spark.expressions`). Both take children
that are already compiled.
"""

from dataclasses import dataclass
from enum import StrEnum

from caraway.dtypes.types import DataType


class UnaryOp(StrEnum):
    """Operators on one operand."""

    NOT = "~"
    NEGATE = "-"


class BinaryOp(StrEnum):
    """Operators on two operands, spelled as printed."""

    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"
    FLOOR_DIV = "//"
    MOD = "%"
    EQ = "=="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    AND = "and"
    OR = "or"


class TimeUnit(StrEnum):
    """Units of time in date and time functions."""

    YEAR = "year"
    MONTH = "month"
    WEEK = "week"
    DAY = "day"
    HOUR = "hour"
    MINUTE = "minute"
    SECOND = "second"
    MILLISECOND = "millisecond"
    MICROSECOND = "microsecond"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """The column `name`."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """A constant; `dtype` is None for the bare null. Datetimes are int microseconds, dates int days."""

    value: object
    dtype: DataType | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unary:
    """`op operand`."""

    op: UnaryOp
    operand: "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    """`left op right`."""

    op: BinaryOp
    left: "Node"
    right: "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class IsNull:
    """True where the operand is null; NaN is not null."""

    operand: "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class FillNull:
    """The operand, or `fill` where it is null."""

    operand: "Node"
    fill: "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """The value of the first branch whose predicate is true; `otherwise` (None: null) if none is."""

    branches: tuple[tuple["Node", "Node"], ...]
    otherwise: "Node | None"


class NumberFunction(StrEnum):
    """Functions of the `num` namespace on one operand."""

    ABS = "abs"
    CEIL = "ceil"
    FLOOR = "floor"
    SQRT = "sqrt"
    IS_NAN = "is_nan"
    IS_INFINITE = "is_infinite"
    TO_STRING = "to_string"


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberCall:
    """A function of the `num` namespace on one number."""

    function: NumberFunction
    operand: "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The number rounded to `precision` decimals."""

    operand: "Node"
    precision: int


class StringFunction(StrEnum):
    """Functions of the `str` namespace."""

    LOWER = "lower"
    UPPER = "upper"
    LEN = "len"
    CONTAINS = "contains"
    STARTSWITH = "startswith"
    ENDSWITH = "endswith"
    CONCAT = "concat"


@dataclass(frozen=True, slots=True, kw_only=True)
class StringCall:
    """A function of the `str` namespace; `args` are its further operands."""

    function: StringFunction
    operand: "Node"
    args: tuple["Node", ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DatePart:
    """A calendar part of an instant, in a time zone (IANA name)."""

    operand: "Node"
    part: TimeUnit
    timezone: str = "UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """Whole units of time from `start` to the operand (`operand - start`)."""

    operand: "Node"
    start: "Node"
    unit: TimeUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class SinceEpoch:
    """Whole units of time from the epoch to the operand."""

    operand: "Node"
    unit: TimeUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """The time of the query: the same for all rows of one online query."""


Node = (
    Ref
    | Literal
    | Unary
    | Binary
    | IsNull
    | FillNull
    | When
    | NumberCall
    | Round
    | StringCall
    | DatePart
    | Since
    | SinceEpoch
    | Now
)

NODE_TYPES: tuple[type, ...] = (
    Ref,
    Literal,
    Unary,
    Binary,
    IsNull,
    FillNull,
    When,
    NumberCall,
    Round,
    StringCall,
    DatePart,
    Since,
    SinceEpoch,
    Now,
)
