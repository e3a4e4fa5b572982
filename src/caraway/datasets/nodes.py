"""The operators of a pipeline as methods: each checks its input and gives a new node."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from caraway.datasets.aggregates import AggregateType
from caraway.dtypes.annotations import annotation_of
from caraway.dtypes.durations import FOREVER, parse_duration
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.expr.expr import Expr, TypedExpr
from caraway.graph.operators import (
    Aggregate,
    Assign,
    AssignedColumn,
    Drop,
    Filter,
    Join,
    JoinKind,
    Latest,
    Operator,
    Rename,
    Select,
)
from caraway.graph.schemas import Schema, group_keys, join_schema, require_not_terminal, step_schema

if TYPE_CHECKING:
    from caraway.datasets.dataset import Dataset

_INSTEAD = {
    "transform": "use assign(column=expression.astype(type)) for each column",
    "dedup": "log each event once, or keep the newest row of a group by groupby(...).latest()",
    "dropnull": "use filter(~col(...).isnull()) and assign(column=col(...).fillnull(...).astype(type))",
    "explode": "log a row for each element",
    "union": "give the dataset several sources, or a pipeline for each input",
    "changelog": "aggregate the keyed dataset directly",
    "first": "use groupby(...).latest() for the newest row",
}


def not_yet(what: str) -> DefinitionError:
    """Make the error for a part of the API that isn't built yet."""
    return DefinitionError(f"{what} isn't available yet; {_INSTEAD[what]}")


