"""The rows between two steps of a job."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (the name that everybody knows)

from caraway.dtypes.types import DATETIME, DataType
from caraway.graph.schemas import Schema
from caraway.spark.codec import KEY, META, OP, OWN, PACKED, PASS_THROUGH, PUT, SIDE, TIME, name
from caraway.spark.expressions import SparkScope


@dataclass(frozen=True, slots=True)
class JobRows:
    """All rows of a job before an input is taken in: meta columns and those of pass-through rows.

    Attributes:
        frame: The rows.
        leaf: Number of the input that is next (`caraway.spark.inputs`).
        copies: As in `Stream`.
    """

    frame: DataFrame
    leaf: int
    copies: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A DataFrame of meta columns (`caraway.spark.codec.META`) and rows, with what Spark doesn't know of it.

    Attributes:
        frame: The rows. The event time is only in the meta column, under no name of its own.
        keys: Names of the key columns; empty for a keyless stream.
        columns: Names and types of all columns but the time stamp.
        timestamp: Name of the time stamp column.
        revised: Whether a record may be taken back or replaced: a row that fails a filter must then be said to be
            retracted.
        passes_through: Whether rows of other sides may come along: inputs that are taken in further on, dead letters.
        leaves: How many inputs have been taken in.
        copies: How many copies there are of each marker (`caraway.spark.marking`); 0 if there are no markers.
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
        """Names and types of all columns, the time stamp last."""
        return {**self.columns, self.timestamp: DATETIME}

    @property
    def schema(self) -> Schema:
        """The schema of the rows, as the steps' own rules have it."""
        return Schema(
            keys={column: self.columns[column] for column in self.keys},
            values={column: dtype for column, dtype in self.columns.items() if column not in self.keys},
            timestamp=self.timestamp,
        )

    def scope(self) -> SparkScope:
        """Return what expressions over this stream can see."""
        return SparkScope(
            types=self.types,
            columns={**{column: name(column) for column in self.columns}, self.timestamp: name(TIME)},
        )

    def meta(self) -> list[Column]:
        """Return the meta columns, and those of pass-through rows, to be selected along."""
        return [name(column) for column in (*META, *self.pass_through)]

    @property
    def pass_through(self) -> tuple[str, ...]:
        """The columns of pass-through rows; none if there can be no such rows."""
        return PASS_THROUGH if self.passes_through else ()

    def own(self) -> Column:
        """Tell of a row whether the steps are about it."""
        return name(SIDE) == OWN if self.passes_through else F.lit(True)  # noqa: FBT003 (a value)

    def puts(self) -> Column:
        """Tell of a row whether the steps are about it, and it holds."""
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
