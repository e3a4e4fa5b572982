"""What goes into and comes out of each operator: schemas, and the checks that keep them sound.

The decorators call these functions while a pipeline is defined, control calls them again on what was committed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, singledispatch

from caraway.dtypes.types import (
    BOOL,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    DataType,
    DecimalType,
    base_type,
    is_optional,
    optional,
    strip_optional,
    type_name,
)
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.expr.inference import infer_nullable
from caraway.expr.printer import print_node
from caraway.expr.promotion import promotes
from caraway.graph.operators import (
    Aggregate,
    AggregateFunction,
    Assign,
    Drop,
    Filter,
    Input,
    Join,
    JoinKind,
    Latest,
    Operator,
    Rename,
    Select,
)
from caraway.graph.specs import DatasetSpec

# Aggregates whose value over all time can take back what a keyed input replaces, from sums alone.
REVERSIBLE = frozenset(
    {AggregateFunction.COUNT, AggregateFunction.SUM, AggregateFunction.AVERAGE, AggregateFunction.STDDEV}
)
ORDERED_FUNCTIONS = frozenset({AggregateFunction.MIN, AggregateFunction.MAX})


@dataclass(frozen=True)
class Schema:
    """Columns of a dataset or of an operator's output: keys, values, and the name of the time stamp."""

    keys: Mapping[str, DataType]
    values: Mapping[str, DataType]
    timestamp: str
    #: True after an aggregate over continuous windows: its values come into being at read time, so nothing may follow.
    terminal: bool = field(default=False, compare=False)

    @cached_property
    def columns(self) -> dict[str, DataType]:
        """All columns: keys, values, time stamp."""
        return {**self.keys, **self.values, self.timestamp: DATETIME}


def schema_of_dataset(spec: DatasetSpec) -> Schema:
    """Return the schema of a dataset."""
    return Schema(
        keys={f.name: f.dtype for f in spec.fields if f.key},
        values={f.name: f.dtype for f in spec.fields if not f.key and not f.timestamp},
        timestamp=spec.timestamp,
    )


def schema_of(operator: Operator, datasets: Mapping[str, DatasetSpec]) -> Schema:
    """Compute the output schema of an operator tree and check every step of it.

    Args:
        operator: The tree.
        datasets: The datasets that it reads, by name.

    Raises:
        DefinitionError: A step doesn't fit its input; the message names the operator, the bad part and what is
        possible. DefinitionTypeError: The same, where the API has a TypeError.
    """
    match operator:
        case Input():
            if operator.dataset not in datasets:
                known = ", ".join(datasets) or "none"
                raise DefinitionError(f"unknown input dataset {operator.dataset}; datasets: {known}")
            return schema_of_dataset(datasets[operator.dataset])
        case Join():
            left = schema_of(operator.left, datasets)
            if operator.right not in datasets:
                raise DefinitionError(f"join: unknown dataset {operator.right}; datasets: {', '.join(datasets)}")
            return join_schema(operator, left, datasets[operator.right])
        case Filter() | Assign() | Select() | Drop() | Rename() | Latest() | Aggregate():
            return step_schema(operator, schema_of(operator.of, datasets))


def _value_columns(schema: Schema) -> str:
    return f"value columns: {', '.join(schema.values) or 'none'}"


@singledispatch
def step_schema(operator: Operator, before: Schema) -> Schema:
    """Compute the schema after an operator with one input, given the schema before it."""
    raise NotImplementedError(f"no schema rule for {type(operator).__name__}")


def require_not_terminal(before: Schema, operator: str) -> None:
    """Refuse to put anything behind an aggregate over continuous windows.

    Raises:
        DefinitionError: The input ends in such an aggregate.
    """
    if before.terminal:
        raise DefinitionError(
            f"{operator}: nothing can follow an aggregate over continuous windows, whose values come into "
            "being when they "
            f"are read; put {operator} before the aggregate"
        )


@step_schema.register
def _(operator: Filter, before: Schema) -> Schema:
    require_not_terminal(before, "filter")
    found = infer_nullable(operator.predicate, before.columns)
    if found != BOOL:
        hint = "; fill its nulls first: .fillnull(False)" if found is not None and strip_optional(found) == BOOL else ""
        spelled = "null" if found is None else type_name(found)
        raise DefinitionTypeError(f"filter: {print_node(operator.predicate)} is {spelled}, not bool{hint}")
    return before


