"""Pieces of columns, the rows that Spark shuffles.

A row of Spark has many rows of a query or records of a topic, as one value of bytes. So Spark does its work, dividing,
sorting and spilling to disk, once for some thousands of rows, and the columns stay columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from caraway.graph.plan.model import Column
from caraway.offline.history.groups import key_parts

Ints = npt.NDArray[np.int64]

# The kinds of pieces. A task needs the records of a division before its rows, so their number is smaller.
RECORDS, ROWS = 0, 1
SCHEMA = "division int, kind int, topic string, content binary"
_ARROW = pa.schema([("division", pa.int32()), ("kind", pa.int32()), ("topic", pa.string()), ("content", pa.binary())])
# A piece has at most this many rows.
PIECE_ROWS = 50_000
# The seed of hashes of keys is fixed, since the hashes must be the same in all tasks of a query.
_SEED = 20_260_101
_DIVISION = "piece division"


@dataclass(frozen=True, slots=True)
class Piece:
    """Columns of one division: records of a topic, or rows of a query."""

    division: int
    kind: int
    topic: str
    frame: pl.DataFrame


def encoded(frame: pl.DataFrame) -> bytes:
    """Return columns as bytes."""
    sink = BytesIO()
    frame.write_ipc(sink, compression="lz4")
    return sink.getvalue()


def decoded(content: bytes) -> pl.DataFrame:
    """Return the columns of some bytes that `encoded` made."""
    return pl.read_ipc(BytesIO(content))


def as_batch(piece: Piece) -> pa.RecordBatch:
    """Return a piece as a row of Spark."""
    row = {
        "division": [piece.division],
        "kind": [piece.kind],
        "topic": [piece.topic],
        "content": [encoded(piece.frame)],
    }
    return pa.RecordBatch.from_pydict(row, schema=_ARROW)


def of_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[Piece]:
    """Yield the pieces of rows of Spark, each decoded when it is reached."""
    for batch in batches:
        for row in batch.to_pylist():
            yield Piece(row["division"], row["kind"], row["topic"], decoded(row["content"]))


def divisions_of(keys: tuple[Column, ...], columns: list[pl.Series], count: int) -> Ints:
    """Return the division of each key, from 0 on; equal keys are in one division."""
    if not keys:
        return np.zeros(len(columns[0]) if columns else 0, np.int64)
    return (key_parts(keys, columns).hash_rows(_SEED) % count).cast(pl.Int64).to_numpy()


def in_order(keys: tuple[Column, ...], columns: list[pl.Series], times: pl.Series) -> pl.Series:
    """Return the places of rows in an order in which those of one key follow each other, by time."""
    return pl.DataFrame([key_parts(keys, columns).hash_rows(_SEED).alias(_DIVISION), times]).select(
        pl.arg_sort_by(_DIVISION, times.name)
    )[_DIVISION]


def divided(frame: pl.DataFrame, divisions: Ints, kind: int, topic: str = "") -> Iterator[Piece]:
    """Yield the rows of each division, some at a time, so that a task needs little memory for a piece."""
    marked = frame.with_columns(pl.Series(_DIVISION, divisions))
    for (division,), some in marked.partition_by(
        _DIVISION, include_key=False, as_dict=True, maintain_order=True
    ).items():
        for piece in some.iter_slices(PIECE_ROWS):
            yield Piece(int(division), kind, topic, piece)
