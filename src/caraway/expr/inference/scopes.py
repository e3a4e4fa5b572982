"""The types of the names in an expression: of the columns and, in the body of a lambda, of the list's element."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from caraway.dtypes.types import DataType

Schema = Mapping[str, DataType]


@dataclass(frozen=True, slots=True, eq=False)
class LambdaSchema(Mapping[str, DataType]):
    """The schema of the body of a `ListMap` or `ListFilter`: the columns, and the variable of the lambda.

    As a mapping it has the columns alone, so that the variable may have the name of a column.
    """

    columns: Schema
    variable: str
    element: DataType

    def __getitem__(self, name: str) -> DataType:
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)
