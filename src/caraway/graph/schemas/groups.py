"""Rules of the operators behind a groupby: first, latest, aggregate."""

from caraway.dtypes.annotations import dtype_of
from caraway.dtypes.durations import print_duration
from caraway.dtypes.structs import Window
from caraway.dtypes.types import DATETIME, DataType, type_name
from caraway.errors import DefinitionError, DefinitionTypeError, meant
from caraway.graph.aggregates import TRAITS
from caraway.graph.operators import Aggregate, Emit, First, Latest
from caraway.graph.schemas.aggregates import function_name, output_type
from caraway.graph.schemas.model import (
    Schema,
    listed,
    require_keyless,
    step_rule,
    value_columns,
)
from caraway.graph.windows import ContinuousWindow, HoppingWindow, print_window

# The key field that `groupby(window=...)` adds to the given keys: the begin and end of the row's window, of type
# Window.
WINDOW_KEY = "window"


def group_keys(keys: tuple[str, ...], before: Schema, of: tuple[str, ...] = ()) -> dict[str, DataType]:
    """Return the types of grouping columns; `of` has the names of the datasets in the input, for messages.

    Raises `DefinitionError` if there are no columns, or if a column is unknown, is the timestamp or is named twice.
    """
    if not keys:
        raise DefinitionError("groupby: name at least one column")
    for name in keys:
        if name == before.timestamp:
            raise DefinitionError(f"groupby: {name} is the timestamp, by which rows can't be grouped")
        if name not in before.columns:
            made = f" of the rows of {listed(of)}" if of else ""
            hint = meant(name, before.columns)
            raise DefinitionError(f"groupby: unknown column {name}{made}{hint}; columns: {listed(before.columns)}")
        if keys.count(name) > 1:
            raise DefinitionError(f"groupby: column {name} is named twice")
    return {name: before.columns[name] for name in keys}


@step_rule.register
def _(operator: First | Latest, before: Schema) -> Schema:
    require_keyless(type(operator).__name__.lower(), before, DefinitionTypeError)
    keys = group_keys(operator.keys, before)
    values = {name: dtype for name, dtype in before.values.items() if name not in keys}
    return Schema(keys=keys, values=values, timestamp=before.timestamp)


@step_rule.register
def _(operator: Aggregate, before: Schema) -> Schema:
    keys = group_keys(operator.keys, before)
    if operator.window is not None:
        if WINDOW_KEY in keys:
            raise DefinitionError(f"groupby: a column {WINDOW_KEY} is in the way of the key of that name; rename it")
        keys[WINDOW_KEY] = dtype_of(Window)
    elif not operator.aggregates:
        raise DefinitionTypeError("aggregate: name at least one aggregate")
    _check_names(operator, keys, before)
    _check_windows(operator)
    _check_keyed_input(operator, before)
    _check_along_and_emit(operator, before)
    _check_closing(operator)
    values: dict[str, DataType] = {}
    for aggregate in operator.aggregates:
        expected = output_type(aggregate, before)
        if aggregate.dtype != expected:
            raise DefinitionTypeError(
                f"aggregate: column {aggregate.into} is {type_name(aggregate.dtype)}, must be {type_name(expected)}"
            )
        values[aggregate.into] = aggregate.dtype
    return Schema(keys=keys, values=values, timestamp=before.timestamp, terminal=_is_read_time(operator))


def _check_names(operator: Aggregate, keys: dict[str, DataType], before: Schema) -> None:
    taken = {**dict.fromkeys(keys, "a key"), before.timestamp: "the timestamp"}
    for aggregate in operator.aggregates:
        if not aggregate.into:
            raise DefinitionError(f"aggregate: {function_name(aggregate.function)} has no output column")
        if aggregate.into in taken:
            raise DefinitionError(
                f"aggregate: {aggregate.into} stands twice in the output: it is {taken[aggregate.into]} already"
            )
        taken[aggregate.into] = "another aggregate"


