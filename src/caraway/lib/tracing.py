"""Simple functions of a frame as expressions: the streaming engine runs those in real-time mode, and Python not.

A function is called once with a stand-in that records what is done to its columns. At the first thing that can't be
recorded, or of which pandas and expressions don't make the same, nothing comes of it and the function stays a function.
What is recorded gives, for all rows, what the function gives: a test compares them over random functions and rows.
"""

import dis
import inspect
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NoReturn

import pandas as pd

from caraway.dtypes.types import (
    BOOL,
    FLOAT,
    INT,
    STRING,
    BoolType,
    DataType,
    FloatType,
    IntType,
    StringType,
    base_type,
    strip_optional,
)
from caraway.expr.nodes import (
    Binary,
    BinaryOp,
    FillNull,
    IsNull,
    Literal,
    Node,
    NumberCall,
    NumberFunction,
    Ref,
    StringCall,
    StringFunction,
    Unary,
    UnaryOp,
    When,
)
from caraway.expr.references import walk

INT64_END = 2**63
# Larger expressions are no simple functions any more.
MAX_NODES = 300
# Values that a function may take from around it; exactly these types.
CONSTANTS: Mapping[type, DataType] = {bool: BOOL, int: INT, float: FLOAT, str: STRING}
_PLAIN = (IntType, FloatType, BoolType, StringType)
_NUMBERS = (INT, FLOAT)
_ORDERS = (BinaryOp.LT, BinaryOp.LE, BinaryOp.GT, BinaryOp.GE)
_NULL, _FALSE, _TRUE = (
    Literal(value=None, dtype=None),
    Literal(value=False, dtype=BOOL),
    Literal(value=True, dtype=BOOL),
)


def trace_filter(function: Callable[..., Any], columns: Mapping[str, DataType]) -> Node | None:
    """Return the predicate that a function of a frame with these columns computes, None if it can't be told.

    Null counts as false, as in the result of the function.
    """
    recorded = _recorded(function, columns)
    if recorded is None or recorded.kind != BOOL:
        return None
    return FillNull(operand=recorded.node, fill=_FALSE)


def trace_column(function: Callable[..., Any], columns: Mapping[str, DataType], dtype: DataType) -> Node | None:
    """Return the expression of a column of type `dtype` that a function computes, None if it can't be told.

    It may be null where `dtype` isn't optional: at such a row the function would fail, and so must the step.
    """
    declared = strip_optional(dtype)
    recorded = _recorded(function, columns)
    if recorded is None or declared not in {recorded.kind, *((FLOAT,) if recorded.kind == INT else ())}:
        return None
    if recorded.kind != FLOAT:
        return recorded.node
    # A column that a function returns has no NaN: they are read as nulls.
    return When(branches=((_is_nan(recorded.node), _NULL),), otherwise=recorded.node)


class _GaveUpError(Exception):
    """Something that can't be recorded; `_Recording.gave_up` tells of it if the function catches this."""


@dataclass(slots=True)
class _Recording:
    """One call of a function: the columns that there are, and whether anything couldn't be recorded."""

    columns: Mapping[str, DataType]
    gave_up: bool = False

    def give_up(self) -> NoReturn:
        self.gave_up = True
        raise _GaveUpError


def _recorded(function: Callable[..., Any], columns: Mapping[str, DataType]) -> "_Column | None":
    if not _only_constants(function):
        return None
    recording = _Recording(columns)
    try:
        result = function(_Frame(recording))
    except Exception:  # noqa: BLE001 (the function is a user's)
        return None
    if not isinstance(result, _Column) or recording.gave_up:
        return None
    # A column that is used twice stands in the expression twice, and so do those that it was made of.
    return None if next(islice(walk(result.node), MAX_NODES, None), None) else result


