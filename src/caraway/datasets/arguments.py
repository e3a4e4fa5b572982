"""Checks of the arguments of operators, and their conversion to names and types of columns."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from caraway.datasets.fields import Field
from caraway.dtypes.annotations import dtype_of
from caraway.dtypes.types import DATETIME, DataType
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.expr.expr import Expr, TypedExpr
from caraway.graph.operators import AssignedColumn


def column_names(operator: str, args: tuple[Any, ...], columns: Sequence[Any] | None) -> tuple[str, ...] | None:
    """Return the columns given to an operator: by position, as one list, or as `columns=`; None if there are none."""
    if args and columns is not None:
        raise DefinitionError(f"{operator}: give the columns by position or as columns=, not both")
    if columns is not None:
        if not isinstance(columns, (list, tuple)):
            raise DefinitionError(f"{operator}: columns is a list of names, not {kind(columns)}")
        found: Iterable[Any] = columns
    elif len(args) == 1 and isinstance(args[0], (list, tuple)):
        found = args[0]
    elif args:
        found = args
    else:
        return None
    return tuple(column_name(operator, name) for name in found)


def required_names(operator: str, args: tuple[Any, ...], columns: Sequence[Any] | None) -> tuple[str, ...]:
    """Return the columns given to an operator, as `column_names` does, each once; there must be at least one."""
    names = column_names(operator, args, columns)
    if names is None:
        raise DefinitionError(f"{operator}: name at least one column")
    return tuple(dict.fromkeys(names))


def column_name(operator: str, given: object) -> str:
    """Return the name of a column that is given as text or as a field."""
    if not isinstance(given, (str, Field)):
        raise DefinitionError(f"{operator}: a column is named by text or by a field, not by {kind(given)}")
    return str(given)


def column_type(operator: str, name: str, annotation: Any) -> DataType:
    """Return the data type that a user declares for a column; the error of another annotation names the column."""
    try:
        return dtype_of(annotation)
    except (DefinitionError, DefinitionTypeError) as error:
        raise type(error)(f"{operator}: column {name}: {error}") from None


def schema_columns(operator: str, schema: object, timestamp: str) -> tuple[tuple[str, DataType], ...]:
    """Return the columns of a schema given as a dict; the timestamp is a datetime, whatever the dict says."""
    if not isinstance(schema, Mapping):
        raise DefinitionError(f"{operator}: a schema is a dict {{column: type}}, not {kind(schema)}")
    names = {column_name(operator, name): annotation for name, annotation in schema.items()}
    return tuple(
        (name, DATETIME if name == timestamp else column_type(operator, name, annotation))
        for name, annotation in names.items()
    )


def assigned_column(name: str, value: object) -> AssignedColumn:
    """Return a column that `assign` computes from an expression with a declared type."""
    if isinstance(value, TypedExpr):
        return AssignedColumn(name=name, dtype=value.data_type, expr=value.expr.node)
    if isinstance(value, Expr):
        raise DefinitionTypeError(f"assign: column {name} needs a type: {name}=({value}).astype(...)")
    raise DefinitionError(f"assign: column {name} is {kind(value)}, not an expression; use lit({value!r}).astype(...)")


def kind(value: object) -> str:
    """Return a description of a wrong argument for a message."""
    return f"{type(value).__name__} {value!r}"
