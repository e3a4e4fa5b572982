"""Expressions as users build them: `col("price") * 2 > 10`.

An `Expr` wraps a node tree (`caraway.expr.nodes`). Building never touches data; types are checked where the columns
are known.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import pandas as pd

from caraway.dtypes.annotations import annotation_of, dtype_of
from caraway.dtypes.types import BOOL, FLOAT, INT, STRING, DataType, IntType, base_type, strip_optional
from caraway.dtypes.values import INT_MAX, INT_MIN, cast, is_null
from caraway.errors import DefinitionError, DefinitionTypeError, InvalidExprException, InvalidInputError
from caraway.expr.inference import infer, infer_nullable
from caraway.expr.nodes import (
    Binary,
    BinaryOp,
    FillNull,
    IsNull,
    Literal,
    Node,
    Now,
    NumberCall,
    NumberFunction,
    Ref,
    Round,
    TimeUnit,
    Unary,
    UnaryOp,
    When,
)
from caraway.expr.printer import print_node
from caraway.expr.promotion import promotes

if TYPE_CHECKING:
    from caraway.expr.namespaces import DatetimeExpr, NumberExpr, StringExpr


@dataclass(frozen=True)
class EvalContext:
    """What an evaluation needs besides columns: the column that supplies `now()` for each row."""

    now_col_name: str | None = None


class Expr:
    """A value for each row, computed from its columns."""

    __slots__ = ("node",)

    #: Set by `caraway.expr.namespaces`, whose classes are expressions themselves.
    _namespaces: dict[str, Callable[["Expr"], Any]] = {}  # noqa: RUF012 (one table for all)

    def __init__(self, node: Node) -> None:
        self.node = node

    @property
    def num(self) -> "NumberExpr":
        """Methods on numbers."""
        return self._namespaces["num"](self)  # type: ignore[no-any-return]

    @property
    def str(self) -> "StringExpr":
        """Methods on text."""
        return self._namespaces["str"](self)  # type: ignore[no-any-return]

    @property
    def dt(self) -> "DatetimeExpr":
        """Methods on instants."""
        return self._namespaces["dt"](self)  # type: ignore[no-any-return]

    def __getattr__(self, name: "str") -> NoReturn:  # type: ignore[valid-type]
        if name in ("list", "dict", "struct"):
            raise DefinitionError(
                f"the methods of .{name} aren't available yet; compute the value in a Python extractor instead"
            )
        raise AttributeError(f"an expression has no attribute {name}")

    # Arithmetic, comparison, logic ----------------------------------------------------------------------------------

    def __add__(self, other: object) -> "Expr":
        return _binary(BinaryOp.ADD, self, other)

    def __radd__(self, other: object) -> "Expr":
        return _binary(BinaryOp.ADD, other, self)

    def __sub__(self, other: object) -> "Expr":
        return _binary(BinaryOp.SUB, self, other)

    def __rsub__(self, other: object) -> "Expr":
        return _binary(BinaryOp.SUB, other, self)

    def __mul__(self, other: object) -> "Expr":
        return _binary(BinaryOp.MUL, self, other)

    def __rmul__(self, other: object) -> "Expr":
        return _binary(BinaryOp.MUL, other, self)

    def __truediv__(self, other: object) -> "Expr":
        return _binary(BinaryOp.DIV, self, other)

    def __rtruediv__(self, other: object) -> "Expr":
        return _binary(BinaryOp.DIV, other, self)

    def __floordiv__(self, other: object) -> "Expr":
        return _binary(BinaryOp.FLOOR_DIV, self, other)

    def __rfloordiv__(self, other: object) -> "Expr":
        return _binary(BinaryOp.FLOOR_DIV, other, self)

    def __mod__(self, other: object) -> "Expr":
        return _binary(BinaryOp.MOD, self, other)

    def __rmod__(self, other: object) -> "Expr":
        return _binary(BinaryOp.MOD, other, self)

    def __eq__(self, other: object) -> "Expr":  # type: ignore[override]
        return _binary(BinaryOp.EQ, self, other)

    def __ne__(self, other: object) -> "Expr":  # type: ignore[override]
        return _binary(BinaryOp.NE, self, other)

    def __lt__(self, other: object) -> "Expr":
        return _binary(BinaryOp.LT, self, other)

    def __le__(self, other: object) -> "Expr":
        return _binary(BinaryOp.LE, self, other)

    def __gt__(self, other: object) -> "Expr":
        return _binary(BinaryOp.GT, self, other)

    def __ge__(self, other: object) -> "Expr":
        return _binary(BinaryOp.GE, self, other)

    def __and__(self, other: object) -> "Expr":
        return _binary(BinaryOp.AND, self, other)

    def __rand__(self, other: object) -> "Expr":
        return _binary(BinaryOp.AND, other, self)

    def __or__(self, other: object) -> "Expr":
        return _binary(BinaryOp.OR, self, other)

    def __ror__(self, other: object) -> "Expr":
        return _binary(BinaryOp.OR, other, self)

    def __invert__(self) -> "Expr":
        return Expr(Unary(op=UnaryOp.NOT, operand=self.node))

    def __neg__(self) -> "Expr":
        return Expr(Unary(op=UnaryOp.NEGATE, operand=self.node))

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
        raise InvalidExprException(f"`in` is not defined for expressions, in {self}")

    def __getitem__(self, item: object) -> NoReturn:
        raise InvalidExprException(f"an expression can't be indexed by [{item!r}], in {self}")

    def __str__(self) -> "str":  # type: ignore[valid-type]
        return print_node(self.node)

    # Methods on any type --------------------------------------------------------------------------------------------

    def isnull(self) -> "Expr":
        """Tell where the value is null; NaN is not null."""
        return Expr(IsNull(operand=self.node))

    def fillnull(self, value: object) -> "Expr":
        """Replace nulls by `value`, an expression or a constant."""
        return Expr(FillNull(operand=self.node, fill=make_expr(value).node))

    def abs(self) -> "NumberExpr":
        """Give the absolute value; as `num.abs()`."""
        return self._number(NumberCall(function=NumberFunction.ABS, operand=self.node))

    def ceil(self) -> "NumberExpr":
        """Round up to an int; as `num.ceil()`."""
        return self._number(NumberCall(function=NumberFunction.CEIL, operand=self.node))

    def floor(self) -> "NumberExpr":
        """Round down to an int; as `num.floor()`."""
        return self._number(NumberCall(function=NumberFunction.FLOOR, operand=self.node))

    def round(self, precision: int = 0) -> "NumberExpr":
        """Round to `precision` decimals, ties away from zero; 0 gives an int.

        Raises:
            InvalidExprException: `precision` is no int, or is negative.
        """
        if not isinstance(precision, int) or isinstance(precision, bool) or precision < 0:  # type: ignore[redundant-expr]  # users pass anything
            raise InvalidExprException(f"round: the precision is an int of 0 or more, not {precision!r}, in {self}")
        return self._number(Round(operand=self.node, precision=precision))

    def _number(self, node: Node) -> "NumberExpr":
        return self._namespaces["num"](Expr(node))  # type: ignore[no-any-return]

    def astype(self, dtype: Any) -> "TypedExpr":  # noqa: ANN401 (an annotation is any object)
        """Declare the type of a finished expression, where one is needed; nothing is converted but int to float.

        Raises:
            DefinitionTypeError: `dtype` is not a type that Caraway knows.
        """
        return TypedExpr(self, dtype)

    # Type and value -------------------------------------------------------------------------------------------------

    def typeof(self, schema: Mapping["str", Any] | None = None) -> Any:  # type: ignore[valid-type]  # noqa: ANN401
        """Return the annotation of the expression's type over columns of the given types.

        Raises:
            DefinitionError: The expression is ill-typed, or refers to a column that isn't in `schema`.
        """
        return annotation_of(infer(self.node, types_of(schema or {})))

    def matches_type(self, dtype: Any, schema: Mapping["str", Any]) -> bool:  # type: ignore[valid-type]  # noqa: ANN401
        """Tell whether the expression may stand where `dtype` is declared.

        Raises:
            DefinitionError: The expression is ill-typed.
        """
        return promotes(infer_nullable(self.node, types_of(schema)), dtype_of(dtype))

    def eval(
        self,
        input_df: pd.DataFrame,
        schema: Mapping["str", Any],  # type: ignore[valid-type]
        output_dtype: Any = None,  # noqa: ANN401 (an annotation is any object)
        parse: bool = True,  # noqa: FBT001, FBT002 (the API's signature)
        context: EvalContext | None = None,
    ) -> "pd.Series[Any]":
        """Evaluate the expression for each row of a frame.

        Args:
            input_df: The rows; columns that `schema` doesn't name are ignored.
            schema: Types of the columns, to which the values are cast first.
            output_dtype: Type that the result must have; by default that of the expression.
            parse: Return Python objects; else nullable pandas columns.
            context: Where `now()` comes from; the time of the call if not given.

        Raises:
            InvalidExprException: A column of `schema` isn't in the frame.
            DefinitionError: The expression is ill-typed, or can't be declared `output_dtype`.
            InvalidInputError: A value doesn't fit its type, on the way in or out.
        """
        from caraway.expr.evaluation import evaluate  # noqa: PLC0415 (polars is slow to import and not always needed)

        wanted = None if output_dtype is None else dtype_of(output_dtype)
        now_column = context.now_col_name if context else None
        return evaluate(self.node, input_df, types_of(schema), wanted, parse=parse, now_column=now_column)


class TypedExpr:
    """A finished expression with a declared type; no further expression can be built from it."""

    __slots__ = ("data_type", "dtype", "expr")

    def __init__(self, expr: Expr, dtype: Any) -> None:  # noqa: ANN401 (an annotation is any object)
        self.expr = expr
        self.dtype = dtype
        self.data_type: DataType = dtype_of(dtype)

    def __str__(self) -> str:
        return f"{self.expr}.astype({self.dtype})"


def types_of(schema: Mapping[str, Any]) -> dict[str, DataType]:
    """Turn a schema of annotations into one of data types."""
    return {name: dtype_of(annotation) for name, annotation in schema.items()}


def make_expr(value: object) -> Expr:
    """Return an expression as it is and make a literal of a constant.

    Raises:
        DefinitionTypeError: The value can't become an expression.
    """
    if isinstance(value, Expr):
        return value
    if isinstance(value, TypedExpr):
        raise DefinitionTypeError(f"{value} is finished: astype() comes last, nothing can be built from its result")
    if callable(value):
        raise DefinitionTypeError(f"an expression is needed, not the function {value!r}; use col(...)")
    return lit(value)


def col(name: str) -> Expr:
    """Refer to a column.

    Raises:
        InvalidExprException: `name` is no string.
    """
    if not isinstance(name, str):
        raise InvalidExprException(f"col: the name of a column is a str, not {type(name).__name__} {name!r}")
    return Expr(Ref(name=name))


def lit(value: object, type: Any = None) -> Expr:  # noqa: A002, ANN401 (the API's name; an annotation is any object)
    """Make a constant, of type bool, int, float or str by its value, or of the given type.

    Raises:
        DefinitionTypeError: The value needs a type.
        DefinitionError: The value isn't of the type, or an int doesn't fit 64 bits.
    """
    if type is not None:
        return _typed_literal(value, strip_optional(dtype_of(type)))
    match value:
        case None:
            return Expr(Literal(value=None, dtype=None))
        case bool():
            return Expr(Literal(value=value, dtype=BOOL))
        case int():
            if not INT_MIN <= value <= INT_MAX:
                raise DefinitionError(f"lit: {value} doesn't fit a 64-bit int")
            return Expr(Literal(value=value, dtype=INT))
        case float():
            return Expr(Literal(value=float(value), dtype=FLOAT))
        case str():
            return Expr(Literal(value=str(value), dtype=STRING))
        case _:
            raise DefinitionTypeError(
                f"lit: a constant of type {value.__class__.__name__} needs its type: lit(value, type), found {value!r}"
            )


def now() -> Expr:
    """Give the time of the query: the same instant for all rows of an online query, each row's own offline."""
    return Expr(Now())


