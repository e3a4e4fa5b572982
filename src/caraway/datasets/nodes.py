"""The operators of a pipeline as methods: each checks its input and returns a new node."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import pandas as pd

from caraway.datasets.arguments import (
    assigned_column,
    column_name,
    column_names,
    column_type,
    kind,
    required_names,
    schema_columns,
)
from caraway.datasets.groups import GroupBy
from caraway.datasets.joins import Name, Names, join_operator
from caraway.datasets.windows import window_spec
from caraway.dtypes.annotations import annotation_of
from caraway.dtypes.durations import FOREVER
from caraway.dtypes.types import is_optional
from caraway.dtypes.windows import Hopping, Session, Tumbling
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.expr.expr import Expr, TypedExpr
from caraway.graph import operators as ops
from caraway.graph.capture.shipping import python_function
from caraway.graph.functions import PythonFunction
from caraway.graph.schemas import Schema, join_schema, require_not_terminal, step_schema, union_schema
from caraway.graph.tracing.frames import trace_column, trace_filter

if TYPE_CHECKING:
    from caraway.datasets.dataset import Dataset

# The helper functions that `@includes` names on the pipeline whose function is running now.
_included: ContextVar[tuple[Callable[..., Any], ...]] = ContextVar("caraway_pipeline_includes", default=())


@contextmanager
def including(helpers: tuple[Callable[..., Any], ...]) -> Iterator[None]:
    """Add helpers to the users' functions of all operators that are made inside of the context."""
    token = _included.set(helpers)
    try:
        yield
    finally:
        _included.reset(token)


