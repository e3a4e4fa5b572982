"""Rules of the operators that work row by row: filter, assign, transform, and those that select and rename columns."""

from caraway.dtypes.types import BOOL, DataType, OptionalType, optional, strip_optional, type_name
from caraway.errors import DefinitionError, DefinitionTypeError, meant
from caraway.expr.inference import infer_nullable
from caraway.expr.nodes import Node, Now
from caraway.expr.printer import print_node
from caraway.expr.promotion import promotes
from caraway.expr.references import walk
from caraway.graph import operators as ops
from caraway.graph.schemas.model import (
    Schema,
    listed,
    role_of,
    spell,
    step_rule,
    value_columns,
)


@step_rule.register
def _(operator: ops.Filter, before: Schema) -> Schema:
    found = _type_of(operator.predicate, before, "filter")
    if found != BOOL:
        hint = "; fill its nulls first: .fillnull(False)" if found is not None and strip_optional(found) == BOOL else ""
        raise DefinitionTypeError(f"filter: {print_node(operator.predicate)} is {spell(found)}, not bool{hint}")
    return before


@step_rule.register
def _(operator: ops.FilterFunction, before: Schema) -> Schema:
    if operator.traced is not None:
        _require_traced("filter", operator.traced, BOOL, before)
    return before


@step_rule.register
def _(operator: ops.Assign, before: Schema) -> Schema:
    for column in operator.columns:
        _require_assignable(column.name, before)
    problems = [problem for column in operator.columns if (problem := _misfit(column, before))]
    if problems:
        raise DefinitionTypeError("assign: " + "; ".join(problems))
    return _with_values(before, {column.name: column.dtype for column in operator.columns})


def _misfit(column: ops.AssignedColumn, before: Schema) -> str | None:
    found = _type_of(column.expr, before, f"assign: column {column.name}")
    if promotes(found, column.dtype):
        return None
    return (
        f"column {column.name} is declared {type_name(column.dtype)}, but {print_node(column.expr)} is {spell(found)}"
    )


def _type_of(node: Node, before: Schema, where: str) -> DataType | None:
    try:
        found = infer_nullable(node, before.columns)
    except DefinitionError as error:
        raise DefinitionError(f"{where}: {error}") from None
    if any(isinstance(inner, Now) for inner in walk(node)):
        raise DefinitionError(
            f"{where}: now() is the time of a query, and a pipeline has none: use {before.timestamp}, the time of the "
            f"row, or compute it in a feature, in {print_node(node)}"
        )
    return found


@step_rule.register
def _(operator: ops.AssignFunction, before: Schema) -> Schema:
    _require_assignable(operator.column, before)
    if operator.traced is not None:
        # The expression is equivalent to the user's Python function. Its type may be optional even if the column's type
        # isn't. The step then fails at a row where the expression is null, as it does if the function returns None.
        _require_traced(f"assign: column {operator.column}", operator.traced, optional(operator.dtype), before)
    return _with_values(before, {operator.column: operator.dtype})


def _require_traced(where: str, traced: Node, dtype: DataType, before: Schema) -> None:
    """Refuse an expression whose type differs from that of its function; only a damaged client sends one."""
    found = _type_of(traced, before, where)
    if not promotes(found, dtype):
        raise DefinitionTypeError(
            f"{where}: the function was traced as {print_node(traced)}, which is {spell(found)}, not {type_name(dtype)}"
        )


def _require_assignable(name: str, before: Schema) -> None:
    if not name:
        raise DefinitionError("assign: a column needs a name")
    if name in before.keys or name == before.timestamp:
        raise DefinitionError(
            f"assign: {name} is {role_of(name, before)}, which can't be assigned; {value_columns(before)}"
        )


def _with_values(before: Schema, assigned: dict[str, DataType]) -> Schema:
    return Schema(keys=before.keys, values={**before.values, **assigned}, timestamp=before.timestamp)