@step_schema.register
def _(operator: Assign, before: Schema) -> Schema:
    require_not_terminal(before, "assign")
    fixed = {*before.keys, before.timestamp}
    problems = []
    values = dict(before.values)
    for column in operator.columns:
        if not column.name:
            raise DefinitionError("assign: a column needs a name")
        if column.name in fixed:
            role = "the timestamp" if column.name == before.timestamp else "a key"
            raise DefinitionError(f"assign: {column.name} is {role}, which can't be assigned; {_value_columns(before)}")
        try:
            found = infer_nullable(column.expr, before.columns)
        except DefinitionError as error:
            raise DefinitionError(f"assign: column {column.name}: {error}") from None
        if not promotes(found, column.dtype):
            spelled = "null" if found is None else type_name(found)
            problems.append(
                f"column {column.name} is declared {type_name(column.dtype)}, but {print_node(column.expr)} "
                f"is {spelled}"
            )
        values[column.name] = column.dtype
    if problems:
        raise DefinitionTypeError("assign: " + "; ".join(problems))
    return Schema(keys=before.keys, values=values, timestamp=before.timestamp)


@step_schema.register
def _(operator: Select, before: Schema) -> Schema:
    require_not_terminal(before, "select")
    for name in operator.columns:
        if name not in before.columns:
            raise DefinitionError(f"select: unknown column {name}; columns: {', '.join(before.columns)}")
    for key in before.keys:
        if key not in operator.columns:
            raise DefinitionError(f"select: key {key} is missing; all keys must be selected: {', '.join(before.keys)}")
    values = {name: before.values[name] for name in operator.columns if name in before.values}
    return Schema(keys=before.keys, values=values, timestamp=before.timestamp)


@step_schema.register
def _(operator: Drop, before: Schema) -> Schema:
    require_not_terminal(before, "drop")
    if not operator.columns:
        raise DefinitionError("drop: name at least one column")
    for name in operator.columns:
        if name not in before.columns:
            raise DefinitionError(f"drop: unknown column {name}; {_value_columns(before)}")
        if name not in before.values:
            role = "the timestamp" if name == before.timestamp else "a key"
            raise DefinitionError(f"drop: {name} is {role}, which can't be dropped; {_value_columns(before)}")
    values = {name: dtype for name, dtype in before.values.items() if name not in operator.columns}
    return Schema(keys=before.keys, values=values, timestamp=before.timestamp)


@step_schema.register
def _(operator: Rename, before: Schema) -> Schema:
    require_not_terminal(before, "rename")
    if not operator.pairs:
        raise DefinitionError("rename: name at least one column")
    keys, values, timestamp = dict(before.keys), dict(before.values), before.timestamp
    for old, new in operator.pairs:
        columns = [*keys, *values, timestamp]
        if old not in columns:
            raise DefinitionError(f"rename: unknown column {old}; columns: {', '.join(columns)}")
        if new in columns:
            raise DefinitionError(f"rename: {old} can't become {new}: there is a column {new} already")
        if not new:
            raise DefinitionError(f"rename: {old} needs a new name that isn't empty")
        keys = {new if name == old else name: dtype for name, dtype in keys.items()}
        values = {new if name == old else name: dtype for name, dtype in values.items()}
        timestamp = new if timestamp == old else timestamp
    return Schema(keys=keys, values=values, timestamp=timestamp)


@step_schema.register
def _(operator: Latest, before: Schema) -> Schema:
    require_not_terminal(before, "latest")
    if before.keys:
        raise DefinitionTypeError(f"latest: the input must be keyless, but has the keys {', '.join(before.keys)}")
    keys = group_keys(operator.keys, before)
    values = {name: dtype for name, dtype in before.values.items() if name not in keys}
    return Schema(keys=keys, values=values, timestamp=before.timestamp)


