"""A short way to make datasets for tests of graphs and plans."""

from collections.abc import Collection, Mapping
from typing import Any

from caraway.dtypes.types import DataType
from caraway.graph.specs import DatasetSpec, FieldSpec


def dataset(
    name: str, columns: Mapping[str, DataType], *, keys: Collection[str] = (), timestamp: str = "at", **parts: Any
) -> DatasetSpec:
    """Make a dataset of some columns; `parts` are its other parts, of which it has none by default."""
    fields = tuple(
        FieldSpec(name=column, dtype=dtype, key=column in keys, timestamp=column == timestamp)
        for column, dtype in columns.items()
    )
    given = {"version": 1, "history_us": 0, "index": None, **parts}
    return DatasetSpec(name=name, fields=fields, **given)
