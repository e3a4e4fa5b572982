"""The scope of an expression and the dispatch over nodes, which the modules of the scalar compiler share.

Each class of nodes has a handler in the module of its namespace. It returns a function from a row, which is a dict of
stored values by name of column, to a stored value. The function evaluates all operands, even if one can't affect the
result. polars does so too, so that both fail for the same rows if an operation refuses a value.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from caraway.dtypes.types import FLOAT, INT, DataType, StructType, base_type
from caraway.expr.inference import TypedScope
from caraway.expr.nodes import Node
from caraway.expr.promotion import representation

# A row is mutable, because a list function stores the current element in the row before it evaluates its lambda's body.
Row = dict[str, Any]
Scalar = Callable[[Row], Any]

# The keys of the query's instant and of the current element of a list in a row. Names of columns are identifiers, so
# none is equal to these.
NOW = "__caraway now"
ELEMENT = "__caraway element"


class NoScalarFormError(Exception):
    """The error that ends the compilation of an expression that only polars can evaluate; users never see it."""


@dataclass(frozen=True, slots=True)
class ScalarScope(TypedScope):
    """The scope of an expression."""

    def operand(self, node: Node, base: DataType) -> Scalar:
        """Compile a node as an operand of type `base`: null takes any type, an int becomes a float."""
        return widened(compile_node(node, self), self.type_of(node), base)


@singledispatch
def compile_node(node: Node, scope: ScalarScope) -> Scalar:  # noqa: ARG001 (handlers take it)
    """Compile an expression that is well-typed in its scope, or raise `NoScalarFormError`."""
    raise NoScalarFormError(type(node).__name__)


Convert = Callable[[Any], Any]


def widened(scalar: Scalar, source: DataType | None, target: DataType) -> Scalar:
    """Convert a function whose values have type `source` (None: the null literal) to `target`, to which it promotes."""
    convert = promotion(source, target)
    if convert is None:
        return scalar
    if convert is float:

        def to_float(row: Row) -> Any:
            value = scalar(row)
            return None if value is None else float(value)

        return to_float

    def converted(row: Row) -> Any:
        value = scalar(row)
        return None if value is None else convert(value)

    return converted


def promotion(source: DataType | None, target: DataType) -> Convert | None:
    """Return the function that converts a value of type `source` to `target`; None if their values are alike.

    An int becomes a float, and a struct has the fields of the target in its order.
    """
    if source is None or representation(source) == representation(target):
        return None
    base, into = base_type(source), base_type(target)
    if base == INT and into == FLOAT:
        return float
    if not isinstance(base, StructType) or not isinstance(into, StructType):
        raise NoScalarFormError(f"from {base} to {into}")
    positions = {name: position for position, (name, _) in enumerate(base.fields)}
    types = dict(base.fields)
    fields = [(positions[name], promotion(types[name], to)) for name, to in into.fields]

    def of_struct(value: list[Any]) -> list[Any]:
        return [
            item if convert is None or item is None else convert(item)
            for item, convert in ((value[position], convert) for position, convert in fields)
        ]

    return of_struct