def group_keys(keys: tuple[str, ...], before: Schema) -> dict[str, DataType]:
    """Return the types of grouping columns after checking them.

    Raises:
        DefinitionError: There are none, one is unknown, is the timestamp or comes twice.
    """
    if not keys:
        raise DefinitionError("groupby: name at least one column")
    for name in keys:
        if name == before.timestamp:
            raise DefinitionError(f"groupby: {name} is the timestamp, by which rows can't be grouped")
        if name not in before.columns:
            raise DefinitionError(f"groupby: unknown column {name}; columns: {', '.join(before.columns)}")
        if keys.count(name) > 1:
            raise DefinitionError(f"groupby: column {name} is named twice")
    return {name: before.columns[name] for name in keys}


@step_schema.register
def _(operator: Aggregate, before: Schema) -> Schema:
    require_not_terminal(before, "aggregate")
    keys = group_keys(operator.keys, before)
    if not operator.aggregates:
        raise DefinitionTypeError("aggregate: name at least one aggregate")
    if before.keys:
        _require_reversible(operator, before)
    taken = {*keys, before.timestamp}
    values: dict[str, DataType] = {}
    for aggregate in operator.aggregates:
        if aggregate.into in taken:
            raise DefinitionError(f"aggregate: column {aggregate.into} stands twice in the output")
        taken.add(aggregate.into)
        expected = aggregate_type(
            aggregate.function, aggregate.of, before, nullable=aggregate.default is None, into=aggregate.into
        )
        if aggregate.dtype != expected:
            raise DefinitionTypeError(
                f"aggregate: column {aggregate.into} is {type_name(aggregate.dtype)}, must be {type_name(expected)}"
            )
        values[aggregate.into] = aggregate.dtype
    return Schema(keys=keys, values=values, timestamp=before.timestamp, terminal=True)


def aggregate_type(
    function: AggregateFunction, of: str | None, before: Schema, *, nullable: bool, into: str
) -> DataType:
    """Return the output type of an aggregate.

    Args:
        function: What it computes.
        of: The column that it reads; None for a plain count.
        before: The schema of its input.
        nullable: An empty window gives null.
        into: Name of the output column, for messages.

    Raises:
        DefinitionError: The column is unknown.
        DefinitionTypeError: The aggregate isn't defined for the column's type.
    """
    if function is AggregateFunction.COUNT and of is None:
        return INT
    where = f"aggregate: {into} = {function.title()}"
    if of is None or of not in before.columns:
        raise DefinitionError(f"{where}: unknown column {of}; columns: {', '.join(before.columns)}")
    found, base = before.columns[of], base_type(before.columns[of])
    if function is AggregateFunction.COUNT:
        return INT
    if isinstance(base, DecimalType):
        raise DefinitionTypeError(
            f"{where}: column {of} is {type_name(found)}; aggregates of Decimal columns aren't available "
            "yet, assign it as "
            "float where the data comes in"
        )
    allowed = (INT, FLOAT, DATE, DATETIME) if function in ORDERED_FUNCTIONS else (INT, FLOAT)
    if base not in allowed:
        names = ", ".join(type_name(dtype) for dtype in allowed)
        raise DefinitionTypeError(
            f"{where}: column {of} is {type_name(found)}; possible: {names}, or optional of these"
        )
    match function:
        case AggregateFunction.SUM:
            return base
        case AggregateFunction.AVERAGE | AggregateFunction.STDDEV:
            return optional(FLOAT) if nullable else FLOAT
        case AggregateFunction.MIN | AggregateFunction.MAX:
            return optional(base) if nullable else base


def _require_reversible(operator: Aggregate, before: Schema) -> None:
    for aggregate in operator.aggregates:
        if aggregate.window_us is not None or aggregate.function not in REVERSIBLE:
            raise DefinitionError(
                f"aggregate: {aggregate.into}: the input is keyed ({', '.join(before.keys)}), and its rows "
                "replace each "
                'other; over such an input Count, Sum, Average and Stddev over Continuous("forever") are possible'
            )