def when(predicate: object) -> "WhenBuilder":
    """Begin a choice: `when(p).then(x).when(q).then(y).otherwise(z)`; the first predicate that is true decides."""
    return WhenBuilder((), make_expr(predicate).node)


class WhenBuilder:
    """A choice whose last predicate waits for its `then`."""

    __slots__ = ("_branches", "_predicate")

    def __init__(self, branches: tuple[tuple[Node, Node], ...], predicate: Node) -> None:
        self._branches = branches
        self._predicate = predicate

    def then(self, value: object) -> "ThenExpr":
        """Give the value for rows where the predicate is true."""
        return ThenExpr((*self._branches, (self._predicate, make_expr(value).node)))

    def _incomplete(self) -> InvalidExprException:
        return InvalidExprException(f"when({print_node(self._predicate)}) has no then(...)")

    @property
    def node(self) -> NoReturn:
        """Refuse to be used as an expression.

        Raises:
            InvalidExprException: Always.
        """
        raise self._incomplete()

    def astype(self, *_args: object, **_named: object) -> NoReturn:
        """Refuse to be used as an expression.

        Raises:
            InvalidExprException: Always.
        """
        raise self._incomplete()

    typeof = matches_type = eval = astype


class ThenExpr(Expr):
    """A choice that is complete, and may go on with `when` or `otherwise`."""

    __slots__ = ()

    def __init__(self, branches: tuple[tuple[Node, Node], ...]) -> None:
        super().__init__(When(branches=branches, otherwise=None))

    def when(self, predicate: object) -> WhenBuilder:
        """Add a predicate for rows that no earlier one took."""
        return WhenBuilder(self._branches(), make_expr(predicate).node)

    def otherwise(self, value: object) -> Expr:
        """Give the value for rows that no predicate took; without it they are null."""
        return Expr(When(branches=self._branches(), otherwise=make_expr(value).node))

    def _branches(self) -> tuple[tuple[Node, Node], ...]:
        assert isinstance(self.node, When)  # noqa: S101 (made so by __init__)
        return self.node.branches


def time_unit(unit: object) -> TimeUnit:
    """Return a unit of time given as itself or as a word in any case.

    Raises:
        DefinitionError: There is no such unit.
    """
    if isinstance(unit, TimeUnit):
        return unit
    try:
        return TimeUnit(str(unit).lower())
    except ValueError:
        raise DefinitionError(f"unknown unit of time {unit!r}; units: {', '.join(TimeUnit)}") from None


def _typed_literal(value: object, dtype: DataType) -> Expr:
    if value is None:
        return Expr(Literal(value=None, dtype=None))
    if dtype == FLOAT and isinstance(value, float) and is_null(value):
        return Expr(Literal(value=value, dtype=FLOAT))
    is_int = isinstance(value, int) and not isinstance(value, bool)
    if isinstance(base_type(dtype), IntType) and not is_int:
        raise DefinitionError(f"lit({value!r}, int): the value is {value.__class__.__name__}, not int")
    try:
        return Expr(Literal(value=cast(dtype)(value), dtype=dtype))
    except InvalidInputError as error:
        raise DefinitionError(f"lit({value!r}): {error}") from None


def _binary(op: BinaryOp, left: object, right: object) -> Expr:
    return Expr(Binary(op=op, left=make_expr(left).node, right=make_expr(right).node))
