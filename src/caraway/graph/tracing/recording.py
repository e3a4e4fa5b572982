"""Stand-ins for columns, with which a function is called once to record its operations.

At the first operation that can't be recorded, or that differs between pandas and expressions, tracing gives up and the
function stays a function. A recorded expression has the function's value for all rows; tests compare them over random
functions and rows.
"""

import dis
import inspect
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partialmethod
from itertools import islice
from typing import Any, NoReturn

from caraway.dtypes import types as t
from caraway.expr import nodes as n
from caraway.expr.references import walk

INT64_END = 2**63
# An expression replaces a function only if it has at most this many nodes. A function with a larger expression is
# called.
MAX_NODES = 300
# The types of constants that a function may take from its surroundings. The type of a constant must be exactly one of
# them, not a subclass.
CONSTANTS: Mapping[type, t.DataType] = {bool: t.BOOL, int: t.INT, float: t.FLOAT, str: t.STRING}
PLAIN = (t.IntType, t.FloatType, t.BoolType, t.StringType)
_NUMBERS = (t.INT, t.FLOAT)
# The class `TracedColumn` has a property `str`, which hides Python's type in the class body. So the class uses this
# name for the type.
_TEXT = str
_ORDERS = (n.BinaryOp.LT, n.BinaryOp.LE, n.BinaryOp.GT, n.BinaryOp.GE)
_NULL, _FALSE, _TRUE = (
    n.Literal(value=None, dtype=None),
    n.Literal(value=False, dtype=t.BOOL),
    n.Literal(value=True, dtype=t.BOOL),
)


class GaveUpError(BaseException):
    """An operation that can't be recorded. If a function catches this error, `Recording.gave_up` still shows it."""


@dataclass(slots=True)
class Recording:
    """One call of a function, which knows whether something couldn't be recorded."""

    gave_up: bool = False

    def give_up(self) -> NoReturn:
        """End the call without a result."""
        self.gave_up = True
        raise GaveUpError


def record(call: Callable[[Recording], Any]) -> object:
    """Return the result of calling a function with stand-ins, None if something couldn't be recorded."""
    recording = Recording()
    try:
        result = call(recording)
    except (Exception, GaveUpError):  # noqa: BLE001 (the function is a user's)
        return None
    return None if recording.gave_up else result


