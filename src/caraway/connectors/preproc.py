"""Entries of `preproc`, from which fields are made: a reference to another column, a computation, or a constant."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import pandas as pd

from caraway.dtypes.annotations import dtype_of
from caraway.dtypes.instants import instant_us
from caraway.dtypes.types import BOOL, DATETIME, FLOAT, INT, STRING, DataType, type_name
from caraway.errors import CommitError, CommitTypeError, DefinitionError, DefinitionTypeError
from caraway.expr.expr import Expr, TypedExpr
from caraway.expr.printer import print_node
from caraway.graph.capture.shipping import python_function
from caraway.graph.sources import Computed, Constant
from caraway.graph.sources import Ref as RefSpec

# A user's function. It takes a batch of the payload as a frame, and returns a Series with one value for each row.
OfFrame = Callable[[pd.DataFrame], Any]


class Ref:
    """Another column of the payload; `A[B][C]` is field C of B of the struct A."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = _path(name)

    def __repr__(self) -> str:
        return f"ref({self.name!r})"

    def is_nested(self) -> bool:
        """Return whether the reference leads into a struct."""
        return len(self.path) > 1

    def spec(self) -> RefSpec:
        """Return the reference as a value."""
        return RefSpec(path=self.path)


class Eval:
    """A column that is computed from the payload, by an expression or a function from frame to Series."""

    def __init__(self, eval_type: Expr | TypedExpr | OfFrame, schema: Mapping[str, Any] | None = None) -> None:
        if not isinstance(eval_type, (Expr, TypedExpr)) and not callable(eval_type):
            raise DefinitionTypeError(
                f"eval takes an expression or a function, not {type(eval_type).__name__} {eval_type!r}"
            )
        if schema is not None and not isinstance(schema, Mapping):
            raise DefinitionTypeError(f"eval: schema is a dict of column and type, not {schema!r}")
        self.eval_type = eval_type
        self.schema = dict(schema or {})
        self.columns = tuple((name, _column_type(name, annotation)) for name, annotation in self.schema.items())

    def spec(self, where: str, expected: DataType | None) -> Computed:
        """Return the computation as a value.

        Args:
            where: The name of the computation in messages.
            expected: The type as which a typed expression must be declared; None for any type.

        Raises:
            CommitTypeError: A typed expression is declared as something else.
            DefinitionError: The function can't be sent.
        """
        by = self.eval_type
        if isinstance(by, TypedExpr):
            if expected is not None and by.data_type != expected:
                raise CommitTypeError(
                    f"{where}: {print_node(by.expr.node)} is declared {type_name(by.data_type)}, "
                    f"{type_name(expected)} is expected"
                )
            return Computed(by=by.expr.node, schema=self.columns)
        if isinstance(by, Expr):
            return Computed(by=by.node, schema=self.columns)
        return Computed(by=python_function(where, by), schema=self.columns)


# The values that `preproc` and `where` take; any other object is a constant.
PreProcValue = Ref | Eval | str | bool | int | float | datetime
WhereValue = Eval | OfFrame


def ref(name: str) -> Ref:
    """Copy another column of the payload.

    Args:
        name: Its name; `A[B][C]` for field C of B of the struct A.

    Raises:
        DefinitionError: The name is empty, or its brackets don't match.
    """
    return Ref(name)


def eval(  # noqa: A001 (the API's name)
    eval_type: Expr | TypedExpr | OfFrame, schema: Mapping[str, Any] | None = None
) -> Eval:
    """Compute a column.

    Args:
        eval_type: An expression over the fields of the dataset and the columns in `schema`, or a function that takes
            the batch as a frame and returns a Series.
        schema: Columns of the payload, with types, that aren't fields of the dataset or have another type there.

    Raises:
        DefinitionTypeError: `eval_type` is neither expression nor function, or the schema isn't a dict of types.
    """
    return Eval(eval_type, schema)


def _path(name: object) -> tuple[str, ...]:
    if not isinstance(name, str) or not name:
        raise DefinitionError(f"ref takes the name of a column of the payload, not {name!r}")
    first, *rest = name.split("[")
    if not first or "]" in first:
        raise DefinitionError(f"ref {name!r}: a name stands before the first bracket; write ref('a') or ref('a[b][c]')")
    for part in rest:
        if not part.endswith("]") or not part[:-1] or "]" in part[:-1]:
            raise DefinitionError(f"ref {name!r}: [{part} isn't a name in brackets; write ref('a') or ref('a[b][c]')")
    return (first, *(part[:-1] for part in rest))


def _column_type(name: object, annotation: Any) -> DataType:
    if not isinstance(name, str) or not name:
        raise DefinitionTypeError(f"eval: schema has {name!r}; names of columns are expected")
    try:
        return dtype_of(annotation)
    except (DefinitionError, DefinitionTypeError) as error:
        raise type(error)(f"eval: schema, column {name}: {error}") from None


def constant(where: str, value: object) -> Constant:
    """Return a constant as a value.

    Raises:
        CommitError: The value is of a type that a constant can't have.
    """
    match value:
        case bool():
            return Constant(value=value, dtype=BOOL)
        case int():
            return Constant(value=value, dtype=INT)
        case float():
            return Constant(value=value, dtype=FLOAT)
        case str():
            return Constant(value=value, dtype=STRING)
        case datetime():
            return Constant(value=instant_us(value), dtype=DATETIME)
        case _:
            raise CommitError(
                f"{where}: {value!r} is {type(value).__name__}; a constant is a str, bool, int, float or datetime, "
                "else use ref(...) or eval(...)"
            )
