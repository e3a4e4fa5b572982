"""The rows between two steps of a job."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from caraway.dataplane.streams.spark.codec import KEY, META, OP, OWN, PACKED, PASS_THROUGH, PUT, SIDE, TIME, name
from caraway.dataplane.streams.spark.expressions import SparkScope
from caraway.dtypes.types import DATETIME, DataType
from caraway.graph.schemas import Schema


@dataclass(frozen=True, slots=True)
class JobRows:
    """All rows of a job before the next input is read from them, with meta columns and columns of pass-through rows.

    Attributes:
        frame: The rows.
        leaf: The number of the next input (`caraway.dataplane.streams.spark.inputs`).
        copies: As in `Stream`.
    """

    frame: DataFrame
    leaf: int
    copies: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A DataFrame of meta columns (`streams.spark.codec.META`) and rows, with facts that Spark doesn't know.

    Attributes:
        frame: The rows. The event time is only in its meta column, not in a column of the row.
        keys: The names of the key columns; empty for a keyless stream.
        columns: The names and types of all columns but the time stamp.
        timestamp: The name of the time stamp column.
        revised: True if records may be retracted or replaced. A filter then sends a retraction for a row that it drops.
        passes_through: True if there may be pass-through rows, which are those of later inputs, dead letters and
            markers.
        leaves: The number of inputs that have been read.
        copies: The number of copies of each marker (`caraway.dataplane.streams.spark.marking`); 0 if there are no
            markers.
    """

    frame: DataFrame
    keys: tuple[str, ...]
    columns: Mapping[str, DataType]
    timestamp: str
    revised: bool
    passes_through: bool = False
    leaves: int = 1
    copies: int = 0

    @property
    def types(self) -> Mapping[str, DataType]:
        """Return the names and types of all columns, the time stamp last."""
        return {**self.columns, self.timestamp: DATETIME}

    @property
    def schema(self) -> Schema:
        """Return the schema of the rows."""
        return Schema(
            keys={column: self.columns[column] for column in self.keys},
            values={column: dtype for column, dtype in self.columns.items() if column not in self.keys},
            timestamp=self.timestamp,
        )

    def scope(self) -> SparkScope:
        """Return the scope of expressions over this stream."""
        return SparkScope(
            types=self.types,
            columns={**{column: name(column) for column in self.columns}, self.timestamp: name(TIME)},
        )

    def meta(self) -> list[Column]:
        """Return the meta columns and those of pass-through rows, which every selection keeps."""
        return [name(column) for column in (*META, *self.pass_through)]

    @property
    def pass_through(self) -> tuple[str, ...]:
        """Return the names of the columns of pass-through rows; none if there can be no such rows."""
        return PASS_THROUGH if self.passes_through else ()

    def own(self) -> Column:
        """Return the condition that a row isn't a pass-through row."""
        return name(SIDE) == OWN if self.passes_through else F.lit(True)

    def puts(self) -> Column:
        """Return the condition that a row is a put, and not a pass-through row."""
        return self.own() & (name(OP) == PUT)

    def with_pass_through(self) -> "Stream":
        """Return the stream with its pass-through columns."""
        if self.passes_through:
            return self
        nobody = [
            F.lit(OWN).alias(SIDE),
            F.lit(None).cast("binary").alias(KEY),
            F.lit(None).cast("binary").alias(PACKED),
        ]
        return replace(self, frame=self.frame.select("*", *nobody), passes_through=True)
