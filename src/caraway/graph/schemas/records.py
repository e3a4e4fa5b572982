"""Rules of the operators that make more or fewer records: explode, union, dedup, changelog."""

from caraway.dtypes.types import BOOL, ListType, optional, type_name
from caraway.errors import DefinitionError, DefinitionTypeError, meant
from caraway.graph.operators import Changelog, Dedup, Explode
from caraway.graph.schemas.model import (
    Schema,
    listed,
    require_keyless,
    require_not_terminal,
    role_of,
    schema_differences,
    step_rule,
    value_columns,
)
from caraway.graph.windows import HoppingWindow


@step_rule.register
def _(operator: Explode, before: Schema) -> Schema:
    require_keyless("explode", before, DefinitionTypeError)
    if not operator.columns:
        raise DefinitionError("explode: name at least one column")
    values = dict(before.values)
    lists = [name for name, dtype in values.items() if isinstance(dtype, ListType)]
    for name in operator.columns:
        if name not in before.columns:
            raise DefinitionError(f"explode: unknown column {name}{meant(name, lists)}; lists: {listed(lists)}")
        found = before.columns[name]
        if name not in before.values:
            raise DefinitionError(f"explode: {name} is {role_of(name, before)}, not a list; lists: {listed(lists)}")
        if not isinstance(found, ListType):
            hint = "; drop its nulls first: dropnull" if isinstance(optional(found).of, ListType) else ""
            raise DefinitionError(f"explode: {name} is {type_name(found)}, not a list; lists: {listed(lists)}{hint}")
        values[name] = optional(found.of)
    return Schema(keys={}, values=values, timestamp=before.timestamp)


def union_schema(left: Schema, right: Schema) -> Schema:
    """Compute the schema of the rows of two inputs together.

    Raises:
        DefinitionError: The sides differ, or one can't be followed by anything.
        DefinitionTypeError: A side has keys.
    """
    for side in (left, right):
        require_not_terminal(side, "union")
        require_keyless("union", side, DefinitionTypeError)
    if problems := schema_differences(left, right, sides=("left side", "right side")):
        raise DefinitionError(f"union: the sides differ: {'; '.join(problems)}")
    return left


@step_rule.register
def _(operator: Dedup, before: Schema) -> Schema:
    require_keyless("dedup", before, DefinitionError)
    if not operator.by:
        raise DefinitionError(f"dedup: name at least one column in by; {value_columns(before)}")
    for name in operator.by:
        if name == before.timestamp:
            raise DefinitionError(
                f"dedup: {name} is the timestamp, by which duplicates are told apart already; {value_columns(before)}"
            )
        if name not in before.values:
            raise DefinitionError(f"dedup: unknown column {name}{meant(name, before.values)}; {value_columns(before)}")
    window = operator.window
    if isinstance(window, HoppingWindow):
        if window.length_us != window.stride_us:
            raise DefinitionTypeError("dedup: the window is Tumbling or Session, not Hopping")
        if window.lookback_us:
            raise DefinitionError(
                f"dedup: the window has a lookback of {window.lookback_us // 1_000_000} s, which has no meaning here"
            )
    return before


@step_rule.register
def _(operator: Changelog, before: Schema) -> Schema:
    if not before.keys:
        raise DefinitionTypeError("changelog: the input has no keys; only a keyed dataset has changes")
    if not operator.column:
        raise DefinitionError("changelog: the column needs a name")
    if operator.column in before.columns:
        raise DefinitionError(
            f"changelog: there is a column {operator.column} already; columns: {listed(before.columns)}"
        )
    return Schema(keys={}, values={**before.keys, **before.values, operator.column: BOOL}, timestamp=before.timestamp)
