"""The rows between two steps of a job."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame

from caraway.dtypes.types import DATETIME, DataType
from caraway.spark.codec import META, PASSENGER, TIME, name
from caraway.spark.expressions import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A DataFrame of meta columns (`caraway.spark.codec.META`) and rows, with what Spark doesn't know of it.

    Attributes:
        frame: The rows. The event time is only in the meta column, under no name of its own.
        keys: Names of the key columns; empty for a keyless stream.
        columns: Names and types of all columns but the time stamp.
        timestamp: Name of the time stamp column.
        revised: Whether a record may be taken back or replaced: a row that fails a filter must then be said to be void.
        passengers: Whether rows of other sides come along, for the joins ahead (`caraway.spark.inputs`).
        joined: How many joins lie behind.
    """

    frame: DataFrame
    keys: tuple[str, ...]
    columns: Mapping[str, DataType]
    timestamp: str
    revised: bool
    passengers: bool = False
    joined: int = 0

    def scope(self) -> Scope:
        """Return what expressions over this stream can see."""
        return Scope(
            types={**self.columns, self.timestamp: DATETIME},
            columns={**{column: name(column) for column in self.columns}, self.timestamp: name(TIME)},
        )

    def meta(self) -> list[Column]:
        """Return the meta columns, and those of passengers, to be selected along."""
        return [name(column) for column in (*META, *(PASSENGER if self.passengers else ()))]