class Node:
    """A step of a pipeline: an operator over earlier ones, with its schema."""

    def __init__(self, operator: Operator, schema: Schema) -> None:
        self._operator = operator
        self._schema = schema

    # Long names: those of a dataset's columns must not be taken.
    @property
    def node_operator(self) -> Operator:
        """The operator tree up to here."""
        return self._operator

    @property
    def node_schema(self) -> Schema:
        """The columns that come out."""
        return self._schema

    def schema(self) -> dict[str, Any]:
        """Return the columns and their types: keys, values, timestamp."""
        return {name: annotation_of(dtype, pandas=True) for name, dtype in self._schema.columns.items()}

    def _step(self, operator: Filter | Assign | Select | Drop | Rename) -> "Node":
        return Node(operator, step_schema(operator, self._schema))

    def filter(self, func: Any) -> "Node":  # noqa: ANN401 (checked here)
        """Keep the rows for which an expression is true.

        Raises:
            DefinitionTypeError: The expression isn't bool.
            DefinitionError: It is no expression, or refers to an unknown column.
        """
        if not isinstance(func, Expr):
            if callable(func):
                raise DefinitionError(
                    "filter by a Python function isn't available yet; use an expression: filter(col(...) > 0)"
                )
            raise DefinitionError(f"filter takes an expression without astype, not {_kind(func)}")
        return self._step(Filter(of=self._operator, predicate=func.node))

    def assign(self, *args: Any, **columns: Any) -> "Node":  # noqa: ANN401 (checked here)
        """Add value columns, or replace them: `assign(total=(col("a") + col("b")).astype(float))`.

        All expressions see the input, not each other.

        Raises:
            DefinitionTypeError: An expression has no declared type, or its own doesn't fit that.
            DefinitionError: A column can't be assigned, or an expression refers to an unknown column.
        """
        if args and columns:
            raise DefinitionError("assign: give columns as keywords only: assign(total=expression.astype(float))")
        if args:
            raise DefinitionError(
                "assign by a Python function isn't available yet; use an expression: "
                "assign(total=expression.astype(float))"
            )
        if {"name", "dtype", "func"} <= columns.keys():
            raise DefinitionTypeError(
                "assign: name, dtype and func are positional; better: assign(total=expression.astype(float))"
            )
        if not columns:
            raise DefinitionError("assign: name at least one column: assign(total=expression.astype(float))")
        assigned = tuple(_assigned(name, value) for name, value in columns.items())
        return self._step(Assign(of=self._operator, columns=assigned))

    def select(self, *args: Any, columns: list[str] | None = None) -> "Node":  # noqa: ANN401 (checked here)
        """Keep the keys, the timestamp and the named columns.

        Raises:
            DefinitionError: A column is unknown, or a key isn't named.
        """
        names = _names("select", args, columns)
        require_not_terminal(self._schema, "select")
        if len({*names, self._schema.timestamp}) == len(self._schema.columns):
            warnings.warn("select: all columns are selected, so it has no effect", stacklevel=2)
            return self
        return self._step(Select(of=self._operator, columns=names))

    def drop(self, *args: Any, columns: list[str] | None = None) -> "Node":  # noqa: ANN401 (checked here)
        """Leave out value columns.

        Raises:
            DefinitionError: A column is unknown, a key or the timestamp.
        """
        return self._step(Drop(of=self._operator, columns=_names("drop", args, columns)))

    def rename(self, columns: dict[str, str]) -> "Node":
        """Rename columns, one after the other; keys and timestamp keep their role.

        Raises:
            DefinitionError: An old name is unknown, or a new one is taken.
        """
        if not isinstance(columns, dict):
            raise DefinitionError(f'rename takes a dict {{"old": "new"}}, not {_kind(columns)}')
        return self._step(Rename(of=self._operator, pairs=tuple((str(old), str(new)) for old, new in columns.items())))

    def groupby(self, *args: Any, window: Any = None) -> "GroupBy":  # noqa: ANN401 (checked here)
        """Group rows by columns; `aggregate` or `latest` must follow.

        Raises:
            DefinitionError: A column is unknown or the timestamp.
        """
        if window is not None:
            raise DefinitionError(
                "groupby over a window isn't available yet; give each aggregate its window: Sum(..., "
                'window=Continuous("1d"))'
            )
        require_not_terminal(self._schema, "groupby")
        keys = _names("groupby", args, None)
        group_keys(keys, self._schema)
        return GroupBy(self, keys)

    def join(  # noqa: PLR0917 (the API's signature)
        self,
        other: "Dataset",
        how: str,
        on: list[str] | None = None,
        left_on: list[str] | None = None,
        right_on: list[str] | None = None,
        within: tuple[str, str] = (FOREVER, "0s"),
        fields: list[str] | None = None,
    ) -> "Node":
        """Add to each row the columns of a keyed dataset as they are at the row's time.

        Args:
            other: The right side: a keyed dataset that is an input of the pipeline.
            how: "inner" drops rows without a match, "left" keeps them with nulls.
            on: The keys of the right side, if they are called the same on the left.
            left_on: Left columns that are matched with `right_on`.
            right_on: The keys of the right side.
            within: How long before and how long after the row's time a match may lie, both inclusive.
            fields: The right columns to add; all value columns by default.

        Raises:
            DefinitionError: The sides don't fit together.
            DefinitionTypeError: The types of paired columns don't, or `other` is no dataset.
        """
        operator = _join(self._operator, other, how, (on, left_on, right_on), within, fields)
        return Node(operator, join_schema(operator, self._schema, other.to_spec()))

    def transform(self, *_args: object, **_named: object) -> NoReturn:
        """Refuse: not built yet."""
        raise not_yet("transform")

    def dedup(self, *_args: object, **_named: object) -> NoReturn:
        """Refuse: not built yet."""
        raise not_yet("dedup")

    def dropnull(self, *_args: object, **_named: object) -> NoReturn:
        """Refuse: not built yet."""
        raise not_yet("dropnull")

    def explode(self, *_args: object, **_named: object) -> NoReturn:
        """Refuse: not built yet."""
        raise not_yet("explode")

    def changelog(self, *_args: object, **_named: object) -> NoReturn:
        """Refuse: not built yet."""
        raise not_yet("changelog")

    def __add__(self, _other: object) -> NoReturn:
        raise not_yet("union")


class GroupBy:
    """Rows grouped by columns: not a step yet."""

    def __init__(self, node: Node, keys: tuple[str, ...]) -> None:
        self._node = node
        self._keys = keys

    def latest(self) -> Node:
        """Keep the newest row of each group: a dataset keyed by the grouping columns.

        Raises:
            DefinitionTypeError: The input is keyed.
        """
        operator = Latest(of=self._node.node_operator, keys=self._keys)
        return Node(operator, step_schema(operator, self._node.node_schema))

    def first(self) -> NoReturn:
        """Refuse: not built yet."""
        raise not_yet("first")

    def aggregate(
        self,
        *args: Any,  # noqa: ANN401 (checked here)
        along: str | None = None,
        emit: str = "eager",
        **named: Any,  # noqa: ANN401 (checked here)
    ) -> Node:
        """Compute aggregates over the rows of each group: `aggregate(total=Sum(of="amount", window=Continuous("1d")))`.

        Raises:
            DefinitionError: An aggregate doesn't fit the input, or two have one output column.
            DefinitionTypeError: An aggregate isn't defined for its column's type, or there are none.
        """
        for reserved, value in (("along", along), ("emit", emit)):
            if isinstance(value, AggregateType):
                raise DefinitionError(f"aggregate: {reserved} is reserved; choose another name for the column")
        if along is not None:
            raise DefinitionError(
                "aggregate: along= isn't available yet; rename the column to the timestamp's place instead"
            )
        if emit != "eager":
            raise DefinitionError(f'aggregate: emit is "eager" ("final" isn\'t available yet), not {emit!r}')
        before = self._node.node_schema
        require_not_terminal(before, "aggregate")
        specs = tuple(aggregate.to_spec(before) for aggregate in _aggregates(args, named))
        operator = Aggregate(of=self._node.node_operator, keys=self._keys, aggregates=specs)
        return Node(operator, step_schema(operator, before))


