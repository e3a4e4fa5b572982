"""The scope of an expression, and the widening of values, which all handlers of nodes use."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import singledispatch

from pyspark.sql import Column
from pyspark.sql import functions as F

from caraway.dataplane.streams.spark.types import spark_type
from caraway.dtypes.types import DataType, FloatType, MapType, OptionalType, StructType, base_type
from caraway.expr.inference import LambdaSchema, infer_nullable, operand_type
from caraway.expr.nodes import Node


@dataclass(frozen=True, slots=True)
class SparkScope:
    """The types and columns that the names in an expression stand for.

    Attributes:
        types: Types of the columns (`caraway.expr.inference.LambdaSchema` in the body of a lambda).
        columns: The columns.
        element: In the body of a lambda, the element of the list.
    """

    types: Mapping[str, DataType]
    columns: Mapping[str, Column]
    element: Column | None = None
    # The inferred type of each node, by Python's `id` of the node. The node is stored beside its type, so that no other
    # object gets its id. Without this cache the type of a deep expression would be inferred again for each of its
    # parents.
    inferred: dict[int, tuple[Node, DataType | None]] = field(default_factory=dict)

    def type_of(self, node: Node) -> DataType | None:
        """Return the type of a node; None for the null literal."""
        key = id(node)
        if key not in self.inferred:
            self.inferred[key] = node, infer_nullable(node, self.types)
        return self.inferred[key][1]

    def body(self, variable: str, dtype: DataType, element: Column) -> "SparkScope":
        """Return the scope of a lambda's body, where `variable` stands for `element`."""
        return SparkScope(types=LambdaSchema(self.types, variable, dtype), columns=self.columns, element=element)


@singledispatch
def compile_node(node: object, scope: SparkScope) -> Column:
    """Compile an expression, which has been type-checked, to a column over the columns of `scope`.

    The column is null where polars fails (at a text that can't be parsed, or a negative count); `failures` compiles the
    condition for that.

    Raises:
        DefinitionError: The expression has no meaning in a pipeline.
    """
    raise TypeError(f"no Spark column for {type(node).__name__} ({len(scope.columns)} columns in scope)")


def compile_as(node: Node, dtype: DataType, scope: SparkScope) -> Column:
    """Compile `node` and widen its value to `dtype` (an int to a float, a bare null to anything)."""
    return widened(compile_node(node, scope), scope.type_of(node), dtype)


def widened(column: Column, source: DataType | None, target: DataType) -> Column:
    """Widen a column of type `source` to `target`, to which it promotes; structs are matched by the names of fields."""
    if source is None:
        return column.cast(spark_type(target))
    found, wanted = base_type(source), base_type(target)
    if isinstance(found, StructType) and isinstance(wanted, StructType) and found.fields != wanted.fields:
        types = dict(found.fields)
        fields = [widened(column.getField(name), types[name], dtype).alias(name) for name, dtype in wanted.fields]
        return F.when(column.isNotNull(), F.struct(*fields))
    return column if spark_type(found) == spark_type(wanted) else column.cast(spark_type(wanted))


def kind(node: Node, scope: SparkScope) -> type | None:
    """Return the class of a node's type without optionality and restriction, None for a bare null."""
    dtype = scope.type_of(node)
    return None if dtype is None else type(operand_type(dtype))


def is_float(node: Node, scope: SparkScope) -> bool:
    """Return whether a node is of type float."""
    return kind(node, scope) is FloatType


def let(value: Column, body: Callable[[Column], Column]) -> Column:
    """Bind a value that `body` uses several times, so that it is computed once and stands in the plan once."""
    return F.transform(F.array(value), body).getItem(0)


def divided(number: Column, by: int | Column) -> Column:
    """Divide ints, truncating toward zero; null for a zero divisor."""
    return F.call_function("div", number, F.lit(by).cast("long") if isinstance(by, int) else by)


def has_map(dtype: DataType) -> bool:
    """Return whether values of a type contain maps, which Spark can't compare."""
    match base_type(dtype):
        case MapType():
            return True
        case StructType(_, fields):
            return any(has_map(of) for _, of in fields)
        case other:
            of = getattr(other, "of", None)
            return of is not None and has_map(of)


def comparable(column: Column, dtype: DataType) -> Column:
    """Return a column by which Spark can compare values: maps become lists of entries in the order of their keys."""
    base = operand_type(dtype)
    if not has_map(base):
        return column
    match base:
        case MapType(of):
            entries = F.transform(
                F.map_entries(column),
                lambda entry: F.struct(
                    entry.getField("key").alias("key"), comparable(entry.getField("value"), of).alias("value")
                ),
            )
            return F.array_sort(entries)
        case StructType(_, fields):
            parts = [comparable(column.getField(name), of).alias(name) for name, of in fields]
            return F.when(column.isNotNull(), F.struct(*parts))
        case _:
            inner = base.of if not isinstance(base, OptionalType) else base  # type: ignore[union-attr]
            return F.transform(column, lambda item: comparable(item, inner))