@step_rule.register
def _(operator: ops.Transform, before: Schema) -> Schema:
    if operator.columns is None:
        return before
    columns = dict(operator.columns)
    if before.timestamp not in columns:
        raise DefinitionTypeError(
            f"transform: the schema lacks the timestamp {before.timestamp}; it has {listed(columns)}"
        )
    for key, dtype in before.keys.items():
        if key not in columns:
            raise DefinitionTypeError(f"transform: the schema lacks key {key} ({type_name(dtype)})")
        if columns[key] != dtype:
            raise DefinitionTypeError(
                f"transform: key {key} is {type_name(dtype)} in the input, {type_name(columns[key])} in the schema; "
                "keys stay as they are"
            )
    values = {name: dtype for name, dtype in columns.items() if name not in before.keys and name != before.timestamp}
    return Schema(keys=before.keys, values=values, timestamp=before.timestamp)


@step_rule.register
def _(operator: ops.Select, before: Schema) -> Schema:
    for name in operator.columns:
        if name not in before.columns:
            raise DefinitionError(
                f"select: unknown column {name}{meant(name, before.columns)}; columns: {listed(before.columns)}"
            )
    for key in before.keys:
        if key not in operator.columns:
            raise DefinitionError(f"select: key {key} is missing; all keys must be selected: {listed(before.keys)}")
    values = {name: before.values[name] for name in operator.columns if name in before.values}
    return Schema(keys=before.keys, values=values, timestamp=before.timestamp)


@step_rule.register
def _(operator: ops.Drop, before: Schema) -> Schema:
    if not operator.columns:
        raise DefinitionError("drop: name at least one column")
    for name in operator.columns:
        if name not in before.columns:
            raise DefinitionError(f"drop: unknown column {name}{meant(name, before.values)}; {value_columns(before)}")
        if name not in before.values:
            raise DefinitionError(
                f"drop: {name} is {role_of(name, before)}, which can't be dropped; {value_columns(before)}"
            )
    values = {name: dtype for name, dtype in before.values.items() if name not in operator.columns}
    return Schema(keys=before.keys, values=values, timestamp=before.timestamp)


@step_rule.register
def _(operator: ops.DropNull, before: Schema) -> Schema:
    optional = [name for name, dtype in before.columns.items() if isinstance(dtype, OptionalType)]
    if not operator.columns:
        raise DefinitionError("dropnull: no column is optional, so there are no nulls to drop")
    for name in operator.columns:
        if name not in before.columns:
            raise DefinitionError(
                f"dropnull: unknown column {name}{meant(name, optional)}; optional columns: {listed(optional)}"
            )
        if name not in optional:
            role = " (the timestamp)" if name == before.timestamp else ""
            raise DefinitionError(
                f"dropnull: {name}{role} is {type_name(before.columns[name])}, not optional; "
                f"optional columns: {listed(optional)}"
            )
    dropped = {name: strip_optional(before.columns[name]) for name in operator.columns}
    return Schema(
        keys={name: dropped.get(name, dtype) for name, dtype in before.keys.items()},
        values={name: dropped.get(name, dtype) for name, dtype in before.values.items()},
        timestamp=before.timestamp,
    )


@step_rule.register
def _(operator: ops.Rename, before: Schema) -> Schema:
    if not operator.pairs:
        raise DefinitionError("rename: name at least one column")
    keys, values, timestamp = dict(before.keys), dict(before.values), before.timestamp
    for old, new in operator.pairs:
        columns = [*keys, *values, timestamp]
        if old not in columns:
            raise DefinitionError(f"rename: unknown column {old}{meant(old, columns)}; columns: {listed(columns)}")
        if new in columns:
            raise DefinitionError(f"rename: {old} can't become {new}: there is a column {new} already")
        if not new:
            raise DefinitionError(f"rename: {old} needs a new name that isn't empty")
        keys = {new if name == old else name: dtype for name, dtype in keys.items()}
        values = {new if name == old else name: dtype for name, dtype in values.items()}
        timestamp = new if timestamp == old else timestamp
    return Schema(keys=keys, values=values, timestamp=timestamp)