def _aggregates(args: tuple[Any, ...], named: dict[str, Any]) -> list[AggregateType]:
    positional = list(args[0]) if len(args) == 1 and isinstance(args[0], (list, tuple)) else list(args)
    if not positional and not named:
        raise (DefinitionError if args else DefinitionTypeError)("aggregate: name at least one aggregate")
    for column, aggregate in [*((None, a) for a in positional), *named.items()]:
        if not isinstance(aggregate, AggregateType):
            where = f"column {column}" if column else "an argument"
            raise DefinitionError(f"aggregate: {where} is {_kind(aggregate)}, not an aggregate such as Sum(...)")
    return [*positional, *(replace(aggregate, into_field=column) for column, aggregate in named.items())]


def _assigned(name: str, value: object) -> AssignedColumn:
    if isinstance(value, TypedExpr):
        return AssignedColumn(name=name, dtype=value.data_type, expr=value.expr.node)
    if isinstance(value, Expr):
        raise DefinitionTypeError(f"assign: column {name} needs a type: {name}=({value}).astype(...)")
    raise DefinitionError(f"assign: column {name} is {_kind(value)}, not an expression; use lit({value!r}).astype(...)")


def _names(operator: str, args: tuple[Any, ...], columns: list[str] | None) -> tuple[str, ...]:
    if args and columns is not None:
        raise DefinitionError(f"{operator}: give the columns by position or as columns=, not both")
    found: Sequence[Any]
    if columns is not None:
        found = columns
    elif len(args) == 1 and isinstance(args[0], (list, tuple)):
        found = args[0]
    elif args:
        found = args
    else:
        raise DefinitionError(f"{operator}: name at least one column")
    return tuple(str(name) for name in found)


def _join(  # noqa: PLR0917 (the API's signature)
    left: Operator,
    other: Any,  # noqa: ANN401 (checked here)
    how: str,
    ons: tuple[list[str] | None, list[str] | None, list[str] | None],
    within: tuple[str, str],
    fields: list[str] | None,
) -> Join:
    if not hasattr(other, "to_spec"):
        if isinstance(other, Node):
            raise DefinitionError("join: the right side is a step of the pipeline; it must be a dataset of its own")
        raise DefinitionTypeError(f"join: the right side is a dataset, not {_kind(other)}")
    where = f"join with {other.fqn()}"
    if how not in tuple(JoinKind):
        raise DefinitionError(f'{where}: how is "inner" or "left", not {how!r}')
    on, left_on, right_on = ons
    if (on is None) == (left_on is None and right_on is None) or (left_on is None) != (right_on is None):
        raise DefinitionError(f"{where}: give either on=, or left_on= and right_on=")
    for names in (on, left_on, right_on):
        if names is not None and not isinstance(names, (list, tuple)):
            raise DefinitionError(f"{where}: the columns to join on are a list, not {names!r}")
    low_us, high_us = _within(where, within)
    value_columns = tuple(other.node_schema.values)
    return Join(
        left=left,
        right=other.fqn(),
        how=JoinKind(how),
        left_on=tuple(str(name) for name in (on or left_on or ())),
        right_on=tuple(str(name) for name in (on or right_on or ())),
        within_low_us=low_us,
        within_high_us=high_us,
        fields=tuple(str(name) for name in fields) if fields else value_columns,
    )


def _within(where: str, within: tuple[str, str]) -> tuple[int | None, int]:
    if not isinstance(within, (tuple, list)) or len(within) != 2 or None in within or within[1] == FOREVER:  # type: ignore[redundant-expr]  # users pass anything
        raise DefinitionError(
            f'{where}: within is two durations such as ("1d", "0s"), the first may be "forever"; not {within!r}'
        )
    try:
        return None if within[0] == FOREVER else parse_duration(within[0]), parse_duration(within[1])
    except (DefinitionError, DefinitionTypeError) as error:
        raise DefinitionError(f"{where}: within={within!r}: {error}") from None


def _kind(value: object) -> str:
    return f"{type(value).__name__} {value!r}"
