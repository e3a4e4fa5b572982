"""The names that an expression may refer to: columns and, in the body of a lambda, the element of the list."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from caraway.dtypes.types import DataType

Schema = Mapping[str, DataType]


@dataclass(frozen=True, slots=True, eq=False)
class LambdaSchema(Mapping[str, DataType]):
    """The columns and, beside them, one variable, which may have the name of a column."""

    columns: Schema
    variable: str
    element: DataType

    def __getitem__(self, name: str) -> DataType:
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)


def within(schema: Schema, variable: str, element: DataType) -> LambdaSchema:
    """Return the schema in which the body of a `ListMap` or the predicate of a `ListFilter` is typed.

    Args:
        schema: The columns outside.
        variable: Name of the element.
        element: Its type.
    """
    return LambdaSchema(schema, variable, element)
