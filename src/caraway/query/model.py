"""The physical plan of a query, which is a list of steps over named columns, as plain data.

A column is the list of a feature's values, one for each row, in stored form (docs/records.md). The name of a column is
the full name of its feature (`Set.feature`). A step reads columns that exist already and adds its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from caraway.dtypes.types import DataType
from caraway.expr.nodes import Node
from caraway.graph.specs import IndexSpec

# One instant for all rows, or one for each, in microseconds.
Instants = int | Sequence[int]


class Reader(Protocol):
    """The source of rows for queries: the index of a server, or the in-process engine of a test."""

    def read(
        self, dataset: str, keys: Sequence[tuple[object, ...]], at_us: Instants, columns: Sequence[str]
    ) -> tuple[list[list[object]], list[bool]]:
        """Read the rows of `keys` as of `at_us`.

        Args:
            dataset: Name of the dataset.
            keys: The values of the dataset's keys in declared order, in stored form; none of them is null.
            at_us: The time of each key, or one for all.
            columns: The names of fields. Key fields have the values of `keys`; the time stamp is that of the row found.

        Returns:
            For each column the values in stored form, one for each key; and for each key whether it was found. Values
            of a key that wasn't found are null, or the defaults of aggregates.
        """
        ...


@runtime_checkable
class AsyncReader(Reader, Protocol):
    """A reader that may have to ask other servers, and doesn't block the event loop meanwhile."""

    async def read_async(
        self, dataset: str, keys: Sequence[tuple[object, ...]], at_us: Instants, columns: Sequence[str]
    ) -> tuple[list[list[object]], list[bool]]:
        """Read the rows of `keys` as of `at_us`; see `read`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class InputColumn:
    """A column that the caller supplies; `dtype` is None for a feature that isn't in the graph."""

    name: str
    dtype: DataType | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPart:
    """A column that is part of a key, with its own type and that of the key field."""

    column: str
    dtype: DataType | None
    key: str
    key_dtype: DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedUp:
    """A feature taken from a field of a dataset; `default` (stored form) stands for null."""

    column: str
    field: str
    dtype: DataType
    default: object


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupStep:
    """A single read of all fields that a query wants from one dataset by one key.

    `keys` are in the order of the dataset. `absent` has the values of fields for a key that can't exist. With `each`,
    keys and features are lists, which are looked up element by element; types and defaults are those of the elements.
    """

    dataset: str
    indexed: IndexSpec
    keys: tuple[KeyPart, ...]
    features: tuple[LookedUp, ...]
    absent: Mapping[str, object]
    each: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasStep:
    """A column under another name; `default` (stored form) stands for null. `dtype` is the new column's."""

    input: str
    input_dtype: DataType | None
    output: str
    dtype: DataType
    default: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """A feature computed by an expression, which refers to features of its featureset by their bare names."""

    column: str
    dtype: DataType
    expr: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpressionStep:
    """Expressions of one featureset that don't depend on each other, evaluated together.

    `inputs` are the columns that they read: bare name, full name, type.
    """

    inputs: tuple[tuple[str, str, DataType], ...]
    features: tuple[Computed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedColumn:
    """A column and its type, which is None if the graph doesn't state it."""

    name: str
    dtype: DataType | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonStep:
    """A user's function. `kept` has those of its outputs that the caller doesn't supply."""

    featureset: str
    extractor: str
    inputs: tuple[TypedColumn, ...]
    outputs: tuple[tuple[str, DataType], ...]
    kept: tuple[str, ...]
    datasets: tuple[str, ...]
    pickled: bytes


Step = LookupStep | AliasStep | ExpressionStep | PythonStep


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPlan:
    """The computation of the outputs from the inputs, by `steps` in order."""

    inputs: tuple[InputColumn, ...]
    steps: tuple[Step, ...]
    outputs: tuple[TypedColumn, ...]