def _check_windows(operator: Aggregate) -> None:
    continuous: list[str] = []
    discrete: dict[str, HoppingWindow] = {}
    for aggregate in operator.aggregates:
        name, window = aggregate.into, aggregate.window
        if window is None:
            if operator.window is None:
                raise DefinitionError(
                    f'aggregate: {name} has no window; give window=Continuous("1d") or Continuous("forever"), or a '
                    "window to groupby"
                )
        elif operator.window is not None:
            if window != operator.window:
                raise DefinitionError(
                    f"aggregate: the window of {name} is {print_window(window)}, that of groupby "
                    f"{print_window(operator.window)}; leave the former out"
                )
        elif isinstance(window, ContinuousWindow):
            continuous.append(name)
        else:
            discrete[name] = window
    if continuous and discrete:
        raise DefinitionError(
            f"aggregate: {listed(continuous)} over continuous windows and {listed(discrete)} over discrete ones; "
            "windows of one kind go together"
        )
    lookbacks = {window.lookback_us: name for name, window in discrete.items()}
    if len(lookbacks) > 1:
        spelled = " and ".join(f"{print_duration(us)} ({name})" for us, name in lookbacks.items())
        raise DefinitionError(f"aggregate: the lookbacks of the windows differ: {spelled}")


def _check_keyed_input(operator: Aggregate, before: Schema) -> None:
    if not before.keys:
        return
    if operator.window is not None:
        raise DefinitionError(
            f"aggregate: groupby has a window, but the input is keyed by {listed(before.keys)}; windows of groups are "
            "for keyless inputs"
        )
    for aggregate in operator.aggregates:
        window = aggregate.window
        if operator.along is None and isinstance(window, HoppingWindow) and window.length_us is not None:
            raise DefinitionError(
                f"aggregate: the window of {aggregate.into} is {print_window(window)}, but the input is keyed by "
                f'{listed(before.keys)}; use Hopping("forever", ...), or place the rows by along="column"'
            )


def _check_along_and_emit(operator: Aggregate, before: Schema) -> None:
    along = operator.along
    if along is not None:
        instants = listed(name for name, dtype in before.values.items() if dtype == DATETIME)
        if along not in before.values:
            raise DefinitionError(
                f"aggregate: along names {along}, which is no value column; possible: {instants}; "
                f"{value_columns(before)}"
            )
        if before.values[along] != DATETIME:
            raise DefinitionError(
                f"aggregate: along names {along}, which is {type_name(before.values[along])}, not datetime; "
                f"possible: {instants}"
            )
        if operator.window is not None:
            raise DefinitionError(f"aggregate: along={along} can't go with a window of groupby")
        if operator.emit is Emit.FINAL:
            raise DefinitionError(f'aggregate: along={along} can\'t go with emit="final"')
    if operator.emit is Emit.FINAL:
        for aggregate in operator.aggregates:
            if TRAITS[aggregate.function].changes_while_read:
                raise DefinitionError(
                    f"aggregate: {aggregate.into} is an {function_name(aggregate.function)}, which never comes to "
                    'rest; emit="final" is impossible'
                )


def _check_closing(operator: Aggregate) -> None:
    windows = [operator.window] if operator.window is not None else [a.window for a in operator.aggregates]
    if operator.by_clock and not any(isinstance(window, HoppingWindow) for window in windows):
        raise DefinitionError(
            'aggregate: closes="processing_time" is for Tumbling and Hopping windows; '
            f"{listed(print_window(window) for window in windows if window is not None)} never waits to be closed"
        )


def _is_read_time(operator: Aggregate) -> bool:
    """Return whether the values are computed when they are read, so that no step can consume them."""
    decays = any(TRAITS[a.function].changes_while_read for a in operator.aggregates)
    continuous = any(isinstance(a.window, ContinuousWindow) for a in operator.aggregates)
    return decays or (continuous and operator.emit is Emit.EAGER)
