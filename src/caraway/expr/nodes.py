"""The nodes of an expression: frozen declarations without behaviour.

The meaning of a node is in its type rule (`caraway.expr.inference`) and in three compilers: to polars for large queries
and the in-process engine (`caraway.expr.polars.compiler`), to functions of one row for small queries
(`caraway.expr.scalars.compiler`), and to Spark's columns for streams (`caraway.dataplane.streams.spark.expressions`).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import get_args

from caraway.dtypes.types import DataType, StructType


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
    """A constant in stored form (docs/inside/records.md); `dtype` is None for the null literal."""

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
    SIN = "sin"
    COS = "cos"
    TAN = "tan"
    ARCSIN = "arcsin"
    ARCCOS = "arccos"
    ARCTAN = "arctan"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """`operand` to the power of `exponent`."""

    operand: "Node"
    exponent: "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """Logarithm; `base` is None for the natural one."""

    operand: "Node"
    base: float | None = None


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
class Split:
    """The pieces of a text between the occurrences of `separator`; its characters if `separator` is empty."""

    operand: "Node"
    separator: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Strptime:
    """The instant that a text spells in `format` (chrono's directives), in `timezone` unless the text has an offset."""

    operand: "Node"
    format: str
    timezone: str = "UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseJson:
    """The value of type `dtype` that a JSON document holds (`str.parse`)."""

    operand: "Node"
    dtype: DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonExtract:
    """The first match of a JSONPath in a JSON document, as text."""

    operand: "Node"
    path: str


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
class Strftime:
    """The instant as text in `format` (chrono's directives), in a time zone."""

    operand: "Node"
    format: str
    timezone: str = "UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class FromEpoch:
    """The instant that is the operand's number of units after the epoch."""

    operand: "Node"
    unit: TimeUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class DatetimeLiteral:
    """A constant instant, by its parts in a time zone."""

    year: int
    month: int
    day: int
    hour: int = 0
    minute: int = 0
    second: int = 0
    microsecond: int = 0
    timezone: str = "UTC"


class ListFunction(StrEnum):
    """Functions of the `list` namespace without arguments."""

    LEN = "len"
    HAS_NULL = "hasnull"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    MEAN = "mean"
    ALL = "all"
    ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListCall:
    """A function of the `list` namespace on one list."""

    function: ListFunction
    operand: "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListAt:
    """The element at `index`, counted from the end if `index` is negative; null if there is none."""

    operand: "Node"
    index: "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListContains:
    """True if `item` is an element."""

    operand: "Node"
    item: "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFilter:
    """The elements for which `predicate` holds, in which `Var(variable)` is the element."""

    operand: "Node"
    variable: str
    predicate: "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListMap:
    """The value of `body` for each element, in which `Var(variable)` is the element."""

    operand: "Node"
    variable: str
    body: "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Var:
    """The element of the list in a `ListFilter` or `ListMap`."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DictGet:
    """The value at `key`; `default` (None: null) if the key isn't there."""

    operand: "Node"
    key: "Node"
    default: "Node | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DictLen:
    """Number of entries."""

    operand: "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class DictContains:
    """True if the key is there."""

    operand: "Node"
    key: "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class StructGet:
    """A field of a struct."""

    operand: "Node"
    field: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeStruct:
    """A struct for each row; `fields` may be in any order."""

    dtype: StructType
    fields: tuple[tuple[str, "Node"], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Zip:
    """A list of structs out of a list for each field, as long as the shortest of these lists."""

    dtype: StructType
    fields: tuple[tuple[str, "Node"], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """A list that holds `value` `by` times."""

    value: "Node"
    by: "Node"


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
    | Power
    | Log
    | StringCall
    | Split
    | Strptime
    | ParseJson
    | JsonExtract
    | DatePart
    | Since
    | SinceEpoch
    | Strftime
    | FromEpoch
    | DatetimeLiteral
    | ListCall
    | ListAt
    | ListContains
    | ListFilter
    | ListMap
    | Var
    | DictGet
    | DictLen
    | DictContains
    | StructGet
    | MakeStruct
    | Zip
    | Repeat
    | Now
)

NODE_TYPES: tuple[type, ...] = get_args(Node)
