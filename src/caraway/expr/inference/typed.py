"""The scope of a compiler as far as it types the nodes; the polars and the plain Python compiler extend it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from caraway.dtypes.types import BOOL, FLOAT, DataType
from caraway.expr.inference.checks import infer_nullable, operand_type
from caraway.expr.inference.containers import element_type
from caraway.expr.inference.scopes import LambdaSchema
from caraway.expr.nodes import Binary, BinaryOp, Node


@dataclass(frozen=True, slots=True)
class TypedScope:
    """The types of the names in an expression, and of the nodes that were typed already."""

    schema: Mapping[str, DataType]
    # The inferred types by `id` of the node; the expression keeps its nodes alive, so that no `id` is used twice.
    # Without this cache the nodes of a deep expression would be typed again for each node above them.
    types: dict[int, DataType | None] = field(default_factory=dict, kw_only=True)

    def type_of(self, node: Node) -> DataType | None:
        """Return the type of a node; None for the null literal."""
        key = id(node)
        if key not in self.types:
            self.types[key] = infer_nullable(node, self.schema)
        return self.types[key]

    def base_of(self, node: Node, of_null: DataType) -> DataType:
        """Return the type as which an operation takes a node (`operand_type`); `of_null` for the null literal."""
        found = self.type_of(node)
        return of_null if found is None else operand_type(found)

    def common_base(self, node: Binary) -> DataType:
        """Return the type to which both operands of an operator are converted."""
        if node.op is BinaryOp.DIV:
            return FLOAT
        bases = [self.base_of(side, BOOL) for side in (node.left, node.right) if self.type_of(side) is not None]
        return FLOAT if FLOAT in bases else bases[0] if bases else BOOL

    def element_of(self, node: Node, operand: Node) -> DataType:
        """Return the type as which an operation takes the elements of a list, which is an operand of `node`."""
        return operand_type(element_type(node, self.type_of(operand)))

    def in_lambda(self, variable: str, element: DataType) -> Self:
        """Return the scope of the body of a lambda."""
        return replace(self, schema=LambdaSchema(self.schema, variable, element), types={})
