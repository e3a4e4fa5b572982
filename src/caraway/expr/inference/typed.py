"""The part of a compiler's scope that knows types; each compiler extends it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from caraway.dtypes.types import DataType
from caraway.expr.inference.checks import infer_nullable, operand_type
from caraway.expr.inference.scopes import within
from caraway.expr.nodes import Node


@dataclass(frozen=True, slots=True)
class TypedScope:
    """The names that an expression may refer to, with types: columns and, in a lambda, the element."""

    schema: Mapping[str, DataType]
    # The cache of types by `id` of the node, which the expression keeps alive; without it the nodes of a deep
    # expression would be typed over and over.
    types: dict[int, DataType | None] = field(default_factory=dict, kw_only=True)

    def type_of(self, node: Node) -> DataType | None:
        """Return the type of a node; None for the null literal."""
        key = id(node)
        if key not in self.types:
            self.types[key] = infer_nullable(node, self.schema)
        return self.types[key]

    def base_of(self, node: Node, of_null: DataType) -> DataType:
        """Return the type with which a node takes part in an operation; `of_null` for the null literal."""
        found = self.type_of(node)
        return of_null if found is None else operand_type(found)

    def in_lambda(self, variable: str, element: DataType) -> Self:
        """Return the scope of the body of a lambda."""
        return replace(self, schema=within(self.schema, variable, element), types={})
