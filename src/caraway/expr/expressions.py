"""Expressions as users build them: `col("price") * 2 > 10`.

An `Expr` wraps a tree of nodes (`caraway.expr.nodes`). Building one evaluates nothing. Types are checked later, when
the types of the columns are known.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import pandas as pd

from caraway.dtypes.annotations import annotation_of, dtype_of
from caraway.dtypes.types import DataType
from caraway.errors import DefinitionTypeError, InvalidExprException
from caraway.expr import nodes as n
from caraway.expr.constants import literal
from caraway.expr.inference import infer, infer_nullable
from caraway.expr.light import light
from caraway.expr.promotion import promotes

if TYPE_CHECKING:
    from caraway.expr.namespaces import DatetimeExpr, DictExpr, ListExpr, NumberExpr, StringExpr, StructExpr

# `Expr` and its subclasses have a property `str`, which hides Python's type in their bodies, so annotations there use
# this alias.
Text: TypeAlias = str


@dataclass(frozen=True)
class EvalContext:
    """The context of an evaluation: the name of the column that supplies `now()` for each row."""

    now_col_name: str | None = None


def _infix(op: n.BinaryOp) -> Callable[["Expr", object], "Expr"]:
    """Return the method of an operator, such as `__add__`."""
    return lambda left, right: _binary(op, left, right)


def _reflected(op: n.BinaryOp) -> Callable[["Expr", object], "Expr"]:
    """Return the method that Python calls if the left operand is no expression, such as `__radd__`."""
    return lambda right, left: _binary(op, left, right)


class Expr:
    """A value for each row, computed from its columns."""

    __slots__ = ("node",)

    # Because this is None, `np.float64(2) * col("x")` calls `Expr.__rmul__` instead of numpy's multiplication.
    __array_ufunc__ = None

    #: The class of each namespace. `caraway.expr.namespaces` fills the table, because those classes derive from `Expr`.
    _namespaces: dict[str, Callable[[n.Node], Any]] = {}  # noqa: RUF012 (one table for all)

    def __init__(self, node: n.Node) -> None:
        self.node = node

    @property
    def root(self) -> "Expr":
        """The expression itself, also for a choice that `when` began: each of its steps is the whole choice so far."""
        return self

    @property
    def num(self) -> "NumberExpr":
        """Methods on numbers."""
        return self._namespaces["num"](self.node)  # type: ignore[no-any-return]

    @property
    def str(self) -> "StringExpr":
        """Methods on text."""
        return self._namespaces["str"](self.node)  # type: ignore[no-any-return]

    @property
    def dt(self) -> "DatetimeExpr":
        """Methods on instants."""
        return self._namespaces["dt"](self.node)  # type: ignore[no-any-return]

    @property
    def list(self) -> "ListExpr":
        """Methods on lists."""
        return self._namespaces["list"](self.node)  # type: ignore[no-any-return]

    @property
    def dict(self) -> "DictExpr":
        """Methods on dicts."""
        return self._namespaces["dict"](self.node)  # type: ignore[no-any-return]

    @property
    def struct(self) -> "StructExpr":
        """Methods on structs."""
        return self._namespaces["struct"](self.node)  # type: ignore[no-any-return]

    __add__, __radd__ = _infix(n.BinaryOp.ADD), _reflected(n.BinaryOp.ADD)
    __sub__, __rsub__ = _infix(n.BinaryOp.SUB), _reflected(n.BinaryOp.SUB)
    __mul__, __rmul__ = _infix(n.BinaryOp.MUL), _reflected(n.BinaryOp.MUL)
    __truediv__, __rtruediv__ = _infix(n.BinaryOp.DIV), _reflected(n.BinaryOp.DIV)
    __floordiv__, __rfloordiv__ = _infix(n.BinaryOp.FLOOR_DIV), _reflected(n.BinaryOp.FLOOR_DIV)
    __mod__, __rmod__ = _infix(n.BinaryOp.MOD), _reflected(n.BinaryOp.MOD)
    __and__, __rand__ = _infix(n.BinaryOp.AND), _reflected(n.BinaryOp.AND)
    __or__, __ror__ = _infix(n.BinaryOp.OR), _reflected(n.BinaryOp.OR)
    __lt__, __le__ = _infix(n.BinaryOp.LT), _infix(n.BinaryOp.LE)
    __gt__, __ge__ = _infix(n.BinaryOp.GT), _infix(n.BinaryOp.GE)

    def __eq__(self, other: object) -> "Expr":  # type: ignore[override]
        return _binary(n.BinaryOp.EQ, self, other)

    def __ne__(self, other: object) -> "Expr":  # type: ignore[override]
        return _binary(n.BinaryOp.NE, self, other)

    def __invert__(self) -> "Expr":
        return Expr(n.Unary(op=n.UnaryOp.NOT, operand=self.node))

    def __neg__(self) -> "Expr":
        return Expr(n.Unary(op=n.UnaryOp.NEGATE, operand=self.node))

    def __xor__(self, other: object) -> NoReturn:
        raise InvalidExprException(f"^ is not defined for expressions; compare with != instead, in {self}")

    __rxor__ = __xor__

    def __hash__(self) -> int:
        return object.__hash__(self)

    def __bool__(self) -> NoReturn:
        raise InvalidExprException(
            f"an expression has no truth value before it is evaluated: use & | ~ instead of and, or, not, and when() "
            f"instead of if, in {self}"
        )

    def __contains__(self, item: object) -> NoReturn:
        raise InvalidExprException(f"`in` is not defined for expressions; use list.contains(...), in {self}")

    def __iter__(self) -> NoReturn:
        raise InvalidExprException(f"an expression can't be iterated over; use list.map(...), in {self}")

    def __getitem__(self, item: object) -> "Expr":
        if isinstance(item, Text):
            return Expr(n.DictGet(operand=self.node, key=literal(item)))
        if isinstance(item, Expr) or (isinstance(item, int) and not isinstance(item, bool)):
            return Expr(n.ListAt(operand=self.node, index=make_expr(item).node))
        raise InvalidExprException(
            f"an expression is indexed by an int (list.at) or a str (dict.get), not by {item!r}, in {self}"
        )

    def __str__(self) -> Text:
        return light(self.node)

    def isnull(self) -> "Expr":
        """Return true where the value is null; NaN is not null."""
        return Expr(n.IsNull(operand=self.node))

    def fillnull(self, value: object) -> "Expr":
        """Replace nulls by `value`, an expression or a constant."""
        return Expr(n.FillNull(operand=self.node, fill=make_expr(value).node))

    def abs(self) -> "NumberExpr":
        """Return the absolute value; as `num.abs()`."""
        return self._number(n.NumberCall(function=n.NumberFunction.ABS, operand=self.node))

    def ceil(self) -> "NumberExpr":
        """Round up to an int; as `num.ceil()`."""
        return self._number(n.NumberCall(function=n.NumberFunction.CEIL, operand=self.node))

    def floor(self) -> "NumberExpr":
        """Round down to an int; as `num.floor()`."""
        return self._number(n.NumberCall(function=n.NumberFunction.FLOOR, operand=self.node))

    def round(self, precision: int = 0) -> "NumberExpr":
        """Round to `precision` decimals, ties away from zero; 0 gives an int.

        Raises:
            InvalidExprException: `precision` is no int, or is negative.
        """
        if not isinstance(precision, int) or isinstance(precision, bool) or precision < 0:  # type: ignore[redundant-expr]  # users pass anything
            raise InvalidExprException(f"round: the precision is an int of 0 or more, not {precision!r}, in {self}")
        return self._number(n.Round(operand=self.node, precision=precision))

    def _number(self, node: n.Node) -> "NumberExpr":
        return self._namespaces["num"](node)  # type: ignore[no-any-return]

    def astype(self, dtype: Any) -> "TypedExpr":
        """Declare the type of a finished expression, where one is needed; the only conversion is from int to float.

        Raises:
            DefinitionTypeError: `dtype` is not a type that Caraway knows.
        """
        return TypedExpr(self, dtype)

    def typeof(self, schema: Mapping[Text, Any] | None = None) -> Any:
        """Return the annotation of the expression's type over columns of the given types.

        Raises:
            DefinitionError: The expression is ill-typed, or refers to a column that isn't in `schema`.
        """
        return annotation_of(infer(self.node, types_of(schema or {})))

    def matches_type(self, dtype: Any, schema: Mapping[Text, Any]) -> bool:
        """Return whether the expression may stand where `dtype` is declared.

        Raises:
            DefinitionError: The expression is ill-typed.
        """
        return promotes(infer_nullable(self.node, types_of(schema)), dtype_of(dtype))

    def eval(
        self,
        input_df: pd.DataFrame,
        schema: Mapping[Text, Any],
        output_dtype: Any = None,
        parse: bool = True,
        context: EvalContext | None = None,
    ) -> "pd.Series[Any]":
        """Evaluate the expression for each row of a frame.

        Args:
            input_df: The rows; columns that `schema` doesn't name are ignored.
            schema: Types of the columns, to which the values are cast first.
            output_dtype: Type that the result must have; by default that of the expression.
            parse: True for a result of Python objects, False for nullable and Arrow columns.
            context: The source of `now()`; without it `now()` is the time of the call.

        Raises:
            InvalidExprException: A column of `schema` isn't in the frame.
            DefinitionError: The expression is ill-typed, or can't be declared `output_dtype`.
            InvalidInputError: A value doesn't fit its type, on the way in or out, or has no result.
        """
        from caraway.expr.evaluation import evaluate  # noqa: PLC0415 (polars is slow to import and not always needed)

        wanted = None if output_dtype is None else dtype_of(output_dtype)
        now_column = context.now_col_name if context else None
        return evaluate(self.node, input_df, types_of(schema), wanted, parse=parse, now_column=now_column)


class TypedExpr:
    """A finished expression with a declared type; no further expression can be built from it."""

    __slots__ = ("data_type", "dtype", "expr")

    def __init__(self, expr: Expr, dtype: Any) -> None:
        # Reading `node` raises the error of a `when()` without its `then()`.
        _ = expr.node
        self.expr = expr
        self.dtype = dtype
        self.data_type: DataType = dtype_of(dtype)

    def __str__(self) -> str:
        return f"{self.expr}.astype({self.dtype})"


def types_of(schema: Mapping[str, Any]) -> dict[str, DataType]:
    """Convert a schema of annotations to one of data types."""
    return {name: dtype_of(annotation) for name, annotation in schema.items()}


def make_expr(value: object) -> Expr:
    """Return an expression as it is, and a constant as a literal.

    Raises:
        DefinitionTypeError: The value can't become an expression.
    """
    if isinstance(value, Expr):
        return value
    if isinstance(value, TypedExpr):
        raise DefinitionTypeError(f"{value} is finished: astype() comes last, nothing can be built from its result")
    if callable(value):
        raise DefinitionTypeError(f"an expression is needed, not the function {value!r}; use col(...)")
    return Expr(literal(value))


def _binary(op: n.BinaryOp, left: object, right: object) -> Expr:
    return Expr(n.Binary(op=op, left=make_expr(left).node, right=make_expr(right).node))