def join_schema(operator: Join, left: Schema, right: DatasetSpec) -> Schema:
    """Compute the schema after a join and check it.

    Raises:
        DefinitionError: The sides don't fit together.
        DefinitionTypeError: The types of paired columns don't.
    """
    require_not_terminal(left, "join")
    where = f"join with {right.name}"
    if left.keys:
        raise DefinitionError(
            f"{where}: the left side is keyed by {', '.join(left.keys)}; joins of two keyed datasets aren't "
            "available yet, "
            "join from a keyless one"
        )
    if right.name in datasets_read(operator.left):
        raise DefinitionError(f"{where}: {right.name} is on the left side too; a dataset can't be joined with itself")
    other = schema_of_dataset(right)
    if not other.keys:
        raise DefinitionError(f"{where}: {right.name} has no keys; the right side of a join is a keyed dataset")
    if set(operator.right_on) != set(other.keys) or len(operator.right_on) != len(other.keys):
        raise DefinitionError(
            f"{where}: joined on {', '.join(operator.right_on) or 'nothing'}, but the keys of {right.name} are "
            f"{', '.join(other.keys)}; all of them, and nothing else, must be given"
        )
    if len(operator.left_on) != len(operator.right_on):
        raise DefinitionError(
            f"{where}: {len(operator.left_on)} left columns for {len(operator.right_on)} right ones: "
            f"{', '.join(operator.left_on)} and {', '.join(operator.right_on)}"
        )
    for name, key in zip(operator.left_on, operator.right_on, strict=True):
        _require_pair(where, name, key, left, other)
    return Schema(
        keys=left.keys,
        values={**left.values, **_joined_columns(operator, where, left, other)},
        timestamp=left.timestamp,
    )


def _require_pair(where: str, name: str, key: str, left: Schema, other: Schema) -> None:
    if name not in left.columns:
        raise DefinitionError(f"{where}: unknown left column {name}; columns: {', '.join(left.columns)}")
    found, wanted = left.columns[name], other.keys[key]
    if is_optional(found):
        raise DefinitionTypeError(
            f"{where}: left column {name} is {type_name(found)}; a join column can't be optional, fill its nulls first"
        )
    if found != wanted:
        raise DefinitionTypeError(
            f"{where}: left column {name} is {type_name(found)}, but key {key} is {type_name(wanted)}; they "
            "must be equal"
        )


def _joined_columns(operator: Join, where: str, left: Schema, other: Schema) -> dict[str, DataType]:
    available = {**other.values, other.timestamp: DATETIME}
    names = operator.fields
    for name in names:
        if name not in available:
            raise DefinitionError(f"{where}: {name} is no column that can be joined; possible: {', '.join(available)}")
        if name in left.columns:
            raise DefinitionError(
                f"{where}: column {name} is on both sides; rename it on the left, or choose fields= without it"
            )
    if operator.how is JoinKind.INNER:
        return {name: available[name] for name in names}
    return {name: optional(base_type(available[name])) for name in names}


def datasets_read(operator: Operator) -> tuple[str, ...]:
    """Name the datasets that an operator tree reads, each once, in order of appearance."""
    match operator:
        case Input():
            names: tuple[str, ...] = (operator.dataset,)
        case Join():
            names = (*datasets_read(operator.left), operator.right)
        case Filter() | Assign() | Select() | Drop() | Rename() | Latest() | Aggregate():
            names = datasets_read(operator.of)
    return tuple(dict.fromkeys(names))


def schema_differences(found: Schema, declared: Schema) -> list[str]:
    """Compare a pipeline's output with its dataset's schema; return a line for each thing that differs."""
    problems = []
    if found.timestamp != declared.timestamp:
        problems.append(f"the timestamp is {found.timestamp} in the output, {declared.timestamp} in the dataset")
    for part, ours, theirs in (("key", found.keys, declared.keys), ("value", found.values, declared.values)):
        for name in [*ours, *(n for n in theirs if n not in ours)]:
            if name not in theirs:
                problems.append(
                    f"{part} {name} ({type_name(ours[name])}) is in the output but not in the dataset's {part}s"
                )
            elif name not in ours:
                problems.append(
                    f"{part} {name} ({type_name(theirs[name])}) of the dataset is not in the output's {part}s"
                )
            elif ours[name] != theirs[name]:
                problems.append(
                    f"{part} {name} is {type_name(ours[name])} in the output, {type_name(theirs[name])} in the dataset"
                )
    return problems
