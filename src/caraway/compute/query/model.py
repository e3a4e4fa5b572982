"""The physical plan of a query, which is a list of steps over named columns, as plain data.

A column is the list of a feature's values, one for each row, in stored form (docs/inside/records.md). The name of a
column is the full name of its feature (`Set.feature`). A step reads columns that exist already and adds its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from caraway.dtypes.types import DataType
from caraway.expr.nodes import Node
from caraway.graph.specs import IndexSpec

# One instant for all rows, or one for each, in microseconds.
Instants = int | Sequence[int]
# The rows of a read: for each column the values in stored form, and for each key whether it was found.
Rows = tuple[list[list[object]], list[bool]]

SourceT_contra = TypeVar("SourceT_contra", contravariant=True)
KeyT_contra = TypeVar("KeyT_contra", contravariant=True)


class Reader(Protocol[SourceT_contra, KeyT_contra]):
    """A source of rows by key.

    Queries read a dataset by its name, with tuples of values as keys, from the index of a server or from the in-process
    engine of a test. The index of a server is itself a `Reader`, of plans instead of names, and with Kafka keys.
    """

    asks_others: bool = False
    """True if a read may have to ask other servers, so that a caller on the event loop should await it."""

    def read(
        self, source: SourceT_contra, keys: Sequence[KeyT_contra], at_us: Instants, columns: Sequence[str], /
    ) -> Rows:
        """Read the rows of `keys` as of `at_us`.

        Args:
            source: The dataset or the index.
            keys: The values of the dataset's keys in declared order, in stored form, none of them null; or as bytes.
            at_us: The time of each key, or one for all, in microseconds.
            columns: The names of fields. Key fields have the values of `keys`; the time stamp is that of the row found.

        Returns:
            The rows. Values of a key that wasn't found are null, or the defaults of aggregates.
        """
        ...

    async def read_async(
        self, source: SourceT_contra, keys: Sequence[KeyT_contra], at_us: Instants, columns: Sequence[str], /
    ) -> Rows:
        """Read without blocking the event loop; see `read`."""
        return self.read(source, keys, at_us, columns)


# The reader that queries use: `source` is the name of a dataset, and a key is the tuple of its values.
QueryReader = Reader[str, tuple[object, ...]]


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