def names_used(function: Callable[..., Any]) -> Mapping[str, object] | None:
    """Return the values that a function uses of its module, by name; None if the function can't be recorded.

    A function is recorded only if its defaults and the variables that it takes from enclosing functions are constants,
    and if it doesn't import, define functions or assign to variables outside of it.
    """
    if not isinstance(function, types.FunctionType) or function.__code__.co_flags & inspect.CO_GENERATOR:
        return None
    around = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    try:
        around += [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:
        return None
    used: dict[str, object] = {}
    for instruction in dis.get_instructions(function.__code__):
        if instruction.opname in {"LOAD_GLOBAL", "LOAD_NAME"}:
            used[instruction.argval] = function.__globals__.get(instruction.argval)
        elif instruction.opname in {"IMPORT_NAME", "MAKE_FUNCTION", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF"}:
            return None
    return used if all(map(is_constant, around)) else None


def is_constant(value: object) -> bool:
    """Return whether an expression can hold this value as a constant."""
    return type(value) in CONSTANTS


def declared_node(recorded: "TracedColumn", dtype: t.DataType) -> n.Node | None:
    """Return the expression of a column of type `dtype`, None if the recorded one is of another type or too large."""
    declared = t.strip_optional(dtype)
    if declared not in {recorded.kind, *((t.FLOAT,) if recorded.kind == t.INT else ())}:
        return None
    if is_large(recorded.node):
        return None
    if recorded.kind != t.FLOAT:
        return recorded.node
    # A NaN in a column that a function returns is read as null, so the expression is null there, too.
    return n.When(branches=((is_nan(recorded.node), _NULL),), otherwise=recorded.node)


def is_large(node: n.Node) -> bool:
    """Return whether an expression is too large; a column that is used twice counts twice."""
    return next(islice(walk(node), MAX_NODES, None), None) is not None


class Silent:
    """A stand-in on which no operation can be recorded: each gives up, whatever Python asks of the object."""

    __slots__ = ("_recording",)
    # With None here, numpy leaves an operator between one of its numbers and a stand-in to Python. Python then calls
    # the stand-in's own operator, which gives up.
    __array_ufunc__ = None

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def _give_up(self, *_: object, **__: object) -> NoReturn:
        self._recording.give_up()

    __bool__ = __len__ = __iter__ = __contains__ = __setitem__ = __delitem__ = __call__ = _give_up
    __int__ = __float__ = __complex__ = __index__ = __round__ = __array__ = __str__ = __repr__ = __format__ = _give_up
    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ifloordiv__ = __imod__ = __iand__ = __ior__ = __ixor__ = _give_up
    __enter__ = __exit__ = __reversed__ = __copy__ = __deepcopy__ = __reduce_ex__ = _give_up


class TracedColumn(Silent):
    """A stand-in for a column (`Int64`, `Float64`, `boolean`, `string`): a node of type `kind` or optional."""

    __slots__ = ("kind", "label", "node")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, recording: Recording, node: n.Node, kind: t.DataType, label: object = None) -> None:
        super().__init__(recording)
        self.node = node
        self.kind = kind
        self.label = label

    @classmethod
    def of(cls, recording: Recording, name: str, dtype: t.DataType) -> "TracedColumn":
        """Return the stand-in for an existing column; gives up on types that aren't plain."""
        if not isinstance(t.base_type(dtype), PLAIN):
            recording.give_up()
        return cls(recording, n.Ref(name=name), t.base_type(dtype), name)

    def __getattr__(self, name: str) -> NoReturn:
        self._give_up()

    def __getitem__(self, key: object) -> NoReturn:
        self._give_up()

    def _made(self, node: n.Node, kind: t.DataType) -> "TracedColumn":
        return TracedColumn(self._recording, node, kind, self.label)

    def _made_with(self, other: "TracedColumn", node: n.Node, kind: t.DataType) -> "TracedColumn":
        # As in pandas, the result of two series has a name only if both have the same one.
        return TracedColumn(self._recording, node, kind, self.label if self.label == other.label else None)

    def _operand(self, value: object) -> "TracedColumn":
        """Return the other operand of an operator: another column, or a constant."""
        if isinstance(value, TracedColumn):
            return value
        kind = CONSTANTS.get(type(value))
        if kind is None or not is_storable(value):
            self._give_up()
        return self._made(n.Literal(value=value, dtype=kind), kind)

    def _arithmetic(self, op: n.BinaryOp, value: object) -> "TracedColumn":
        return _calculated(op, self, self._operand(value))

    def _reflected(self, op: n.BinaryOp, value: object) -> "TracedColumn":
        return _calculated(op, self._operand(value), self)

    __add__, __radd__ = partialmethod(_arithmetic, n.BinaryOp.ADD), partialmethod(_reflected, n.BinaryOp.ADD)
    __sub__, __rsub__ = partialmethod(_arithmetic, n.BinaryOp.SUB), partialmethod(_reflected, n.BinaryOp.SUB)
    __mul__, __rmul__ = partialmethod(_arithmetic, n.BinaryOp.MUL), partialmethod(_reflected, n.BinaryOp.MUL)
    __truediv__, __rtruediv__ = partialmethod(_arithmetic, n.BinaryOp.DIV), partialmethod(_reflected, n.BinaryOp.DIV)

    def __neg__(self) -> "TracedColumn":
        if self.kind not in _NUMBERS:
            self._give_up()
        return self._made(n.Unary(op=n.UnaryOp.NEGATE, operand=self.node), self.kind)

    def _compared(self, op: n.BinaryOp, value: object) -> "TracedColumn":
        other = self._operand(value)
        numbers = self.kind in _NUMBERS and other.kind in _NUMBERS
        if not numbers and (self.kind != other.kind or (op in _ORDERS and self.kind == t.BOOL)):
            self._give_up()
        compared: n.Node = n.Binary(op=op, left=self.node, right=other.node)
        floats = [side.node for side in (self, other) if side.kind == t.FLOAT and not isinstance(side.node, n.Literal)]
        if floats:
            # In pandas NaN is less than, greater than and equal to nothing; in an expression it is above all numbers.
            null = _any([n.IsNull(operand=side.node) for side in (self, other)])
            unordered = _any([is_nan(node) for node in floats])
            differs = _TRUE if op is n.BinaryOp.NE else _FALSE
            compared = n.When(branches=((null, _NULL), (unordered, differs)), otherwise=compared)
        return self._made_with(other, compared, t.BOOL)

    __eq__ = partialmethod(_compared, n.BinaryOp.EQ)  # type: ignore[assignment]
    __ne__ = partialmethod(_compared, n.BinaryOp.NE)  # type: ignore[assignment]
    __lt__, __le__ = partialmethod(_compared, n.BinaryOp.LT), partialmethod(_compared, n.BinaryOp.LE)
    __gt__, __ge__ = partialmethod(_compared, n.BinaryOp.GT), partialmethod(_compared, n.BinaryOp.GE)

    def _logical(self, op: n.BinaryOp, value: object) -> "TracedColumn":
        other = self._operand(value)
        if self.kind != t.BOOL or other.kind != t.BOOL:
            self._give_up()
        return self._made_with(other, n.Binary(op=op, left=self.node, right=other.node), t.BOOL)

    # `a & b` has the same value as `b & a`, so the reflected operators are the same methods; `|` likewise.
    __and__ = __rand__ = partialmethod(_logical, n.BinaryOp.AND)
    __or__ = __ror__ = partialmethod(_logical, n.BinaryOp.OR)

    def __invert__(self) -> "TracedColumn":
        if self.kind != t.BOOL:
            self._give_up()
        return self._made(n.Unary(op=n.UnaryOp.NOT, operand=self.node), t.BOOL)

    def isnull(self) -> "TracedColumn":
        """Return the column of `Series.isnull`."""
        return self._made(n.IsNull(operand=self.node), t.BOOL)

    def notnull(self) -> "TracedColumn":
        """Return the column of `Series.notnull`."""
        return self._made(n.Unary(op=n.UnaryOp.NOT, operand=n.IsNull(operand=self.node)), t.BOOL)

    isna = isnull
    notna = notnull

    def fillna(self, value: object) -> "TracedColumn":
        """Return the column of `Series.fillna` for a constant of the column's type."""
        fill = self._operand(value)
        if not isinstance(fill.node, n.Literal) or (
            fill.kind != self.kind and (self.kind, fill.kind) != (t.FLOAT, t.INT)
        ):
            self._give_up()
        constant = n.Literal(value=float(value), dtype=t.FLOAT) if self.kind == t.FLOAT else fill.node  # type: ignore[arg-type]
        return self._made(n.FillNull(operand=self.node, fill=constant), self.kind)

    def rename(self, index: object) -> "TracedColumn":
        """Return the column under another name, which must be a text."""
        if type(index) is not _TEXT:
            self._give_up()
        return TracedColumn(self._recording, self.node, self.kind, index)

    @property
    def str(self) -> "Text":
        """The functions of text."""
        if self.kind != t.STRING:
            self._give_up()
        return Text(self)


def _calculated(op: n.BinaryOp, left: TracedColumn, right: TracedColumn) -> TracedColumn:
    if left.kind not in _NUMBERS or right.kind not in _NUMBERS:
        left._give_up()  # noqa: SLF001 (of one kind)
    floating = op is n.BinaryOp.DIV or t.FLOAT in {left.kind, right.kind}
    made = n.Binary(op=op, left=left.node, right=right.node)
    return left._made_with(right, made, t.FLOAT if floating else t.INT)  # noqa: SLF001 (of one kind)


class Text:
    """A stand-in for `Series.str`."""

    __slots__ = ("_column",)

    def __init__(self, column: TracedColumn) -> None:
        self._column = column

    def __getattr__(self, name: str) -> NoReturn:
        self._column._give_up()  # noqa: SLF001 (of one kind)

    def lower(self) -> TracedColumn:
        """Return the column of `Series.str.lower`."""
        return self._called(n.StringFunction.LOWER, t.STRING)

    def upper(self) -> TracedColumn:
        """Return the column of `Series.str.upper`."""
        return self._called(n.StringFunction.UPPER, t.STRING)

    def len(self) -> TracedColumn:
        """Return the column of `Series.str.len`."""
        return self._called(n.StringFunction.LEN, t.INT)

    def contains(self, pat: object, *, regex: object = True) -> TracedColumn:
        """Return the column of `Series.str.contains` for a literal text; pandas's default is a pattern."""
        if regex is not False:
            self._column._give_up()  # noqa: SLF001 (of one kind)
        return self._called(n.StringFunction.CONTAINS, t.BOOL, pat)

    def startswith(self, pat: object) -> TracedColumn:
        """Return the column of `Series.str.startswith` for a constant."""
        return self._called(n.StringFunction.STARTSWITH, t.BOOL, pat)

    def endswith(self, pat: object) -> TracedColumn:
        """Return the column of `Series.str.endswith` for a constant."""
        return self._called(n.StringFunction.ENDSWITH, t.BOOL, pat)

    def _called(self, function: n.StringFunction, kind: t.DataType, *args: object) -> TracedColumn:
        if any(type(arg) is not str for arg in args):
            self._column._give_up()  # noqa: SLF001 (of one kind)
        constants = tuple(n.Literal(value=arg, dtype=t.STRING) for arg in args)
        return self._column._made(  # noqa: SLF001 (of one kind)
            n.StringCall(function=function, operand=self._column.node, args=constants), kind
        )


def is_storable(value: Any) -> bool:
    """Return whether an expression can hold such a constant: no int beyond 64 bits, no NaN, which is null in pandas."""
    match value:
        case bool() | str():
            return True
        case int():
            return -INT64_END <= value < INT64_END
        case _:
            return not math.isnan(value)


def is_nan(node: n.Node) -> n.Node:
    """Return the expression that is true where `node` is no number."""
    return n.NumberCall(function=n.NumberFunction.IS_NAN, operand=node)


def _any(nodes: list[n.Node]) -> n.Node:
    first, *others = nodes
    for other in others:
        first = n.Binary(op=n.BinaryOp.OR, left=first, right=other)
    return first