class Node:
    """A step of a pipeline: an operator over the operators of earlier steps, with the schema of its output."""

    def __init__(self, operator: ops.Operator, schema: Schema) -> None:
        self._operator = operator
        self._schema = schema
        self._out_edges = 0

    # The names begin with `node_`, because a dataset is a node and has its columns as attributes.
    @property
    def node_operator(self) -> ops.Operator:
        """The operator tree up to here."""
        return self._operator

    @property
    def node_schema(self) -> Schema:
        """The columns of the output."""
        return self._schema

    def schema(self) -> dict[str, Any]:
        """Return the columns and their types: keys, values, timestamp."""
        return {name: annotation_of(dtype, pandas=True) for name, dtype in self._schema.columns.items()}

    def num_out_edges(self) -> int:
        """Return how many steps consume the rows of this one."""
        return self._out_edges

    def count_out_edge(self) -> None:
        """Count a step that consumes the rows of this one."""
        self._out_edges += 1

    def add_step(self, operator: ops.Operator) -> "Dataset":
        """Return a new step after this one, by an operator whose only input is the operator of this step."""
        node = Node(operator, step_schema(operator, self._schema))
        self.count_out_edge()
        return _as_dataset(node)

    def filter(self, func: Expr | Callable[[pd.DataFrame], Any]) -> "Dataset":
        """Keep the rows for which an expression, or a function of the frame, is true.

        Raises:
            DefinitionTypeError: The expression isn't bool.
            DefinitionError: `func` is neither expression nor function, or refers to an unknown column.
        """
        if isinstance(func, Expr):
            return self.add_step(ops.Filter(of=self._operator, predicate=func.node))
        if not callable(func):
            raise DefinitionError(f"filter takes an expression without astype or a function, not {kind(func)}")
        function, traced = _function("filter", func), trace_filter(func, self._schema.columns)
        return self.add_step(ops.FilterFunction(of=self._operator, function=function, traced=traced))

    @overload
    def assign(self, **columns: TypedExpr) -> "Dataset": ...
    @overload
    def assign(self, name: Name, dtype: Any, func: Callable[[pd.DataFrame], Any], /) -> "Dataset": ...
    def assign(self, *args: Any, **columns: Any) -> "Dataset":
        """Add value columns, or replace them: `assign(total=(col("a") + col("b")).astype(float))`.

        All expressions see the input, not each other. The other form is `assign("total", float, function)`, with a
        function of the frame.

        Raises:
            DefinitionTypeError: An expression has no declared type, or isn't of the declared one.
            DefinitionError: A column can't be assigned, or an expression refers to an unknown column.
        """
        usage = 'assign(total=expression.astype(float)) or assign("total", float, function)'
        if args and columns:
            raise DefinitionError(f"assign: give columns by keyword or three arguments by position, not both: {usage}")
        if args:
            if len(args) != 3:
                raise DefinitionError(f"assign: name, type and function are three arguments, not {len(args)}: {usage}")
            return self._assign_function(*args)
        if {"name", "dtype", "func"} <= columns.keys():
            raise DefinitionTypeError(f"assign: name, dtype and func go by position: {usage}")
        if not columns:
            raise DefinitionError(f"assign: name at least one column: {usage}")
        assigned = tuple(assigned_column(name, value) for name, value in columns.items())
        return self.add_step(ops.Assign(of=self._operator, columns=assigned))

    def _assign_function(self, name: Any, dtype: Any, func: Any) -> "Dataset":
        column = column_name("assign", name)
        if not callable(func):
            hint = f"; an expression goes by keyword: {column}=expression.astype(...)" if isinstance(func, Expr) else ""
            raise DefinitionError(f"assign: column {column}: the third argument is a function, not {kind(func)}{hint}")
        declared = column_type("assign", column, dtype)
        function = _function(f"assign: column {column}", func)
        traced = trace_column(func, self._schema.columns, declared)
        return self.add_step(
            ops.AssignFunction(of=self._operator, column=column, dtype=declared, function=function, traced=traced)
        )

    def transform(self, func: Callable[[pd.DataFrame], Any], schema: Mapping[Any, Any] | None = None) -> "Dataset":
        """Apply a function of the frame that returns a frame with as many rows.

        Args:
            func: The function, which doesn't change keys and timestamp.
            schema: The complete output schema, {column: type}; by default that of the input.

        Raises:
            DefinitionTypeError: The schema lacks the timestamp or a key, or has another type for one of them.
            DefinitionError: `func` is no function, or `schema` no dict of names and types.
        """
        if not callable(func):
            raise DefinitionError(f"transform takes a function of the frame, not {kind(func)}")
        columns = schema_columns("transform", schema, self._schema.timestamp) if schema else None
        function = _function("transform", func)
        return self.add_step(ops.Transform(of=self._operator, function=function, columns=columns))

    def select(self, *args: Name | Names, columns: Names | None = None) -> "Dataset":
        """Keep the keys, the timestamp and the named columns.

        Raises:
            DefinitionError: A column is unknown, or a key isn't named.
        """
        names = required_names("select", args, columns)
        require_not_terminal(self._schema, "select")
        if len({*names, self._schema.timestamp}) == len(self._schema.columns):
            warnings.warn("select: all columns are selected, so it has no effect", stacklevel=2)
            return _as_dataset(self)
        return self.add_step(ops.Select(of=self._operator, columns=names))

    def drop(self, *args: Name | Names, columns: Names | None = None) -> "Dataset":
        """Remove value columns.

        Raises:
            DefinitionError: A column is unknown, a key or the timestamp.
        """
        return self.add_step(ops.Drop(of=self._operator, columns=required_names("drop", args, columns)))

    def dropnull(self, *args: Name | Names, columns: Names | None = None) -> "Dataset":
        """Remove rows with a null in one of the columns, which are no longer optional in the output.

        If no columns are named, all optional columns count.

        Raises:
            DefinitionError: A column is unknown or not optional.
        """
        names = column_names("dropnull", args, columns)
        if names == ():
            raise DefinitionError("dropnull: name at least one column, or none at all for all optional ones")
        if names is None:
            names = tuple(name for name, dtype in self._schema.columns.items() if is_optional(dtype))
        return self.add_step(ops.DropNull(of=self._operator, columns=tuple(dict.fromkeys(names))))

    def rename(self, columns: Mapping[Any, Name]) -> "Dataset":
        """Rename columns, one after the other; keys and timestamp keep their role.

        Raises:
            DefinitionError: An old name is unknown, or a new one is taken.
        """
        if not isinstance(columns, Mapping):
            raise DefinitionError(f'rename takes a dict {{"old": "new"}}, not {kind(columns)}')
        pairs = tuple((column_name("rename", old), column_name("rename", new)) for old, new in columns.items())
        return self.add_step(ops.Rename(of=self._operator, pairs=pairs))

    def explode(self, *args: Name | Names, columns: Names | None = None) -> "Dataset":
        """Make a row of each element of list columns, which are walked in lock-step; an empty list gives a null.

        Raises:
            DefinitionTypeError: The input is keyed.
            DefinitionError: A column is unknown or no list.
        """
        return self.add_step(ops.Explode(of=self._operator, columns=required_names("explode", args, columns)))

    def dedup(self, *args: Name, by: Name | Names | None = None, window: Tumbling | Session | None = None) -> "Dataset":
        """Keep the last row of each group of duplicates.

        Args:
            args: The columns that duplicates have in common.
            by: The same columns as a list, or one name; by default all value columns.
            window: `Tumbling` or `Session`, in which rows are duplicates; by default their timestamps must be equal.

        Raises:
            DefinitionTypeError: The window is of another kind.
            DefinitionError: The input is keyed, a column is unknown or the timestamp.
        """
        if args and by is not None:
            raise DefinitionError("dedup: give the columns by position or as by=, not both")
        given = args if by is None else (by if isinstance(by, (list, tuple)) else (by,))
        names = tuple(dict.fromkeys(column_name("dedup", name) for name in given))
        if by is None and not args:
            names = tuple(self._schema.values)
        if window is not None and not isinstance(window, (Tumbling, Session)):
            raise DefinitionTypeError(f"dedup: the window is Tumbling or Session, not {kind(window)}")
        spec = None if window is None else window_spec(window)
        return self.add_step(ops.Dedup(of=self._operator, by=names, window=spec))

    @overload
    def changelog(self, *, delete: Name) -> "Dataset": ...
    @overload
    def changelog(self, *, insert: Name) -> "Dataset": ...
    def changelog(self, *, delete: Name | None = None, insert: Name | None = None, **_others: object) -> "Dataset":
        """Convert the changes of a keyed input to keyless rows: an update is a delete and an insert.

        Args:
            delete: Name of an added bool column that is true on deletes.
            insert: In place of `delete`, name of an added bool column that is true on inserts.

        Raises:
            DefinitionTypeError: The input has no keys.
            DefinitionError: Not exactly one name is given, or it is taken.
        """
        if (delete is None) == (insert is None):
            raise DefinitionError('changelog: give one of delete="column" and insert="column"')
        column = column_name("changelog", insert if delete is None else delete)
        return self.add_step(ops.Changelog(of=self._operator, column=column, marks_inserts=delete is None))

    def groupby(self, *args: Name | Names, window: Hopping | Tumbling | Session | None = None) -> GroupBy:
        """Group rows by columns; `first`, `latest` or `aggregate` must follow.

        Args:
            args: The columns, or one list of them.
            window: `Hopping`, `Tumbling` or `Session`; a group then has the rows of one window, which becomes a key.

        Raises:
            DefinitionTypeError: The window is of another kind.
            DefinitionError: A column is unknown or the timestamp.
        """
        return GroupBy(self, args, window)

    def join(
        self,
        other: "Dataset",
        how: Literal["inner", "left"],
        on: Names | None = None,
        left_on: Names | None = None,
        right_on: Names | None = None,
        within: tuple[str, str] = (FOREVER, "0s"),
        fields: Names | None = None,
    ) -> "Dataset":
        """Add to each row the columns of a keyed dataset as they are at the row's time.

        If the left side is keyed, the result is a dataset with its keys that changes whenever one of the sides does.

        Args:
            other: The right side: a keyed dataset that is an input of the pipeline.
            how: "inner" drops rows without a match, "left" keeps them with nulls.
            on: The keys of the right side, if they are called the same on the left.
            left_on: Left columns that are matched with `right_on`.
            right_on: The keys of the right side.
            within: How long before and how long after the row's time a match may lie, both inclusive; of no effect if
                the left side is keyed.
            fields: The right columns to add; all value columns by default.

        Raises:
            DefinitionError: The sides don't fit together.
            DefinitionTypeError: The types of paired columns don't fit, or `other` is no dataset.
        """
        operator = join_operator(self._operator, other, how, (on, left_on, right_on), within, fields)
        node = Node(operator, join_schema(operator, self._schema, other.node_spec))
        self.count_out_edge()
        other.count_out_edge()
        return _as_dataset(node)

    def __add__(self, other: "Node") -> "Dataset":
        """Return the rows of both sides, duplicates kept.

        Raises:
            DefinitionTypeError: A side is keyed, or no step of a pipeline.
            DefinitionError: The sides have different columns.
        """
        if not isinstance(other, Node):
            raise DefinitionTypeError(f"union: the right side is a dataset or a step of a pipeline, not {kind(other)}")
        node = Node(ops.Union(left=self._operator, right=other._operator), union_schema(self._schema, other._schema))
        self.count_out_edge()
        other.count_out_edge()
        return _as_dataset(node)


def _as_dataset(node: Node) -> "Dataset":
    """Return a step with the type of a dataset, so that type checkers allow `orders = orders.filter(...)`."""
    return cast("Dataset", node)


def _function(where: str, function: Callable[..., Any]) -> PythonFunction:
    return python_function(where, function, _included.get())