def _only_constants(function: Callable[..., Any]) -> bool:
    """Tell whether a function uses nothing but its frame and constants: what it calls else may be random, or act."""
    if not isinstance(function, types.FunctionType) or function.__code__.co_flags & inspect.CO_GENERATOR:
        return False
    code = function.__code__
    used = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    try:
        used += [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:
        return False
    for instruction in dis.get_instructions(code):
        if instruction.opname in {"LOAD_GLOBAL", "LOAD_NAME"}:
            used.append(function.__globals__.get(instruction.argval))
        elif instruction.opname in {"IMPORT_NAME", "MAKE_FUNCTION", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF"}:
            return False
    return all(type(value) in CONSTANTS for value in used)


class _Silent:
    """What neither a frame nor a column lets be recorded: whatever Python may ask of an object."""

    __slots__ = ("_recording",)
    # numpy then leaves its operators to ours, which don't know its numbers.
    __array_ufunc__ = None

    def __init__(self, recording: _Recording) -> None:
        self._recording = recording

    def _give_up(self, *_: object, **__: object) -> NoReturn:
        self._recording.give_up()

    __bool__ = __len__ = __iter__ = __contains__ = __setitem__ = __delitem__ = __call__ = _give_up
    __int__ = __float__ = __complex__ = __index__ = __round__ = __array__ = __str__ = __repr__ = __format__ = _give_up
    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ifloordiv__ = __imod__ = __iand__ = __ior__ = __ixor__ = _give_up
    __enter__ = __exit__ = __reversed__ = __copy__ = __deepcopy__ = __reduce_ex__ = _give_up


class _Frame(_Silent):
    """Stands for the frame."""

    __slots__ = ()

    def __getitem__(self, name: object) -> "_Column":
        dtype = self._recording.columns.get(name) if isinstance(name, str) else None
        if dtype is None or not isinstance(base_type(dtype), _PLAIN):
            self._give_up()
        return _Column(self._recording, Ref(name=str(name)), base_type(dtype))

    def __getattr__(self, name: str) -> "_Column":
        if hasattr(pd.DataFrame, name):
            self._give_up()
        return self[name]


class _Column(_Silent):
    """Stands for a column: `Int64`, `Float64`, `boolean` or `string`, as a node whose type is `kind` or optional."""

    __slots__ = ("kind", "node")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, recording: _Recording, node: Node, kind: DataType) -> None:
        super().__init__(recording)
        self.node = node
        self.kind = kind

    def __getattr__(self, name: str) -> NoReturn:
        self._give_up()

    def __getitem__(self, key: object) -> NoReturn:
        self._give_up()

    def _made(self, node: Node, kind: DataType) -> "_Column":
        return _Column(self._recording, node, kind)

    def _operand(self, value: object) -> "_Column":
        """Return what stands beside this column in an operator: another one, or a constant."""
        if isinstance(value, _Column):
            return value
        kind = CONSTANTS.get(type(value))
        if kind is None or not _is_storable(value):
            self._give_up()
        return self._made(Literal(value=value, dtype=kind), kind)

    def _arithmetic(self, op: BinaryOp, left: "_Column", right: "_Column") -> "_Column":
        if left.kind not in _NUMBERS or right.kind not in _NUMBERS:
            self._give_up()
        floating = op is BinaryOp.DIV or FLOAT in {left.kind, right.kind}
        return self._made(Binary(op=op, left=left.node, right=right.node), FLOAT if floating else INT)

    def __add__(self, other: object) -> "_Column":
        return self._arithmetic(BinaryOp.ADD, self, self._operand(other))

    def __radd__(self, other: object) -> "_Column":
        return self._arithmetic(BinaryOp.ADD, self._operand(other), self)

    def __sub__(self, other: object) -> "_Column":
        return self._arithmetic(BinaryOp.SUB, self, self._operand(other))

    def __rsub__(self, other: object) -> "_Column":
        return self._arithmetic(BinaryOp.SUB, self._operand(other), self)

    def __mul__(self, other: object) -> "_Column":
        return self._arithmetic(BinaryOp.MUL, self, self._operand(other))

    def __rmul__(self, other: object) -> "_Column":
        return self._arithmetic(BinaryOp.MUL, self._operand(other), self)

    def __truediv__(self, other: object) -> "_Column":
        return self._arithmetic(BinaryOp.DIV, self, self._operand(other))

    def __rtruediv__(self, other: object) -> "_Column":
        return self._arithmetic(BinaryOp.DIV, self._operand(other), self)

    def __neg__(self) -> "_Column":
        if self.kind not in _NUMBERS:
            self._give_up()
        return self._made(Unary(op=UnaryOp.NEGATE, operand=self.node), self.kind)

    def _compared(self, op: BinaryOp, value: object) -> "_Column":
        other = self._operand(value)
        numbers = self.kind in _NUMBERS and other.kind in _NUMBERS
        if not numbers and (self.kind != other.kind or (op in _ORDERS and self.kind == BOOL)):
            self._give_up()
        compared: Node = Binary(op=op, left=self.node, right=other.node)
        floats = [side.node for side in (self, other) if side.kind == FLOAT and not isinstance(side.node, Literal)]
        if floats:
            # To pandas a NaN is less than, greater than and equal to nothing; an expression has it above all numbers.
            null = _any([IsNull(operand=side.node) for side in (self, other)])
            unordered = _any([_is_nan(node) for node in floats])
            differs = _TRUE if op is BinaryOp.NE else _FALSE
            compared = When(branches=((null, _NULL), (unordered, differs)), otherwise=compared)
        return self._made(compared, BOOL)

    def __eq__(self, other: object) -> "_Column":  # type: ignore[override]
        return self._compared(BinaryOp.EQ, other)

    def __ne__(self, other: object) -> "_Column":  # type: ignore[override]
        return self._compared(BinaryOp.NE, other)

    def __lt__(self, other: object) -> "_Column":
        return self._compared(BinaryOp.LT, other)

    def __le__(self, other: object) -> "_Column":
        return self._compared(BinaryOp.LE, other)

    def __gt__(self, other: object) -> "_Column":
        return self._compared(BinaryOp.GT, other)

    def __ge__(self, other: object) -> "_Column":
        return self._compared(BinaryOp.GE, other)

    def _logical(self, op: BinaryOp, value: object) -> "_Column":
        other = self._operand(value)
        if self.kind != BOOL or other.kind != BOOL:
            self._give_up()
        return self._made(Binary(op=op, left=self.node, right=other.node), BOOL)

    # With both sides in the other order the value is the same.
    def __and__(self, other: object) -> "_Column":
        return self._logical(BinaryOp.AND, other)

    __rand__ = __and__

    def __or__(self, other: object) -> "_Column":
        return self._logical(BinaryOp.OR, other)

    __ror__ = __or__

    def __invert__(self) -> "_Column":
        if self.kind != BOOL:
            self._give_up()
        return self._made(Unary(op=UnaryOp.NOT, operand=self.node), BOOL)

    def isnull(self) -> "_Column":
        """As of a series."""
        return self._made(IsNull(operand=self.node), BOOL)

    def notnull(self) -> "_Column":
        """As of a series."""
        return self._made(Unary(op=UnaryOp.NOT, operand=IsNull(operand=self.node)), BOOL)

    isna = isnull
    notna = notnull

    def fillna(self, value: object) -> "_Column":
        """As of a series, of a constant of the column's type."""
        fill = self._operand(value)
        if not isinstance(fill.node, Literal) or (fill.kind != self.kind and (self.kind, fill.kind) != (FLOAT, INT)):
            self._give_up()
        constant = Literal(value=float(value), dtype=FLOAT) if self.kind == FLOAT else fill.node  # type: ignore[arg-type]
        return self._made(FillNull(operand=self.node, fill=constant), self.kind)

    @property
    def str(self) -> "_Text":
        """The functions of text."""
        if self.kind != STRING:
            self._give_up()
        return _Text(self)


class _Text:
    """Stands for `Series.str`."""

    __slots__ = ("_column",)

    def __init__(self, column: _Column) -> None:
        self._column = column

    def __getattr__(self, name: str) -> NoReturn:
        self._column._give_up()  # noqa: SLF001 (of one kind)

    def lower(self) -> _Column:
        """In lower case."""
        return self._called(StringFunction.LOWER, STRING)

    def upper(self) -> _Column:
        """In upper case."""
        return self._called(StringFunction.UPPER, STRING)

    def len(self) -> _Column:
        """How many characters."""
        return self._called(StringFunction.LEN, INT)

    def contains(self, pat: object, *, regex: object = True) -> _Column:
        """Whether a constant is in it; not a regular expression, which pandas takes it for by default."""
        if regex is not False:
            self._column._give_up()  # noqa: SLF001 (of one kind)
        return self._called(StringFunction.CONTAINS, BOOL, pat)

    def startswith(self, pat: object) -> _Column:
        """Whether it begins with a constant."""
        return self._called(StringFunction.STARTSWITH, BOOL, pat)

    def endswith(self, pat: object) -> _Column:
        """Whether it ends with a constant."""
        return self._called(StringFunction.ENDSWITH, BOOL, pat)

    def _called(self, function: StringFunction, kind: DataType, *args: object) -> _Column:
        if any(type(arg) is not str for arg in args):
            self._column._give_up()  # noqa: SLF001 (of one kind)
        constants = tuple(Literal(value=arg, dtype=STRING) for arg in args)
        return self._column._made(  # noqa: SLF001 (of one kind)
            StringCall(function=function, operand=self._column.node, args=constants), kind
        )


def _is_storable(value: Any) -> bool:  # noqa: ANN401 (a constant)
    """Tell whether an expression has such a constant: no int beyond 64 bits, no NaN, which pandas takes for null."""
    match value:
        case bool() | str():
            return True
        case int():
            return -INT64_END <= value < INT64_END
        case _:
            return not math.isnan(value)


def _is_nan(node: Node) -> Node:
    return NumberCall(function=NumberFunction.IS_NAN, operand=node)


def _any(nodes: list[Node]) -> Node:
    first, *others = nodes
    for other in others:
        first = Binary(op=BinaryOp.OR, left=first, right=other)
    return first
